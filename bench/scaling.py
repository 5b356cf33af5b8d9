#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how the time of a training step grows with depth, width, context and batch; writes JSON and
four plots with lower bounds.

The lower bound of a step is its model's FLOPs divided by the machine's GEMM speed, plus 28 bytes per
parameter (the traffic of AdamW: gradient, weight and two moments read, the last three written) divided
by its read bandwidth, both measured next to each point.

    scaling.py --build BUILD --out DIRECTORY [--rounds 3] [--dtypes f32,bf16]
               [--only depth,width,context,batch] [--quick]
"""
import argparse
import json
import os
import sys

import svg_plot
import workers

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "models", "gpt2.pbtxt")
OPTIMIZER_BYTES = 28

# One of these grows while the others stay. Heads are 64 wide; with a vocabulary of 512, the blocks do most
# of the work.
BASE = {"depth": 6, "width": 256, "context": 128, "batch": 4}
VOCAB = 512
GROWS = {
    "depth": [1, 2, 4, 8, 16, 32],
    "width": [64, 128, 256, 512, 1024],
    "context": [32, 64, 128, 256, 512, 1024, 2048],
    "batch": [1, 2, 4, 8, 16, 32],
}
LABELS = {"depth": "layers", "width": "d_model", "context": "tokens of context",
          "batch": "sequences of a batch"}


def measure(args, point, dtype):
    fields = {"n_layer": point["depth"], "d_model": point["width"],
              "n_head": max(1, point["width"] // 64), "vocab_size": VOCAB}
    command = [os.path.join(args.build, "bin", "step_server"), MODEL, "--dtype", dtype,
               "--seq", str(point["context"]), "--batch", str(point["batch"])]
    for field, value in fields.items():
        command += ["--set-model", f"{field}={value}"]
    if args.threads:
        command += ["--threads", str(args.threads)]
    worker = workers.Worker("plumb", command)
    worker.warm_up(1 if args.quick else 3, 0.1)
    memory = worker.memory()
    rounds = workers.interleave(
        [worker], args.rounds, lambda: (worker.matmul(dtype), worker.read()))
    worker.end()
    tokens = rounds[0]["plumb"]["tokens"]
    floors = [r["plumb"]["flops"] / r["before"][0] + OPTIMIZER_BYTES * worker.parameters
              / r["before"][1] for r in rounds if r["before"][0]]
    return {**point, "dtype": dtype, "parameters": worker.parameters, "memory": memory,
            "tokens": tokens, "flops": rounds[0]["plumb"]["flops"],
            "seconds": workers.spread([r["plumb"]["seconds"] for r in rounds]),
            "floor": workers.median(floors) if floors else None,
            "matmul": workers.median([r["before"][0] for r in rounds]),
            "read": workers.median([r["before"][1] for r in rounds])}


def draw(what, records, dtypes):
    series = []
    for dtype in dtypes:
        mine = [r for r in records if r["dtype"] == dtype]
        series.append({"name": dtype, "points": [
            (r[what], 1e6 * r["seconds"][0] / r["tokens"]) for r in mine]})
        floor = [(r[what], 1e6 * r["floor"] / r["tokens"]) for r in mine if r["floor"]]
        if floor:
            series.append({"name": "floor", "points": floor, "floor": True})
    rest = ", ".join(f"{name} {value}" for name, value in BASE.items() if name != what)
    return svg_plot.plot(f"Training, time per token against {what} ({rest})", LABELS[what],
                         "microseconds per token", series)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--only", default=",".join(GROWS))
    parser.add_argument("--quick", action="store_true", help="one round, every other point")
    args = parser.parse_args()
    dtypes, names = args.dtypes.split(","), args.only.split(",")
    for name in names:
        if name not in GROWS:
            parser.error(f"unknown {name}; there are {', '.join(GROWS)}")
    os.makedirs(args.out, exist_ok=True)
    for name in names:
        records = []
        for value in GROWS[name][:: 2 if args.quick else 1]:
            for dtype in dtypes:
                print(f"{name} {value} {dtype} ...", file=sys.stderr, flush=True)
                args.rounds = 1 if args.quick else args.rounds
                records.append(measure(args, {**BASE, name: value}, dtype))
        with open(os.path.join(args.out, name + ".json"), "w") as out:
            json.dump(records, out, indent=1)
        with open(os.path.join(args.out, name + ".svg"), "w") as out:
            out.write(draw(name, records, dtypes))


if __name__ == "__main__":
    main()
