#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every relative link, image and anchor of every page in a tree has a target in it: in
the source tree, or in the directory of the installed pages.

    check_links.py DIRECTORY
"""
import os
import sys

import pages


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = os.path.realpath(sys.argv[1])
    links, broken, anchors = 0, [], {}
    for path in pages.markdown_files(root):
        page = pages.Page(path)
        for line, target in page.links():
            if target.startswith(("http://", "https://", "mailto:")):
                continue
            links += 1
            file, _, anchor = target.partition("#")
            goal = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            where = f"{os.path.relpath(path, root)}:{line}: {target}"
            if not os.path.exists(goal):
                broken.append(f"{where}: no such file")
            elif not (goal + os.sep).startswith(root + os.sep):
                broken.append(f"{where}: outside of the tree")
            elif anchor and goal.endswith(".md"):
                if goal not in anchors:
                    anchors[goal] = pages.Page(goal).headings()
                if anchor not in anchors[goal]:
                    broken.append(f"{where}: no such heading")
    if not links:
        sys.exit(f"{root}: has no page with a link")
    print(f"{links} relative links")
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
