#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plumb tokenize with the simple implementations of reference.py, on difficult texts.

  tests/tokenizer/tokenize_test.py --plumb build/quick/bin/plumb
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

import reference

ENGLISH = ("It's what they'd said: we'll see if you're able to, won't we? I'VE 3 apples, 12345 pears and 1,000,000 more. "
           "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.\n\n  Two  spaces,\ttabs,   \n three.\r\n")
FAILURES = []


def check(holds, what):
    if not holds:
        FAILURES.append(what)
        print("failed:", what, file=sys.stderr)


def all_planes():
    """Returns assigned characters of all planes that are old enough for every installed version of Unicode."""
    old = unicodedata.ucd_3_2_0
    found = []
    for c in range(0x110000):
        if c % 7 == 0 and not 0xD800 <= c < 0xE000 and old.category(chr(c)) != "Cn":
            same = old.category(chr(c)) == unicodedata.category(chr(c))
            if same and (c < 0x3000 or c % 97 == 0):
                found.append(chr(c))
    return "".join(found) + "\U0001F600\U00010348\U000F0000\U0010FFFD"


def hostile():
    rng = random.Random(1)
    planes = all_planes()
    texts = {
        "nothing": b"", "newline": b"\n", "english": ENGLISH.encode(),
        "contractions": b"it's IT'S I'Ll they'RE 'tis ''s 'll'd don't've \xc5\xbf'\xc5\xbf",
        "spaces": b"".join(b" " * n + b"x" for n in range(40)) + b" " * 77,
        "white space": "a\u00a0b\u3000 c\u2028d\u180ee\u200bf\x1cg\x85h \u1680 ".encode(),
        "line breaks": b"\n\n\n \n\t\r\n  \r\n\r\rx \n y\n ",
        "numbers": "1 12 123 1234 12345 \u00bd\u00b2\u0663\u2167 3.14 1e-5".encode(),
        "planes": planes.encode(), "planes, mixed": "".join(rng.sample(planes, len(planes))).encode(),
        "marks": "e\u0301e\u0323\u0301\u1e69s\u0307\u0323\uac00\u1100\u1161\u11a8 \u212b\u2126\ufb01".encode(),
        "every byte": bytes(range(256)), "bytes, mixed": bytes(rng.randrange(256) for _ in range(3000)),
        "cut characters": "\u00e9\u20ac\U0001F600".encode()[:-1] + b" ab\xe2\x82 c\xed\xa0\x80\xc0\x80\xf5\x80",
        "long runs": b"a" * 1000 + b"!" * 1000 + b"1" * 1000 + b"ab" * 500 + b"\xff" * 300,
        "zeros": b"\0\0a\0 \0",
    }
    for n in range(20):
        pool = ["a", "b", " ", "  ", "\n", "'s", "'", "1", "e\u0301", "\u4e2d", "!", "\t", "the", " the", "\u00e9", "\U0001F600"]
        texts[f"random {n}"] = "".join(rng.choice(pool) for _ in range(400)).encode()
    return texts


class Plumb:
    def __init__(self, program, directory):
        self.program, self.directory = program, directory

    def run(self, *words, stdin=b"", fails=False):
        result = subprocess.run([self.program, "tokenize", *words], input=stdin, capture_output=True, check=False)
        if (result.returncode != 0) != fails:
            raise RuntimeError(f"plumb tokenize {words}: {result.returncode}: {result.stderr.decode()}")
        return result.stderr.decode() if fails else result.stdout

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, value):
        with open(self.path(name), "w" if isinstance(value, str) else "wb") as file:
            file.write(value)
        return self.path(name)

    def tokenizer(self, name, **fields):
        root = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                "decoder": None, **fields}
        return self.write(name, json.dumps(root))

    def encode(self, tokenizer, data, *words):
        return json.loads(self.run("encode", tokenizer, "--json", *words, stdin=data))["tokens"]

    def decode(self, tokenizer, tokens, *words):
        return self.run("decode", tokenizer, *words, stdin=json.dumps(tokens).encode())


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def byte_level_bpe(plumb):
    corpus = ENGLISH * 3 + " the dog's dogs a\u00e9\u00e9 \u4e2d\u4e2d!!! aaaaaaaa   \n\n"
    merges, names = reference.train_bpe(corpus, 150)
    text = plumb.write("corpus.txt", corpus.encode())
    plumb.run("train", text, "--vocab-size", str(256 + 150 + 1), "--out", plumb.path("trained.json"))
    with open(plumb.path("trained.json")) as file:
        trained = json.load(file)
    check(trained["model"]["merges"] == merges, "training gives the reference's merges")
    vocab = {name: i for i, name in enumerate(names)}
    check(trained["model"]["vocab"] == vocab, "training gives the reference's vocabulary")
    plumb.write("vocab.json", json.dumps(vocab))
    plumb.write("merges.txt", "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    with open(plumb.path("trained.json")) as file:
        pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                   r"\s*[\r\n]+|\s+(?!\S)|\s+")
    llama3 = plumb.tokenizer(
        "llama3.json", decoder=BYTE_LEVEL, model={"type": "BPE", "vocab": vocab, "merges": merges},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {**BYTE_LEVEL, "use_regex": False}]})
    for name, tokenizer, words in (("gpt2", plumb.path("trained.json"), reference.gpt2_words),
                                   ("gpt2, two files", plumb.directory, reference.gpt2_words),
                                   ("llama3", llama3, reference.llama3_words)):
        plain = reference.ByteLevelBpe(vocab, merges, words)
        for text_name, data in hostile().items():
            tokens = plumb.encode(tokenizer, data)
            check(tokens == plain.encode(data), f"{name}: {text_name}: the reference's tokens")
            check(plumb.decode(tokenizer, tokens) == data, f"{name}: {text_name}: the bytes come back")
    for character in (b"a", b" ", b"!", b"\xff", b"\n", "\u4e2d".encode()):
        data = plumb.write("run", character * 1_000_000)
        start = time.monotonic()
        for tokenizer in (plumb.path("trained.json"), llama3):
            plumb.run("count", tokenizer, data)
        check(time.monotonic() - start < 60, f"a million of {character}: no quadratic time")
    plumb.run("train", data, "--vocab-size", "300", "--out", plumb.path("run.json"))


