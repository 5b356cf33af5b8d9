# SPDX-License-Identifier: Apache-2.0
"""Checks that pages are current in what they say of families: families_table.py FAMILIES PAGE.. [--write]

The table in docs/zoo.md is made from the files of the directory FAMILIES, plugins/zoo, and "N families" in any page has
their number. With --write the pages get them.
"""

import os
import re
import sys

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|[{}:]|[^\s{}:"#]+')
HEADER = "| family | `model_type` | placement | norm | positions | easily misread |\n|---|---|---|---|---|---|\n"
NORMS = {"rms_norm": "RMS", "layer_norm": "layer norm"}
KINDS = {"ROPE": "rotary", "ALIBI": "ALiBi", "LEARNED": "learned", "NONE": "none"}


def parse(text):
    """Returns the fields of a text, [(name, value)], where a value is a text or a list of fields."""
    stack, name = [[]], None
    for token in TOKEN.findall(text):
        if token.startswith("#") or token == ":":
            continue
        if token == "{":
            fields = []
            stack[-1].append((name, fields))
            stack.append(fields)
            name = None
        elif token == "}":
            stack.pop()
        elif name is None and not token.startswith('"'):
            name = token
        elif name is None:  # a string that continues the one before
            last, value = stack[-1].pop()
            stack[-1].append((last, value + token.strip('"')))
        else:
            stack[-1].append((name, token.strip('"')))
            name = None
    return stack[0]


def all_of(fields, name):
    return [value for field, value in fields if field == name]


def one_of(fields, name, default=""):
    return (all_of(fields, name) or [default])[-1]


def read(folder, name, settings):
    """Returns the fields of a file, after those of the parts that it imports."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        text = file.read()
    for parameter in all_of(parse(text), "parameter"):
        key = one_of(parameter, "name")
        text = text.replace(f"@{key}@", settings.get(key, one_of(parameter, "text")))
    own = parse(text)
    fields = []
    for part in all_of(own, "import"):
        values = {one_of(each, "name"): one_of(each, "text") for each in all_of(part, "set")}
        fields += read(folder, one_of(part, "part") + ".part.pbtxt", values)
    return fields + own


def everywhere(fields, name):
    """Returns all values of the fields of this name, at any depth."""
    found = []
    for field, value in fields:
        if field == name:
            found.append(value)
        if isinstance(value, list):
            found += everywhere(value, name)
    return found


def unique(items):
    return list(dict.fromkeys(items))


def placements(fields):
    values = everywhere(fields, "placement")
    docs = {}
    for value in values:
        if isinstance(value, list) and one_of(value, "doc"):
            doc = re.sub(r"^[^:]*: ", "", one_of(value, "doc")).rstrip(".")
            docs[one_of(value, "name")] = doc[0].lower() + doc[1:]
    words = {"${%s}" % one_of(word, "name"): [one_of(each, "text") for each in all_of(word, "choice")] for word in all_of(fields, "word")}
    used = unique(each for value in values if isinstance(value, str) for each in words.get(value, [value]))
    return "; or ".join(docs.get(name, f"`{name}`") for name in used)


def norm(fields):
    """Describes the norm of the residual stream, which is the first."""
    pieces = everywhere(fields, "norm")
    norms = [each for each in pieces if isinstance(each, list)]
    name = one_of(norms[0], "name")
    same = [each for each in norms if one_of(each, "name") == name]
    text = NORMS[next(one_of(each, "plugin") for each in same if one_of(each, "plugin"))]
    flags = {one_of(attr, "name"): one_of(attr, "flag") for each in same for attr in all_of(each, "attr")}
    if flags.get("unit_offset") == "true":
        text += ", 1 + weight"
    if flags.get("bias") == "false":
        text += " without bias"
    if flags.get("affine") == "false":
        text += " without parameters"
    return text


def positions(fields):
    values = [field for each in everywhere(fields, "positions") for field in each]
    text = " or ".join(unique(KINDS[kind] for kind in all_of(values, "kind"))) or KINDS["LEARNED"]
    dims = one_of(values, "rope_dims")
    for holds, words in ((one_of(values, "offset"), f"from row {one_of(values, 'offset')}"),
                         (one_of(values, "rope_interleaved"), "interleaved"),
                         (one_of(values, "rope_base"), "two bases"),
                         ("rope_dims" in dims or "rotary_dim" in dims, "a part of the head"),
                         ("slides" in dims or "turns" in dims, "not in all layers")):
        if holds:
            text += f", {words}"
    return text


def row(folder, name):
    fields = read(folder, name, {})
    types = ", ".join(f"`{each}`" for each in all_of(fields, "model_type"))
    cells = [one_of(fields, "doc").rstrip("."), types, placements(fields), norm(fields), positions(fields),
             one_of(fields, "misread")]
    if not all(cells):
        raise SystemExit(f"{name}: doc, model_type, placement or misread is missing")
    return "| " + " | ".join(cells) + " |\n"


def current(folder, page):
    """Returns a page with the table, if it has one, and the number of families."""
    names = sorted(name for name in os.listdir(folder) if name.endswith(".import.pbtxt"))
    table = HEADER + "".join(row(folder, name) for name in names)
    page = re.sub(r"\b\d+ families", f"{len(names)} families", page)
    return re.sub(r"\| family \|.*\n(?:\|.*\n)+", lambda _: table, page)


def main():
    folder, *paths = sys.argv[1:]
    writes = paths[-1] == "--write"
    wrong = 0
    for path in paths[:-1] if writes else paths:
        with open(path, encoding="utf-8") as file:
            page = file.read()
        wanted = current(folder, page)
        if page == wanted:
            continue
        if writes:
            with open(path, "w", encoding="utf-8") as file:
                file.write(wanted)
        else:
            print(f"{path} is not current: python3 {' '.join(sys.argv)} --write")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
