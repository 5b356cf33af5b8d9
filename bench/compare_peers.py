#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plumb with PyTorch: training steps of several models, interleaved within each round.

For each model, both processes run during the whole comparison and execute steps on request, so that
starting, compiling and first touches are not timed. Ratios are computed within a round; the output is
medians and, for the ratio, the 10th and 90th percentiles. GFLOP/s are those of the model: 6 per weight
and token, plus attention as if nothing were masked. "of peak" is relative to a product of [2048, 2048]
matrices of the same type (oneDNN, packed), measured in the same rounds.

    compare_peers.py --build BUILD --python PYTHON_WITH_TORCH --sgemm LIB [--quick] [--rounds 7]
                     [--only NAME,..] [--dtypes f32,bf16] [--markdown] [--json FILE]

bench/compare_peers.sh finds these three automatically.
"""
import argparse
import json
import os
import sys

import workers

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "examples")
STUDY = os.path.join(EXAMPLES, "why_normalise")

# `torch` has the description of a model for PyTorch, `plumb` the options in addition to the file.
GPT2 = dict(n_layer=12, n_head=12, d_model=768, vocab=50304, activation="gelu_tanh",
            tied=True, bias=True, clip=True)
EXTRA = {}
MODELS = {
    "study": dict(
        title="study, one name, 1 thread", dtypes=["f32"], threads=1,
        file=os.path.join(STUDY, "pre.pbtxt"),
        plumb=["--train", os.path.join(STUDY, "train.pbtxt"),
               "--data", os.path.join(EXAMPLES, "data", "names.txt")],
        torch=dict(n_layer=8, n_head=4, d_model=16, vocab=27, context=16, batch=1, norm="rms",
                   activation="relu", weight_decay=0.01, decay_everything=True,
                   data=os.path.join(EXAMPLES, "data", "names.txt"))),
    "shakespeare": dict(
        title="Shakespeare 12 x 64", file=os.path.join(EXAMPLES, "shakespeare", "model.pbtxt"),
        plumb=["--vocab", "65", "--batch", "12"],
        torch=dict(n_layer=4, n_head=4, d_model=128, vocab=65, context=64, batch=12, tied=True,
                   clip=True)),
    "baby": dict(
        title="baby GPT 8 x 256", file=os.path.join(HERE, "models", "baby_gpt.pbtxt"),
        plumb=["--batch", "8"],
        torch=dict(n_layer=6, n_head=6, d_model=384, vocab=65, context=256, batch=8, tied=True,
                   clip=True)),
    "gpt2-64": dict(
        title="GPT-2 124M 4 x 64", file=os.path.join(HERE, "models", "gpt2.pbtxt"),
        plumb=["--batch", "4", "--seq", "64"], torch=dict(GPT2, context=64, batch=4)),
    "gpt2-1024": dict(
        title="GPT-2 124M 1 x 1024", file=os.path.join(HERE, "models", "gpt2.pbtxt"),
        plumb=["--batch", "1"], torch=dict(GPT2, context=1024, batch=1)),
}
# Long contexts, and linear attention next to attention; only with --only, because PyTorch needs transformers.
for tokens, batch in ((8192, 1), (1024, 1), (64, 4)):
    options = ["--batch", str(batch), "--seq", str(tokens)]
    shape = dict(context=tokens, batch=batch)
    if tokens > 1024:
        EXTRA[f"gpt2-{tokens}"] = dict(
            title=f"GPT-2 124M {batch} x {tokens}", file=os.path.join(HERE, "models", "gpt2.pbtxt"),
            plumb=options, torch=dict(GPT2, **shape))
    EXTRA[f"delta-{tokens}"] = dict(
        title=f"gated DeltaNet 131M {batch} x {tokens}",
        file=os.path.join(HERE, "models", "gpt2_delta.pbtxt"),
        plumb=options, torch=dict(GPT2, delta=True, **shape))
ALL = {**MODELS, **EXTRA}

# Fresh large buffers would cost PyTorch page faults in every step, so it keeps the heap, in huge pages.
TORCH_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def start_plumb(args, model, dtype):
    threads = model.get("plumb_threads", args.threads)
    command = [os.path.join(args.build, "bin", "step_server"), model["file"], *model["plumb"],
               "--dtype", dtype, "--threads", str(threads)]
    return workers.Worker("plumb", command)


def start_torch(args, model, dtype):
    threads = model.get("threads", args.threads)
    command = [args.python, os.path.join(HERE, "torch_steps.py"), "--dtype", dtype,
               "--threads", str(threads)]
    for name, value in model["torch"].items():
        command += ["--" + name] if value is True else ["--" + name, str(value)]
    environment = dict(TORCH_ENVIRONMENT, OMP_NUM_THREADS=str(threads))
    if args.sgemm:
        environment["LD_PRELOAD"] = args.sgemm
    return workers.Worker("torch", command, environment)


def compare(args, name, dtype):
    """Returns the record of one model in one type."""
    model = ALL[name]
    plumb, torch = start_plumb(args, model, dtype), start_torch(args, model, dtype)
    if plumb.parameters != torch.parameters:
        sys.exit(f"{name}: {plumb.parameters} parameters here, {torch.parameters} in PyTorch")
    for worker in (plumb, torch):
        worker.warm_up(1 if args.quick else 3)
    memory = {"plumb": plumb.memory(), "torch": torch.memory()}
    rounds = workers.interleave([plumb, torch], args.rounds, lambda: plumb.matmul(dtype))
    for worker in (plumb, torch):
        worker.end()
    return {"model": name, "dtype": dtype, "parameters": plumb.parameters, "memory": memory,
            "steps_a_turn": {w.name: w.turn for w in (plumb, torch)}, "rounds": rounds}


def summary(record):
    """Returns the printed row of a record."""
    rounds = record["rounds"]
    # Compares tokens per second, so that documents of different lengths do not matter.
    ratio = [r["torch"]["seconds"] / r["torch"]["tokens"] * r["plumb"]["tokens"]
             / r["plumb"]["seconds"] for r in rounds]
    share = [r["plumb"]["flops"] / r["plumb"]["seconds"] / r["before"]
             for r in rounds if r["before"]]
    flops_per_token = [r["plumb"]["flops"] / r["plumb"]["tokens"] for r in rounds]
    torch_share = [f * r["torch"]["tokens"] / r["torch"]["seconds"] / r["before"]
                   for f, r in zip(flops_per_token, rounds) if r["before"]]
    return {
        "plumb_seconds": workers.spread([r["plumb"]["seconds"] for r in rounds]),
        "torch_seconds": workers.spread([r["torch"]["seconds"] for r in rounds]),
        "ratio": workers.spread(ratio),
        "flops": workers.median([r["plumb"]["flops"] / r["plumb"]["seconds"] for r in rounds]),
        "peak": workers.median([r["before"] for r in rounds]),
        "share": workers.median(share) if share else None,
        "torch_share": workers.median(torch_share) if torch_share else None,
    }


HEAD = ["model", "type", "plumb", "torch", "ratio", "p10 .. p90", "GFLOP/s", "of peak",
        "torch of peak", "memory", "torch memory"]


def row(record):
    s = summary(record)
    percent = lambda x: "-" if x is None else f"{100 * x:.0f} %"
    ratio, low, high = s["ratio"]
    return [ALL[record["model"]]["title"], record["dtype"],
            workers.time_text(s["plumb_seconds"][0]), workers.time_text(s["torch_seconds"][0]),
            f"{ratio:.2f}x", f"{low:.2f} .. {high:.2f}", f"{s['flops'] / 1e9:.0f}",
            percent(s["share"]), percent(s["torch_share"]),
            workers.bytes_text(record["memory"]["plumb"]),
            workers.bytes_text(record["memory"]["torch"])]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--sgemm", help="library with BLAS's sgemm_ to preload into PyTorch")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--quick", action="store_true", help="two rounds, a short warm-up")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", help="writes all turns to this file")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 7)
    names = args.only.split(",")
    unknown = [name for name in names if name not in ALL]
    if unknown:
        parser.error(f"unknown model {unknown[0]}; there are {', '.join(ALL)}")
    records = []
    for name in names:
        for dtype in args.dtypes.split(","):
            if dtype not in ALL[name].get("dtypes", ["f32", "bf16"]):
                continue
            print(f"{name} {dtype} ...", file=sys.stderr, flush=True)
            records.append(compare(args, name, dtype))
    print(workers.table(HEAD, [row(record) for record in records], args.markdown))
    if args.json:
        with open(args.json, "w") as out:
            json.dump([dict(r, title=ALL[r["model"]]["title"], summary=summary(r))
                       for r in records], out, indent=1)


if __name__ == "__main__":
    main()
