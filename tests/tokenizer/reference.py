# SPDX-License-Identifier: Apache-2.0
"""Simple tokenizers, written from the descriptions of their algorithms, for comparison with plumb.

Byte-level BPE: Radford et al. 2019 (pairs of minimum rank are merged, the leftmost first). SentencePiece's BPE with
byte fallback: the same on characters. Unigram: Kudo 2018, by dynamic programming over all segmentations. WordPiece:
Devlin et al. 2018. BPE's training: Sennrich et al. 2016, which counts all pairs again for each merge.
"""
import math
import unicodedata


def byte_alphabet():
    """Returns the character of a byte-level vocabulary for each byte."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in own}
    others = [b for b in range(256) if b not in table]
    table.update({b: chr(256 + i) for i, b in enumerate(others)})
    return table


ALPHABET = byte_alphabet()
WHITE_SPACE = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}


def is_letter(c):
    return unicodedata.category(c)[0] == "L"


def is_number(c):
    return unicodedata.category(c)[0] == "N"


def is_space(c):
    return c in WHITE_SPACE


def is_other(c):
    return not (is_letter(c) or is_number(c) or is_space(c))


def run(text, at, test):
    end = at
    while end < len(text) and test(text[end]):
        end += 1
    return end


def gpt2_words(text):
    """Splits a text by GPT-2's pattern:
    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"""
    words, at = [], 0
    while at < len(text):
        end = None
        for short in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
            if text.startswith(short, at):
                end = at + len(short)
                break
        begin = at + 1 if end is None and text[at] == " " else at
        for test in (is_letter, is_number, is_other):
            if end is None and run(text, begin, test) > begin:
                end = run(text, begin, test)
        if end is None:
            end = run(text, at, is_space)
            if end < len(text) and end - at > 1:
                end -= 1
        words.append(text[at:end])
        at = end
    return words


CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")


def llama3_words(text, digits=3):
    """(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|
    \\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"""
    words, at = [], 0
    while at < len(text):
        words.append(text[at:llama3_word_end(text, at, digits)])
        at += len(words[-1])
    return words


def llama3_word_end(text, at, digits):
    if text[at] == "'":
        for short in CONTRACTIONS:
            # U+017F, the long s, is an s of another case.
            if text[at + 1:at + 1 + len(short)].lower().replace("\u017f", "s") == short:
                return at + 1 + len(short)
    begin = at if is_letter(text[at]) or is_number(text[at]) or text[at] in "\r\n" else at + 1
    if run(text, begin, is_letter) > begin:
        return run(text, begin, is_letter)
    if is_number(text[at]):
        return min(run(text, at, is_number), at + digits)
    begin = at + 1 if text[at] == " " else at
    if run(text, begin, is_other) > begin:
        return run(text, run(text, begin, is_other), lambda c: c in "\r\n")
    end = run(text, at, is_space)
    for last in range(end - 1, at - 1, -1):
        if text[last] in "\r\n":
            return last + 1
    return end - 1 if end < len(text) and end - at > 1 else end


def stretches(data):
    """Splits bytes into parts: (text, None) for UTF-8 and (None, bytes) for the rest."""
    found, at = [], 0
    while at < len(data):
        try:
            found.append((data[at:].decode("utf-8"), None))
            break
        except UnicodeDecodeError as error:
            if error.start > 0:
                found.append((data[at:at + error.start].decode("utf-8"), None))
            bad = at + error.start
            at = bad + 1
            if found and found[-1][1] is not None and error.start == 0:
                found[-1] = (None, found[-1][1] + data[bad:at])
            else:
                found.append((None, data[bad:at]))
    return found


def merge(symbols, ranks):
    """BPE: merges the pair of lowest rank, the leftmost first, until none is left."""
    symbols = list(symbols)
    while len(symbols) > 1:
        rank, at = min((ranks.get((symbols[i], symbols[i + 1]), math.inf), i) for i in range(len(symbols) - 1))
        if rank == math.inf:
            break
        symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
    return symbols


class ByteLevelBpe:
    def __init__(self, vocab, merges, words=gpt2_words):
        self.vocab, self.words = vocab, words
        self.ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(merges)))}

    def encode(self, data):
        tokens = []
        for text, raw in stretches(data):
            pieces = [raw] if text is None else [word.encode("utf-8") for word in self.words(text)]
            for piece in pieces:
                tokens += [self.vocab[s] for s in merge([ALPHABET[b] for b in piece], self.ranks)]
        return tokens


class SentencePieceBpe:
    """SentencePiece's BPE: marks replace spaces, one comes first, and the text is not split."""

    def __init__(self, vocab, merges):
        self.vocab = vocab
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}

    def encode(self, text):
        marked = "\u2581" + text.replace(" ", "\u2581")
        tokens = []
        for symbol in merge(marked, self.ranks):
            if symbol in self.vocab:
                tokens.append(self.vocab[symbol])
            else:
                tokens += [self.vocab["<0x%02X>" % b] for b in symbol.encode("utf-8")]
        return tokens


