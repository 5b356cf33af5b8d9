# SPDX-License-Identifier: Apache-2.0
"""Runs the cells of the notebooks in a directory, in order, each notebook in a process of its own, and evaluates their
results as Jupyter displays them: notebooks_test.py DIRECTORY. With --code it prints the code of a notebook instead."""
from __future__ import annotations

import ast
import glob
import json
import os
import subprocess
import sys
from typing import Any


def cells(path: str) -> list[str]:
    """Returns the code of each cell."""
    with open(path, encoding="utf-8") as file:
        return ["".join(cell["source"]) for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]


def display(value: object) -> None:
    for name in ("_repr_svg_", "_repr_html_"):
        if hasattr(value, name):
            text = getattr(value, name)()
            assert any(tag in text for tag in ("<svg", "<img", "<table")), text[:200]
            print(f"{name}: {len(text)} characters")
            return
    if value is not None:
        print(repr(value)[:500])


def run(path: str) -> None:
    os.chdir(os.path.dirname(os.path.abspath(path)))
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in cells(path):
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path, "exec"), names)
        if last is not None:
            display(eval(compile(ast.Expression(last.value), path, "eval"), names))


def main() -> None:
    if sys.argv[1] == "--code":
        print("\n\n".join(cells(sys.argv[2])))
    elif sys.argv[1].endswith(".ipynb"):
        run(sys.argv[1])
    else:
        paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.ipynb")))
        assert paths, "no notebooks"
        for path in paths:
            print(f"== {os.path.basename(path)}", flush=True)
            subprocess.run([sys.executable, "-B", __file__, os.path.abspath(path)], check=True)
        print(f"{len(paths)} notebooks run")


if __name__ == "__main__":
    main()
