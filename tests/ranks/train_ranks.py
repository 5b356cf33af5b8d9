#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests plumb train with several processes under mpirun: the bits of one process, whatever happens to a rank.

  train_ranks.py BUILD bits   [--steps N] [--ranks 1,2,3,4,8] [--threads 1,2] [--text FILE]
  train_ranks.py BUILD split
  train_ranks.py BUILD kills  [--steps N] [--kills N] [--random SEED] [--recipes names,text] [--dtypes f32,bf16]
  train_ranks.py BUILD faults

bits: trains two recipes in f32 and bf16 with all numbers of ranks and threads, and resumes on other numbers of ranks. Prints the md5 of losses, weights and optimizer states of each recipe and type, which must be the same in all runs.
split: runs a step of four sequences as 4 x 1, 2 x 2 and 1 x 4 (batch_size x gradient_accumulation_steps), in units, and on
ranks, which choose their units, of text, documents, token files and masked tokens. Losses and gradient norms are equal
except for rounding, and plumb eval measures the same loss.
kills: ends a random rank at a random moment with SIGKILL and resumes on another number of ranks, until KILLS kills are done
for each recipe and type. The files must equal those of an undisturbed run.
faults: errors and signals on one rank end the job with one message and one exit code.
Exits with 77 if there is no mpirun.
"""

import argparse
import csv
import hashlib
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class Plumb:
    def __init__(self, build, scratch):
        self.program = str(build / "bin" / "plumb")
        self.scratch = scratch
        self.environment = dict(
            os.environ,
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            OMPI_MCA_btl="self,vader,tcp",
            # Open MPI 5 finds no route from one interface's address to the same address of another, so ranks use lo.
            OMPI_MCA_btl_tcp_if_include="lo",
            OMPI_MCA_pml="ob1",
        )
        self.environment.pop("PLUMB_MPI_LIBRARY", None)
        self.launcher = ["mpirun"]
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
        self.is_open_mpi = "Open MPI" in version
        if self.is_open_mpi:
            self.launcher += ["--oversubscribe", "--bind-to", "none"]

    def command(self, ranks, words):
        """Returns a command for `words` on `ranks` ranks; 0: without mpirun. A list of lists has the words of each
        rank."""
        if ranks == 0:
            return [self.program] + words
        if isinstance(words[0], str):
            return self.launcher + ["-n", str(ranks), self.program] + words
        return self.launcher + ["-n", str(len(words))] + command_by_rank(words)

    def start(self, ranks, words):
        log = open(self.scratch / "log", "w+")
        process = subprocess.Popen(
            self.command(ranks, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
        )
        return process, log

    def end(self, process, log):
        code = process.wait()
        log.seek(0)
        return code, log.read()

    def run(self, ranks, words):
        return self.end(*self.start(ranks, words))

    def is_code(self, got, code):
        """Compares exit codes. If ranks are aborted, MPICH's mpirun has a code of its own."""
        return got == code if self.is_open_mpi or code in (0, 4, 130) else got != 0

    def succeed(self, ranks, words):
        code, text = self.run(ranks, words)
        if code != 0:
            fail(f"{' '.join(self.command(ranks, words))}: exit code {code}\n{text}")
        return text


def command_by_rank(commands):
    """Returns a command that runs each rank's own command. It avoids mpirun's "A : B", which crashes in Open MPI 5.0.7
    (Debian 13): prterun formats a null string when it sets the environment of the first rank."""
    cases = " ".join(f"{rank}) exec {shlex.join(command)};;" for rank, command in enumerate(commands))
    return ["sh", "-c", f"case ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} in {cases} esac"]


def error_lines(text):
    """Returns a job's errors. Open MPI 5 prints spaces or zeros between its own message and that of a rank."""
    lines = [line.strip(" \t\0") for line in text.splitlines()]
    return [line for line in lines if line.startswith("error: ")]


def fail(text):
    print("failed:", text, file=sys.stderr)
    sys.exit(1)


def expect(condition, text):
    if not condition:
        fail(text)