def unigram(text, scores, unknown):
    """Returns the pieces with the largest sum of scores. Unknown characters score ten below all pieces."""
    least = min(scores.values()) - 10
    best = [(0.0, [])] + [(-math.inf, None)] * len(text)
    longest = max(map(len, scores))
    for begin in range(len(text)):
        for end in range(begin + 1, min(len(text), begin + longest) + 1):
            piece = text[begin:end]
            score = scores.get(piece, least if end == begin + 1 else None)
            if score is not None and best[begin][0] + score > best[end][0]:
                best[end] = (best[begin][0] + score, best[begin][1] + [piece])
    tokens = []
    for piece in best[-1][1]:
        if piece in scores:
            tokens.append(piece)
        elif not tokens or tokens[-1] != unknown:
            tokens.append(unknown)
    return tokens


def word_piece(word, vocab):
    pieces, at = [], 0
    while at < len(word):
        for end in range(len(word), at, -1):
            piece = ("##" if at else "") + word[at:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        at = end
    return pieces


IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def bert_words(text):
    """BERT's basic tokenizer: lower case, without accents."""
    clean = []
    for c in text:
        if c not in "\t\n\r" and (c in "\0\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co")):
            continue
        if is_space(c):
            clean.append(" ")
        else:
            clean.append(f" {c} " if any(a <= ord(c) <= b for a, b in IDEOGRAPHS) else c)
    text = unicodedata.normalize("NFD", "".join(clean))
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    text = "".join(c.lower() for c in text)
    words = []
    for chunk in text.split(" "):
        word = ""
        for c in chunk:
            ascii_mark = 33 <= ord(c) <= 47 or 58 <= ord(c) <= 64 or 91 <= ord(c) <= 96 or 123 <= ord(c) <= 126
            if ascii_mark or unicodedata.category(c)[0] == "P":
                words += [word, c]
                word = ""
            else:
                word += c
        words.append(word)
    return [word for word in words if word]


def train_bpe(text, merges, words=gpt2_words):
    """Returns the merges of byte-level BPE. Equally frequent pairs are merged in the order of their ids."""
    counts = {}
    for word in words(text):
        key = tuple(word.encode("utf-8"))
        counts[key] = counts.get(key, 0) + 1
    names = [ALPHABET[b] for b in range(256)]
    found = []
    while len(found) < merges:
        pairs = {}
        for word, count in counts.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + count
        if not pairs:
            break
        pair = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[pair] < 2:
            break
        name = names[pair[0]] + names[pair[1]]
        token = names.index(name) if name in names else len(names)
        if token == len(names):
            names.append(name)
        found.append([names[pair[0]], names[pair[1]]])
        merged = {}
        for word, count in counts.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == pair:
                    out.append(token)
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] = merged.get(tuple(out), 0) + count
        counts = merged
    return found, names
