#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of plumb: seconds of a training step and of a decoded token, as ratios.

    bench/compare_builds.py OLD/bin/plumb build/release/bin/plumb [--rounds 9]

Each round runs `plumb bench` of both builds, in alternating order, and yields one ratio new/old for each case. The
output is the median of the ratios and their middle half. Requires an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [
    ("study, train", "../examples/why_normalise/pre.pbtxt", ["--vocab", "27", "--only", "train"]),
    ("study, decode", "../examples/why_normalise/pre.pbtxt",
     ["--vocab", "27", "--only", "decode", "--tokens", "16"]),
    ("baby_gpt, train", "models/baby_gpt.pbtxt", ["--vocab", "65", "--only", "train", "--batch", "12"]),
    ("baby_gpt, decode", "models/baby_gpt.pbtxt", ["--vocab", "65", "--only", "decode"]),
    ("gpt2, train", "models/gpt2.pbtxt",
     ["--only", "train", "--seq", "128", "--batch", "1", "--rounds", "3"]),
    ("gpt2, decode", "models/gpt2.pbtxt", ["--only", "decode", "--tokens", "16", "--rounds", "3"]),
]


def seconds(binary, model, options):
    command = [binary, "bench", os.path.join(HERE, model), "--json", "--quiet"] + options
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures["passes"][0]["seconds"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", help="cases with this in their name")
    options = parser.parse_args()
    print(f"{'':18}{'old, s':>12}{'new, s':>12}{'new/old':>9}  middle half")
    for name, model, arguments in CASES:
        if options.only and options.only not in name:
            continue
        times = {options.old: [], options.new: []}
        for round_ in range(options.rounds):
            order = [options.old, options.new]
            for binary in order if round_ % 2 == 0 else reversed(order):
                times[binary].append(seconds(binary, model, arguments))
        ratios = sorted(new / old for old, new in zip(times[options.old], times[options.new]))
        quarter = len(ratios) // 4
        print(f"{name:18}{statistics.median(times[options.old]):12.3g}"
              f"{statistics.median(times[options.new]):12.3g}{statistics.median(ratios):9.3f}"
              f"  {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
