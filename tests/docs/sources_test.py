#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every shipped placement names its sources, and that the pages agree with the files.

    sources_test.py SOURCE_DIRECTORY            fails where a file or a page is wrong
    sources_test.py --update SOURCE_DIRECTORY   writes the table of docs/papers.md

A source is a paper or code at a commit, and was compared in a month or has a note with the basis of the formulas. In
docs/placements.md a row or an item about a placement cites no paper that its file, or one that it extends, does not have.
"""
import glob
import os
import re
import sys

STRING = r'"(?:[^"\n]*)"'
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


class Placement:
    """Name, base and sources of a file. A source is a dictionary of its fields."""

    def __init__(self, text):
        self.comments = re.findall(r"^ *#.*", text, re.M)
        self.name = re.search(rf"name: ({STRING})", text)[1].strip('"')
        base = re.search(rf"^  extends: ({STRING})", text, re.M)
        self.base = base[1].strip('"') if base else None
        self.sources = []
        for block in re.findall(r"^  source \{\n(.*?)^  \}", text, re.M | re.S):
            fields = re.findall(rf"(\w+): ({STRING}(?:\s+{STRING})*)", block)
            self.sources.append({name: re.sub(r'"\s+"', "", value).strip('"') for name, value in fields})

    def errors(self):
        """Yields what is wrong with the file."""
        if not self.sources:
            yield "has no source"
        if any(ARXIV.search(comment) for comment in self.comments):
            yield "cites a paper in a comment; a source has fields for it"
        for source in self.sources:
            if not source.get("paper") and not source.get("code"):
                yield "has a source that is neither a paper nor code"
            if "code" in source and not re.fullmatch(r"[\w.-]+/[\w.-]+/\S+@[0-9a-f]{7,40}", source["code"]):
                yield f"cites code without owner, repository, file and commit: {source['code']}"
            if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", source.get("compared", "2000-01")):
                yield f"was compared in {source['compared']}; write the year and the month, 2026-11"
            if "compared" not in source and "note" not in source:
                yield "has a source that was not compared, without a note that has the basis"

    def papers(self, placements):
        """Returns the arXiv numbers of the file and of those that it extends."""
        own = {number for source in self.sources for number in ARXIV.findall(source.get("paper", ""))}
        return own | (placements[self.base].papers(placements) if self.base else set())


def link(code):
    owner, name, path, commit = re.fullmatch(r"([^/]+)/([^/]+)/(.+)@(\w+)", code).groups()
    return f"[{os.path.basename(path)}](https://github.com/{owner}/{name}/blob/{commit}/{path})"


def table(placements):
    lines = ["| placement | source | compared |", "|---|---|---|"]
    for placement in placements.values():
        for number, source in enumerate(placement.sources):
            paper = ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", source.get("paper", ""))
            code = link(source["code"]) if "code" in source else ""
            cited = ", ".join(filter(None, [paper, source.get("equation"), code]))
            compared = source.get("compared", "").replace("-", "\u2011")
            state = f"{compared}, {'code' if code else 'text'}" if compared else "no"
            note = source.get("note")
            lines.append(f"| {'' if number else f'`{placement.name}`'} | {cited} | {state}{f'. {note}' if note else ''} |")
    return "\n".join(lines)


def page_errors(placements, page):
    """Yields the papers that a page cites for a placement whose file has others."""
    shipped = page[page.index("## Shipped placements"):page.index("## What it cannot say")]
    for line in re.split(r"\n(?=[-|#!\n])", shipped):
        subject = re.match(r"\| `(\w+)`|((?:(?:- |, )\*\*\w+\*\*)+)", line)
        if not subject:
            continue
        names = [subject[1]] if subject[1] else re.findall(r"\w+", subject[2])
        known = set().union(*(placements[name].papers(placements) for name in names if name in placements))
        for name in names:
            if name not in placements:
                yield f"docs/placements.md: {name} does not ship"
        for number in ARXIV.findall(line):
            if number not in known:
                yield f"docs/placements.md: {' and '.join(names)}: the file has no source arXiv:{number}"


def main():
    update = sys.argv[1:2] == ["--update"]
    if len(sys.argv) != 2 + update:
        sys.exit(__doc__)
    source = sys.argv[1 + update]

    def read(path):
        with open(os.path.join(source, path), encoding="utf-8") as file:
            return file.read()

    paths = sorted(glob.glob("plugins/placements/*.pbtxt", root_dir=source))
    placements = {placement.name: placement for placement in (Placement(read(path)) for path in paths)}
    errors = [f"plugins/placements/{name}.pbtxt {error}" for name, placement in placements.items() for error in placement.errors()]
    errors += page_errors(placements, read("docs/placements.md"))
    compared = sum(any("compared" in each for each in placement.sources) for placement in placements.values())
    for words in (f"{len(placements)} published placements ship.", f"and {compared} were compared with"):
        if words not in read("README.md"):
            errors.append(f"README.md does not say: {words}")
    page = read("docs/papers.md")
    part = re.search(r"(<!-- sources -->\n\n)(.*?)(\n\n<!-- end -->)", page, re.S)
    if not part:
        sys.exit("docs/papers.md has no <!-- sources --> .. <!-- end -->")
    filled = page[:part.start(2)] + table(placements) + page[part.end(2):]
    if update:
        with open(os.path.join(source, "docs/papers.md"), "w", encoding="utf-8") as file:
            file.write(filled)
    elif filled != page:
        errors.append("docs/papers.md differs from the files: sources_test.py --update SOURCE")
    wrong = Placement('# arXiv:2002.04745\nplacement {\n  name: "a"\n  source {\n    code: "a/b/c.py"\n  }\n}\n')
    if len(list(wrong.errors())) != 3 or list(Placement('name: "a"').errors()) != ["has no source"]:
        errors.append("this test does not find what is wrong")
    print(f"{len(placements)} placements")
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
