#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plumb with PyTorch, JAX, llm.c, a loop in C++ (training) and llama.cpp (prompts and decoding).

plumb is paired with one peer at a time. Both processes start from the weights that plumb draws, take the
same tokens and run during the whole comparison; their steps are interleaved within each round. The losses
of the first five steps must be equal up to rounding; otherwise the pair is refused: it is not measured, and
the exit code is 1. Ratios are computed within a round; the output is medians and, for the ratio, the 10th
and 90th percentiles. GFLOP/s are those of the model: 6 per weight and token of a training step, a third of
that in a session, plus attention as if nothing were masked. "of peak" is relative to a product of the
same type by oneDNN (1,024 rows a thread, or 2,048 of bf16, by a [2048, 2048] matrix), measured in the same rounds.

    compare_peers.py --build BUILD --python PYTHON [--torch PYTHON[=LIBRARY]].. [--llm-c TRAIN_GPT2] [--loop LIBRARY]
                     [--quick] [--rounds 7] [--only NAME,..] [--dtypes f32,bf16,int8] [--peers NAME,..]
                     [--markdown] [--json FILE]

bench/compare_peers.sh finds the interpreters, compiles the loop (peer_loop.cc) and a LIBRARY with BLAS's sgemm_
to preload into a PyTorch. A pair that FILE already holds is not measured again.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import workers

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "examples")
STUDY = os.path.join(EXAMPLES, "why_normalise")

# `plumb` is the model's file; `options` are those of every worker (peer_worker.py).
GPT2 = dict(n_layer=12, n_head=12, d_model=768, vocab=50304, activation="gelu_tanh", tied=True, bias=True)
GPT2_FILE = os.path.join(HERE, "models", "gpt2.pbtxt")
NAMES = os.path.join(EXAMPLES, "data", "names.txt")
MODELS = {
    "study": dict(
        title="study, one name, 1 thread", dtypes=["f32"], file=os.path.join(STUDY, "pre.pbtxt"),
        options=dict(n_layer=8, n_head=4, d_model=16, vocab=27, context=16, batch=1, threads=1, norm="rms",
                     activation="relu", weight_decay=0.01, decay_everything=True, data=NAMES)),
    "shakespeare": dict(
        title="Shakespeare 12 x 64", file=os.path.join(EXAMPLES, "shakespeare", "model.pbtxt"),
        options=dict(n_layer=4, n_head=4, d_model=128, vocab=65, context=64, batch=12, tied=True, clip=True)),
    "baby": dict(
        title="baby GPT 8 x 256", file=os.path.join(HERE, "models", "baby_gpt.pbtxt"),
        options=dict(n_layer=6, n_head=6, d_model=384, vocab=65, context=256, batch=8, tied=True, clip=True)),
    "gpt2-64": dict(title="GPT-2 124M 4 x 64", file=GPT2_FILE, options=dict(GPT2, context=64, batch=4, clip=True)),
    "gpt2-1024": dict(title="GPT-2 124M 1 x 1024", file=GPT2_FILE,
                      options=dict(GPT2, context=1024, batch=1, clip=True)),
}
# Long contexts, and linear attention next to attention; only with --only, because PyTorch needs transformers.
EXTRA = {}
for tokens, batch in ((8192, 1), (1024, 1), (64, 4)):
    shape = dict(GPT2, context=tokens, batch=batch, clip=True)
    if tokens > 1024:
        EXTRA[f"gpt2-{tokens}"] = dict(title=f"GPT-2 124M {batch} x {tokens}", file=GPT2_FILE, options=shape,
                                       peers=["torch", "torch-compiled"])
    EXTRA[f"delta-{tokens}"] = dict(  # the peer adds its epsilon to squared lengths, plumb bounds lengths by it
        title=f"gated DeltaNet 131M {batch} x {tokens}", peers=["torch"], tolerance=5e-3,
        file=os.path.join(HERE, "models", "gpt2_delta.pbtxt"), options=dict(shape, delta=True))
for name, title, task, batch, tokens in (("prompt", "prompt of 512", "prompt", 1, 512),
                                         ("decode", "decoding 128", "decode", 1, 128),
                                         ("decode-8", "decoding 8 x 64", "decode", 8, 64)):
    MODELS[name] = dict(title=f"GPT-2 124M, {title}", file=GPT2_FILE, dtypes=["f32", "bf16", "int8"], peers=["llama.cpp"],
                        options=dict(GPT2, context=1024, batch=batch, task=task, tokens=tokens))
ALL = {**MODELS, **EXTRA}
TRAINERS = ["torch", "torch-compiled", "jax", "llm.c", "loop"]

