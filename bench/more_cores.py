#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts training steps on 8 and 64 cores by a simple model, next to measurements with one and two threads.

    more_cores.py --build BUILD [--rounds 5] [--markdown] [--json FILE]

The model divides a step of one thread, op by op, among c cores:
  - a matrix product has the tasks of its plan (plumb explain --stage exec), which depend on shapes only, and takes
    ceil(tasks / c) / tasks of its time with one thread. That time includes packing, which each task repeats.
  - other ops and AdamW (28 bytes per parameter) take 1 / c, but no less than their bytes at the read bandwidth,
    which is that of one thread times c, at most CORES[c] bytes per second, or for two what two threads measure.
  - the rest is serial. Starting a parallel op and caches that are larger or shared count as nothing.
"""
import argparse
import json
import math
import os
import re
import subprocess

import workers

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIMIZER_BYTES = 28
# Bytes per second of a processor's memory, about three quarters of its peak: two channels of DDR5-5600, and twelve
# of DDR5-4800.
CORES = {8: 67e9, 64: 345e9}
CASES = [("baby GPT 8 x 256", "baby_gpt.pbtxt", 8, 256, "f32"), ("GPT-2 124M 4 x 64", "gpt2.pbtxt", 4, 64, "f32"),
         ("GPT-2 124M 4 x 64", "gpt2.pbtxt", 4, 64, "bf16"), ("GPT-2 124M 1 x 1024", "gpt2.pbtxt", 1, 1024, "f32"),
         ("GPT-2 124M 1 x 1024", "gpt2.pbtxt", 1, 1024, "bf16")]


def products(args, path, options):
    """Returns (FLOPs, tasks) of each matrix product of a step."""
    text = subprocess.run([os.path.join(args.build, "bin", "plumb"), "explain", path, "--stage", "exec", *options],
                          check=True, capture_output=True, text=True).stdout
    found, shared = [], 1
    for line in text.splitlines():
        op = re.match(r"\d+ (\w+)\(.*?\) -> (.*)", line)
        if op:  # the blocks of matmul_shared's products share the threads
            shared = len(re.findall(r"\w+\[", op[2])) if op[1] == "matmul_shared" else 1
        plan = re.match(r" +\D.* (\d+)x(\d+)x(\d+): (\d+)x(\d+) blocks", line)
        if plan:
            m, n, k, rows, columns = map(int, plan.groups())
            found.append((2 * m * n * k * shared, rows * columns * shared))
    return found


def predict(step, products_of_step, cores, bandwidth):
    """Returns the seconds of a step, and those of its products and its memory traffic."""
    flops = sum(each for each, _ in products_of_step)
    share = sum(each / flops * math.ceil(tasks / cores) / tasks for each, tasks in products_of_step)
    matmul = step["matmul"] * share
    others = sum(max(seconds / cores, size / bandwidth) for seconds, size in step["ops"])
    return matmul + others + step["serial"], matmul, others


def measure(args, title, file, batch, seq, dtype):
    path = os.path.join(HERE, "models", file)
    options = ["--batch", str(batch), "--seq", str(seq), "--dtype", dtype]
    started = [workers.Worker(str(n), [os.path.join(args.build, "bin", "step_server"), path, *options, "--threads",
                                       str(n)]) for n in (1, 2)]
    for worker in started:
        worker.warm_up(1)
    rounds = workers.interleave(started, args.rounds, lambda: [worker.read() for worker in started])
    ops = workers.profile(started[0], 2)
    for worker in started:
        worker.end()
    measured = [workers.median([r[worker.name]["seconds"] for r in rounds]) for worker in started]
    read = [workers.median([r["before"][i] for r in rounds]) for i in (0, 1)]
    scale = measured[0] / sum(seconds for _, _, seconds, _, _ in ops)
    step = {"matmul": 0.0, "serial": 0.0, "ops": []}
    for name, in_graph, seconds, _, size in ops:
        if name.startswith("matmul"):
            step["matmul"] += scale * seconds
        elif name == "optimizer":
            step["ops"].append((scale * seconds, OPTIMIZER_BYTES * started[0].parameters))
        elif in_graph:
            step["ops"].append((scale * seconds, size))
        else:
            step["serial"] += scale * seconds
    of_step = products(args, path, options)
    flops = sum(each for each, _ in of_step)
    record = {"title": title, "dtype": dtype, "measured": measured, "read": read,
              "tasks": sum(each * tasks for each, tasks in of_step) / flops, "predicted": {}}
    for cores, bandwidth in {2: read[1], **{c: min(c * read[0], most) for c, most in CORES.items()}}.items():
        total, matmul, others = predict(step, of_step, cores, bandwidth)
        record["predicted"][cores] = {"seconds": total, "matmul": matmul, "others": others}
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases with this in their title")
    parser.add_argument("--json")
    args = parser.parse_args()
    records = [measure(args, *case) for case in CASES if args.only in case[0]]
    print(workers.table(["model", "type", "1 thread", "2 measured", "2 predicted", "8", "64"], [
        [r["title"], r["dtype"], *(workers.time_text(seconds) for seconds in r["measured"]),
         *(workers.time_text(p["seconds"]) for p in r["predicted"].values())] for r in records], False))
    if args.json:
        with open(args.json, "w") as out:
            json.dump(records, out, indent=1)


if __name__ == "__main__":
    main()
