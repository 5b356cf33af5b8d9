#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that code on a page marked <!-- run by: docs_excerpts --> is part of an example: the lines
of a block are consecutive in one file of examples/embed_*, and other tests run that file.

    excerpts_test.py SOURCE_DIRECTORY
"""
import glob
import os
import sys
import textwrap

import pages


def stands_in(lines, text):
    """Returns True if the lines, without their common indentation, are consecutive lines of the
    text."""
    def same(at):
        found = [text[at + i] if at + i < len(text) else "" for i in range(len(lines))]
        if len(lines) == 1:  # a command in a comment counts, too
            return lines[0].strip() in found[0]
        return textwrap.dedent("\n".join(found)) == "\n".join(lines)

    return any(same(at) for at in range(len(text)))


def main():
    root = os.path.realpath(sys.argv[1])
    files = {}
    for path in sorted(glob.glob(os.path.join(root, "examples", "embed_*", "**"), recursive=True)):
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            files[path] = file.read().splitlines()
    assert not stands_in(["int main(void) {", "  return 1;"], ["int main(void) {", "  return 0;"])
    assert not stands_in(["a", "b"], ["a", "", "b"]) and stands_in(["a", "  b"], ["x", "  a", "    b"])
    blocks, wrong = 0, []
    for path in pages.markdown_files(root):
        for block in pages.Page(path).blocks:
            if block.said.get("run by") != "docs_excerpts":
                continue
            blocks += 1
            lines = textwrap.dedent("\n".join(block.lines)).splitlines()
            if not any(stands_in(lines, text) for text in files.values()):
                wrong.append(f"{os.path.relpath(path, root)}:{block.line}: in no file of examples/embed_*:\n{block.text()}")
    print(f"{blocks} blocks")
    if wrong or not blocks:
        sys.exit("\n".join(wrong) or "no page has an excerpt")


if __name__ == "__main__":
    main()
