#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the benchmark from the studies in a directory, to stdout: make_page.py OUT.

With --finalists N it prints the N placements with the lowest mean rank over the studies of names, one a line.
"""

import csv
import json
import math
import os
import statistics
import sys

ABOUT = """\
# Which placement wins: a benchmark of small models

After this page you know how the placements that ship with plumb compare on small tasks, which published tables they confirm, and
what that does not show. `examples/benchmark/run.sh` trains every run and writes this page.

How to read a table: it is sorted by the share of diverged runs and then by the mean of the validation loss. *Rank* is the place in this
order in 95 % of the bootstrap's samples of seeds. A difference to pre-norm is significant if its p-value is below 0.05 after Holm's
correction for all placements of the table ([tests](../../docs/report.md#what-is-claimed)). *− pre* is that difference, paired by seed, with its
95 % interval (not corrected). *Collapsed* runs have learned how often each token occurs and no more; *diverged* ones ended in a number
that was not finite and are not part of means. A rate with * is the smallest or largest one that was tried: beyond it the loss may be lower.

Each placement is trained with every rate of the grid and some seeds; the rate with the lowest validation loss is its best one. With that
rate it is trained with other seeds, which are reported and compared, so that no run both chooses and wins.

**What this does not show.** Widths beyond those of the tasks, long texts, many steps, and other norms. Some placements were proposed for
depths of hundreds of layers or for large models, where they may win; a placement that needs a warm-up looks worse where there is none than in
its paper. The order of placements whose ranks overlap is chance. A placement that is the same model as another one in a task, as `qk_norm_rotated`
and `qk_norm` are without rotary positions, is trained once: the sentence above a table names both.
"""

NAMES = """\
## Names, {depth} layers

The model of `examples/why_normalise`: 16 wide, RMSNorm, learned positions, one name a step for {steps} steps, without warm-up. Rates
{rates}; {choosing}, {reported} are reported; a tenth of the names is held out.
"""

TEXT = """\
## Shakespeare's characters

nanoGPT's recipe for a CPU (`examples/shakespeare`): 4 layers, 128 wide, 0.8 million parameters, LayerNorm without biases, 12 windows of 64 characters a
step for {steps} steps, warm-up of 100 steps, cosine decay. The twenty placements with the lowest mean rank on names, of the 78 that shipped then, and six controls
(`text.txt`). Rates {rates}; {choosing}, {reported} are reported; the last tenth of the text is held out.
"""

PUBLISHED = """\
## Published tables

A difference is *confirmed* if its whole 95 % interval is on the published side of 0, *contradicted* if it is on the other side, and else *not
found*. A loss is *confirmed* if the published one is within three standard deviations: of a run here and of its estimate.

| source | what | published | here | |
|---|---|---:|---:|---|
"""

LEARN_LLM_NOTE = """
[learn-llm](https://github.com/Jeswang/learn-llm) (FINDINGS.md) trains one run per row for 5,000 steps of 32 names, 52,252 parameters, and reports the
loss per character after the first one, estimated over 1,600 random names, which scatters by about 0.01. plumb also predicts the first letter; 2.944 nats, the entropy of first letters, are taken off. Its layers
add the stream to a block that contains it, x + (x + ..), which is not pre-norm: the last row has true pre-norm.
"""

MINIGPT_NOTE = """
[MiniGPT](https://arxiv.org/abs/2605.17398) is one run: 826,433 parameters, 32 windows of 128 characters, 3,000 steps, rate 0.0003, dropout 0.1. Its
dropout of attention's probabilities is the one thing that is omitted here. Its loss is an estimate over 100 random batches; ours is over the
whole validation split, where windows differ by about a quarter of a nat.
"""

WARM_UP_NOTE = """
[Xiong et al. 2020](https://arxiv.org/abs/2002.04745) train a translation model of 6 layers, post-norm, at a rate of 0.001: without warm-up it
reaches a BLEU of 8.45 in place of about 34. Two cores do not train that task. The rows repeat its claim, that post-norm needs a warm-up and
pre-norm does not, on names (`examples/warm_up`) and on Shakespeare's characters with the recipe above at its rate of 0.001, ten times as
small a model.
"""


def load(study, name):
    with open(os.path.join(study, name), encoding="utf-8") as file:
        return json.load(file)


def signed(value):
    return f"{value:+.3f}".replace("-", "−")


def interval(mean, low, high):
    return f"{signed(mean)} ({signed(low)} to {signed(high)})"


class Study:
    """Results of a study."""

    def __init__(self, path):
        self.path = path
        self.report = load(path, "report.json")
        self.provenance = load(path, "provenance.json")
        with open(os.path.join(path, "runs.csv"), encoding="utf-8") as file:
            self.runs = list(csv.DictReader(file))
        self.names = [model["name"] for model in self.report["models"]]
        self.seeds = sorted({int(run["seed"]) for run in self.runs})

    def losses(self, **settings):
        """Returns the validation losses of the finished runs with these columns, in the order of their seeds."""
        chosen = [run for run in self.runs if all(run[column] == value for column, value in settings.items())]
        return [float(run["validation"]) for run in sorted(chosen, key=lambda run: int(run["seed"]))
                if run["status"] == "finished"]


class Ranking(Study):
    """Results of a study whose first seeds choose the best cell of each model."""

    def __init__(self, path):
        super().__init__(path)
        self.best = self.report["best"]
        self.twins = load("", path + ".twins.json") if os.path.exists(path + ".twins.json") else {}
        self.rates = [cell.split("=")[1] for cell in self.report["cells"]]
        self.pairs = {frozenset((pair["model"], pair["against"])): pair for pair in self.best["paired"]}

    def facts(self):
        choosing = self.best["chosen_with"]
        chooses = "1 seed chooses" if choosing == 1 else f"{choosing} seeds choose"
        return {"steps": self.report["steps"], "rates": ", ".join(self.rates), "choosing": chooses,
                "reported": len(self.seeds) - choosing}

    def rate(self, model):
        cell = self.best["models"][model]["cell"]
        return self.rates[cell] + ("*" if cell in (0, len(self.rates) - 1) else "")

    def outcomes(self, model):
        """Returns how many of the reported runs collapsed and diverged."""
        seeds = self.seeds[self.best["chosen_with"]:]
        own = [run for run in self.runs if run["model"] == self.names[model] and int(run["seed"]) in seeds]
        return sum(run["collapsed"] == "1" for run in own), sum(run["status"] == "diverged" for run in own)

    def ranks(self):
        """Returns the models, the best first, each with its first and last place; None without two finished runs."""
        def key(m):
            figures = self.best["models"][m]
            share = figures["diverged"] / (figures["diverged"] + figures["runs"])
            return figures["runs"] < 2, share, figures["mean"]

        ranked = [m for m, figures in enumerate(self.best["models"]) if figures["mean"] is not None]
        return [(m, self.best["models"][m]["place"]) for m in sorted(ranked, key=key)]

    def table(self):
        lines = ["| rank | placement | best rate | validation loss | − pre | collapsed | diverged |",
                 "|---:|---|---:|---:|---:|---:|---:|"]
        baseline = 0
        for model, place in self.ranks():
            figures = self.best["models"][model]
            rank = "–".join(map(str, place)) if place else "–"
            sd = "" if figures["sd"] is None else f" ± {figures['sd']:.3f}"
            pair = self.pairs.get(frozenset((baseline, model)))
            difference = ""
            if pair is not None and pair["test"] == "signs":
                word = "lower" if pair["lower"] > pair["higher"] else "higher"
                difference = f"{word} with {max(pair['lower'], pair['higher'])} of {pair['runs']} seeds"
            elif pair is not None and pair["low"] is not None:
                difference = interval(pair["mean"], pair["low"], pair["high"])
            collapsed, diverged = self.outcomes(model)
            lines.append(f"| {rank} | `{self.names[model]}` | {self.rate(model)} | {figures['mean']:.3f}{sd} | "
                         f"{difference} | {collapsed or ''} | {diverged or ''} |")
        without = [self.names[m] for m, figures in enumerate(self.best["models"]) if figures["mean"] is None]
        if without:
            lines.append("\nWithout a run that ended: " + ", ".join(f"`{name}`" for name in without) + ".")
        return "\n".join(lines)

    def against_baseline(self):
        """Returns the models that differ significantly from the first one: (better, worse)."""
        found = (set(), set())
        for model, name in enumerate(self.names):
            pair = self.pairs.get(frozenset((0, model)))
            if pair is None or pair["p_holm"] is None or pair["p_holm"] >= 0.05:
                continue
            is_worse = pair["higher"] > pair["lower"] if pair["mean"] is None else pair["mean"] > 0
            found[is_worse].add(name)
        return found

    def sentence(self):
        ranks = self.ranks()
        best = [self.names[model] for model, place in ranks if place and place[0] == 1]
        pre = dict(ranks).get(0)
        twins = "".join(f" `{twin}` is the same model as `{name}` here." for twin, name in self.twins.items())
        return (f"{len(best)} of {len(self.names)} placements may be the best. `{self.names[ranks[0][0]]}` is the first. " +
                (f"Pre-norm has a rank from {pre[0]} to {pre[1]}." if pre else "Pre-norm has no rank.") + twins)


def listed(names):
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def both_depths(shallow, deep):
    """Returns what is significant at both depths."""
    better, worse = (a & b for a, b in zip(shallow.against_baseline(), deep.against_baseline()))
    gained, lost = (b - a for a, b in zip(shallow.against_baseline(), deep.against_baseline()))
    return (f"At both depths significantly better than pre-norm: {listed(better)}. Significantly worse at both: {listed(worse)}. At 16 "
            f"layers only, better: {listed(gained)}; worse: {listed(lost)}.\n")


def t_quantile(degrees):
    """Returns the 97.5 % quantile of Student's distribution, by bisection over its integrated density."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)

    def density(x):
        return scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2)

    low, high = 0.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        steps = 2000  # of Simpson's rule
        width = middle / steps
        area = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * density(i * width) for i in range(steps + 1))
        low, high = (middle, high) if area * width / 3 < 0.475 else (low, middle)
    return low


def paired(losses, reference):
    """Returns the mean and the 95 % interval of the differences of runs with the same seeds."""
    differences = [a - b for a, b in zip(losses, reference)]
    mean = statistics.mean(differences)
    half = t_quantile(len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half


def verdict(sign, low, high):
    """Judges an interval by a published difference of this sign; 0: of no difference."""
    if sign == 0:
        return "confirmed" if low <= 0 <= high else "contradicted"
    if low * sign > 0 and high * sign > 0:
        return "confirmed"
    return "contradicted" if low * sign < 0 and high * sign < 0 else "not found"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


FIRST_LETTER = 2.944  # entropy of the first letter of makemore's names, in nats
LETTERS = 6.122  # mean number of letters of a name
# Standard error of learn-llm's estimates: 1 nat a character, LETTERS characters a name, 1,600 names.
ESTIMATE = 1 / math.sqrt(LETTERS * 1600)

# Standard error of MiniGPT's estimate: a quarter of a nat a window, 3,200 windows.
MINIGPT_ESTIMATE = 0.25 / math.sqrt(3200)

# The rows of learn-llm's table: model, test loss, and the row before it.
LEARN_LLM = [("mlp", 2.02, None), ("layer_norm", 1.99, "mlp"), ("rope", 1.98, "layer_norm"), ("gelu", 1.94, "rope")]


def learn_llm(study):
    # A name has LETTERS + 1 targets here, the first letter and the end included, and LETTERS there.
    losses = {name: [(loss * (LETTERS + 1) - FIRST_LETTER) / LETTERS for loss in study.losses(model=name)]
              for name in study.names}
    rows = []
    for name, published, before in LEARN_LLM:
        mean, sd = statistics.mean(losses[name]), statistics.stdev(losses[name])
        agrees = abs(published - mean) <= 3 * math.hypot(sd, ESTIMATE)
        rows.append(row("learn-llm", f"loss of `{name}`", f"{published:.2f}", f"{mean:.3f} ± {sd:.3f}",
                        "confirmed" if agrees else "differs"))
        if before:
            change = published - dict((n, p) for n, p, _ in LEARN_LLM)[before]
            mean, low, high = paired(losses[name], losses[before])
            rows.append(row("learn-llm", f"`{name}` − `{before}`", f"{change:+.2f}".replace("-", "−"),
                            interval(mean, low, high), verdict(-1, low, high)))
    rows.append(row("ours", "`pre` − `gelu`", "", interval(*paired(losses["pre"], losses["gelu"])), ""))
    return rows


def minigpt(study):
    losses = study.losses()
    mean, sd = statistics.mean(losses), statistics.stdev(losses)
    return [row("MiniGPT", "validation loss", "1.724", f"{mean:.3f} ± {sd:.3f}",
                "confirmed" if abs(1.7236 - mean) <= 3 * math.hypot(sd, MINIGPT_ESTIMATE) else "differs")]


def warm_up(study, steps, what, models, **settings):
    rows = []
    for model in models:
        sign = 1 if model == "post" else 0
        without = study.losses(model=model, **settings, **{"train.warmup_steps": "0"})
        with_it = study.losses(model=model, **settings, **{"train.warmup_steps": str(steps)})
        mean, low, high = paired(without, with_it)
        rows.append(row("Xiong", f"`{model}`, {what}: without − with warm-up", "worse" if sign else "about equal",
                        interval(mean, low, high), verdict(sign, low, high)))
    return rows


def published(out):
    """Returns the lines of the section about published tables."""
    lines, notes = [], []
    for name, rows, note in (("learn_llm", learn_llm, LEARN_LLM_NOTE), ("minigpt", minigpt, MINIGPT_NOTE)):
        if os.path.exists(os.path.join(out, name, "report.json")):
            lines += rows(Study(os.path.join(out, name)))
            notes.append(note)
    names, text = os.path.join(out, "warm_up"), os.path.join(out, "warm_up_text")
    if os.path.exists(os.path.join(names, "report.json")):
        study = Study(names)
        depths = sorted({run["model.n_layer"] for run in study.runs}, key=int)
        for depth in depths:
            lines += warm_up(study, 200, f"names, {depth} layers", ["post"], **{"model.n_layer": depth})
    if os.path.exists(os.path.join(text, "report.json")):
        lines += warm_up(Study(text), 100, "Shakespeare", ["post", "pre"])
    if os.path.exists(os.path.join(names, "report.json")):
        notes.append(WARM_UP_NOTE)
    return PUBLISHED + "\n".join(lines) + "\n" + "".join(notes) if lines else ""


def how(out, studies):
    """Returns the section that says how the page was made."""
    lines = ["## How it was made\n", "| study | runs | minutes | processor | plumb, oneDNN | begun | data, SHA-256 |",
             "|---|---:|---:|---|---|---|---|"]
    for name in studies:
        study = Study(os.path.join(out, name))
        origin, made = study.report["provenance"], study.provenance
        lines.append(f"| {name} | {len(study.runs):,} | {made['seconds'] / 60:.1f} | {made['cpu']}, {made['threads']} threads | "
                     f"{origin['plumb']}, {origin['onednn']} | {made['started'][:10]} | "
                     f"`{origin['data']['sha256'][:16]}` |")
    lines.append("""
Minutes are by the wall clock, of the command that completed the study: they include other programs, and pauses, and not the runs that were there
before. On two idle processors the studies of names take 19 minutes together, and `text` two and a half hours.

Repeat it: `examples/benchmark/run.sh`, with `--text` and `--names` for the tasks whose data plumb does not ship. Another processor rounds differently,
and the last digits with it. `results` next to this page has every run that takes minutes, with its hash, which names all that determines it. To add a
placement, write its file into `plugins/placements` and give the same command with `--store DIR`: runs of the store are not trained again.
""")
    return "\n".join(lines)


def finalists(out, count):
    ranks = {}
    for depth in (4, 16):
        study = Ranking(os.path.join(out, f"names_{depth}"))
        for place, (model, _, _) in enumerate(study.ranks()):
            ranks.setdefault(study.names[model], []).append(place)
    both = [name for name, places in ranks.items() if len(places) == 2]
    return sorted(both, key=lambda name: sum(ranks[name]))[:count]


def main():
    if len(sys.argv) == 4 and sys.argv[2] == "--finalists":
        print("\n".join(finalists(sys.argv[1], int(sys.argv[3]))))
        return
    out = sys.argv[1]
    order = ["names_4", "names_16", "text", "learn_llm", "minigpt", "warm_up", "warm_up_text"]
    studies = [name for name in order if os.path.exists(os.path.join(out, name, "report.json"))]
    print(ABOUT)
    for name, about in (("names_4", NAMES), ("names_16", NAMES), ("text", TEXT)):
        if name in studies:
            study = Ranking(os.path.join(out, name))
            print(about.format(depth=name.split("_")[-1], **study.facts()))
            print(f"{study.sentence()}\n\n{study.table()}\n")
        if name == "names_16" and "names_4" in studies:
            print(both_depths(Ranking(os.path.join(out, "names_4")), study))
    section = published(out)
    if section:
        print(section)
    print(how(out, studies), end="")


if __name__ == "__main__":
    main()
