#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the data of a task of the ladder that a script can make. The same task is the same bytes everywhere.

    tasks.py recall FILE           pairs of a key and a value, then keys whose values are to be recalled
    tasks.py addition FILE         sums of two numbers, the last digit of the sum first
    tasks.py words FILE FOLDER     the text of the files in FOLDER, usr/share/games/fortunes of Debian's package fortunes
"""
import json
import os
import sys

LINES = 10000
KEYS = "abcdefghijklmnopqrstuvwxyz"
VALUES = "0123456789"


class Random:
    """Generator of 64 bits by Steele, Lea and Flood (SplitMix64, 2014), which no version of Python changes."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        """Returns a whole number from 0 to limit - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return (z ^ z >> 31) * limit >> 64

    def sample(self, items, count):
        """Returns `count` different items in a random order."""
        items = list(items)
        return [items.pop(self.below(len(items))) for _ in range(count)]


def recall(random):
    """Returns four pairs, and the same pairs in another order. Only the second part counts for the loss."""
    keys = random.sample(KEYS, 4)
    value = {key: VALUES[random.below(len(VALUES))] for key in keys}

    def pairs(order):
        return "".join(key + value[key] for key in order)

    return pairs(keys) + "?", pairs(random.sample(keys, len(keys)))


def addition(random):
    """Returns a sum of two numbers with up to two digits, and its digits from the last to the first."""
    a, b = random.below(100), random.below(100)
    return f"{a}+{b}=", str(a + b)[::-1]


def write_pairs(path, task):
    random = Random(1)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for _ in range(LINES):
            prompt, completion = task(random)
            file.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")


def write_words(path, folder):
    """Joins the files that have no extension, sorted by name, without the lines that separate sayings."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for name in sorted(os.listdir(folder)):
            if "." not in name:
                with open(os.path.join(folder, name), encoding="utf-8") as part:
                    file.writelines(line for line in part if line != "%\n")


def main():
    tasks = {"recall": recall, "addition": addition}
    if len(sys.argv) == 3 and sys.argv[1] in tasks:
        write_pairs(sys.argv[2], tasks[sys.argv[1]])
    elif len(sys.argv) == 4 and sys.argv[1] == "words":
        write_words(*sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
