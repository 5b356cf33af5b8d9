#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every file and identifier that the given pages name exists in the code.

    check_names.py SOURCE_DIRECTORY PAGE.md ...

Reads `code spans` and preformatted lines. A file may be named by the end of its path, and with * for any
name. Where a table has the columns file and function, the file has the function.
"""
import fnmatch
import os
import re
import sys

FILE = re.compile(r"[\w.*/-]*\w\.(?:cc|c|h|hpp|md|mjs|pbtxt|proto|py|sh)\b(?![\w/])")
# The identifiers are CamelCase, Scope::Name or snake_case.
IDENTIFIER = re.compile(
    r"\b(?:[A-Z][a-z0-9]+(?:[A-Z]+[a-z0-9]*)+|\w+(?:::\w+)+|[a-z]+[a-z0-9]*(?:_[a-z0-9]+)+)\b")
CODE = (".cc", ".c", ".h", ".hpp", ".mjs", ".proto", ".py", ".sh", ".pbtxt", "CMakeLists.txt")
FOLDERS = ("bench", "cli", "docs", "examples", "plugins", "proto", "runtime", "tests", "tools")


class Tree:
    def __init__(self, root):
        self.files, self.words, self.system_headers = [], {}, set()
        for folder in FOLDERS:
            for directory, _, names in os.walk(os.path.join(root, folder)):
                for name in names:
                    path = os.path.join(directory, name)
                    self.files.append("/" + os.path.relpath(path, root))
                    if name.endswith(CODE) and name != os.path.basename(__file__):
                        with open(path, encoding="utf-8", errors="replace") as file:
                            text = file.read()
                        self.words[self.files[-1]] = set(re.findall(r"\w+", text))
                        self.system_headers.update(re.findall(r"#include <(.+)>", text))

    def find(self, name):
        end = name if name.startswith(".") else "/" + name
        return [file for file in self.files if fnmatch.fnmatchcase(file, "*" + end)]

    def has(self, identifier, files=None):
        """True if a file has all parts of the identifier."""
        parts = set(identifier.split("::"))
        return any(parts <= self.words.get(file, set()) for file in files or self.words)


def code_of(text):
    """Yields (line number, code) for each code span and preformatted line."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield number, line
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield number, span


def rows_of(text):
    """Yields (line number, file cell, function cell) for each row of a table with these columns."""
    columns = None
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = None
        elif columns is None:
            columns = cells
        elif "file" in columns and "function" in columns and not cells[0].startswith("-"):
            row = dict(zip(columns, cells))
            yield number, row["file"], row["function"]


def errors_of(tree, text):
    for number, code in code_of(text):
        for file in FILE.findall(code):
            if file not in tree.system_headers and not tree.find(file):
                yield f"{number}: no such file: {file}"
        for identifier in IDENTIFIER.findall(FILE.sub(" ", code)):
            if not tree.has(identifier):
                yield f"{number}: not in the code: {identifier}"
    for number, file, functions in rows_of(text):
        for function in re.findall(r"[\w:]+", functions):
            if not tree.has(function.rpartition("::")[2], tree.find(file.strip("`"))):
                yield f"{number}: {file} has no {function}"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tree, errors = Tree(sys.argv[1]), []
    for page in sys.argv[2:]:
        with open(os.path.join(sys.argv[1], page), encoding="utf-8") as file:
            errors += [f"{page}:{error}" for error in errors_of(tree, file.read())]
    wrong = "`NoSuchClass::Run` of `base/no_such_file.cc`"
    if len(list(errors_of(tree, wrong))) != 2:
        errors.append("this test does not find what is wrong")
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
