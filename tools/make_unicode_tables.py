#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes runtime/tokenizer/unicode_tables.inc: the behavior of the Python package `tokenizers` for each character.

  pip install tokenizers
  python3.11 tools/make_unicode_tables.py > runtime/tokenizer/unicode_tables.inc

Token ids have to be those of that library, whose parts follow different versions of Unicode: its normal forms know no
character after Unicode 12, its punctuation, control characters and accents none after 8 or 9, its patterns are of Unicode 16
and its lower case and numbers of 17. Therefore the tables are not generated from one version; instead this program queries the
library for every character. Only combining classes and compositions come from Python's unicodedata, for the characters that the
library knows.

The last table has the characters that are newer than Unicode 14, the oldest version of any supported PCRE2, with their
categories in the library's patterns. Therefore this program requires a Python whose unicodedata is of Unicode 14 (3.11).
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

HANGUL = range(0xAC00, 0xAC00 + 11172)
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Flags of a character: StripAccents removes it, BertNormalizer's strip_accents removes it, and so
# on.
MARK, NONSPACING_MARK, PUNCTUATION, CONTROL, NUMBER, WORD = 1, 2, 4, 8, 16, 32
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs".split()


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
    """Returns (first, last, value) for runs of neighbours with an equal value that is not 0 or empty."""
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


def normalized(normalizer, characters=None):
    """Returns the normalizer's output for each character (or other text), as a list."""
    characters = [chr(c) for c in CODE_POINTS] if characters is None else characters
    results = []
    for at in range(0, len(characters), 1000):
        chunk = characters[at:at + 1000]
        # Each character is preceded by U+FFFE, which no normalizer changes and nothing combines
        # with.
        text = "".join("\ufffe" + c for c in chunk)
        results += normalizer.normalize_str(text).split("\ufffe")[1:] if "\ufffe" not in chunk else [
            normalizer.normalize_str(c) for c in chunk]
    assert len(results) == len(characters)
    return results


def kept(pre_tokenizer):
    """Returns the characters that are left by a pre-tokenizer that removes its matches."""
    left = set()
    for at in range(0, len(CODE_POINTS), 4096):
        pieces = pre_tokenizer.pre_tokenize_str("".join(map(chr, CODE_POINTS[at:at + 4096])))
        left.update(ord(c) for piece, _ in pieces for c in piece)
    return left


def matched(pattern):
    return kept(pre_tokenizers.Split(Regex(pattern), "removed", invert=True))


def categories():
    everything = set(CODE_POINTS)
    bert = {"handle_chinese_chars": False, "lowercase": False}
    marks = normalized(normalizers.StripAccents())
    nonspacing = normalized(normalizers.BertNormalizer(clean_text=False, strip_accents=True, **bert))
    clean = normalized(normalizers.BertNormalizer(clean_text=True, strip_accents=False, **bert))
    punctuation = everything - kept(pre_tokenizers.Punctuation("removed"))
    # Digits isolates digits: among characters separated by "x", the ones that are alone.
    numbers = {ord(piece) for at in range(0, len(CODE_POINTS), 4096) for piece, _ in pre_tokenizers.Digits(True).pre_tokenize_str(
        "x" + "x".join(map(chr, CODE_POINTS[at:at + 4096])) + "x") if len(piece) == 1 and piece != "x"}
    # Whitespace separates words from other characters: after a letter, a word character stays
    # attached.
    words = set()
    for at in range(0, len(CODE_POINTS), 2048):
        pieces = pre_tokenizers.Whitespace().pre_tokenize_str(" ".join("x" + chr(c) for c in CODE_POINTS[at:at + 2048]))
        words.update(ord(piece[1]) for piece, _ in pieces if len(piece) == 2 and piece[0] == "x")
    words.add(ord("x"))
    found = {}
    for i, c in enumerate(CODE_POINTS):
        found[c] = (MARK * (marks[i] == "") | NONSPACING_MARK * (nonspacing[i] == "") | PUNCTUATION * (c in punctuation) |
                    CONTROL * (clean[i] == "") | NUMBER * (c in numbers) | WORD * (c in words))
    return found


def decompositions():
    canonical, compatible = normalized(normalizers.NFD()), normalized(normalizers.NFKD())
    pool, entries = [], []
    text = ""
    for i, c in enumerate(CODE_POINTS):
        if c in HANGUL:
            continue
        for whole, is_compatible in ((canonical[i], 0), (compatible[i], 1)):
            if whole == chr(c) or (is_compatible and whole == canonical[i]):
                continue
            at = text.find(whole)
            if at < 0:
                at = len(text)
                text += whole
                pool += [f"0x{ord(x):X}" for x in whole]
            entries.append(f"{{0x{c:X}, {at}, {len(whole)}, {is_compatible}}}")
    return pool, entries


def compositions():
    candidates = []
    for c in CODE_POINTS:
        fields = unicodedata.decomposition(chr(c)).split()
        if len(fields) == 2 and not fields[0].startswith("<"):
            candidates.append((int(fields[0], 16), int(fields[1], 16), c))
    joined = normalized(normalizers.NFC(), [chr(a) + chr(b) for a, b, _ in candidates])
    return [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for (a, b, c), text in sorted(zip(candidates, joined)) if text == chr(c)]


def combining_classes():
    """Returns the classes of the marks that the library reorders."""
    marks = [c for c in CODE_POINTS if unicodedata.combining(chr(c))]
    # U+0345 has the greatest class, 240, so a known mark is moved before it.
    moved = normalized(normalizers.NFKD(), ["a\u0345" + chr(c) for c in marks])
    known = {c for c, text in zip(marks, moved) if text == unicodedata.normalize("NFKD", "a" + chr(c)) + "\u0345"}
    known.add(0x345)
    return ranges(lambda c: unicodedata.combining(chr(c)) if c in known else 0)


def lower_case():
    lower = normalized(normalizers.Lowercase())
    # The only mapping to two characters is U+0130, which unicode.cc handles.
    return [f"{{0x{c:X}, 0x{ord(lower[i]):X}}}" for i, c in enumerate(CODE_POINTS) if lower[i] != chr(c) and len(lower[i]) == 1]


def new_characters():
    category = {}
    for name in CATEGORIES:
        for c in matched(r"\p{%s}" % name):
            if unicodedata.category(chr(c)) == "Cn":
                category[c] = f'"{name}"'
    return ranges(category.get)


def main():
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit(f"this Python has Unicode {unicodedata.unidata_version}; run the program with Python 3.11, which has 14")
    print("// The characters of tokenizers %s, by tools/make_unicode_tables.py. Do not edit.\n" % tokenizers.__version__)
    emit("Range", "kCategories", ranges(categories().get))
    emit("Range", "kCombiningClasses", combining_classes())
    pool, entries = decompositions()
    emit("char32_t", "kDecomposed", pool)
    emit("Decomposition", "kDecompositions", entries)
    emit("Composition", "kCompositions", compositions())
    emit("Mapping", "kLowerCase", lower_case())
    emit("NewRange", "kNewCharacters", new_characters())


if __name__ == "__main__":
    sys.exit(main())
