#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the benchmark from its studies, to stdout: make_page.py STUDY..."""

import csv
import json
import os
import sys

ABOUT = """\
# Which placement wins: a benchmark of small models

After this page you know how {count} placements compare on one small task, and what that does not show.
`examples/benchmark/run.sh` trains every run and writes this page.

The model is that of `examples/why_normalise`: 16 wide, RMSNorm, one name a step for {steps} steps, without warm-up. Each
placement is trained with each of the learning rates {rates}, with the seeds 1 to {choosing}. The rate with the lowest
validation loss (a tenth of the names, held out) is its best one. With that rate it is trained with {reported} other seeds, which are
reported and compared, so that no run both chooses and wins.

How to read a table: it is sorted by the mean. *Rank* says which ranks the data permit: 3–7 means that two placements are
significantly better and that all but six others are not significantly worse. A difference is significant if Student's paired t-test
has p < 0.05 after Holm's correction for all pairs of the table. *− pre* is the difference to pre-norm, paired by seed, with its 95 %
interval (not corrected). *Collapsed* runs have learned how often each letter occurs and no more; *diverged* ones ended in a number
that was not finite and are not part of means.

**What this does not show.** Widths beyond 16, texts longer than a name, warm-up, more steps, and other norms. Some placements were proposed for
depths of hundreds of layers or for large models, where they may win; a placement that is rescued by warm-up looks worse here
than in its paper. The order of placements whose ranks overlap is chance.
"""

MACHINE = """\
## How it was made

{rows}

Repeat it: `examples/benchmark/run.sh`. Another processor rounds differently, and the last digits with it. To add a placement, write its file
into `plugins/placements` and give the same command with `--store DIR`: runs of the store are not trained again.
"""


def load(study, name):
    with open(os.path.join(study, name), encoding="utf-8") as file:
        return json.load(file)


def signed(value):
    return f"{value:+.3f}".replace("-", "−")


class Study:
    """Results of one depth."""

    def __init__(self, path):
        self.report = load(path, "report.json")
        self.provenance = load(path, "provenance.json")
        with open(os.path.join(path, "runs.csv"), encoding="utf-8") as file:
            self.runs = list(csv.DictReader(file))
        self.names = [model["name"] for model in self.report["models"]]
        self.best = self.report["best"]
        self.pairs = {frozenset((pair["model"], pair["against"])): pair for pair in self.best["paired"]}

    def rate(self, model):
        return self.report["cells"][self.best["models"][model]["cell"]].split("=")[1]

    def outcomes(self, model):
        """Returns how many of the reported runs collapsed and diverged."""
        seeds = sorted({int(run["seed"]) for run in self.runs})[self.best["chosen_with"]:]
        own = [run for run in self.runs if run["model"] == self.names[model] and int(run["seed"]) in seeds]
        return sum(run["collapsed"] == "1" for run in own), sum(run["status"] == "diverged" for run in own)

    def ranks(self):
        """Returns the models in the order of means, each with the first and the last rank that it may have."""
        ranked = [m for m, figures in enumerate(self.best["models"]) if figures["mean"] is not None]
        ranked.sort(key=lambda m: self.best["models"][m]["mean"])
        better = dict.fromkeys(ranked, 0)
        worse = dict.fromkeys(ranked, 0)
        for pair in self.best["paired"]:
            if pair["p_holm"] is None or pair["p_holm"] >= 0.05:
                continue
            low, high = sorted((pair["model"], pair["against"]), key=lambda m: self.best["models"][m]["mean"])
            better[high] += 1
            worse[low] += 1
        return [(m, 1 + better[m], len(ranked) - worse[m]) for m in ranked]

    def table(self):
        lines = ["| rank | placement | best rate | validation loss | − pre | collapsed | diverged |",
                 "|---:|---|---:|---:|---:|---:|---:|"]
        baseline = 0
        for model, first, last in self.ranks():
            figures = self.best["models"][model]
            sd = "" if figures["sd"] is None else f" ± {figures['sd']:.3f}"
            pair = self.pairs.get(frozenset((baseline, model)))
            difference = ""
            if pair is not None and pair["low"] is not None:
                sign = 1 if pair["against"] == baseline else -1
                low, high = sorted((sign * pair["low"], sign * pair["high"]))
                difference = f"{signed(sign * pair['mean'])} ({signed(low)} to {signed(high)})"
            collapsed, diverged = self.outcomes(model)
            lines.append(f"| {first}–{last} | `{self.names[model]}` | {self.rate(model)} | {figures['mean']:.3f}{sd} | "
                         f"{difference} | {collapsed or ''} | {diverged or ''} |")
        without = [self.names[m] for m, figures in enumerate(self.best["models"]) if figures["mean"] is None]
        if without:
            lines.append("\nWithout a run that ended: " + ", ".join(f"`{name}`" for name in without) + ".")
        return "\n".join(lines)

    def sentence(self):
        ranks = self.ranks()
        best = [self.names[model] for model, first, _ in ranks if first == 1]
        _, first, last = next(entry for entry in ranks if entry[0] == 0)
        return (f"{len(best)} of {len(self.names)} placements may be the best. `{self.names[ranks[0][0]]}` has the lowest "
                f"mean. Pre-norm has a rank from {first} to {last}.")


def main():
    studies = [Study(path) for path in sys.argv[1:]]
    first = studies[0]
    rates = [cell.split("=")[1] for cell in first.report["cells"]]
    seeds = {run["seed"] for run in first.runs}
    choosing = first.best["chosen_with"]
    print(ABOUT.format(count=len(first.names), steps=first.report["steps"], rates=", ".join(rates),
                       choosing=choosing, reported=len(seeds) - choosing))
    for study, path in zip(studies, sys.argv[1:]):
        depth = path.rstrip("/").rsplit("_", 1)[1]
        print(f"## {depth} layers\n\n{study.sentence()}\n\n{study.table()}\n")
    runs = sum(len(study.runs) for study in studies)
    minutes = sum(study.provenance["seconds"] for study in studies) / 60
    origin = first.report["provenance"]
    rows = ["| | |", "|---|---|",
            f"| plumb, oneDNN | {origin['plumb']}, {origin['onednn']} |",
            f"| processor | {first.provenance['cpu']}, {first.provenance['threads']} threads |",
            f"| products | {origin['products']} |",
            f"| begun | {first.provenance['started'][:10]} |",
            f"| runs, minutes | {runs:,}, {minutes:.0f} |",
            f"| data | `names.txt`, SHA-256 `{origin['data']['sha256'][:16]}` |"]
    print(MACHINE.format(rows="\n".join(rows)), end="")


if __name__ == "__main__":
    main()
