#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the rungs of protocol.json, and writes the runs of each as RESULTS/RUNG.csv.gz and its cost as RESULTS/RUNG.json.

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

import check_page

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLUMNS = ["protocol", "data", "placement", "part", "rate", "seed", "status", "collapsed", "validation", "last_100", "parameters",
           "flops_per_token", "model_hash", "recipe_hash", "run_hash"]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


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
    protocol["rates"].update(first=[0.01, 0.02], lowest=0.005, highest=0.04)
    for group in ("all", "authors", "picked"):
        protocol["seeds"][group] = {"choosing": 2, "judged": 3}
    protocol["bootstrap"]["samples"] = 50
    for rung in protocol["rungs"] + [protocol["defaults"]]:
        rung.pop("judged", None)
        rung.update(steps=10, width=min(rung.get("width", 16), 32), depth=min(rung.get("depth", 4), 8))


def next_rates(protocol, runs):
    """Returns the best rate of a placement's choosing runs, and the rate to train because the best one is at an edge, or None."""
    rule = protocol["rates"]
    losses = collections.defaultdict(list)
    for run in runs:
        losses[run["rate"]].append(check_page.loss_of(run))

    def key(rate):
        finished = [loss for loss in losses[rate] if loss < math.inf]
        return len(losses[rate]) - len(finished), sum(finished) / len(finished) if finished else math.inf

    best = min(losses, key=lambda rate: (key(rate), rate))
    for edge, following in ((min(losses), min(losses) / rule["factor"]), (max(losses), max(losses) * rule["factor"])):
        if best == edge and rule["lowest"] <= following <= rule["highest"]:
            return best, following
    return best, None


