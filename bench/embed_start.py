#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a host of libplumb.so that only samples: time to its first token, seconds per token, memory.

    bench/embed_start.py [--build build/release] [--rounds 15]

The host (embed_host.c) maps random weights of the study's model and of GPT-2 124M. For comparison, interleaved with it:
a process that does nothing, and `plumb sample` of the study's model, which reads a run directory. Memory is compared
with weights plus KV cache plus the memory of the host with the study's model, which is libraries. Requires an idle
machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
STUDY = os.path.join(SOURCE, "examples/why_normalise")
CASES = [("study's model", os.path.join(STUDY, "pre.pbtxt"), ["27"]),
         ("GPT-2 124M", os.path.join(HERE, "models/gpt2.pbtxt"), [])]


def first_line(command):
    """Returns the seconds until the command's first line, and the rest of its output."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        process.stdout.readline()
        seconds = time.perf_counter() - begin
        rest = process.stdout.read().decode()
        if process.wait() != 0:
            sys.exit(process.stderr.read().decode())
    return seconds, rest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build/release"))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    host, plumb = (os.path.join(options.build, "bin", name) for name in ("embed_host", "plumb"))
    with tempfile.TemporaryDirectory() as scratch:
        run = os.path.join(scratch, "run")
        subprocess.run([plumb, "train", os.path.join(STUDY, "pre.pbtxt"), "--data",
                        os.path.join(SOURCE, "examples/data/names.txt"), "--train",
                        os.path.join(STUDY, "train.pbtxt"), "--set", "train.max_steps=1", "--out", run, "--quiet"],
                       check=True, capture_output=True)
        commands = {"a process": ["/bin/echo", "token"],
                    "plumb sample": [plumb, "sample", run, "--max-tokens", "1", "--num", "1"]}
        for name, model, vocabulary in CASES:
            weights = os.path.join(scratch, name)
            subprocess.run([host, "--write", model, weights] + vocabulary, check=True)
            commands[name] = [host, model, weights] + vocabulary
        seconds = {name: [] for name in commands}
        figures = {}
        for _ in range(options.rounds):
            for name, command in commands.items():
                took, rest = first_line(command)
                seconds[name].append(took)
                if name not in ("a process", "plumb sample"):
                    figures.setdefault(name, []).append(json.loads(rest))
    print("start of the process to the first token, ms (median, best):")
    for name, took in seconds.items():
        print(f"  {name:14} {statistics.median(took) * 1e3:8.1f} {min(took) * 1e3:8.1f}")
    print("a token, after that:")
    for name, of in figures.items():
        token = statistics.median(each["token_seconds"] for each in of)
        print(f"  {name:14} {token * 1e6:8.1f} us")
    print("peak memory, MB: of the process, of weights and KV cache, and the ratio")
    for name, _, _ in CASES:
        peak = max(each["peak_kb"] for each in figures[name]) * 1024
        needed = figures[name][0]["weight_bytes"] + figures[name][0]["cache_bytes"]
        print(f"  {name:14} {peak / 1e6:8.1f} {needed / 1e6:8.1f} {peak / needed:8.2f}")


if __name__ == "__main__":
    sys.exit(main())
