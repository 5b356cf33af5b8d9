#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the ladder from its results: make_page.py RESULTS [--out PAGE] [--placement FILE]..

The page is one file without links to others. Its numbers are a block of JSON, which page.js draws and check_page.py computes again.
A page is refused if a number differs from plumb's own report in RESULTS/RUNG.json.
"""
import argparse
import collections
import glob
import hashlib
import itertools
import json
import math
import os
import re
import statistics
import sys

import ladder_results as results_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAIR = ("mean", "low", "high", "test", "lower", "higher", "p_holm", "p_equal_holm", "outcome")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def strings(field, text):
    """Returns the values of a field of a text proto."""
    found = re.findall(rf"\b{field}:((?:\s*\"(?:\\.|[^\"\\])*\")+)", text)
    return ["".join(re.findall(r'"((?:\\.|[^"\\])*)"', value)).replace('\\"', '"') for value in found]


def read_placement(path):
    """Returns the name of a placement and what the page shows of its file: its text without documentation is the equation."""
    text = read(path)
    sources = re.findall(r"^  source \{.*?^  \}\n", text, re.M | re.S)
    rest = re.sub(r"^  source \{.*?^  \}\n|^  doc:(?:\s*\"(?:\\.|[^\"\\])*\")+\n", "", text, flags=re.M | re.S)
    return strings("name", text)[0], {
        "doc": " ".join(strings("doc", text)), "text": rest.strip(),
        "sources": [[value for field in ("paper", "equation", "code", "note") for value in strings(field, source)]
                    for source in sources]}


class Rung:
    """A rung of the protocol with its results. `cells` has the numbers of each placement."""

    def __init__(self, protocol, rung, results):
        self.rung = {**protocol["defaults"], **rung}
        self.name = rung["name"]
        self.facts = json.loads(read(os.path.join(results, self.name + ".json")))
        self.judged, self.rates, self.choosing = results_of.read_runs(results, self.name)
        self.differences = results_of.differences_of(protocol, self.judged)
        self.standings = results_of.Standings(protocol, self.name, self.judged)
        places = self.standings.places()
        self.cells = {name: self.cell(name, places[name]) for name in self.judged}
        for name, same in self.facts["same_model"].items():
            outcome = self.differences[same]["outcome"] if same in self.differences else "equal"
            self.cells[name] = {"same": same, "outcome": outcome}

    def cell(self, name, place):
        runs = list(self.judged[name].values())
        finished = [loss for loss, _ in runs if loss < math.inf]
        half, double = results_of.slopes(self.choosing[name], self.rates[name])
        found = {"loss": statistics.fmean(finished) if finished else None, "rank": place[0], "place": place[1:],
                 "runs": len(runs), "diverged": len(runs) - len(finished), "collapsed": sum(collapsed for _, collapsed in runs),
                 "rate": self.rates[name], "half": half, "double": double}
        if name in self.differences:
            found.update((key, self.differences[name][key]) for key in PAIR)
        return found

    def summary(self):
        judged = max(len(runs) for runs in self.judged.values())
        return {"compared": len(self.judged), "runs": self.facts["runs"], "judged": judged,
                "minutes": self.facts["processor_seconds"] / 60, "protocol": self.facts["version"], "plumb": self.facts["plumb"]}


def resolved(cells, name):
    """Returns the numbers of a placement on a rung: those of the other one if it is the same model."""
    cell = cells[name]
    return {**cells[cell["same"]], "outcome": cell["outcome"]} if "same" in cell else cell


def summarize(protocol, rungs, name):
    """Returns the row of a placement: its class, counts over rungs, and its cells."""
    cells = {rung.name: rung.cells[name] for rung in rungs if name in rung.cells}
    full = [resolved(rung.cells, name) for rung in rungs if name in rung.cells]
    row = {"name": name, "cells": cells, "trained": len(full), "runs": sum(cell["runs"] for cell in full),
           "diverged": sum(cell["diverged"] for cell in full), "collapsed": sum(cell["collapsed"] for cell in full)}
    if name == protocol["families"]["baseline"]:
        return row
    outcomes = {rung.name: rung.cells[name]["outcome"] for rung in rungs if name in rung.cells}
    count = collections.Counter(outcomes.values())
    same = {cell.get("same") for cell in cells.values()}
    row.update({key: count[key] for key in ("better", "worse", "equal", "undecided")},
               best=min((cell["high"] for cell in full if cell.get("high") is not None), default=None),
               classes=results_of.classes(protocol, outcomes),
               same_model=same.pop() if len(same) == 1 else None)
    return row


def correlations(rungs):
    """Returns the rank correlation of each pair of rungs with enough placements in common."""
    found = []
    for a, b in itertools.combinations(rungs, 2):
        pair = results_of.correlation(a.standings, b.standings)
        if pair:
            found.append({"a": a.name, "b": b.name, **pair})
    return found


def externals(protocol, rungs):
    """Returns the correlation of each rung with each published ladder of external.json, smaller losses being better."""
    path = os.path.join(HERE, "external.json")
    found = []
    for ladder in json.loads(read(path)) if os.path.exists(path) else []:
        outside = results_of.Outside(protocol, ladder["losses"])
        for rung in rungs:
            pair = results_of.correlation(rung.standings, outside)
            if pair:
                found.append({"name": ladder["name"], "source": ladder["source"], "rung": rung.name, **pair})
    return found


def answer(protocol, rungs, rows, pairs):
    """Returns the numbers of the sentences at the top. A placement that is the same model as another one is not counted."""
    own = [row for row in rows if "classes" in row and not row["same_model"]]
    whole = {rung.name: rung.rung["task"] for rung in rungs if rung.rung["placements"] == "all"}
    compared = [pair for pair in pairs if pair["a"] in whole and pair["b"] in whole]
    near = [pair["rho"] for pair in compared if whole[pair["a"]] == whole[pair["b"]]]
    far = [pair["rho"] for pair in compared if whole[pair["a"]] != whole[pair["b"]]]
    classes = collections.defaultdict(list)
    for row in own:
        for name in row["classes"]:
            classes[name].append(row["name"])

    def median(values):
        return statistics.median(values) if values else None

    return {"placements": len(own), "rungs": len(rungs), "better_once": sum(row["better"] > 0 for row in own),
            "better_half": sum(2 * row["better"] > row["trained"] for row in own),
            "better_always": [row["name"] for row in own if row["better"] == row["trained"]],
            "never_better": sum(row["better"] == 0 for row in own),
            "reversed": [row["name"] for row in own if row["better"] and row["worse"]], "classes": classes,
            "pairs": len(compared), "median_rho": median([pair["rho"] for pair in compared]),
            "same_task_pairs": len(near), "same_task_rho": median(near),
            "other_task_pairs": len(far), "other_task_rho": median(far),
            "pairs_below_half": sum(pair["rho"] < 0.5 for pair in compared),
            "pairs_without_order": sum(pair["low"] <= 0 for pair in compared)}


def load(protocol, results):
    """Returns the rungs that have results, and the hash of the protocol. Fails if plumb's report has other numbers, or results are of another protocol."""
    rungs = [Rung(protocol, rung, results) for rung in protocol["rungs"]
             if os.path.exists(os.path.join(results, rung["name"] + ".csv.gz"))]
    if not rungs:
        sys.exit(f"{results} has no results")
    wrong = [f"{rung.name}: {line}" for rung in rungs
             for line in results_of.disagreements(rung.differences, rung.facts["paired"])]
    with open(os.path.join(HERE, "protocol.json"), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:16]
    own = "quick-" + digest if rungs[0].facts["protocol"].startswith("quick-") else digest
    wrong += [f"{rung.name}: the results are of protocol {rung.facts['protocol']}, and protocol.json is {own}" for rung in rungs
              if rung.facts["protocol"] not in results_of.accepted_hashes(protocol, own, rung.name)]
    if wrong:
        sys.exit("\n".join(wrong))
    return rungs, own


