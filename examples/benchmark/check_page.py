#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes every number of the ladder's page again from the CSV files and the protocol, and fails with the names of those that
differ:

    check_page.py PAGE RESULTS

It uses numpy and scipy, and shares no code with make_page.py or ladder_results.py. Without numpy and scipy it exits with 77. Facts
that only RUNG.json has are compared with it: processor time, equal models, and the version of plumb.
"""
import csv
import fractions
import gzip
import hashlib
import itertools
import json
import math
import os
import re
import sys

try:
    import numpy as np
    from scipy import stats
except ImportError:
    print("check_page.py needs numpy and scipy: python3 -m venv DIR && DIR/bin/pip install numpy scipy", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1


def splitmix(state):
    """Yields the numbers of SplitMix64 from a state."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def ends(values, interval):
    """Returns the interval of bootstrap values, which the head of ladder_results.py specifies."""
    cut = math.floor((1 - fractions.Fraction(str(interval))) / 2 * len(values))
    ordered = np.sort(values)
    return [ordered[cut], ordered[-1 - cut]]


def flips(differences):
    """Returns the exact p-value of the permutation test that changes signs. The sums of two halves are joined by numpy."""
    size, bound = len(differences), abs(differences.sum()) - 1e-9 * np.abs(differences).sum()
    parts = []
    for part in (differences[: size // 2], differences[size // 2:]):
        sums = np.zeros(1)
        for value in part:
            sums = np.concatenate([sums + value, sums - value])
        parts.append(np.sort(sums))
    if bound <= 0:
        return 1.0
    a, b = parts
    above = len(b) - np.searchsorted(b, bound - a, side="left")
    below = np.searchsorted(b, -bound - a, side="right")
    return float(above.sum() + below.sum()) / 2.0**size


def step_down(p_values):
    """Returns p-values after Holm's step-down correction; None is not part of the family."""
    keys = [key for key, p in p_values.items() if p is not None]
    raw = np.array([p_values[key] for key in keys])
    order = np.argsort(raw, kind="stable")
    adjusted = np.minimum(1, np.maximum.accumulate((len(raw) - np.arange(len(raw))) * raw[order])) if len(raw) else raw
    return {**dict.fromkeys(p_values), **{keys[i]: adjusted[k] for k, i in enumerate(order)}}


class Results:
    """Runs of a rung as arrays, and the numbers that follow from them."""

    def __init__(self, protocol, index, folder):
        self.protocol, self.name = protocol, protocol["rungs"][index]["name"]
        with open(os.path.join(folder, self.name + ".json"), encoding="utf-8") as file:
            self.facts = json.load(file)
        with gzip.open(os.path.join(folder, self.name + ".csv.gz"), "rt", newline="") as file:
            self.runs = list(csv.DictReader(file))
        judged = [run for run in self.runs if run["part"] == "judged"]
        self.names = sorted({run["placement"] for run in judged})
        self.seeds = sorted({int(run["seed"]) for run in judged})
        shape = len(self.names), len(self.seeds)
        if len(judged) != shape[0] * shape[1]:
            sys.exit(f"{self.name}: not every placement has the same judged seeds")
        self.loss, self.collapsed = np.full(shape, np.nan), np.zeros(shape, bool)
        for run in judged:
            at = self.names.index(run["placement"]), self.seeds.index(int(run["seed"]))
            self.collapsed[at] = run["collapsed"] == "1"
            if run["status"] == "finished":
                self.loss[at] = float(run["validation"])
        self.rate = {run["placement"]: float(run["rate"]) for run in judged}
        draws, n = splitmix(protocol["bootstrap"]["seed"] * 2**32 + index), len(self.seeds)
        self.samples = [list(range(n))]
        for _ in range(protocol["bootstrap"]["samples"]):
            self.samples.append([next(draws) * n // 2**64 for _ in range(n)])
        self.order = np.array([self.orders(sample) for sample in self.samples])
        self.make_cells()

    def orders(self, sample):
        """Returns the order of placements: dense ranks of the number of diverged runs, then of the mean loss of the others."""
        drawn = self.loss[:, sample]
        failed = np.isnan(drawn)
        counts = (~failed).sum(axis=1)
        means = np.where(failed, 0, drawn).sum(axis=1) / np.maximum(1, counts)
        return np.unique(np.stack([failed.sum(axis=1), means]).round(13), axis=1, return_inverse=True)[1].ravel()

    def among(self, names):
        """Returns the ranks of some placements among each other, in each sample."""
        return stats.rankdata(self.order[:, [self.names.index(name) for name in names]], axis=1)

    def make_cells(self):
        protocol, places = self.protocol, self.among(self.names)
        baseline = protocol["families"]["baseline"]
        self.cells = {}
        for i, name in enumerate(self.names):
            finished = self.loss[i][~np.isnan(self.loss[i])]
            half, double = (self.slope(name, factor) for factor in (0.5, 2))
            self.cells[name] = {
                "loss": finished.mean() if len(finished) else None, "rank": places[0, i],
                "place": ends(places[1:, i], protocol["bootstrap"]["interval"]), "runs": len(self.seeds),
                "diverged": int(np.isnan(self.loss[i]).sum()), "collapsed": int(self.collapsed[i].sum()),
                "rate": self.rate[name], "half": half, "double": double}
        pairs = {name: self.compare(name, baseline) for name in self.names if name != baseline}
        adjusted = step_down({name: pair.pop("p") for name, pair in pairs.items()})
        equal = step_down({name: pair.pop("p_equal") for name, pair in pairs.items()})
        for name, pair in pairs.items():
            pair.update(p_holm=adjusted[name], p_equal_holm=equal[name])
            pair["outcome"] = self.outcome(name, pair)
            self.cells[name].update(pair)
        for name, same in self.facts["same_model"].items():
            self.cells[name] = {"same": same, "outcome": self.cells[same].get("outcome", "equal")}

    def slope(self, name, factor):
        losses = {}
        for run in self.runs:
            if run["placement"] == name and run["part"] == "choosing":
                loss = float(run["validation"]) if run["status"] == "finished" else math.nan
                losses.setdefault(round(math.log2(float(run["rate"]) / self.rate[name]), 3), []).append(loss)
        other = losses.get(round(math.log2(factor), 3))
        if other is None:
            return None
        change = np.mean(other) - np.mean(losses[0])
        return "diverged" if math.isnan(change) else change

    def compare(self, name, baseline):
        a, b = (self.loss[self.names.index(x)] for x in (name, baseline))
        low, high = (np.where(np.isnan(x), np.inf, x) for x in (a, b))
        found = {"mean": None, "low": None, "high": None, "test": "signs", "lower": int((low < high).sum()),
                 "higher": int((low > high).sum()), "p": None, "p_equal": None}
        if np.isnan(a + b).any():
            decided = found["lower"] + found["higher"]
            found["p"] = stats.binomtest(found["lower"], decided).pvalue if decided else 1.0
            return found
        collapsed = self.collapsed[[self.names.index(name), self.names.index(baseline)]].any()
        found.update(mean=(a - b).mean(), test="sign flips" if collapsed else "t")
        if len(a) > 1 and np.ptp(a - b) > 0:
            test, margin = stats.ttest_rel(a, b), self.protocol["families"]["margin"]
            found["low"], found["high"] = test.confidence_interval(0.95)
            found["p"] = test.pvalue
            if not collapsed:
                found["p_equal"] = max(stats.ttest_1samp(a - b, -margin, alternative="greater").pvalue,
                                       stats.ttest_1samp(a - b, margin, alternative="less").pvalue)
        elif found["mean"] == 0 and len(a) > 1:
            found["p"] = 1.0
        if collapsed:
            found["p"] = flips(a - b)
        return found

    def outcome(self, name, pair):
        level = self.protocol["families"]["level"]
        if pair["p_equal_holm"] is not None and pair["p_equal_holm"] < level:
            return "equal"
        if pair["p_holm"] is None or pair["p_holm"] >= level:
            return "undecided"
        if (pair["mean"] if pair["mean"] is not None else pair["higher"] - pair["lower"]) > 0:
            return "worse"
        return "better" if self.cells[name]["runs"] - self.cells[name]["diverged"] >= 2 else "undecided"


def correlate(a, b, names, interval):
    """Returns Spearman's correlation of ranks by sample, or None. Of the first row scipy computes it."""
    if len(names) < 4 or np.ptp(a[0]) == 0 or np.ptp(b[0]) == 0:
        return None
    x, y = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (a, b))
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))[1:]
    sampled = (x * y).sum(axis=1)[1:][scale > 0] / scale[scale > 0]
    if not len(sampled):
        return None
    low, high = ends(sampled, interval)
    return {"placements": len(names), "rho": stats.spearmanr(a[0], b[0])[0], "low": low, "high": high}


def classify(rungs, outcomes):
    """Returns the classes of the protocol from a placement's outcomes by rung."""
    axes = {axis: [outcomes[rung["name"]] for rung in rungs if axis in rung.get("axes", []) and rung["name"] in outcomes]
            for axis in ("tokens", "depth", "width")}
    together, lost = sum(axes.values(), []), {"worse", "equal"}
    at = outcomes.get
    tests = {
        "helps everywhere": bool(together) and set(together) == {"better"},
        "never": bool(together) and set(together) <= lost,
        "only early": at("base") == "better" and axes["tokens"][-1] in lost,
        "only deep": at("base") in lost and axes["depth"][-1] == "better",
        "only wide": at("base") in lost and axes["width"][-1] == "better",
        "only without warm-up": at("base") == "better" and at("warm_up") in lost}
    return [name for name, holds in tests.items() if holds] or ["undecided"]


def make_row(protocol, done, name):
    cells = {rung.name: rung.cells[name] for rung in done if name in rung.cells}
    full = [rung.cells[rung.cells[name].get("same", name)] for rung in done if name in rung.cells]
    row = {"name": name, "cells": cells, "trained": len(cells)}
    row.update((key, sum(cell[key] for cell in full)) for key in ("runs", "diverged", "collapsed"))
    if name == protocol["families"]["baseline"]:
        return row
    outcomes = {rung: cell["outcome"] for rung, cell in cells.items()}
    counts = {key: list(outcomes.values()).count(key) for key in ("better", "worse", "equal", "undecided")}
    tops = [cell["high"] for cell in full if cell.get("high") is not None]
    same = {cell.get("same") for cell in cells.values()}
    return {**row, **counts, "best": min(tops) if tops else None, "classes": classify(protocol["rungs"], outcomes),
            "same_model": same.pop() if len(same) == 1 else None}


def make_answer(protocol, rows, done, pairs):
    own = [row for row in rows if "classes" in row and row["same_model"] is None]
    task = {rung["name"]: rung.get("task", protocol["defaults"]["task"])
            for rung in protocol["rungs"] if rung.get("placements", "all") == "all"}
    pairs = [pair for pair in pairs if pair["a"] in task and pair["b"] in task]
    same = [pair["rho"] for pair in pairs if task[pair["a"]] == task[pair["b"]]]
    other = [pair["rho"] for pair in pairs if task[pair["a"]] != task[pair["b"]]]
    middle = [float(np.median(values)) if values else None for values in (same + other, same, other)]
    classes = sorted({name for row in own for name in row["classes"]})
    return {
        "placements": len(own), "rungs": len(done), "better_once": len([row for row in own if row["better"] >= 1]),
        "better_half": len([row for row in own if row["better"] / row["trained"] > 0.5]),
        "better_always": [row["name"] for row in own if row["better"] == row["trained"]],
        "never_better": len([row for row in own if not row["better"]]),
        "reversed": [row["name"] for row in own if min(row["better"], row["worse"]) > 0],
        "classes": {name: [row["name"] for row in own if name in row["classes"]] for name in classes},
        "pairs": len(pairs), "median_rho": middle[0], "same_task_pairs": len(same), "same_task_rho": middle[1],
        "other_task_pairs": len(other), "other_task_rho": middle[2],
        "pairs_below_half": len([pair for pair in pairs if pair["rho"] < 0.5]),
        "pairs_without_order": len([pair for pair in pairs if pair["low"] <= 0])}


def make_external(protocol, done):
    path = os.path.join(HERE, "external.json")
    found = []
    for ladder in json.load(open(path, encoding="utf-8")) if os.path.exists(path) else []:
        for rung in done:
            names = sorted(set(rung.names) & set(ladder["losses"]))
            outside = np.tile(stats.rankdata([ladder["losses"][name] for name in names]), (len(rung.samples), 1))
            pair = correlate(rung.among(names), outside, names, protocol["bootstrap"]["interval"]) if names else None
            if pair:
                found.append({"name": ladder["name"], "source": ladder["source"], "rung": rung.name, **pair})
    return found


def compute(folder):
    """Returns what the page's JSON should be."""
    with open(os.path.join(HERE, "protocol.json"), "rb") as file:
        text = file.read()
    protocol, digest = json.loads(text), hashlib.sha256(text).hexdigest()[:16]
    done = [Results(protocol, i, folder) for i, rung in enumerate(protocol["rungs"])
            if os.path.exists(os.path.join(folder, rung["name"] + ".csv.gz"))]
    stated = done[0].facts["protocol"]
    pairs = []
    for a, b in itertools.combinations(done, 2):
        names = sorted(set(a.names) & set(b.names))
        pair = correlate(a.among(names), b.among(names), names, protocol["bootstrap"]["interval"])
        pairs += [{"a": a.name, "b": b.name, **pair}] if pair else []
    rows = [make_row(protocol, done, name) for name in sorted(set().union(*(rung.cells for rung in done)))]
    rows.sort(key=lambda row: (-row.get("better", 0), row.get("worse", 0), math.inf if row.get("best") is None else row["best"]))
    by_name = {rung.name: {"compared": len(rung.names), "runs": len(rung.runs), "judged": len(rung.seeds),
                           "minutes": rung.facts["processor_seconds"] / 60, "protocol": rung.facts["version"],
                           "plumb": rung.facts["plumb"]} for rung in done}
    parts = ("version", "earlier", "families", "classes", "rates", "seeds", "picked", "bootstrap")
    return {
        "protocol": {**{key: protocol[key] for key in parts}, "hash": "quick-" + digest if stated.startswith("quick-") else digest},
        "rungs": [{**protocol["defaults"], **rung, **by_name.get(rung["name"], {})} for rung in protocol["rungs"]],
        "answer": make_answer(protocol, rows, done, pairs), "correlations": pairs, "external": make_external(protocol, done),
        "placements": rows}


def differing(path, page, own, count):
    """Yields a line for each value that differs, and counts the numbers in count[0]."""
    if isinstance(own, dict) and isinstance(page, dict):
        for key in sorted(set(own) | set(page)):
            if key not in own or key not in page:
                yield f"{path}.{key} is only {'on the page' if key in page else 'here'}"
            else:
                yield from differing(f"{path}.{key}", page[key], own[key], count)
    elif isinstance(own, list) and isinstance(page, list):
        if len(own) != len(page):
            yield f"{path} has {len(page)} items on the page, {len(own)} here"
        for i, (theirs, ours) in enumerate(zip(page, own)):
            name = f".{ours['name']}" if isinstance(ours, dict) and "name" in ours else f"[{i}]"
            yield from differing(path + name, theirs, ours, count)
    elif isinstance(own, (int, float, np.number)) and isinstance(page, (int, float)):
        count[0] += 1
        small = 0.0 if ".p_" in path else 1e-12  # Differences of almost 0 are rounding, p-values are not.
        if not (abs(page - own) <= 1e-9 * max(1, abs(own)) and (abs(own) <= small or abs(page / own - 1) <= 1e-6)):
            yield f"{path} is {page} on the page, {own} here"
    elif own != page:
        yield f"{path} is {page!r} on the page, {own!r} here"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        block = re.search(r'<script type="application/json" id="ladder">(.*?)</script>', file.read(), re.S).group(1)
    page = json.loads(block)
    for row in page["placements"]:
        row.pop("file")
    count = [0]
    wrong = list(differing("page", page, compute(sys.argv[2]), count))
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{count[0]} numbers of the page agree")


if __name__ == "__main__":
    main()
