#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Describes, trains and checks the published topologies of rows.txt that plumb can express.

    tests/frontier/coverage.py --build build/quick [--steps 200] [WORD ...]

Each case is described and trained on examples/data/names.txt (width 32, 4 layers), and compared with
its golden file (tests/app/golden_test). Prints the table; fails if a row that should pass does not.
WORD: only rows whose topology or cases hold it.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))

MODEL = """n_layer: 4
n_head: 4
d_model: 32
d_ff: "64"
context_length: 16
mlp {{ activation: RELU }}
norm {{ name: "rms" plugin: "rms_norm" }}
block {{ placement: "{placement}" norm: "rms" }}
"""
# After 200 steps the loss must be below guessing among 27 tokens. After fewer it only has to be
# finite.
ENOUGH_STEPS, GUESSING = 200, math.log(27)


class Row:
    def __init__(self, line, number):
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or fields[2] not in ("yes", "no") or fields[2:] == ["no", ""]:
            sys.exit(f"rows.txt:{number}: expected topology | cases | yes or no | note")
        self.topology, cases, self.expected, self.note = fields
        self.cases = [case.partition("=")[::2] for case in cases.split()]


def read_rows(path):
    with open(path) as file:
        lines = enumerate(file, 1)
        return [Row(line, n) for n, line in lines if line.strip() and not line.startswith("#")]


class Checker:
    def __init__(self, build, steps, scratch):
        self.plumb = os.path.join(build, "bin", "plumb")
        self.golden_test = os.path.join(build, "tests", "app", "golden_test")
        self.steps, self.scratch = steps, scratch
        self.known = {}

    def check(self, golden, file):
        """Returns None or the error. A case in several rows is checked once."""
        if golden not in self.known:
            self.known[golden] = self._check(golden, file)
        return self.known[golden]

    def _check(self, golden, file):
        if file:
            model = os.path.join(SOURCE, file)
        else:
            model = os.path.join(self.scratch, golden + ".pbtxt")
            with open(model, "w") as out:
                out.write(MODEL.format(placement=golden))
        # The names consist of 27 tokens.
        described = self._run([self.plumb, "describe", model, "--set", "model.vocab_size=27"])
        if described.returncode != 0:
            return "describe: " + _first_line(described.stderr)
        return self._train(model, golden) or self._compare(golden)

    def _train(self, model, golden):
        trained = self._run([
            self.plumb, "train", model, "--data", os.path.join(SOURCE, "examples/data/names.txt"),
            "--train", os.path.join(HERE, "train.pbtxt"), "--set", f"train.max_steps={self.steps}",
            "--out", os.path.join(self.scratch, "runs", golden), "--json", "--quiet"])
        if trained.returncode != 0:
            return "train: " + _first_line(trained.stderr)
        loss = json.loads(trained.stdout)["val_loss"]
        most = GUESSING if self.steps >= ENOUGH_STEPS else math.inf
        if loss is None or not loss < most:
            return f"train: validation loss {loss}"
        return None

    def _compare(self, golden):
        compared = self._run([self.golden_test, f"--gtest_filter=*/GoldenTest.*/{golden}"])
        if compared.returncode != 0 or "[  PASSED  ] 1 test." not in compared.stdout:
            lines = [line for line in compared.stdout.splitlines() if "Failure" in line]
            return "golden: " + (lines[0] if lines else "no such case")
        return None

    def _run(self, command):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)


def _first_line(text):
    return text.strip().splitlines()[0] if text.strip() else "no message"


def check_rows(rows, checker):
    """Prints one line per row. Returns the number of expressible rows, and the errors."""
    said, broken = 0, []
    width = max(len(row.topology) for row in rows)
    for row in rows:
        errors = {golden: checker.check(golden, file) for golden, file in row.cases}
        failed = {golden: error for golden, error in errors.items() if error}
        said += row.expected == "yes" and not failed
        if failed:  # rows that expect "no" must also work as far as they go
            broken += [f"{golden}: {error}" for golden, error in failed.items()]
        verdict = "FAIL" if failed else row.expected
        print(f"{row.topology:{width}}  {verdict:4}  {' '.join(errors) or '-'}"
              + (f"  ({row.note})" if row.note else ""), flush=True)
    return said, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", default=os.path.join(HERE, "rows.txt"))
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    rows = [row for row in read_rows(args.rows)
            if all(word in row.topology + " " + " ".join(golden for golden, _ in row.cases)
                   for word in args.words)]
    if not rows:
        sys.exit("no such row")
    with tempfile.TemporaryDirectory() as scratch:
        said, broken = check_rows(rows, Checker(args.build, args.steps, scratch))
    print(f"\n{said} of {len(rows)} rows: described, trained {args.steps} steps, equal to PyTorch")
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
