#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a study of plumb with JAX, which trains all seeds in one compiled program (jax_study.py), and a step of
training with a loop written by hand (peer_loop.cc).

    bench/compare_study.py [--seeds 20,100] [--rounds 3] [--loop LIBRARY] [--json FILE] PLUMB PYTHON

PLUMB is the program, PYTHON an interpreter that has jax and numpy. Each round runs `plumb compare` on the
pre-norm model of examples/why_normalise, and then JAX, with the same number of seeds and 1,000 steps. plumb's
times include everything: starting, checkpoints, samples and the report. Of JAX both the whole process and the
training alone are shown. CPU seconds count all threads, and the minimum of the rounds is shown. Fails if the mean
losses differ by more than chance explains.
"""
import argparse
import csv
import json
import math
import os
import resource
import statistics
import subprocess
import tempfile
import time

import workers

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
STUDY = os.path.join(ROOT, "examples/why_normalise")
NAMES = os.path.join(ROOT, "examples/data/names.txt")
STEPS = 1000


def timed(command):
    """Runs a command; returns its output, wall seconds and CPU seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_plumb(plumb, seeds):
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "study")
        _, wall, cpu = timed([plumb, "compare", os.path.join(STUDY, "pre.pbtxt"), "--data", NAMES, "--train",
                              os.path.join(STUDY, "train.pbtxt"), "--set", f"train.max_steps={STEPS}", "--seeds",
                              str(seeds), "--out", out])
        with open(os.path.join(out, "runs.csv"), encoding="utf-8") as file:
            losses = [float(row["last_100"]) for row in csv.DictReader(file)]
    return {"wall": wall, "cpu": cpu, "losses": losses}


def run_jax(python, seeds):
    output, wall, cpu = timed([python, "-B", os.path.join(ROOT, "bench/jax_study.py"), NAMES, str(seeds), str(STEPS)])
    return {"wall": wall, "cpu": cpu, **json.loads(output)}


def train_plumb(plumb, steps):
    """Returns the CPU seconds of a run on one thread."""
    with tempfile.TemporaryDirectory() as directory:
        return timed([plumb, "train", os.path.join(STUDY, "pre.pbtxt"), "--data", NAMES, "--train",
                      os.path.join(STUDY, "train.pbtxt"), "--set", f"train.max_steps={steps}", "--threads", "1",
                      "--quiet", "--out", os.path.join(directory, "run")])[2]


def train_loop(python, library, steps):
    """Returns the CPU seconds of steps of the loop on names."""
    return float(timed([python, "-B", os.path.join(ROOT, "bench/loop_study.py"), library, NAMES, str(steps)])[0])


def check_equal(ours, theirs):
    """Fails if two samples of losses have means that differ by more than four standard errors."""
    error = math.sqrt(sum(statistics.variance(losses) / len(losses) for losses in (ours, theirs)))
    difference = statistics.mean(ours) - statistics.mean(theirs)
    if abs(difference) > 4 * error:
        raise SystemExit(f"the mean losses differ by {difference:.4f}, with a standard error of {error:.4f}")


def compare_seeds(options, seeds):
    """Returns the record and the printed rows of one number of seeds."""
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(run_plumb(options.plumb, seeds))
        theirs.append(run_jax(options.python, seeds))
    check_equal(ours[0]["losses"], theirs[0]["losses"])
    best = lambda runs, key: min(run[key] for run in runs)
    mean = lambda run: f"{statistics.mean(run['losses']):.4f} ± {statistics.stdev(run['losses']):.4f}"
    record = {"seeds": seeds, "peer": f"JAX {theirs[0]['version']}", "plumb_wall": best(ours, "wall"),
              "plumb_cpu": best(ours, "cpu"), "wall": best(theirs, "wall"), "cpu": best(theirs, "cpu"),
              "training_wall": best(theirs, "training_wall"), "training_cpu": best(theirs, "training_cpu")}
    rows = []
    for name, wall, cpu, loss in [
            ("plumb, everything", record["plumb_wall"], record["plumb_cpu"], mean(ours[0])),
            (f"{record['peer']}, training alone", record["training_wall"], record["training_cpu"], mean(theirs[0])),
            (f"{record['peer']}, the whole process", record["wall"], record["cpu"], "")]:
        rows.append([f"{seeds} seeds, {name}", f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / record['plumb_cpu']:.2f}",
                     f"{wall / record['plumb_wall']:.2f}", loss])
    return record, rows


def compare_steps(options):
    """Returns the seconds of a step of plumb and of the loop."""
    few, more = 1000, 21000
    ours, theirs = [], []
    for _ in range(2 * options.rounds):
        ours.append((train_plumb(options.plumb, more) - train_plumb(options.plumb, few)) / (more - few))
        theirs.append(train_loop(options.python, options.loop, more - few) / (more - few))
    return {"plumb": min(ours), "loop": min(theirs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plumb")
    parser.add_argument("python")
    parser.add_argument("--seeds", default="20,100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", help="shared library of peer_loop.cc")
    parser.add_argument("--json")
    options = parser.parse_args()
    result, rows = {"rows": []}, []
    for seeds in map(int, options.seeds.split(",")):
        record, printed = compare_seeds(options, seeds)
        result["rows"].append(record)
        rows += printed
    print(workers.table(["study", "wall s", "CPU s", "CPU over plumb's", "wall over plumb's", "loss"], rows,
                        markdown=False))
    if options.loop:
        result["step"] = step = compare_steps(options)
        print(f"a step on one thread: {1e6 * step['plumb']:.1f} us, of the loop {1e6 * step['loop']:.1f} us: "
              f"{step['plumb'] / step['loop']:.2f} times as long")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
