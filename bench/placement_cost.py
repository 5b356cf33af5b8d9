#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of placements: training steps of one model under pre, post, double and none,
interleaved, compared with the cost of their norms; and a norm from a plugin outside of the tree
compared with the same norm as it is shipped.

The cost of the norms is taken from the profile of a step: the ops with "norm" in their names. A
placement is cheap if the rest of its step takes as long as that of `none`: "rest over none" is
(step - norms) / (step of none - its norms), within rounds; 1.03 would be three percent.

Part wiring: steps of rules that wire the stream differently over those of pre, next to the arithmetic
and the bytes of operands that their ops add to those of pre, according to the same profile.

    placement_cost.py --build BUILD [--rounds 7] [--batch 4] [--seq 64] [--dtype f32]
                      [--part placements|plugin|wiring] [--markdown] [--json FILE]
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import workers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
MODEL = os.path.join(HERE, "models", "gpt2.pbtxt")
PLACEMENTS = ["none", "pre", "post", "double"]
WIRINGS = ["pre", "denseformer", "hc_static", "hyper_connections", "attention_residuals"]


def start(args, name, extra):
    command = [os.path.join(args.build, "bin", "step_server"), MODEL, "--batch", str(args.batch),
               "--seq", str(args.seq), "--dtype", args.dtype, "--set-model",
               f"n_layer={args.n_layer}", *extra]
    return workers.Worker(name, command)


def norm_seconds(worker, steps):
    """Returns the seconds of the norm ops in a mean step."""
    return sum(op[2] for op in workers.profile(worker, steps) if op[1] and "norm" in op[0])


def placements(args):
    started = [start(args, name, ["--set-model", f"block.placement={name}"])
               for name in PLACEMENTS]
    for worker in started:
        worker.warm_up()
    rounds, norms = [], {name: [] for name in PLACEMENTS}
    # The profiles of a round are measured next to its steps, under the same load on the machine.
    for _ in range(args.rounds):
        rounds += workers.interleave(started, 1)
        for worker in started:
            norms[worker.name].append(norm_seconds(worker, args.profiled_steps))
    for worker in started:
        worker.end()
    rows, records = [], []
    rest = {name: [turn[name]["seconds"] - norm for turn, norm in zip(rounds, norms[name])]
            for name in PLACEMENTS}
    for name in PLACEMENTS:
        step = workers.spread([turn[name]["seconds"] for turn in rounds])
        alone = workers.median(norms[name])
        ratio = workers.spread([a / b for a, b in zip(rest[name], rest["none"])])
        rows.append([name, workers.time_text(step[0]), workers.time_text(alone),
                     f"{ratio[0]:.3f}", f"{ratio[1]:.3f} .. {ratio[2]:.3f}"])
        records.append({"placement": name, "step": step, "norms": alone, "rest_over_none": ratio})
    head = ["placement", "step", "its norms", "rest over none", "p10 .. p90"]
    print(workers.table(head, rows, args.markdown))
    return records


def wiring(args):
    started = [start(args, name, ["--set-model", f"block.placement={name}"]) for name in WIRINGS]
    for worker in started:
        worker.warm_up()
    rounds = workers.interleave(started, args.rounds)
    work = {worker.name: [op for op in workers.profile(worker, args.profiled_steps) if op[1]] for worker in started}
    for worker in started:
        worker.end()
    sums = {name: [sum(op[i] for op in ops) for i in (3, 4)] for name, ops in work.items()}
    rows, records = [], []
    for name in WIRINGS:
        ratio = workers.spread([r[name]["seconds"] / r["pre"]["seconds"] for r in rounds])
        flops, size = (sums[name][i] / sums["pre"][i] for i in (0, 1))
        step = workers.median([r[name]["seconds"] for r in rounds])
        rows.append([name, workers.time_text(step), f"{ratio[0]:.3f}",
                     f"{ratio[1]:.3f} .. {ratio[2]:.3f}", f"{flops:.3f}", f"{size:.3f}"])
        records.append({"placement": name, "step": step, "over_pre": ratio, "flops_over_pre": flops,
                        "bytes_over_pre": size})
    head = ["placement", "step", "over pre", "p10 .. p90", "FLOPs over pre", "bytes over pre"]
    print(workers.table(head, rows, args.markdown))
    return records


def outside_plugin(directory):
    """Builds rms_norm under another name outside of the tree, as a user would; returns its path."""
    source = os.path.join(ROOT, "plugins", "norms", "rms_norm")
    copy = os.path.join(directory, "outside_norm")
    shutil.copytree(source, copy)
    sources = [os.path.join(copy, name) for name in sorted(os.listdir(copy))
               if name.endswith((".c", ".cc"))]
    for path in sources:
        text = open(path).read().replace('"rms_norm"', '"outside_norm"')
        text = text.replace("plugins/norms/rms_norm/", "")
        open(path, "w").write(text)
    library = os.path.join(directory, "outside_norm.so")
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-O2", "-DNDEBUG", "-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden",
         "-DHWY_DISABLED_TARGETS=(HWY_SSSE3|(HWY_AVX3-1))", "-I", copy,
         "-I", os.path.join(ROOT, "plugins", "abi"), "-I", ROOT, *sources, "-o", library, "-lhwy"],
        check=True)
    return library


def plugin(args):
    with tempfile.TemporaryDirectory() as directory:
        library = outside_plugin(directory)
        shipped = start(args, "shipped", ["--set-model", "norm[0].plugin=rms_norm"])
        outside = start(args, "outside", ["--plugin", library,
                                          "--set-model", "norm[0].plugin=outside_norm"])
        both = [shipped, outside]
        for worker in both:
            worker.warm_up()
        rounds = workers.interleave(both, args.rounds)
        norms = {w.name: norm_seconds(w, 2 * args.profiled_steps) for w in both}
        for worker in both:
            worker.end()
    ratio = workers.spread([r["outside"]["seconds"] / r["shipped"]["seconds"] for r in rounds])
    rows = [[name, workers.time_text(workers.median([r[name]["seconds"] for r in rounds])),
             workers.time_text(norms[name])] for name in ("shipped", "outside")]
    rows[0].append("1.000")
    rows[1].append(f"{ratio[0]:.3f} ({ratio[1]:.3f} .. {ratio[2]:.3f})")
    print(workers.table(["rms_norm", "step", "its norms", "step over shipped"], rows,
                        args.markdown))
    return {"ratio": ratio, "norms": norms}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--n_layer", type=int, default=12)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--profiled_steps", type=int, default=1, help="a round")
    parser.add_argument("--part", choices=("placements", "plugin", "wiring"))
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.build, "bin", "step_server")):
        sys.exit("step_server is not there: build it, or give --build")
    parts = {"placements": placements, "plugin": plugin, "wiring": wiring}
    records = {}
    for name, measure in parts.items():
        if args.part not in (None, name):
            continue
        records[name] = measure(args)
        print()
    if args.json:
        with open(args.json, "w") as out:
            json.dump(records, out, indent=1)


if __name__ == "__main__":
    main()
