#!/usr/bin/env python3
"""Puts measured tables into a page: what stands between "<!-- NAME -->" and "<!-- end -->" becomes
the content of DIRECTORY/NAME.md, if there is such a file. Text that is no markdown table is indented
to stand as it is.

    fill_page.py DIRECTORY PAGE.md
"""
import os
import re
import sys


def as_markdown(text):
    lines = text.strip("\n").split("\n")
    if any(line.startswith("|") for line in lines):
        return "\n".join(lines)
    return "\n".join("    " + line if line else "" for line in lines)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    directory, page = sys.argv[1:]
    text = open(page).read()

    def fill(match):
        path = os.path.join(directory, match[1] + ".md")
        if not os.path.exists(path):
            return match[0]
        return f"<!-- {match[1]} -->\n\n{as_markdown(open(path).read())}\n\n<!-- end -->"

    text = re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)
    with open(page, "w") as out:
        out.write(text)


if __name__ == "__main__":
    main()
