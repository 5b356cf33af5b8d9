#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Continues a study after random changes of its inputs and random kills, and compares it with fresh studies.

    continued_study_test.py SOURCE_DIRECTORY PLUMB [ROUNDS] [SEED]

Each round changes one input of a study of three models, two rates and up to four seeds (a norm that is built again
under its id, the tokenizer at its path, the middle of a token file, the run of --init, the build of plumb, a field of
the recipe, a model, the seeds), gives the command for the same --out and the same --store, and kills it at a random
time, or not. In the end each number is that of a fresh study with the same inputs, or the command was refused."""
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

INPUTS = ("norm", "tokenizer", "data", "init", "build", "recipe", "model")


class State(NamedTuple):
    """The versions of the inputs, 0 or 1 each, and the number of seeds."""
    versions: tuple[int, ...] = (0,) * len(INPUTS)
    seeds: int = 2


def run(*words: object, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, **options)


class Inputs:
    """Two versions of each input, and the paths at which a study finds the present ones."""

    def __init__(self, source: str, plumb: str) -> None:
        self.plumb = plumb
        names = open(os.path.join(source, "examples/data/names.txt"), encoding="utf-8").read()[:6000]
        open("names.txt", "w", encoding="utf-8").write(names)
        norm = open(os.path.join(source, "plugins/template/my_norm.c"), encoding="utf-8").read()
        norm = norm.replace("org.example.my_norm", "org.example.mine")
        assert "real s = 1 /" in norm
        for version in (0, 1):
            open("norm.c", "w", encoding="utf-8").write(norm.replace("real s = 1 /", f"real s = 1.{version}f /"))
            run("cc", "-shared", "-fPIC", "-O1", "-I", os.path.join(source, "plugins/abi"), "norm.c", "-o",
                f"norm-{version}", "-lm")
            run(plumb, "tokenize", "train", "names.txt", "--vocab-size", 264 + 8 * version, "--out",
                f"tokenizer-{version}", "--quiet")
            open(f"recipe-{version}", "w", encoding="utf-8").write(
                f"max_steps: 4 batch_size: {2 + version} data {{ format: TOKENS tokenizer: \"tokenizer.json\" }}\n")
            open(f"model-{version}", "w", encoding="utf-8").write(self.model("post", f"d_ff: \"{8 + 4 * version}\""))
        open("pre.pbtxt", "w", encoding="utf-8").write(self.model("pre", "", "rms_norm"))
        open("other.pbtxt", "w", encoding="utf-8").write(self.model("double"))
        self.make_builds()
        run(plumb, "tokenize", "encode", "tokenizer-0", "names.txt", "--out", "data-0.bin")
        tokens = bytearray(open("data-0.bin", "rb").read())
        tokens[len(tokens) // 2 & ~1] ^= 1
        os.rename("data-0.bin", "data-0")
        open("data-1", "wb").write(tokens)
        for version in (0, 1):
            run(plumb, "train", "pre.pbtxt", "--data", "names.txt", "--set", "train.data.vocabulary=BYTES", "--set",
                f"train.max_steps={1 + version}", "--set", "model.vocab_size=300", "--out", f"init-{version}", "--quiet")

    @staticmethod
    def model(placement: str, fields: str = "", norm: str = "mine") -> str:
        plugin = "norm { name: \"mine\" plugin: \"org.example.mine\" }" if norm == "mine" else ""
        return (f"name: \"{placement}\" n_layer: 1 n_head: 1 d_model: 8 context_length: 8 vocab_size: 300 {fields} "
                f"{plugin} block {{ placement: \"{placement}\" norm: \"{norm}\" }}\n")

    def make_builds(self) -> None:
        """Makes a second build: the same program with another build id."""
        program = open(self.plumb, "rb").read()
        text = run(self.plumb, "--version").stdout
        found = re.search(r"build ([0-9a-f]{16})", text)
        assert found, text
        assert program.count(found[1].encode()) == 1
        other = program.replace(found[1].encode(), b"0123456789abcdef")
        root = os.path.dirname(os.path.dirname(os.path.realpath(self.plumb)))
        for version, content in enumerate((program, other)):
            os.makedirs(f"build-{version}/bin")
            for name in os.listdir(root):
                if name != "bin" and os.path.isdir(os.path.join(root, name)):
                    os.symlink(os.path.join(root, name), f"build-{version}/{name}")
            with open(f"build-{version}/bin/plumb", "wb") as file:
                file.write(content)
            os.chmod(f"build-{version}/bin/plumb", 0o755)

    def place(self, state: State) -> None:
        """Puts the versions of the inputs where the study finds them."""
        version = dict(zip(INPUTS, state.versions))
        for name, path in (("norm", "norm.so"), ("tokenizer", "tokenizer.json"), ("data", "data.bin"),
                           ("recipe", "recipe.pbtxt"), ("model", "post.pbtxt")):
            shutil.copyfile(f"{name}-{version[name]}", path + ".new")
            os.replace(path + ".new", path)
        shutil.rmtree("init", ignore_errors=True)
        shutil.copytree(f"init-{version['init']}", "init")

    def command(self, state: State, out: str, *more: str) -> list[str]:
        build = state.versions[INPUTS.index("build")]
        return [f"build-{build}/bin/plumb", "compare", "pre.pbtxt", "post.pbtxt", "other.pbtxt", "--data", "data.bin",
                "--train", "recipe.pbtxt", "--init", "init", "--grid", "train.learning_rate=0.001,0.01", "--seeds",
                str(state.seeds), "--samples", "1", "--plugin", "norm.so", "--out", out, "--quiet", *more]


def numbers(out: str) -> list[dict[str, str]]:
    with open(os.path.join(out, "runs.csv"), encoding="utf-8") as file:
        return list(csv.DictReader(file))


def attempt(command: list[str], random_: random.Random) -> "subprocess.CompletedProcess[str]":
    """Gives a command, after killing it at a random time, or not."""
    while random_.random() < 0.5:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random_.random() ** 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
    return subprocess.run(command, capture_output=True, text=True)


def check_report(inputs: Inputs) -> None:
    """Checks that a report keeps runs apart whose norm was built again between them."""
    for version in (0, 1):
        inputs.place(State((version, *State().versions[1:])))
        for seed in (1, 2):
            run(inputs.plumb, "train", "post.pbtxt", "--data", "data.bin", "--train", "recipe.pbtxt", "--seed", seed,
                "--plugin", "norm.so", "--out", f"alone-{version}-{seed}", "--quiet")
    run(inputs.plumb, "report", *(f"alone-{version}-{seed}" for version in (0, 1) for seed in (1, 2)), "--plugin",
        "norm.so", "--out", "report")
    found = numbers("report")
    assert len({row["group"] for row in found}) == 2 and len({row["run_hash"] for row in found}) == 4, found


def main() -> None:
    source, plumb = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    random_ = random.Random(seed)
    print(f"{rounds} rounds, seed {seed}")
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.environ["XDG_CACHE_HOME"] = directory
        inputs = Inputs(source, plumb)
        fresh: dict[State, list[dict[str, str]]] = {}
        state = State()
        counts = {"refused": 0, "equal": 0}
        for number in range(rounds):
            change = random_.choice((*INPUTS, "seeds"))
            if change == "seeds":
                state = state._replace(seeds=random_.randint(2, 4))
            else:
                versions = list(state.versions)
                versions[INPUTS.index(change)] ^= 1
                state = state._replace(versions=tuple(versions))
            inputs.place(state)
            if state not in fresh:
                shutil.rmtree("fresh", ignore_errors=True)
                process = subprocess.run(inputs.command(state, "fresh"), capture_output=True, text=True)
                assert process.returncode == 0, process.stderr
                fresh[state] = numbers("fresh")
            out = random_.choice(("out-1", "out-2"))
            more = ["--store", "store"] if random_.random() < 0.7 else []
            if random_.random() < 0.5:
                more.append("--overwrite")
            process = attempt(inputs.command(state, out, *more), random_)
            if process.returncode != 0:
                assert process.returncode == 2 and "is another study" in process.stderr, process.stderr
                counts["refused"] += 1
                if random_.random() < 0.3:
                    shutil.rmtree(out)
                continue
            counts["equal"] += 1
            found = numbers(out)
            assert found == fresh[state], (
                f"round {number}, {change}: {[(a, b) for a, b in zip(found, fresh[state]) if a != b][:1]}, "
                f"{len(found)} and {len(fresh[state])} runs")
        check_report(inputs)
        print(f"{counts['equal']} studies equal fresh ones, {counts['refused']} commands were refused")


if __name__ == "__main__":
    main()