CHECKED_STEPS = 5
# Differences of losses, in nats, that rounding explains. A wrong weight, mask or decay rate makes larger ones.
# llama.cpp rounds GELU to f16.
TOLERANCE = {"train": {"f32": 1e-4, "bf16": 5e-3}, "session": {"f32": 2e-3, "bf16": 2e-2, "int8": 5e-2}}

# Fresh large buffers would cost a peer page faults in every step, so it keeps the heap, in huge pages.
PEER_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def words(options):
    return [word for name, value in options.items() if value is not False
            for word in (["--" + name] if value is True else ["--" + name, str(value)])]


def version_of(python, code):
    """Returns what a program in Python prints, or None if it fails."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def find_peers(args):
    """Returns the peers of this machine: kind, name with its version, command, environment, and options that plumb
    takes as well."""
    peers = []

    def add(kind, name, command, environment=None, **changes):
        peers.append(dict(kind=kind, name=name, command=command, environment=environment, changes=changes))

    for torch in args.torch:
        python, _, library = torch.partition("=")
        version = version_of(python, "import torch; print(torch.__version__.split('+')[0])")
        if not version:
            continue
        environment = dict(PEER_ENVIRONMENT, **({"LD_PRELOAD": library} if library else {}))
        command = [python, "-B", os.path.join(HERE, "torch_steps.py")]
        add("torch", f"PyTorch {version}", command, environment)
        if int(version.split(".")[0]) >= 2:
            add("torch-compiled", f"PyTorch {version}, compiled", command + ["--compile"], environment)
    version = version_of(args.python, "import jax; print(jax.__version__)")
    if version:
        add("jax", f"JAX {version}", [args.python, "-B", os.path.join(HERE, "jax_steps.py")], PEER_ENVIRONMENT)
    version = version_of(args.python, "import llama_cpp; print(llama_cpp.__version__)")
    if version:
        add("llama.cpp", f"llama.cpp (llama-cpp-python {version})",
            [args.python, "-B", os.path.join(HERE, "llama_steps.py")])
    if args.llm_c:  # its sizes and its optimizer's settings are fixed, and it shuffles batches
        add("llm.c", "llm.c", [args.python, "-B", os.path.join(HERE, "llm_c_steps.py"), "--program", args.llm_c],
            learning_rate=1e-4, beta2=0.999, weight_decay=0.0, clip=False, batches=1)
    if args.loop:
        add("loop", "C++ loop", [args.python, "-B", os.path.join(HERE, "loop_steps.py"), "--program", args.loop])
    return [peer for peer in peers if peer["kind"] in args.peers]


def suits(peer, name, dtype):
    if peer["kind"] == "llm.c":
        return (name, dtype) == ("gpt2-64", "f32")
    if peer["kind"] == "loop":
        return (name, dtype) == ("study", "f32")
    return peer["kind"] in ALL[name].get("peers", TRAINERS)


def start(name, command, options, environment):
    return workers.Worker(name, command + words(options),
                          dict(environment or {}, OMP_NUM_THREADS=str(options["threads"])))


def check_losses(plumb, other, tolerance):
    """Fails if the losses of the first steps differ by more than rounding; returns those of plumb and the peer."""
    if plumb.parameters != other.parameters:
        sys.exit(f"refused: {plumb.parameters} parameters in plumb, {other.parameters} in {other.name}")
    losses = [[worker.steps(1)["loss"] for _ in range(CHECKED_STEPS)] for worker in (plumb, other)]
    if not all(abs(a - b) <= tolerance for a, b in zip(*losses)):  # also refuses NaN
        sys.exit(f"refused: losses {losses[0]} in plumb, {losses[1]} in {other.name}")
    return losses


def compare(args, name, dtype, peer):
    """Returns the record of plumb and a peer on one model in one type."""
    model, started = ALL[name], []
    options = {"threads": args.threads, **model["options"], **peer["changes"], "dtype": dtype}
    library = {"PYTHONPATH": os.path.join(HERE, "..", "runtime", "python"),
               "PLUMB_LIBRARY": os.path.join(args.build, "lib", "libplumb.so")}
    with tempfile.TemporaryDirectory() as scratch:
        options["weights"] = os.path.join(scratch, "weights.safetensors")
        try:
            plumb = start("plumb", [args.python, "-B", os.path.join(HERE, "plumb_steps.py"), "--model", model["file"]],
                          options, library)
            started.append(plumb)
            other = start(peer["name"], peer["command"], options, peer["environment"])
            started.append(other)
            kind = "session" if "task" in options else "train"
            losses = check_losses(plumb, other, model.get("tolerance", TOLERANCE[kind][dtype]))
            for worker in started:  # also compiles each length of a document
                worker.warm_up(20 if options.get("data") else 1 if args.quick else 3)
            memory = [worker.memory() for worker in started]
            other.name = "peer"
            multiplies = options.get("task") != "decode" and dtype != "int8"  # others have no GEMM peak
            rounds = workers.interleave(started, args.rounds, lambda: plumb.matmul(dtype) if multiplies else 0)
        finally:
            for worker in started:
                worker.end()
    return {"model": name, "dtype": dtype, "peer": peer["name"], "parameters": plumb.parameters, "losses": losses,
            "memory": {"plumb": memory[0], "peer": memory[1]},
            "steps_a_turn": {worker.name: worker.turn for worker in started}, "rounds": rounds}


def summary(record):
    """Returns the medians of a record."""
    rounds = record["rounds"]
    # Compares tokens per second, so that documents of different lengths do not matter.
    speed = lambda r, who: r[who]["tokens"] / r[who]["seconds"]
    flops_per_token = rounds[0]["plumb"]["flops"] / rounds[0]["plumb"]["tokens"]
    share = lambda who: workers.median([flops_per_token * speed(r, who) / r["before"] if r["before"] else 0
                                        for r in rounds]) or None
    return {
        "plumb": workers.spread([r["plumb"]["seconds"] for r in rounds]),
        "theirs": workers.spread([r["peer"]["seconds"] for r in rounds]),
        "rate": workers.median([speed(r, "plumb") for r in rounds]),
        "their_rate": workers.median([speed(r, "peer") for r in rounds]),
        "ratio": workers.spread([speed(r, "plumb") / speed(r, "peer") for r in rounds]),
        "flops": workers.median([flops_per_token * speed(r, "plumb") for r in rounds]),
        "share": share("plumb"), "their_share": share("peer"),
    }


HEAD = ["model", "type", "peer", "plumb", "peer's", "ratio", "p10 .. p90", "GFLOP/s", "of peak", "peer's of peak",
        "memory", "peer's memory"]


def row(record):
    s = summary(record)
    percent = lambda x: "-" if x is None else f"{100 * x:.0f} %"
    ratio, low, high = s["ratio"]
    return [ALL[record["model"]]["title"], record["dtype"], record["peer"], workers.time_text(s["plumb"][0]),
            workers.time_text(s["theirs"][0]), f"{ratio:.2f}x", f"{low:.2f} .. {high:.2f}", f"{s['flops'] / 1e9:.0f}",
            percent(s["share"]), percent(s["their_share"]), workers.bytes_text(record["memory"]["plumb"]),
            workers.bytes_text(record["memory"]["peer"])]


def write(path, records):
    text = json.dumps([dict(r, title=ALL[r["model"]]["title"], task=ALL[r["model"]]["options"].get("task", "train"),
                            summary=summary(r)) for r in records], indent=1)
    with open(path + ".new", "w") as out:
        out.write(text)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--torch", action="append", default=[])
    parser.add_argument("--llm-c")
    parser.add_argument("--loop")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--dtypes", default="f32,bf16,int8")
    parser.add_argument("--peers", default=",".join(TRAINERS + ["llama.cpp"]))
    parser.add_argument("--quick", action="store_true", help="two rounds, a short warm-up")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", help="writes all turns to this file, after each pair")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 7)
    names, args.peers = args.only.split(","), args.peers.split(",")
    unknown = [name for name in names if name not in ALL] + [p for p in args.peers if p not in TRAINERS + ["llama.cpp"]]
    if unknown:
        parser.error(f"unknown {unknown[0]}; there are {', '.join(ALL)} and {', '.join(TRAINERS)}, llama.cpp")
    records, problems, peers = [], [], find_peers(args)
    if args.json and os.path.exists(args.json):
        with open(args.json) as file:
            records = json.load(file)
    if not peers:
        sys.exit(f"no peer of {', '.join(args.peers)} is installed; see bench/compare_peers.sh")
    for name in names:
        for dtype in args.dtypes.split(","):
            for peer in peers:
                if (dtype not in ALL[name].get("dtypes", ["f32", "bf16"]) or not suits(peer, name, dtype)
                        or any((r["model"], r["dtype"], r["peer"]) == (name, dtype, peer["name"]) for r in records)):
                    continue
                print(f"{name} {dtype} {peer['name']} ...", file=sys.stderr, flush=True)
                try:
                    records.append(compare(args, name, dtype, peer))
                except SystemExit as problem:  # of this pair only
                    problems.append(f"{name} {dtype} {peer['name']}: {problem}")
                    print(problems[-1], file=sys.stderr, flush=True)
                    continue
                if args.json:
                    write(args.json, records)
    print(workers.table(HEAD, [row(record) for record in records], args.markdown))
    if problems:
        sys.exit("\n".join(["not measured:", *problems]))


if __name__ == "__main__":
    main()