def shortened(value):
    """Returns the value with floating-point numbers of ten digits."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return [shortened(item) for item in value] if isinstance(value, (list, tuple)) else value


def numbers(protocol, rungs, digest):
    """Returns the JSON of the page without the texts of placements."""
    done = {rung.name: rung for rung in rungs}
    names = sorted({name for rung in rungs for name in rung.cells})
    rows = [summarize(protocol, rungs, name) for name in names]
    rows.sort(key=lambda row: (-row.get("better", 0), row.get("worse", 0), math.inf if row.get("best") is None else row["best"]))
    pairs = correlations(rungs)
    described = [{**protocol["defaults"], **rung} for rung in protocol["rungs"]]
    return shortened({
        "protocol": {**{key: protocol[key] for key in ("version", "earlier", "families", "classes", "rates", "seeds", "picked", "bootstrap")},
                     "hash": digest},
        "rungs": [{**rung, **(done[rung["name"]].summary() if rung["name"] in done else {})} for rung in described],
        "answer": answer(protocol, rungs, rows, pairs), "correlations": pairs, "external": externals(protocol, rungs),
        "placements": rows})


def write_page(results, out, placements):
    """Writes the page of the results to the file `out`. `placements` are files of placements that do not ship with plumb."""
    protocol = json.loads(read(os.path.join(HERE, "protocol.json")))
    page = numbers(protocol, *load(protocol, results))
    paths = sorted(glob.glob(os.path.join(ROOT, "plugins", "placements", "*.pbtxt"))) + placements
    files = dict(map(read_placement, paths))
    for row in page["placements"]:
        row["file"] = files.get(row["name"])
    block = json.dumps(page, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    html = read(os.path.join(HERE, "page.html"))
    for mark, text in (("css", read(os.path.join(HERE, "page.css"))), ("js", read(os.path.join(HERE, "page.js"))), ("json", block)):
        html = html.replace(f"@{mark}@", text, 1)
    with open(out + ".part", "w", encoding="utf-8") as file:
        file.write(html)
    os.replace(out + ".part", out)
    print(f"{out}: {len(html.encode()) / 1e3:.0f} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS", help="directory that ladder.py wrote")
    parser.add_argument("--out", help="file to write; default RESULTS/page.html")
    parser.add_argument("--placement", action="append", default=[], metavar="FILE", help="a placement that ladder.py was given")
    options = parser.parse_args()
    write_page(options.results, options.out or os.path.join(options.results, "page.html"), options.placement)


if __name__ == "__main__":
    main()
