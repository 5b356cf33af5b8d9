#!/usr/bin/env python3
"""Writes runtime/tokenizer/unicode_tables.inc from Python's copy of the Unicode Character Database.

  tools/make_unicode_tables.py > runtime/tokenizer/unicode_tables.inc

The tables are those that normalizations of tokenizer.json need and PCRE2 does not offer: full
decompositions, primary composites, combining classes, lower case, and four sets of categories.
"""
import sys
import unicodedata

HANGUL = range(0xAC00, 0xAC00 + 11172)
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
MARK, PUNCTUATION, CONTROL, NUMBER = 1, 2, 4, 8


def emit(kind, name, rows, width=100):
    print(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        text = f" {row},"
        if len(line) + len(text) > width:
            print(line)
            line = "   "
        line += text
    print(line + "\n};\n")


def ranges(value_of):
    """(first, last, value) of neighbours with an equal value that is not 0."""
    found = []
    for c in CODE_POINTS:
        value = value_of(c)
        if not value:
            continue
        if found and found[-1][1] == c - 1 and found[-1][2] == value:
            found[-1][1] = c
        else:
            found.append([c, c, value])
    return [f"{{0x{a:X}, 0x{b:X}, {v}}}" for a, b, v in found]


def category(c):
    name = unicodedata.category(chr(c))
    return {"Mn": MARK, "Cc": CONTROL, "Cf": CONTROL, "Co": CONTROL}.get(
        name, {"P": PUNCTUATION, "N": NUMBER}.get(name[0], 0))


def decompositions():
    pool, entries = [], []
    text = ""
    for c in CODE_POINTS:
        if c in HANGUL:
            continue
        for form, compatible in (("NFD", 0), ("NFKD", 1)):
            whole = unicodedata.normalize(form, chr(c))
            if whole == chr(c) or (compatible and whole == unicodedata.normalize("NFD", chr(c))):
                continue
            at = text.find(whole)
            if at < 0:
                at = len(text)
                text += whole
                pool += [f"0x{ord(x):X}" for x in whole]
            entries.append(f"{{0x{c:X}, {at}, {len(whole)}, {compatible}}}")
    return pool, entries


def compositions():
    found = []
    for c in CODE_POINTS:
        fields = unicodedata.decomposition(chr(c)).split()
        if len(fields) != 2 or fields[0].startswith("<"):
            continue
        pair = "".join(chr(int(x, 16)) for x in fields)
        if unicodedata.normalize("NFC", unicodedata.normalize("NFD", chr(c))) == chr(c):
            found.append((ord(pair[0]), ord(pair[1]), c))
    return [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for a, b, c in sorted(found)]


def lower_case():
    found = []
    for c in CODE_POINTS:
        lower = chr(c).lower()
        if lower != chr(c) and len(lower) == 1:  # of two: U+0130 alone, which unicode.cc knows
            found.append(f"{{0x{c:X}, 0x{ord(lower):X}}}")
    return found


def main():
    print("// Unicode %s, by tools/make_unicode_tables.py. Do not edit.\n" % unicodedata.unidata_version)
    emit("Range", "kCategories", ranges(category))
    emit("Range", "kCombiningClasses", ranges(lambda c: unicodedata.combining(chr(c))))
    pool, entries = decompositions()
    emit("char32_t", "kDecomposed", pool)
    emit("Decomposition", "kDecompositions", entries)
    emit("Composition", "kCompositions", compositions())
    emit("Mapping", "kLowerCase", lower_case())


if __name__ == "__main__":
    sys.exit(main())
