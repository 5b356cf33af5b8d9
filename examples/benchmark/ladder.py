#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the rungs of protocol.json, and writes the runs of each as RESULTS/RUNG.csv.gz, its cost as RESULTS/RUNG.json, and
the page of all rungs as OUT/page.html.

Runs are kept in a store: the same command continues where it was interrupted, and a new placement trains its own runs alone.
"""
import argparse
import collections
import csv
import glob
import gzip
import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time

import ladder_results
from make_page import read, write_page

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLUMNS = ["protocol", "data", "placement", "part", "rate", "seed", "status", "collapsed", "validation", "last_100", "parameters",
           "flops_per_token", "model_hash", "recipe_hash", "run_hash"]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def file_hash(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def seconds_of(study):
    """Returns the seconds that the runs of a study took, each of its thread."""
    with open(os.path.join(study, "timing.csv"), encoding="utf-8", newline="") as file:
        return sum(float(run["seconds"]) for run in csv.DictReader(file))


def read_placements(paths):
    """Returns the text of each placement by its name."""
    texts = {}
    for path in paths:
        text = read(path)
        name = re.search(r'name: "(\w+)"', text)
        if not name:
            sys.exit(f"{path}: a placement needs a name")
        texts[name.group(1)] = text
    return texts


def make_quick(protocol):
    """Makes all rungs tiny: their numbers mean nothing."""
    for group in ("all", "picked"):
        protocol["seeds"][group] = {"choosing": 2, "judged": 3}
    protocol["bootstrap"]["samples"] = 50
    for rung in protocol["rungs"] + [protocol["defaults"]]:
        rung.pop("judged", None)
        rung.update(steps=10, width=min(rung.get("width", 16), 32), depth=min(rung.get("depth", 4), 8))


class Rung:
    """A rung with the files that describe its models and its recipe."""

    def __init__(self, ladder, rung, placements):
        self.ladder, self.rung = ladder, rung
        baseline = ladder.protocol["families"]["baseline"]
        self.placements = sorted(placements, key=lambda name: name != baseline)
        self.seeds = dict(ladder.protocol["seeds"]["picked" if rung["placements"] == "picked" else "all"])
        self.seeds["judged"] = rung.get("judged", self.seeds["judged"])
        self.task = ladder.protocol["tasks"][rung["task"]]
        self.data = ladder.data(rung["task"])
        self.data_hash = file_hash(self.data)[:16]
        self.work = os.path.join(ladder.out, rung["name"])
        for name in placements:
            write(self.model(name), self.model_text(name))

    def model(self, name):
        return os.path.join(self.work, "models", f"{name}.pbtxt")

    def model_text(self, name):
        protocol, rung = self.ladder.protocol, self.rung
        text = self.ladder.placements[name]
        if name in protocol["replace"]:
            old, new = protocol["replace"][name]
            if old not in text:
                sys.exit(f"protocol.json replaces '{old}' in {name}, which has no such text")
            text = text.replace(old, self.filled(new))
        sizes = [f"n_layer: {rung['depth']}", f"d_model: {rung['width']}", f"d_ff: '{4 * rung['width']}'",
                 f"context_length: {self.task['context']}"]
        return "\n".join(sizes + protocol["model"]).replace("{placement}", name) + "\n" + text

    def filled(self, line):
        steps = self.rung["steps"]
        return line.replace("{percent}", f"{steps / 100:g}").replace("{tenth}", str(steps // 10))

    def arguments(self, names, choosing, judged):
        """Returns the arguments of plumb compare for so many seeds, without its directory."""
        protocol, rung = self.ladder.protocol, self.rung
        lines = [f"max_steps: {rung['steps']}", f"batch_size: {rung['batch']}", *protocol["recipe"], *rung["add"],
                 f"data {{ {self.task['format']} val_fraction: 0.1 }}"]
        recipe = os.path.join(self.work, "train.pbtxt")
        write(recipe, self.filled("\n".join(lines)) + "\n")
        return ["compare", *map(self.model, names), "--data", self.data, "--train", recipe, "--samples", "0", "--quiet",
                "--grid", f"train.learning_rate={protocol['rates']['range']}", "--choosing-seeds", str(choosing),
                "--seeds", str(choosing + judged), "--margin", f"{protocol['families']['margin']:g}"]

    def estimate(self):
        """Returns the expected minutes of all runs, with five rates for each placement. Of many placements a quarter is timed.

        Steps take what plumb estimates from a few of them, and runs of one step show what a run adds, such as its validation.
        """
        timed = self.placements[::4 if len(self.placements) > 20 else 1]
        study = os.path.join(self.work, "estimate")
        arguments = self.arguments(timed, choosing=1, judged=1)
        dry = json.loads(self.ladder.plumb(*arguments, "--dry-run", "--json", "--out", study))
        shutil.rmtree(study, ignore_errors=True)
        begun = time.monotonic()
        self.ladder.plumb(*arguments, "--set", "train.max_steps=1", "--out", study)
        with open(os.path.join(study, "runs.csv"), encoding="utf-8") as file:
            seconds = dry["seconds"] / dry["runs"] + (time.monotonic() - begun) / (len(file.readlines()) - 1)
        shutil.rmtree(study)
        return seconds / 60 * (5 * self.seeds["choosing"] + self.seeds["judged"]) * len(self.placements)

    def directory(self):
        """Returns the directory of the study, which is there while the study is unfinished."""
        arguments = self.arguments(self.placements, **self.seeds)
        return os.path.join(self.work, hashlib.sha256("\n".join(arguments).encode()).hexdigest()[:16])

    def study(self):
        """Trains what the store does not have. Returns the runs, the report, and the seconds that the runs took when trained."""
        study, choosing = self.directory(), self.seeds["choosing"]
        self.ladder.plumb(*self.arguments(self.placements, **self.seeds), "--store", self.ladder.store, "--overwrite",
                          "--out", study)
        with open(os.path.join(study, "runs.csv"), encoding="utf-8", newline="") as file:
            runs = [dict(run, placement=run["model"], part="choosing" if int(run["seed"]) <= choosing else "judged",
                         protocol=self.ladder.hash, rate=float(run["train.learning_rate"]), data=self.data_hash)
                    for run in csv.DictReader(file)]
        found = runs, json.loads(read(os.path.join(study, "report.json"))), seconds_of(study)
        shutil.rmtree(study)  # The store has its runs.
        return found

    def find_twins(self, runs):
        """Returns, by name, the placements that are the same model as an earlier one: all their choosing runs have its losses."""
        keys, firsts, twins = collections.defaultdict(set), {}, {}
        for run in runs:
            if run["part"] == "choosing":
                keys[run["placement"]].add((run["rate"], run["seed"], run["status"], run["validation"], run["last_100"]))
        for name in self.placements:
            if any(run[2] == "finished" for run in keys[name]):
                first = firsts.setdefault(frozenset(keys[name]), name)
                if first != name:
                    twins[name] = first
        return twins

    def run(self):
        done = self.ladder.facts(self.rung["name"])
        cost = ""
        if os.path.exists(self.directory()):
            cost = ", continued"
        elif not done:
            cost = f", about {self.estimate():.1f} minutes if no run is stored"
        print(f"{self.rung['name']}: {len(self.placements)} placements, {self.rung['steps']} steps{cost}", flush=True)
        if done and set(self.placements) <= {self.placements[0], *done["paired"], *done["same_model"]}:
            print(f"{self.rung['name']}: has its results", flush=True)
            return
        begun = time.monotonic()
        runs, report, seconds = self.study()
        twins = self.find_twins(runs)
        if twins:  # They are compared once.
            self.placements = [name for name in self.placements if name not in twins]
            runs, report, seconds = self.study()
        names = [model["name"] for model in report["models"]]
        figures = ("mean", "low", "high", "lower", "higher", "test", "p_holm", "p_equal")
        paired = {names[pair["model"]]: {key: pair[key] for key in figures}
                  for pair in report["best"]["paired"] if pair["against"] == 0}
        runs.sort(key=lambda run: (run["part"], run["placement"], run["rate"], int(run["seed"])))
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(runs)
        path = os.path.join(self.ladder.results, self.rung["name"])
        facts = {"version": self.ladder.protocol["version"], "protocol": self.ladder.hash, "plumb": self.ladder.version,
                 "runs": len(runs), "processor_seconds": round(seconds, 3), "same_model": twins, "paired": paired}
        write(path + ".json", json.dumps(facts, indent=1) + "\n")
        with open(path + ".csv.gz.part", "wb") as file:
            file.write(gzip.compress(text.getvalue().encode(), mtime=0))
        os.replace(path + ".csv.gz.part", path + ".csv.gz")
        print(f"{self.rung['name']}: {len(runs)} runs took {seconds / 60:.1f} minutes of processors; this call took "
              f"{(time.monotonic() - begun) / 60:.1f} minutes", flush=True)


class Ladder:
    def __init__(self, options):
        self.protocol = json.loads(read(os.path.join(HERE, "protocol.json")))
        self.hash = file_hash(os.path.join(HERE, "protocol.json"))[:16]
        self.quick, self.out = options.quick, options.out
        self.results = options.results or os.path.join(self.out, "results")
        self.store = os.path.join(self.out, "store")
        self.program = os.environ.get("PLUMB", os.path.join(ROOT, "build", "quick", "bin", "plumb"))
        self.version = self.plumb("--version").splitlines()[:2]
        self.files = dict(pair.split("=", 1) for pair in options.data)
        if self.quick:
            make_quick(self.protocol)
            self.hash = "quick-" + self.hash
        names = ["pre", "post"] if self.quick else ["*"]
        shipped = [path for name in names for path in glob.glob(os.path.join(ROOT, "plugins", "placements", name + ".pbtxt"))]
        added = read_placements(options.placement)
        self.placements = {**read_placements(sorted(shipped)), **added}
        self.added = list(added)
        unknown = set(options.rung) - {rung["name"] for rung in self.protocol["rungs"]}
        if unknown:
            sys.exit("no such rung: " + ", ".join(sorted(unknown)))

    def plumb(self, *arguments):
        """Runs plumb, and returns its output. Fails with plumb's message."""
        done = subprocess.run([self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        if done.returncode:
            sys.stderr.write(done.stderr)
            sys.exit(done.returncode)
        return done.stdout

    def data(self, task):
        """Returns the file of a task, or None if --data has to give it. Fails if it is not the one of the protocol."""
        facts = self.protocol["tasks"][task]
        path = self.files.get(task) or os.path.join(ROOT, facts.get("data", "docs/placements.md" if self.quick else "-"))
        if "script" in facts:
            path = os.path.join(self.out, f"{task}.jsonl")
            os.makedirs(self.out, exist_ok=True)
            subprocess.run([sys.executable, os.path.join(HERE, "tasks.py"), facts["script"], path], check=True)
        if not os.path.exists(path):
            return None
        if not self.quick and file_hash(path) != facts["sha256"]:
            sys.exit(f"{path} is not the data of the protocol, which is {facts['source']}")
        return path

    def facts(self, name):
        """Returns what RESULTS/NAME.json has, or None if it is of another protocol."""
        path = os.path.join(self.results, name + ".json")
        found = json.loads(read(path)) if os.path.exists(path) else {}
        accepted = ladder_results.accepted_hashes(self.protocol, self.hash, name)
        return found if found.get("protocol") in accepted else None

    def picked(self, rung):
        """Returns the placements that the rule picks. Placements that are added later do not change them."""
        if not self.facts("picked"):
            for needed in self.protocol["rungs"]:
                if needed.get("placements", "all") == "all" and not self.facts(needed["name"]):
                    sys.exit(f"{rung['name']} needs {needed['name']} first, whose results choose its placements")
            groups = ladder_results.pick(self.protocol, self.results, self.placements)
            write(os.path.join(self.results, "picked.json"), json.dumps({"protocol": self.hash, "groups": groups}, indent=1) + "\n")
        return [name for group in self.facts("picked")["groups"].values() for name in group]

    def chosen(self, rung):
        """Returns the placements of a rung, with those of --placement."""
        kind = rung["placements"]
        if kind == "all":
            return sorted(self.placements)
        names = self.picked(rung) if kind == "picked" else kind
        return [name for name in dict.fromkeys(names + self.added) if name in self.placements]

    def run(self, only, estimate):
        total = 0.0
        rungs = [{**self.protocol["defaults"], **rung} for rung in self.protocol["rungs"]]
        for rung in sorted(rungs, key=lambda rung: rung["placements"] == "picked"):  # The others choose its placements.
            if only and rung["name"] not in only:
                continue
            if self.data(rung["task"]) is None:
                source = self.protocol["tasks"][rung["task"]]["source"]
                print(f"{rung['name']}: skipped, give --data {rung['task']}=FILE ({source})")
            elif estimate:
                # The placements that the rule picks are not known yet: these are as many.
                count = sum(rule if isinstance(rule, int) else len(rule) if isinstance(rule, list) else 0
                            for rule in self.protocol["picked"].values())
                names = sorted(self.placements)
                names = names[::max(1, len(names) // count)][:count] if rung["placements"] == "picked" else self.chosen(rung)
                minutes = Rung(self, rung, names).estimate()
                total += minutes
                print(f"{rung['name']}: {len(names)} placements, about {minutes:.1f} minutes", flush=True)
            else:
                Rung(self, rung, self.chosen(rung)).run()
        if estimate:
            print(f"together about {total / 60:.1f} hours")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="PLUMB is the plumb program to use; default build/quick/bin/plumb.")
    parser.add_argument("--rung", action="append", default=[], help="run this rung alone; repeatable")
    parser.add_argument("--data", action="append", default=[], metavar="TASK=FILE", help="data of shakespeare or words")
    parser.add_argument("--placement", action="append", default=[], metavar="FILE",
                        help="also run this placement, on every rung; repeatable")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "studies", "ladder"),
                        help="directory of the store, results and page")
    parser.add_argument("--results", help="directory of the CSV files; default OUT/results")
    parser.add_argument("--estimate", action="store_true", help="print what each rung costs, and train nothing")
    parser.add_argument("--quick", action="store_true", help="pre and post for ten steps, to see that all of it runs")
    options = parser.parse_args()
    ladder = Ladder(options)
    ladder.run(options.rung, options.estimate)
    if not options.estimate and glob.glob(os.path.join(glob.escape(ladder.results), "*.csv.gz")):
        write_page(ladder.results, os.path.join(ladder.out, "page.html"), options.placement)


if __name__ == "__main__":
    main()