def rank_pids(process):
    """Returns the process ids of a job's ranks by rank. Empty until they have started."""
    pids, below = {}, {process.pid}
    # Parents have lower ids. MPICH's ranks are below a proxy.
    for entry in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda entry: int(entry.name)):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent not in below:
                continue
            below.add(int(entry.name))
            if (entry / "comm").read_text().strip() != "plumb":
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError, ValueError):
            continue
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name in (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"):
                pids[int(value)] = int(entry.name)
    return pids


def losses_of(run):
    """Returns the rows of metrics.csv without the times."""
    rows = list(csv.DictReader((run / "metrics.csv").read_text().splitlines()))
    for row in rows:
        row.pop("nanoseconds")
    return [json.dumps(row) for row in rows]


def content_of(run):
    """Returns the md5 of the losses and of the last checkpoint's weights and optimizer states."""
    digest = hashlib.md5("\n".join(losses_of(run)).encode())
    checkpoint = run / "checkpoints" / (run / "latest").read_text().strip()
    for name in sorted(path.name for path in checkpoint.iterdir() if path.suffix == ".safetensors"):
        digest.update(name.encode())
        digest.update((checkpoint / name).read_bytes())
    return digest.hexdigest()


def recipes(text):
    """Returns the words of plumb train by name: the study's recipe and a small one on characters."""
    study = SOURCE / "examples" / "why_normalise"
    shakespeare = SOURCE / "examples" / "shakespeare"
    common = ["--quiet", "--set", "train.units=8", "--set", "train.checkpoint_interval=0"]
    return {
        "names": [str(study / "pre.pbtxt"), "--train", str(study / "train.pbtxt")]
        + ["--data", str(SOURCE / "examples" / "data" / "names.txt"), "--set", "train.batch_size=8"]
        + common,
        "text": [str(shakespeare / "model.pbtxt"), "--train", str(shakespeare / "train.pbtxt"), "--data", str(text)]
        + ["--set", "model.n_layer=2", "--set", "model.d_model=48", "--set", "model.context_length=32"]
        + ["--set", "train.batch_size=8", "--set", "train.gradient_accumulation_steps=2"]
        + ["--set", "train.eval_interval=7", "--set", "train.eval_batches=2"]
        + common,
    }


def bits(plumb, options):
    for name, words in recipes(options.text).items():
        for dtype in ["f32", "bf16"]:
            words_here = words + ["--dtype", dtype, "--set", f"train.max_steps={options.steps}"]
            found, runs = {}, 0
            out = plumb.scratch / "run"
            for ranks in [0] + options.ranks:
                for threads in options.threads:
                    shutil.rmtree(out, ignore_errors=True)
                    plumb.succeed(ranks, ["train"] + words_here + ["--threads", str(threads), "--out", str(out)])
                    found.setdefault(content_of(out), []).append(f"{ranks} ranks, {threads} threads")
                    runs += 1
            # The first number of ranks trains to the middle, and another one to the end.
            middle = max(1, options.steps // 2)
            several = [ranks for ranks in options.ranks if ranks > 1]
            for first, second in zip([0] + several, several[::-1] + [0]):
                shutil.rmtree(out, ignore_errors=True)
                plumb.succeed(first, ["train"] + words_here + ["--out", str(out), "--stop-at", str(middle)])
                again = ["train", "--quiet", "--data", words[words.index("--data") + 1], "--out", str(out), "--resume"]
                plumb.succeed(second, again)
                found.setdefault(content_of(out), []).append(f"{first} ranks, then {second}")
                runs += 1
            if len(found) != 1:
                fail(f"{name} {dtype}: {json.dumps(found, indent=1)}")
            print(f"{name} {dtype}: {next(iter(found))}  ({runs} runs of {options.steps} steps)", flush=True)


# Rows are batch_size, gradient_accumulation_steps, units (0: not set), ranks (0: without mpirun) of a step of four
# sequences.
DIVISIONS = [(4, 1, 0, 0), (2, 2, 0, 0), (1, 4, 0, 0), (4, 1, 2, 0), (4, 1, 4, 0)]
DIVISIONS += [(4, 1, 0, 1), (4, 1, 0, 2), (2, 2, 0, 2), (4, 1, 0, 3), (1, 4, 0, 3)]
CONTEXT = 32


def kinds_of_data(plumb, text):
    """Returns by name: the words of plumb train, the data, and True if a step has all of it, for plumb eval."""
    shakespeare = SOURCE / "examples" / "shakespeare"
    words = [str(shakespeare / "model.pbtxt"), "--train", str(shakespeare / "train.pbtxt")]
    words += ["--set", "model.n_layer=2", "--set", "model.d_model=48", "--set", f"model.context_length={CONTEXT}"]
    for setting in ["warmup_steps=0", "min_learning_rate=0", "eval_interval=0", "checkpoint_interval=0", "data.val_fraction=0",
                    "data.vocabulary=BYTES", "eps=1e-3"]:
        words += ["--set", f"train.{setting}"]
    documents = plumb.scratch / "documents.txt"
    documents.write_text("a\n" + "the quick brown fox jumps over.\n" + "four\n" + "twelve bytes\n")
    window = plumb.scratch / "window.txt"
    window.write_bytes(text.read_bytes()[1000 : 1000 + CONTEXT + 1])
    tokens = plumb.scratch / "tokens.bin"
    tokens.write_bytes(b"".join(byte.to_bytes(2, "little") for byte in text.read_bytes()[:5000]))
    of_documents = words + ["--set", "train.data.format=DOCUMENTS"]
    # The tokenizer is that of a run trained on bytes.
    of_tokens = words + ["--set", "train.data.format=TOKENS", "--set", "train.data.token_bits=16"]
    of_tokens += ["--set", "train.data.vocabulary=TOKENIZER", "--set", f"train.data.tokenizer={plumb.scratch / 'bytes'}"]
    plumb.succeed(0, ["train"] + words + ["--quiet", "--set", "train.max_steps=1", "--data", str(text), "--out",
                                          str(plumb.scratch / "bytes")])
    masked = of_documents + ["--set", "model.bidirectional=true"]
    all_of_them = ["--set", "train.masked_tokens.share=1", "--set", "train.masked_tokens.masked=0", "--set",
                   "train.masked_tokens.random=0"]
    return {
        "text": (words, text, False),
        "one window of text": (words, window, True),
        "documents": (of_documents, documents, True),
        "tokens": (of_tokens, tokens, False),
        "masked tokens": (masked + ["--set", "train.masked_tokens.share=0.3"], documents, False),
        "masked tokens, all": (masked + all_of_them, documents, True),
    }


def split(plumb, options):
    out = plumb.scratch / "run"

    def train(words, data, ranks, *more):
        shutil.rmtree(out, ignore_errors=True)
        text = plumb.succeed(ranks, ["train"] + words + ["--data", str(data), "--out", str(out), "--threads", "1"] + list(more))
        return text, [json.loads(line) for line in losses_of(out)]

    for name, (words, data, is_all) in kinds_of_data(plumb, options.text).items():
        for dtype, near in [("f32", 2e-5), ("bf16", 5e-3)]:
            steps = ["--dtype", dtype, "--set", "train.max_steps=3", "--set", "train.learning_rate=0.01"]
            losses = []
            for batch, micro_batches, units, ranks in DIVISIONS:
                division = ["--set", f"train.batch_size={batch}", "--set", f"train.units={units}"]
                division += ["--set", f"train.gradient_accumulation_steps={micro_batches}"]
                text, found = train(words, data, ranks, *steps, *division)
                what = f"{name} {dtype}: {batch} x {micro_batches}, {units} units, {ranks} ranks"
                if not losses:
                    wanted = found
                for mine, whole in zip(found, wanted):
                    expect(mine["tokens"] == whole["tokens"], f"{what}: {mine}, not {whole}")
                    for figure in ["loss", "grad_norm"]:
                        far = abs(float(mine[figure]) / float(whole[figure]) - 1)
                        expect(far < near * (1 if figure == "loss" else 5), f"{what}: {figure} of {mine}, not {whole}")
                losses.append(float(found[0]["loss"]))
                is_chosen = ranks > micro_batches and units == 0
                expect(("train.units: " in text) == is_chosen, f"{what}: message about units\n{text}")
                if is_chosen:
                    # One process with as many units computes the same bits.
                    bits = content_of(out)
                    chosen = text.split("train.units: ")[1].split(",")[0]
                    train(words, data, 0, *steps, *division, "--set", f"train.units={chosen}")
                    expect(content_of(out) == bits, f"{what}: not the bits of one process with {chosen} units")
            told = f"{name} {dtype}: loss {min(losses):.6f} to {max(losses):.6f} in {len(losses)} divisions"
            if is_all:
                train(words, data, 0, "--dtype", dtype, "--set", "train.max_steps=1", "--set", "train.learning_rate=0",
                      "--set", "train.batch_size=4", "--set", "train.gradient_accumulation_steps=1")
                found = json.loads(plumb.succeed(0, ["eval", str(out), "--data", str(data), "--json"]))
                measured = found["splits"]["training"]["loss"]
                expect(abs(measured / losses[0] - 1) < near, f"{name} {dtype}: eval {measured}, a step {losses[0]}")
                told += f", plumb eval {measured:.6f}"
            print(told, flush=True)


def kills(plumb, options):
    for recipe in options.recipes:
        for dtype in options.dtypes:
            words = recipes(options.text)[recipe] + ["--dtype", dtype]
            words += ["--set", f"train.max_steps={options.steps}"]
            words += ["--set", "train.checkpoint_interval=1", "--set", "train.checkpoint_seconds=0"]
            print(f"{recipe} {dtype}: {kill_ranks(plumb, options, words)}", flush=True)


def kill_ranks(plumb, options, words):
    """Kills and resumes the runs that `words` start. Returns a summary."""
    chance = random.Random(options.random)
    data = words[words.index("--data") + 1]
    undisturbed, out = plumb.scratch / "undisturbed", plumb.scratch / "run"
    plumb.succeed(0, ["train"] + words + ["--out", str(undisturbed)])
    wanted = content_of(undisturbed)
    killed = finished = begun = 0
    longest = 0.0
    while True:
        last = killed >= options.kills
        ranks = chance.choice([2, 3, 4])
        threads = ["--threads", str(chance.choice([1, 2]))]
        if (out / "latest").exists():
            begin = ["train", "--quiet", "--data", data, "--resume", "--out", str(out)] + threads
        else:
            shutil.rmtree(out, ignore_errors=True)
            begin = ["train"] + words + threads + ["--out", str(out)]
            begun += 1
        steps_before = len(losses_of(out)) if (out / "metrics.csv").exists() else 0
        process, log = plumb.start(ranks, begin)
        # Most kills are in the middle of training, the others at any moment.
        trains = chance.random() < 0.8
        wait = chance.uniform(0, 0.5) if trains else chance.uniform(0, 2)
        while not last and trains and process.poll() is None:
            metrics = out / "metrics.csv"
            if metrics.exists() and metrics.read_bytes().count(b"\n") - 1 not in (-1, 0, steps_before):
                break
            time.sleep(0.01)
        if not last:
            time.sleep(wait)
        pids = {} if last else rank_pids(process)
        if pids:
            victim = chance.choice(sorted(pids))
            try:
                os.kill(pids[victim], signal.SIGKILL)
                begin_of_end = time.monotonic()
                code, text = plumb.end(process, log)
            except ProcessLookupError:
                code, text = plumb.end(process, log)
            if code != 0:
                killed += 1
                longest = max(longest, time.monotonic() - begin_of_end)
                expect(text.strip(), "a killed rank was not reported")
                continue
        else:
            code, text = plumb.end(process, log)
        if not last and code != 0:  # it was killed before any rank existed: nothing was done
            fail(f"exit code {code}\n{text}")
        expect(code == 0, f"the undisturbed end: exit code {code}\n{text}")
        finished += 1
        expect(content_of(out) == wanted, f"after {killed} kills: {content_of(out)}, not {wanted}")
        expect(losses_of(out) == losses_of(undisturbed), "losses")
        shutil.rmtree(out)
        if last:
            break
    shutil.rmtree(undisturbed)
    return (f"{wanted}: {killed} kills, {begun} runs begun, {finished} finished to these bits, "
            f"a job had ended {longest:.1f} s after a kill at the latest")


class Faults:
    def __init__(self, plumb, options):
        self.plumb = plumb
        self.words = recipes(options.text)["text"] + ["--set", "train.max_steps=4"]
        self.out = plumb.scratch / "run"
        self.host = os.uname().nodename

    def train(self, *more):
        return [self.plumb.program, "train"] + self.words + ["--out", str(self.out)] + list(more)

    def check(self, what, ranks, words, code, *texts):
        shutil.rmtree(self.out, ignore_errors=True)
        got, text = self.plumb.run(ranks, words)
        self.judge(what, got, text, code, *texts)

    def judge(self, what, got, text, code, *texts):
        expect(self.plumb.is_code(got, code), f"{what}: exit code {got}, not {code}\n{text}")
        errors = error_lines(text)
        expect(len(errors) == (1 if texts else 0), f"{what}: {len(errors)} errors\n{text}")
        for each in texts:
            expect(each in text, f'{what}: not "{each}"\n{text}')
        print(f"{what}: exit code {got}; {errors[0] if errors else 'no error'}", flush=True)

    def differing(self):
        good = self.train()
        rank = f"rank 1 on host {self.host}: "
        other = self.plumb.scratch / "other.txt"
        other.write_text("Other words than those.\n" * 400)
        data = good.index("--data") + 1

        def on_rank_1(what, command, code, *texts):
            self.check(what, 3, [good, command, good], code, *texts)

        on_rank_1("no data", good[:data] + ["/no/such/file"] + good[data + 1 :], 2, rank, "/no/such/file")
        on_rank_1("other data", good[:data] + [str(other)] + good[data + 1 :], 2, rank, "")
        on_rank_1("other recipe", self.train("--set", "train.learning_rate=0.002"), 2, rank, "recipe", "0.002")
        on_rank_1("other model", self.train("--set", "model.n_layer=1"), 2, rank, "model", "n_layer: 1")
        on_rank_1("other products", self.train("--gemm", "small"), 2, rank.rstrip(" "), "multiplies matrices by")
        # The file of the same norm differs by one byte.
        norm = self.plumb.scratch / "layer_norm.so"
        norm.write_bytes((pathlib.Path(self.plumb.program).parents[1] / "lib/plumb/norm-v1/layer_norm.so").read_bytes() + b"\0")
        on_rank_1("other plugin", self.train("--plugin", str(norm)), 2, rank, "norms is not that of rank 0", "layer_norm")
        on_rank_1("no plugin", self.train("--plugin", "/no/such/plugin.so"), 2, rank, "/no/such/plugin.so")
        limited = ["bash", "-c", 'ulimit -v 900000; exec "$@"', "bash"] + self.train(
            "--set", "model.d_model=1024", "--set", "model.n_layer=8"
        )
        large = self.train("--set", "model.d_model=1024", "--set", "model.n_layer=8")
        self.check("ulimit -v", 3, [large, limited, large], 1, rank, "memory")
        self.check("too many ranks", 3, ["train"] + self.words + ["--set", "train.units=2", "--out", str(self.out)],
                   2, "3 ranks")
        self.check("divergence", 3, ["train"] + self.words + ["--set", "train.learning_rate=1e30", "--set",
                   "train.grad_clip=0", "--set", "train.warmup_steps=0", "--out", str(self.out)], 4, "diverged")

    def signals(self):
        # The run is so long that no rank ends by itself.
        words = ["train"] + self.words + ["--set", "train.max_steps=10000000", "--out", str(self.out)]
        words += ["--rank-grace", "2"]

        def training():
            shutil.rmtree(self.out, ignore_errors=True)
            process, log = self.plumb.start(3, words)
            metrics = self.out / "metrics.csv"
            while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 3):
                expect(process.poll() is None, "the job has ended")
                time.sleep(0.05)
            return process, log, rank_pids(process)

        for rank, number in [(0, signal.SIGINT), (1, signal.SIGINT), (2, signal.SIGTERM)]:
            process, log, pids = training()
            os.kill(pids[rank], number)
            self.judge(f"{number.name} to rank {rank}", *self.plumb.end(process, log), 130)
            steps = len(losses_of(self.out))
            latest = (self.out / "latest").read_text().strip()
            expect(latest.endswith(str(steps)), f"{number.name}: {latest} and {steps} steps")
        # A rank that hangs is named, and the job does not end.
        process, log, pids = training()
        os.kill(pids[1], signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while f"s for rank 1 on host {self.host}" not in (self.plumb.scratch / "log").read_text():
            expect(process.poll() is None and time.monotonic() < deadline, "a stopped rank was not named")
            time.sleep(0.1)
        os.kill(pids[1], signal.SIGCONT)
        os.kill(pids[0], signal.SIGINT)
        self.judge("SIGSTOP to rank 1 for a while, then SIGINT", *self.plumb.end(process, log), 130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("what", choices=["bits", "split", "kills", "faults"])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 3, 4, 8])
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--random", type=int, default=1)
    parser.add_argument("--recipes", type=lambda text: text.split(","), default=["text"])
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["f32"])
    parser.add_argument("--text", type=pathlib.Path, default=SOURCE / "docs" / "placements.md")
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("skipped: there is no mpirun")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        plumb = Plumb(options.build.resolve(), pathlib.Path(scratch))
        if options.what == "bits":
            bits(plumb, options)
        elif options.what == "split":
            split(plumb, options)
        elif options.what == "kills":
            kills(plumb, options)
        else:
            faults = Faults(plumb, options)
            faults.differing()
            faults.signals()


if __name__ == "__main__":
    main()
