#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plumb compare on several ranks and as jobs that share a store with one process: the files must be equal.

  compare_ranks.py BUILD [--kills N] [--random SEED]

--kills N: N times a rank, chosen at random, is killed (SIGKILL) while a study runs, and the same
command continues with another number of ranks. Exit code 77: there is no mpirun."""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from train_ranks import command_by_rank, error_lines

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Files and fields that contain times, hosts or speeds (docs/report.md), in studies and in runs.
OF_THE_PLACE = ("timing.csv", "provenance.json")
OF_A_RUN = ("run.json",)


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def files_of(out):
    """Returns the contents of all files by path, without those that contain times, hosts or speeds."""
    contents = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out)
        if not path.is_file() or str(name) in OF_THE_PLACE:
            continue
        if name.parts[0] == "runs" and (path.name in OF_A_RUN or path.name.startswith("events.out")):
            continue
        if path.name == "metrics.csv":
            rows = [line.split(",") for line in path.read_text().splitlines()]
            contents[str(name)] = [row[:5] + row[6:] for row in rows]
            continue
        # report.html has the times of steps.
        contents[str(name)] = re.sub(rb',"seconds_per_step":[^]]*]', b"", path.read_bytes())
    return contents


class Study:
    def __init__(self, build, scratch, steps):
        self.plumb = build / "bin/plumb"
        self.scratch = scratch
        examples = SOURCE / "examples"
        self.arguments = [
            "compare", examples / "why_normalise/pre.pbtxt", examples / "why_normalise/post.pbtxt",
            "--data", examples / "data/names.txt", "--train", examples / "why_normalise/train.pbtxt",
            "--set", f"train.max_steps={steps}", "--set", "train.checkpoint_interval=10",
            "--samples", "2", "--threads", "1"]
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_btl="self,vader,tcp", OMPI_MCA_pml="ob1",
                                TMPDIR=str(scratch / "tmp"))
        if (library := build / "lib/plumb/libplumb-mpi.so").exists():
            self.environment["PLUMB_MPI_LIBRARY"] = str(library)
        (scratch / "tmp").mkdir()

    def command(self, ranks, out, more=()):
        launcher = []
        if ranks:
            launcher = ["mpirun", "-n", str(ranks)]
            version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
            if "Open MPI" in version:
                launcher += ["--oversubscribe", "--bind-to", "none"]
        return [str(word) for word in [*launcher, self.plumb, *self.arguments, "--out", out, *more]]

    def run(self, ranks, out, more=()):
        result = subprocess.run(self.command(ranks, out, more), env=self.environment, capture_output=True, text=True)
        if result.returncode != 0:
            fail(f"{ranks} ranks: exit code {result.returncode}\n{result.stderr}")
        return result

    def start(self, ranks, out):
        return subprocess.Popen(self.command(ranks, out), env=self.environment, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def expect_other_plugin_refused(self, out):
        """Checks that rank 1 is refused if its file of the same norm differs by one byte."""
        norm = self.scratch / "rms_norm.so"
        norm.write_bytes((self.plumb.parents[1] / "lib/plumb/norm-v1/rms_norm.so").read_bytes() + b"\0")
        first = self.command(0, out)
        launcher = self.command(2, out)[:-len(first)]
        commands = [first, self.command(0, out, ["--plugin", norm])]
        result = subprocess.run([*launcher, *command_by_rank(commands)], env=self.environment, capture_output=True, text=True)
        told = error_lines(result.stderr)
        if result.returncode == 0 or len(told) != 1 or "norm rms_norm of pre differs between ranks" not in told[0]:
            fail(f"another plugin on rank 1: exit code {result.returncode}\n{result.stderr}")
        if out.exists():
            fail(f"another plugin on rank 1: {out} was made")
        print(f"another plugin on rank 1: {told[0]}", flush=True)


def expect_equal(whole, out, what):
    ours = files_of(out)
    different = sorted(name for name in whole.keys() | ours.keys() if whole.get(name) != ours.get(name))
    if different:
        fail(f"{what}: {len(different)} files differ from those of one process: {', '.join(different[:8])}")
    print(f"{what}: {len(whole)} files are those of one process", flush=True)


def ranks_of(launcher, plumb):
    """Returns the process ids of the ranks below a launcher, in the order of ranks."""
    below, found = {launcher}, {}
    for entry in sorted((int(p) for p in os.listdir("/proc") if p.isdigit())):
        try:
            parent = int(pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent not in below:
                continue
            below.add(entry)
            if os.path.samefile(f"/proc/{entry}/exe", plumb):
                variables = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                for variable in variables:
                    if variable.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")):
                        found[int(variable.split(b"=")[1])] = entry
        except (OSError, IndexError, ValueError):
            continue
    return [found[rank] for rank in sorted(found)]


def kill_one(study, out, ranks, chance, whole_seconds):
    job = study.start(ranks, out)
    time.sleep(chance.uniform(0.2, 1.0) * whole_seconds)
    processes = ranks_of(job.pid, study.plumb)
    if not processes:
        job.communicate()
        return "nobody: it had ended"
    rank = chance.randrange(len(processes))
    try:
        os.kill(processes[rank], signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.communicate()
    return f"rank {rank} of {ranks}, exit code {job.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--random", type=int, default=1, metavar="SEED")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ranks", default="1,2,3,4")
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("skipped: there is no mpirun")
        sys.exit(77)
    chance = random.Random(options.random)
    with tempfile.TemporaryDirectory(prefix="compare_ranks.") as name:
        scratch = pathlib.Path(name)
        study = Study(options.build.resolve(), scratch, options.steps)
        begin = time.monotonic()
        study.run(0, scratch / "whole")
        seconds = time.monotonic() - begin
        whole = files_of(scratch / "whole")
        for ranks in map(int, options.ranks.split(",")):
            study.run(ranks, scratch / f"ranks{ranks}")
            expect_equal(whole, scratch / f"ranks{ranks}", f"{ranks} ranks")
        study.expect_other_plugin_refused(scratch / "refused")
        store = ["--store", scratch / "store"]
        for seed in (1, 2, 3):
            study.run(0, scratch / f"part{seed}", ["--seed", seed, *store])
        study.run(0, scratch / "collected", store)
        expect_equal(whole, scratch / "collected", "3 jobs with a store")
        for kill in range(options.kills):
            out = scratch / f"killed{kill}"
            ranks = chance.choice([2, 3, 4])
            told = kill_one(study, out, ranks, chance, seconds)
            others = chance.choice([count for count in (1, 2, 3, 4) if count != ranks])
            study.run(others, out)
            expect_equal(whole, out, f"killed: {told}; continued with {others}")
            shutil.rmtree(out)


if __name__ == "__main__":
    main()
