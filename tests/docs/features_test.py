#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what the pages say that plumb has and lacks against the schema, the command line and the tree.

    features_test.py PLUMB SOURCE_DIRECTORY            fails where a page or the program differs from docs/features.json
    features_test.py --update PLUMB SOURCE_DIRECTORY   writes the table and the list of docs/faq.md

An entry of docs/features.json has a row or a text, and facts under "has" and "lacks":

    schema Train.units        a field of a message, or a value of an enum, of proto/plumb/v1
    command plugin check      a command, or a command of a command
    option train --resume     an option of a command
    file PATH                 a file of the tree
    files GLOB N              so many files
    word gpu                  a word in names of the schema, or in a help text, in any case
"""
import glob
import json
import os
import re
import subprocess
import sys


def names_of_schema(source):
    """The set of Message.field and Enum.VALUE of all files, with the innermost message or enum."""
    names = set()
    for path in glob.glob(os.path.join(source, "proto/plumb/v1/*.proto")):
        scopes = []
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"//.*", "", file.read())
        for token in re.finditer(r"\b(message|enum|oneof) (\w+) *\{|(\w+)\s*=\s*\d+|(\})", text):
            if token[1]:
                # A oneof's fields are those of its message.
                scopes.append(scopes[-1] if token[1] == "oneof" else token[2])
            elif token[3]:
                if scopes:
                    names.add(f"{scopes[-1]}.{token[3]}")
            else:
                scopes.pop()
    return names


class Facts:
    def __init__(self, plumb, source):
        self.plumb, self.source = plumb, source
        self.schema = names_of_schema(source)
        self.helps, self.commands = {}, set()
        for command in self.listed([]):
            for sub in self.listed([command]):
                self.help([command, sub])
        self.words = set(re.findall(r"[a-z0-9]+", " ".join([*self.schema, *self.helps.values()]).lower()))

    def help(self, command):
        key = " ".join(command)
        if key not in self.helps:
            done = subprocess.run([self.plumb, *command, "--help"], capture_output=True, text=True, check=True)
            self.helps[key] = done.stdout
        return self.helps[key]

    def listed(self, command):
        """Names of the commands of a command."""
        block = re.search(r"^subcommands: *\n((?:  .*\n)+)", self.help(command), re.M | re.I)
        found = re.findall(r"^  (\S+)", block[1], re.M) if block else []
        self.commands.update(" ".join([*command, name]) for name in found)
        return found

    def holds(self, fact):
        kind, _, rest = fact.partition(" ")
        if kind == "schema":
            return rest in self.schema
        if kind == "command":
            return rest in self.commands
        if kind == "option":
            command, _, option = rest.rpartition(" ")
            return re.search(rf"^ +(?:-\w, *)?(?:--[\w-]+,)?{re.escape(option)}\b", self.help(command.split()), re.M) is not None
        if kind == "file":
            return os.path.exists(os.path.join(self.source, rest))
        if kind == "files":
            pattern, _, count = rest.rpartition(" ")
            return len(glob.glob(os.path.join(self.source, pattern))) == int(count)
        if kind == "word":
            return rest in self.words
        sys.exit(f"docs/features.json: no such kind of fact: {fact}")


def table(features):
    columns = features["columns"]
    lines = ["| " + " | ".join(row) + " |" for row in [columns] + [entry["row"] for entry in features["table"]]]
    return "\n".join([lines[0].replace("|  |", "| |"), "|---" * len(columns) + "|"] + lines[1:])


def limits(features):
    return "\n".join(f"- {entry['text']}" for entry in features["limits"])


def fill(page, name, text):
    found = re.search(rf"(<!-- {name} -->\n\n)(.*?)(\n\n<!-- end -->)", page, re.S)
    if not found:
        sys.exit(f"no <!-- {name} --> .. <!-- end -->")
    return page[:found.start(2)] + text + page[found.end(2):]


def main():
    update = sys.argv[1:2] == ["--update"]
    if len(sys.argv) != 3 + update:
        sys.exit(__doc__)
    plumb, source = sys.argv[1 + update:]
    with open(os.path.join(source, "docs/features.json"), encoding="utf-8") as file:
        features = json.load(file)
    errors = []
    for path, name, text in [("docs/faq.md", "features", table(features)), ("docs/faq.md", "limits", limits(features))]:
        with open(os.path.join(source, path), encoding="utf-8") as file:
            page = file.read()
        filled = fill(page, name, text)
        if update:
            with open(os.path.join(source, path), "w", encoding="utf-8") as file:
                file.write(filled)
        elif filled != page:
            errors.append(f"{path} differs from docs/features.json: features_test.py --update PLUMB SOURCE")
    facts, count = Facts(plumb, source), 0
    for entry in features["table"] + features["limits"]:
        said = entry.get("text") or entry["row"][0]
        if not entry.get("has") and not entry.get("lacks"):
            errors.append(f'"{said}" has no fact')
        for expected in ("has", "lacks"):
            for fact in entry.get(expected, []):
                count += 1
                if facts.holds(fact) != (expected == "has"):
                    errors.append(f'"{said}": plumb {"has no" if expected == "has" else "has"} {fact}')
    shipped = len(glob.glob(os.path.join(source, "plugins/placements/*.pbtxt")))
    for path in ["README.md", *glob.glob("docs/**/*.md", root_dir=source, recursive=True)]:
        with open(os.path.join(source, path), encoding="utf-8") as file:
            for said in re.findall(r"(\d+) (?:published )?placements (?:that )?ship", file.read()):
                if int(said) != shipped:
                    errors.append(f"{path} says {said} placements; {shipped} ship")
    if facts.holds("schema Train.nothing") or facts.holds("command nothing") or facts.holds("option train --nothing"):
        errors.append("this test does not find what is wrong")
    print(f"{count} facts")
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