class Rung:
    """A rung with the files that describe its models and recipes, and the runs that it has so far."""

    def __init__(self, ladder, rung, placements):
        self.ladder, self.rung, self.placements = ladder, rung, placements
        self.task = ladder.protocol["tasks"][rung["task"]]
        self.data = ladder.data(rung["task"])
        self.data_hash = file_hash(self.data)[:16]
        self.work = os.path.join(ladder.out, rung["name"])
        self.runs, self.judged_folders, self.twins, self.seconds = [], [], {}, 0.0
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

    def added(self, name):
        """Returns the lines that this placement's recipe has besides those of the rung."""
        if self.rung["placements"] != "authors":
            return ()
        return tuple(self.ladder.protocol["authors_recipe"]["placements"].get(name, ()))

    def seed_counts(self):
        count = self.ladder.protocol["seeds"][self.rung["placements"]]
        return dict(count, judged=self.rung.get("judged", count["judged"]))

    def seeds(self, part):
        count = self.seed_counts()
        first = 1 if part == "choosing" else count["choosing"] + 1
        return range(first, first + count[part])

    def arguments(self, names, rates, seeds, added):
        """Returns the arguments of plumb compare, without its directory."""
        rung = self.rung
        lines = [f"max_steps: {rung['steps']}", f"batch_size: {rung['batch']}", *self.ladder.protocol["recipe"],
                 *rung["add"], *added, f"data {{ {self.task['format']} val_fraction: 0.1 }}"]
        text = self.filled("\n".join(lines)) + "\n"
        recipe = os.path.join(self.work, f"train-{hashlib.sha256(text.encode()).hexdigest()[:8]}.pbtxt")
        write(recipe, text)
        return (["compare", *map(self.model, names), "--data", self.data, "--train", recipe, "--samples", "0", "--quiet",
                 "--grid", "train.learning_rate=" + ",".join(f"{rate:g}" for rate in rates)] +
                [word for seed in seeds for word in ("--seed", str(seed))])

    def train(self, names, rates, part):
        """Trains the placements with each rate and each seed of the part, or takes the runs from the store."""
        groups = collections.defaultdict(list)
        for name in names:
            groups[self.added(name)].append(name)
        for added, group in groups.items():
            arguments = self.arguments(group, rates, self.seeds(part), added)
            study = os.path.join(self.work, hashlib.sha256("\n".join(arguments).encode()).hexdigest()[:16])
            self.ladder.plumb(*arguments, "--store", self.ladder.store, "--overwrite", "--out", study)
            with open(os.path.join(study, "runs.csv"), encoding="utf-8", newline="") as file:
                for run in csv.DictReader(file):
                    self.runs.append(dict(run, placement=run["model"], part=part, protocol=self.ladder.hash,
                                          rate=float(run.get("train.learning_rate") or rates[0]), data=self.data_hash))
            self.seconds += seconds_of(study)
            if part == "judged":
                self.judged_folders.append(study)
            else:
                shutil.rmtree(study)  # The store has its runs.

    def estimate(self):
        """Returns the expected minutes of all runs, with five rates for each placement. Of many placements a quarter is timed.

        Steps take what plumb estimates from a few of them. Short runs show what each run adds, its evaluation, and what each call
        of plumb adds: a placement is in about four.
        """
        timed = self.placements[::4 if len(self.placements) > 20 else 1]
        count = self.seed_counts()
        rate = [self.ladder.protocol["rates"]["lowest"]]  # No run of it diverges while it is timed.
        seeds = range(1, 5 * count["choosing"] + count["judged"] + 1)
        study = os.path.join(self.work, "estimate")
        shutil.rmtree(study, ignore_errors=True)
        dry = json.loads(self.ladder.plumb(*self.arguments(timed, rate, seeds, ()), "--dry-run", "--json", "--out", study))
        begun = time.monotonic()
        self.ladder.plumb(*self.arguments(timed, rate, [1], ()), "--set", f"train.max_steps={self.rung['steps'] // 50 + 1}",
                          "--out", study)
        runs = seconds_of(study) / dry["runs_at_a_time"]
        call = time.monotonic() - begun - runs
        shutil.rmtree(study)
        return (dry["seconds"] + runs * len(seeds) + call * 4) / 60 * len(self.placements) / len(timed)

    def drop_twins(self):
        """Keeps one of the placements that are the same model in this task: all their choosing runs have the same losses."""
        firsts = {}
        baseline = self.ladder.protocol["families"]["baseline"]
        for name in sorted(self.placements, key=lambda name: (name != baseline, name)):
            runs = [run for run in self.runs if run["placement"] == name]
            key = tuple(sorted((run["rate"], run["seed"], run["validation"], run["last_100"]) for run in runs))
            if any(run["status"] == "finished" for run in runs) and firsts.setdefault(key, name) != name:
                self.twins[name] = firsts[key]
        self.placements = [name for name in self.placements if name not in self.twins]

    def choose(self):
        """Trains the choosing seeds, and returns the placements by their best rate."""
        rates = {tuple(self.ladder.protocol["rates"]["first"]): list(self.placements)}
        while rates:
            for tried, names in rates.items():
                self.train(names, list(tried), "choosing")
            self.drop_twins()
            best, rates = collections.defaultdict(list), collections.defaultdict(list)
            for name in self.placements:
                rate, following = next_rates(self.ladder.protocol, [run for run in self.runs if run["placement"] == name])
                best[rate].append(name)
                if following:
                    rates[(following,)].append(name)
        return best

    def judge(self, best):
        """Trains the judged seeds with these rates, and returns plumb's comparison of each placement with the baseline."""
        for rate, names in best.items():
            self.train(names, [rate], "judged")
        baseline = self.ladder.protocol["families"]["baseline"]
        folders = sorted((folder for study in self.judged_folders for folder in glob.glob(os.path.join(study, "runs", "*"))),
                         key=lambda folder: (not os.path.basename(folder).startswith(baseline + "-"), folder))
        report = os.path.join(self.work, "report")
        self.ladder.plumb("report", *folders, "--quiet", "--out", report)
        for study in self.judged_folders:
            shutil.rmtree(study)
        found = json.loads(read(os.path.join(report, "report.json")))
        names = [group["name"] for group in found["groups"]]
        return {names[pair["group"]]: {key: pair[key] for key in ("mean", "low", "high", "lower", "higher", "test", "p_holm")}
                for pair in found["paired"] if pair["metric"] == found["judged"] and names[pair["against"]] == baseline}

    def run(self):
        done = self.ladder.facts(self.rung["name"])
        cost = (f"took {done['processor_seconds'] / 60:.1f} minutes of processors before" if done else
                f"about {self.estimate():.1f} minutes if no run is stored")
        print(f"{self.rung['name']}: {len(self.placements)} placements, {self.rung['steps']} steps, {cost}", flush=True)
        begun = time.monotonic()
        paired = self.judge(self.choose())
        self.runs.sort(key=lambda run: (run["part"], run["placement"], run["rate"], int(run["seed"])))
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(self.runs)
        path = os.path.join(self.ladder.results, self.rung["name"])
        facts = {"version": self.ladder.protocol["version"], "protocol": self.ladder.hash, "plumb": self.ladder.version,
                 "runs": len(self.runs), "processor_seconds": round(self.seconds, 3), "same_model": self.twins, "paired": paired}
        write(path + ".json", json.dumps(facts, indent=1) + "\n")
        with open(path + ".csv.gz.part", "wb") as file:
            file.write(gzip.compress(text.getvalue().encode(), mtime=0))
        os.replace(path + ".csv.gz.part", path + ".csv.gz")
        print(f"{self.rung['name']}: {len(self.runs)} runs took {self.seconds / 60:.1f} minutes of processors; this call took "
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
        """Returns what RESULTS/NAME.json has, or None if this protocol has not written it."""
        path = os.path.join(self.results, name + ".json")
        found = json.loads(read(path)) if os.path.exists(path) else {}
        return found if found.get("protocol") == self.hash else None

    def picked(self, rung):
        """Returns the placements that the rule picks. Placements that are added later do not change them."""
        if not self.facts("picked"):
            for needed in self.protocol["rungs"]:
                if needed.get("placements", "all") == "all" and not self.facts(needed["name"]):
                    sys.exit(f"{rung['name']} needs {needed['name']} first, whose results choose its placements")
            groups = check_page.pick(self.protocol, self.results, self.placements)
            write(os.path.join(self.results, "picked.json"), json.dumps({"protocol": self.hash, "groups": groups}, indent=1) + "\n")
        return [name for group in self.facts("picked")["groups"].values() for name in group]

    def chosen(self, rung):
        """Returns the placements of a rung, with those of --placement."""
        kind = rung["placements"]
        if kind == "all":
            return sorted(self.placements)
        if kind == "authors":
            names = list(self.protocol["authors_recipe"]["placements"])
        else:
            names = self.picked(rung)
        return [name for name in dict.fromkeys(names + self.added) if name in self.placements]

    def run(self, only, estimate):
        total = 0.0
        for rung in self.protocol["rungs"]:
            rung = {**self.protocol["defaults"], **rung}
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
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "studies", "ladder"), help="store and reports")
    parser.add_argument("--results", help="directory of the CSV files; default OUT/results")
    parser.add_argument("--estimate", action="store_true", help="print what each rung costs, and train nothing")
    parser.add_argument("--quick", action="store_true", help="pre and post for ten steps, to see that all of it runs")
    options = parser.parse_args()
    Ladder(options).run(options.rung, options.estimate)


if __name__ == "__main__":
    main()