def added_tokens(plumb):
    added = [{"id": 256, "content": "<|endoftext|>", "special": True},
             {"id": 257, "content": "<|end|>", "special": True},
             {"id": 258, "content": "<m>", "special": True, "lstrip": True, "rstrip": True},
             {"id": 259, "content": "<|end", "special": False, "normalized": False}]
    added = [{"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, **t} for t in added]
    vocab = {reference.ALPHABET[b]: b for b in range(256)}
    path = plumb.tokenizer("added.json", added_tokens=added, pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL,
                           model={"type": "BPE", "vocab": vocab, "merges": []})
    tokens = plumb.encode(path, b"a<|endoftext|><|end|>b<|end  <m>  c")
    check(tokens == [97, 256, 257, 98, 259, 258, 99], "added tokens: the longest, and the spaces that go with one")
    check(plumb.encode(path, b"<m>", "--plain") == list(b"<m>"), "added tokens are text in plain text")
    check(plumb.decode(path, [97, 256, 98], "--skip-special") == b"ab", "special tokens are dropped")


def sentence_piece(plumb):
    merges = [["\u2581", "t"], ["h", "e"], ["\u2581t", "he"], ["a", "a"], ["aa", "aa"], ["\u2581", "\u2581"], ["o", "g"],
              ["d", "og"], ["\u2581", "dog"]]
    names = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)] + list("\u2581thealodgx.\u00e9")
    names += ["".join(pair) for pair in merges]
    vocab = {name: i for i, name in enumerate(names)}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    path = plumb.tokenizer(
        "llama.json", added_tokens=[{"id": i, "content": names[i], **special} for i in range(3)],
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        post_processor={"type": "TemplateProcessing",
                        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        model={"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges})
    plain = reference.SentencePieceBpe(vocab, merges)
    for name, data in hostile().items():
        tokens = plumb.encode(path, data)
        check(plumb.decode(path, tokens) == data, f"llama: {name}: the bytes come back")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        if 0 < len(text) < 3000:
            check(tokens == plain.encode(text), f"llama: {name}: the reference's tokens")
    check(plumb.encode(path, b"the", "--post-process")[0] == 1, "llama: <s> before a text")
    data = plumb.write("run", b"a" * 1_000_000)
    start = time.monotonic()
    plumb.run("count", path, data)
    check(time.monotonic() - start < 30, "llama: a million of a: no quadratic time")


def unigram(plumb):
    rng = random.Random(2)
    pieces = ["\u2581", "a", "b", "c", "ab", "bc", "abc", "\u2581a", "\u2581the", "t", "h", "e", "he", "aaaa", "\u00e9"]
    scores = {piece: -rng.uniform(1, 9) for piece in pieces}
    vocab = [["<unk>", 0.0]] + [[piece, score] for piece, score in scores.items()]
    path = plumb.tokenizer("unigram.json", model={"type": "Unigram", "unk_id": 0, "vocab": vocab},
                           pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                           decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"})
    ids = {"<unk>": 0, **{piece: i + 1 for i, piece in enumerate(pieces)}}
    for n in range(60):
        text = "".join(rng.choice("abct he\u00e9x\u4e2d") for _ in range(rng.randrange(1, 60)))
        marked = text.replace(" ", "\u2581")
        marked = marked if marked.startswith("\u2581") else "\u2581" + marked
        expected = []
        for word in marked.split("\u2581")[1:]:
            expected += [ids[p] for p in reference.unigram("\u2581" + word, scores, "<unk>")]
        check(plumb.encode(path, text.encode()) == expected, f"unigram: {text!r}")
    check("UTF-8" in plumb.run("encode", path, stdin=b"a\xff", fails=True), "unigram: bytes that are not UTF-8 are an error")


def word_piece(plumb):
    words = ["[UNK]", "[CLS]", "[SEP]", "the", "un", "##aff", "##able", "##a", "dog", "##s", "it", "'", "s", ",", "!", "e", "##e",
             "a", "b", "##b", "\u4e2d", "1", "##2", "do", "##g"]
    vocab = {word: i for i, word in enumerate(words)}
    path = plumb.tokenizer(
        "bert.json", model={"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                            "max_input_chars_per_word": 100, "vocab": vocab},
        normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                    "lowercase": True},
        added_tokens=[{"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                       "special": True} for i in range(3)],
        pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]})
    texts = {name: data for name, data in hostile().items()}
    texts["words"] = "The DOGS, unaffable! it's \u00c9e \u4e2d\u4e2ddog 12 aab\u200bb a\u0301 \ufffd".encode()
    for name, data in texts.items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        expected = []
        for word in reference.bert_words(text):
            pieces = reference.word_piece(word, vocab) if len(word) <= 100 else ["[UNK]"]
            expected += [vocab[piece] for piece in pieces]
        check(plumb.encode(path, data) == expected, f"bert: {name}: the reference's tokens")
    tokens = plumb.encode(path, b"The dogs, it's", "--post-process")
    check(tokens[0] == 1 and tokens[-1] == 2, "bert: [CLS] and [SEP]")
    back = plumb.decode(path, tokens, "--skip-special")
    check(back == b"the dogs, it ' s", f"bert: a text comes back, but for spaces: {back}")


def normal_forms(plumb):
    text = hostile()["planes"].decode() + hostile()["marks"].decode()
    vocab = {reference.ALPHABET[b]: b for b in range(256)}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        path = plumb.tokenizer("form.json", normalizer={"type": form}, pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL,
                               model={"type": "BPE", "vocab": vocab, "merges": []})
        tokens = plumb.encode(path, text.encode())
        check(bytes(tokens) == unicodedata.normalize(form, text).encode(), form)
        text += "".join(reversed(text))


def what_is_not_supported(plumb):
    vocab = {"a": 0}
    for fields, named in (({"normalizer": {"type": "Nmt"}}, 'normalizer: type "Nmt"'),
                          ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]}},
                           "pre_tokenizer.pretokenizers[0]"),
                          ({"decoder": {"type": "CTC"}}, 'decoder: type "CTC"'),
                          ({"model": {"type": "WordLevel", "vocab": vocab}}, 'type "WordLevel"'),
                          ({"model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]}}, "model.merges[0]"),
                          ({"model": {"type": "BPE", "vocab": {"a": 10**9}, "merges": []}}, "model.vocab"),
                          ({"model": {"type": "BPE", "vocab": vocab, "merges": [], "dropout": 0.1}}, "dropout"),
                          ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}}}, "pattern"),
                          ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTE_LEVEL, {"type": "Metaspace"}]}},
                           "pretokenizers[1]: is a Metaspace after ByteLevel"),
                          ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                              {"type": "WhitespaceSplit"}, {"type": "Metaspace", "prepend_scheme": "first"}]}},
                           "pretokenizers[1]: prepend_scheme first is not supported after"),
                          ({"other": 1}, '"other"')):
        path = plumb.tokenizer("wrong.json", **{"model": {"type": "BPE", "vocab": vocab, "merges": []}, **fields})
        message = plumb.run("encode", path, fails=True)
        check(named in message, f"{named}: {message}")
    path = plumb.tokenizer("slow.json", model={"type": "BPE", "vocab": vocab, "merges": []},
                           pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"})
    check("limit" in plumb.run("encode", path, stdin=b"a" * 60 + b"b", fails=True), "a pattern that never ends is an error")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plumb", required=True)
    program = os.path.abspath(parser.parse_args().plumb)
    with tempfile.TemporaryDirectory() as directory:
        plumb = Plumb(program, directory)
        for test in (byte_level_bpe, added_tokens, sentence_piece, unigram, word_piece, normal_forms, what_is_not_supported):
            test(plumb)
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
