# SPDX-License-Identifier: Apache-2.0
"""Exports runs that were trained from scratch: from_scratch.py PLUMB FAMILIES [CASE..]

Imports a checkpoint of each family, trains its model from random weights for one step, and exports the run: its
config.json is derived from the model by the family's file. The command itself compares the two models, and imports
what it has written.
"""

import concurrent.futures
import glob
import os
import random
import re
import sys
import tempfile

from plumb_cli import CHECKPOINTS, Failed, failed_with, plumb, read_json

LETTERS = "abcdefghijklmnopqrstuvwxyz\n"
# Checkpoints whose models no export can have once they are trained, and words of the reason.
REFUSED = {"ernie4_5_moe": "is trained, and the checkpoint has it as 0", "olmo3_types": "readers take one or the other",
           "scaled_by_layer": "readers take one or the other"}


def write_text(path, seed=1):
    """Writes a text in which all letters occur: they are the vocabulary."""
    letters = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        file.write(LETTERS + "".join(letters.choice(LETTERS) for _ in range(800)))


def train(binary, model, scratch, run, *settings):
    """Trains a model for a step, or by the settings."""
    text = os.path.join(scratch, "text.txt")
    write_text(text)
    with open(model, encoding="utf-8") as file:
        described = file.read()
    needed = ["--set", "train.masked_tokens.share=0.5"] if "bidirectional: true" in described else []
    if "context_length: 1048576" in described:  # a state, whose context has no end
        needed += ["--set", "model.context_length=32"]
    plumb(binary, "train", model, "--data", text, "--out", run, "--quiet", "--set", "train.batch_size=2",
          "--set", "train.max_steps=1", *needed, *settings)


def files_by_model_type(folder):
    """Returns the file of each family's model types: one file is read in less time than all are."""
    files = {}
    for path in glob.glob(os.path.join(folder, "*.import.pbtxt")):
        with open(path, encoding="utf-8") as file:
            files.update((name, path) for name in re.findall('^model_type: "(.*)"', file.read(), re.MULTILINE))
    return files


def first_cases(files):
    """Returns the first checkpoint of each family."""
    cases = {}
    for name in sorted(os.listdir(CHECKPOINTS)):
        cases.setdefault(files[read_json(CHECKPOINTS, name, "config.json")["model_type"]], name)
    return list(cases.values())


def import_case(binary, files, name, scratch):
    """Imports a checkpoint. Returns its run, and the file of its family."""
    source, run = os.path.join(CHECKPOINTS, name), os.path.join(scratch, "imported")
    family = files[read_json(source, "config.json")["model_type"]]
    plumb(binary, "import", source, "--family", family, "--out", run)
    return run, family


def check(binary, files, name):
    """Exports a model, and returns the file of its family."""
    with tempfile.TemporaryDirectory() as scratch:
        imported, family = import_case(binary, files, name, scratch)
        run = os.path.join(scratch, "run")
        train(binary, os.path.join(imported, "model.pbtxt"), scratch, run)
        command = ["export", run, "--family", family, "--out", os.path.join(scratch, "exported")]
        if name in REFUSED:
            failed_with(binary, REFUSED[name], *command)
        else:
            plumb(binary, *command)
    return family


def check_reason(binary, files):
    """Checks that a refusal names the value that the model does not have."""
    with tempfile.TemporaryDirectory() as scratch:
        imported, family = import_case(binary, files, "granite", scratch)
        run, model = os.path.join(scratch, "run"), os.path.join(scratch, "model.pbtxt")
        with open(os.path.join(imported, "model.pbtxt"), encoding="utf-8") as file:
            text = file.read()
        with open(model, "w", encoding="utf-8") as file:
            file.write(text.replace("* f(norm(x))", "* layer * f(norm(x))"))
        train(binary, model, scratch, run)
        failed_with(binary, "placement[granite].each[0] = x = x + ${residual} * f(norm(x))", "export", run,
                    "--family", family, "--out", os.path.join(scratch, "exported"))


def main():
    binary, files = sys.argv[1], files_by_model_type(sys.argv[2])
    names = sys.argv[3:] or first_cases(files)
    failed, families = 0, set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, future in [(name, pool.submit(check, binary, files, name)) for name in names]:
            try:
                families.add(future.result())
            except Failed as error:
                failed += 1
                print(f"{name}: {error}")
    try:
        check_reason(binary, files)
    except Failed as error:
        failed += 1
        print(error)
    print(f"{len(names)} models of {len(families)} families, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
