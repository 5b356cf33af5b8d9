# SPDX-License-Identifier: Apache-2.0
"""Reads Markdown for the tests of this folder: blocks of code, links, headings. The scripts in this
folder import it. Uses only the standard library."""
import os
import re

# A comment on a line of its own before a block is a directive for it.
DIRECTIVE = re.compile(r"^ *<!-- (not run|run by|output varies|file|page run by): (.*?) -->$")
FENCE = re.compile(r"^( *)(```+)\s*(\S*)\s*$")
# Pattern of lines that somebody would type. Every block that starts so must be run or say why not.
COMMAND = re.compile(
    r"^(\$ |plumb |(?:\./)?(?:tools|tests|examples|bench|build)/\S|(?:cmake|ctest|make|git|cd|export|python3?|cc|"
    r"sudo|apt|apt-get|sed|printf|cat|grep|gemm_benchmark|qemu-\S+) ?)")


class Block:
    """A block of code: `language` of its fence ("" for an indented one), `lines`, the number of its
    first `line`, and its directives `said`: {directive: text}."""

    def __init__(self, language, line, said):
        self.language, self.line, self.said, self.lines = language, line, said, []

    def text(self):
        return "\n".join(self.lines) + "\n"

    def has_commands(self):
        return any(COMMAND.match(line) for line in self.lines)

    def first(self):
        return next((line.strip() for line in self.lines if line.strip()), "")


class Page:
    """A file's `blocks`, its `prose` (all other lines, with code in backquotes blanked out) and
    `said`, the directives of the whole page."""

    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        self.blocks, self.prose, self.said = [], [], {}
        said, fence, block = {}, None, None
        in_list, blank = False, True
        for number, line in enumerate(lines, 1):
            mark = FENCE.match(line)
            if fence is not None:
                if mark and mark[2].startswith(fence[2]) and not mark[3]:
                    fence = block = None
                else:
                    indent = len(fence[1])
                    block.lines.append(line[indent:] if line[:indent].isspace() or not indent else line)
                continue
            if mark:
                fence, block = mark, Block(mark[3] or "unnamed", number, said)
                self.blocks.append(block)
                said = {}
                continue
            if re.match(r"^    \S", line) and (block is not None or (blank and not in_list)):
                if block is None:
                    block = Block("", number, said)
                    self.blocks.append(block)
                    said = {}
                block.lines.append(line[4:])
                blank = False
                continue
            if block is not None:
                # An indented block continues over blank lines and deeper indentation.
                if not line.strip() or line.startswith("    "):
                    block.lines.append(line[4:])
                    blank = not line.strip()
                    continue
                while block.lines and not block.lines[-1].strip():
                    block.lines.pop()
                block = None
            directive = DIRECTIVE.match(line)
            if directive:
                (self.said if directive[1] == "page run by" else said)[directive[1]] = directive[2]
                continue
            if line.strip():
                said = {}
                in_list = bool(re.match(r"^\s*([-*+]|\d+\.) ", line)) or (in_list and line[0] == " ")
                self.prose.append((number, re.sub(r"`[^`]*`", "``", line)))
            blank = not line.strip()
        for block in self.blocks:
            while block.lines and not block.lines[-1].strip():
                block.lines.pop()

    def headings(self):
        """Returns the anchors that a browser finds in this page."""
        found, count = set(), {}
        with open(self.path, encoding="utf-8") as file:
            fenced = False
            for line in file:
                if FENCE.match(line.rstrip("\n")):
                    fenced = not fenced
                heading = re.match(r"^#+ +(.*?)\s*#*$", line)
                for anchor in re.findall(r'<a (?:name|id)="([^"]+)"', line):
                    found.add(anchor)
                if fenced or not heading:
                    continue
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").lower()
                slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
                number = count.get(slug, 0)
                count[slug] = number + 1
                found.add(slug if number == 0 else f"{slug}-{number}")
        return found

    def links(self):
        """Yields (line, target) of every link and image in the prose."""
        for number, text in self.prose:
            for target in re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text):
                yield number, target
            for target in re.findall(r'(?:src|srcset|href)="([^"]+)"', text):
                yield number, target


def markdown_files(root):
    """Yields every page of the tree, except those in build directories and fetched sources."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders
                            if name not in ("build", "node_modules") and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.join(folder, name)
