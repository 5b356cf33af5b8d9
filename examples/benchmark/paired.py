#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how models of a study differ from a baseline, and whether another study has the same differences.

    paired.py RUNS.csv [OTHER.csv] [--baseline MODEL]

The files are runs.csv of studies, or runs.csv.gz. Each model has a row: its validation loss in each study, its difference from the
baseline in each, and with two studies, such as of two optimizers, the interaction: the difference in the second less that in the
first. Differences are paired by seed, and have 95 % intervals by Student's t; seeds that chose a learning rate do not count.
Where a run did not finish there are no numbers. The baseline is by default the first model.
"""
import argparse
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="+", help="one or two files")
    parser.add_argument("--baseline", metavar="MODEL")
    given = parser.parse_args()
    studies = [read_judged(path) for path in given.study]
    if len(studies) > 2 or len({tuple(study) for study in studies}) != 1:
        parser.error("give one study, or two of the same models")
    baseline = given.baseline or next(iter(studies[0]))
    if baseline not in studies[0]:
        parser.error(f"there is no model {baseline}; there are {', '.join(studies[0])}")
    for model in studies[0]:
        losses = [f"{statistics.fmean(loss for loss, _ in study[model].values()):.4f}" for study in studies]
        columns = [interval(study[model], study[baseline]) for study in studies] if model != baseline else []
        if len(columns) == 2:
            columns.append(interval(*(subtract(study[model], study[baseline]) for study in reversed(studies))))
        print("  ".join([f"{model:10}", f"{len(studies[0][model])} seeds", *losses, *columns]))


if __name__ == "__main__":
    main()
