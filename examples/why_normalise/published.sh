#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Repeats the published run of this study: makemore's names in the order of Python's random.seed(42)
# shuffle, ten seeds of each model. Fails unless the means agree with the published ones, within the
# variation of runs.
#
#   examples/why_normalise/published.sh NAMES.txt [OUT]
#
# NAMES.txt is names.txt of github.com/karpathy/makemore: 32,033 names.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { echo "usage: published.sh NAMES.txt [OUT]" >&2; exit 2; }
out=$(realpath -m -- "${2:-$here/../../build/studies/published}")
mkdir -p "$(dirname "$out")"

python3 - "$1" > "$out.names.txt" << 'SHUFFLE'
import random, sys
names = [line.strip() for line in open(sys.argv[1]) if line.strip()]
random.seed(42)
random.shuffle(names)
if names[:3] != ["yuheng", "diondre", "xavien"]:
    sys.exit("these are not makemore's names, or not their order")
print("\n".join(names))
SHUFFLE

"$here/run.sh" --data "$out.names.txt" --set train.data.keep_order=true --seeds 10 --out "$out"

python3 - "$out" << 'CHECK'
import csv, pathlib, statistics, sys
losses = {}
for path in pathlib.Path(sys.argv[1]).glob("runs/*-seed*/metrics.csv"):
    losses[tuple(path.parent.name.split("-seed"))] = [float(row["loss"]) for row in csv.DictReader(path.open())]
def last(n): return lambda run: statistics.mean(run[-n:])
def first(n): return lambda run: statistics.mean(run[:n])
def per_seed(group, figure):
    return [figure(run) for (name, _), run in sorted(losses.items()) if name == group]
bad = 0
print("\nfigure                     here             published  allowed")
# Mean of forty seeds of an independent program, and its tolerance.
for group, name, figure, published, middle, tolerance in [
    ("pre", "last 100", last(100), 2.357, 2.357, 0.02),
    ("no_norm", "last 100", last(100), 2.315, 2.331, 0.02),
    ("post", "last 100", last(100), 2.620, 2.67, 0.10),
]:
    values = per_seed(group, figure)
    mean = statistics.mean(values)
    good = abs(mean - middle) <= tolerance
    bad += not good
    print(f"{group:8}{name:17}{mean:.3f} +- {statistics.stdev(values):.3f}   {published:.3f}"
          f"      {middle:.3f} +- {tolerance:.2f}{'' if good else '  NOT REACHED'}")
for a, b, name, figure, positive in [
    ("post", "pre", "last 100", last(100), True),
    ("no_norm", "pre", "last 200", last(200), False),
    ("no_norm", "pre", "first 50", first(50), True),
]:
    signs = [(x > y) == positive for x, y in zip(per_seed(a, figure), per_seed(b, figure))]
    bad += sum(signs) < len(signs) - 1
    print(f"{a} {'above' if positive else 'below'} {b}, {name}: {sum(signs)} of {len(signs)} seeds")
sys.exit(bad)
CHECK
