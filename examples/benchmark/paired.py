#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how models of a study differ from its first one, and whether another study has the same differences.

    paired.py RUNS.csv [OTHER.csv]

The files are runs.csv of studies, or runs.csv.gz. Differences are of the validation loss, paired by seed, with 95 % intervals by
Student's t; seeds that chose a model's learning rate do not count. With two studies, which have the same models and seeds and
another optimizer, the last column is the interaction: the difference in the second less that in the first. Where a run did not
finish there are no numbers.
"""
import collections
import csv
import gzip
import math
import statistics
import sys

from ladder_results import difference, loss_of


def read_judged(path):
    """Returns {model: {seed: (loss, collapsed)}} of the seeds that did not choose, which have one run of each model."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", newline="") as file:
        for run in csv.DictReader(file):
            runs[run["model"]][int(run["seed"])].append((loss_of(run), run["collapsed"] == "1"))
    return {model: {seed: found[0] for seed, found in seeds.items() if len(found) == 1} for model, seeds in runs.items()}


def subtract(runs, reference):
    """Returns the differences of the losses, by seed, as runs. A pair with a run that did not finish has infinity."""
    pairs = {seed: (runs[seed], reference[seed]) for seed in runs if seed in reference}
    return {seed: (math.inf if math.inf in (a[0], b[0]) else a[0] - b[0], a[1] or b[1]) for seed, (a, b) in pairs.items()}


def interval(runs, reference):
    """Returns the text of the mean difference of runs from those of the reference, and of its interval."""
    found = difference(runs, reference, 0)
    if found["low"] is None:
        return "-"
    return f"{found['mean']:+.4f} ({found['low']:+.4f} to {found['high']:+.4f})"


def main(paths):
    studies = [read_judged(path) for path in paths]
    if len({tuple(study) for study in studies}) != 1:
        sys.exit("the studies have different models: " + "; ".join(", ".join(study) for study in studies))
    first = next(iter(studies[0]))
    for model in studies[0]:
        losses = [f"{statistics.fmean(loss for loss, _ in study[model].values()):.4f}" for study in studies]
        columns = [interval(study[model], study[first]) for study in studies] if model != first else []
        if len(columns) == 2:
            columns.append(interval(*(subtract(study[model], study[first]) for study in reversed(studies))))
        print("  ".join([f"{model:10}", f"{len(studies[0][model])} seeds", *losses, *columns]))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1:])
