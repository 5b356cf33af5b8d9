# SPDX-License-Identifier: Apache-2.0
"""Runs the Python on a page as it stands: the blocks that are marked <!-- run by: python_page -->, in order, in one
process and a temporary directory that has the tree's examples. A block that imports a package that is not installed is
skipped, and printed: page_test.py SOURCE_DIRECTORY PAGE"""
from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

OPTIONAL = ("matplotlib", "numpy", "pandas", "tensorboardX", "wandb")


def missing_package(error: ImportError) -> str:
    """Returns the package that is not installed; raises any other error."""
    name = getattr(error.__cause__ or error, "name", None) or ""
    if name.partition(".")[0] not in OPTIONAL:
        raise error
    return name.partition(".")[0]


def main() -> None:
    source, page = (os.path.abspath(argument) for argument in sys.argv[1:])
    sys.path.insert(0, os.path.join(source, "tests", "docs"))
    import pages
    blocks = [block for block in pages.Page(page).blocks if block.language == "python"]
    assert blocks, f"{page} has no Python"
    os.environ.update(MPLBACKEND="Agg", WANDB_MODE="offline", WANDB_SILENT="true")
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(os.path.join(source, "examples"), os.path.join(directory, "examples"))
        os.chdir(directory)
        for block in blocks:
            assert block.said.get("run by") == "python_page", f"{page}:{block.line}: is not marked"
            print(f"== line {block.line}: {block.first()}", flush=True)
            # Line numbers of tracebacks are those of the page.
            code = "\n" * block.line + block.text()
            try:
                exec(compile(code, page, "exec"), names)
            except ImportError as error:
                print(f"skipped: {missing_package(error)} is not installed", flush=True)
        os.chdir(source)
    print(f"{len(blocks)} blocks")


if __name__ == "__main__":
    main()
