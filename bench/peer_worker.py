# SPDX-License-Identifier: Apache-2.0
"""Options, weights, tokens and protocol of the workers of compare_peers.py. All workers of a comparison
start from the weights that plumb has drawn and saved, and take the same tokens.

A worker prints "ready PARAMETERS", and a line for each line that it reads: "step N" -> seconds, tokens,
FLOPs (0: unknown), loss of the last step; "memory" -> peak resident bytes; "matmul TYPE" -> FLOP/s of the
machine, by plumb only. A step is one of training, or a pass of a session: a prompt, or decoding.
"""
import argparse
import json
import random
import re
import struct
import sys
import time

import numpy


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("n_layer", "n_head", "d_model", "vocab", "context", "batch", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16", "int8"), default="f32")
    parser.add_argument("--task", choices=("train", "prompt", "decode"), default="train")
    parser.add_argument("--tokens", type=int, help="tokens of each sequence of a prompt, or to decode")
    parser.add_argument("--norm", choices=("rms", "layer"), default="layer")
    parser.add_argument("--activation", default="gelu")
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--batches", type=int, default=16, help="batches of random tokens, which repeat")
    parser.add_argument("--data", help="documents, one a line; default: random tokens")
    parser.add_argument("--model", help="plumb: the model's file")
    parser.add_argument("--weights", help="safetensors file that plumb saves and the others load")
    parser.add_argument("--program", help="llm.c: its train_gpt2; the loop: its library")
    for name in ("tied", "bias", "clip", "delta", "decay_everything", "compile"):
        parser.add_argument("--" + name, action="store_true")
    return parser.parse_args()


def weights(c):
    """Yields the names and the values (f32) of plumb's weights; q, k and v of a layer are one tensor."""
    with open(c.weights, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    content = numpy.memmap(c.weights, numpy.uint8, "r", 8 + size)

    def read(name):
        begin, end = header[name]["data_offsets"]
        return content[begin:end].view(numpy.float32).reshape(header[name]["shape"])

    for name in header:
        if name == "__metadata__" or (re.search(r"attention\.[kv]\.", name) and not c.delta):
            continue
        if ".attention.q." in name and not c.delta:
            parts = [name.replace(".q.", part) for part in (".q.", ".k.", ".v.")]
            yield name.replace(".q.", ".qkv."), numpy.concatenate([read(part) for part in parts])
        else:
            yield name, read(name)


class Batches:
    """Batches (inputs, targets) [batch, tokens]: one line of a file, between begin and end marks, or
    consecutive windows of random tokens."""

    def __init__(self, c):
        self.next = 0
        if not c.data:
            tokens = c.batch * c.context
            self.stream = numpy.random.default_rng(1).integers(0, c.vocab, c.batches * tokens + 1, numpy.int32)
            self.batches = [tuple(self.stream[i * tokens + shift:][:tokens].reshape(c.batch, c.context)
                                  for shift in (0, 1)) for i in range(c.batches)]
            return
        with open(c.data, encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip()]
        letters = sorted(set("".join(lines)))
        mark = len(letters)
        random.Random(1).shuffle(lines)
        rows = [[mark, *map(letters.index, line), mark][:c.context + 1] for line in lines]
        # One of each length comes first, because programs compile a length when they meet it.
        rows = [*{len(row): row for row in reversed(rows)}.values(), *rows]
        self.batches = [(numpy.array([row[:-1]], numpy.int32), numpy.array([row[1:]], numpy.int32)) for row in rows]

    def __call__(self):
        batch = self.batches[self.next % len(self.batches)]
        self.next += 1
        return batch


def session_tokens(c):
    """Returns the tokens of a pass of a session, and one token after each sequence."""
    tokens = numpy.random.default_rng(1).integers(0, c.vocab, (c.batch, c.tokens + 1), numpy.int32)
    return numpy.ascontiguousarray(tokens[:, :-1]), tokens[:, -1]


def session_loss(logits, target):
    """Returns the loss of the token after a sequence."""
    logits = numpy.asarray(logits, numpy.float64)
    return numpy.log(numpy.exp(logits).sum()) - logits[target]


def peak_memory(process="self"):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def serve(parameters, step, flops=0.0, wait=None, matmul=None):
    """Answers requests. step() returns a loss, which float() converts, and a number of tokens; wait() returns
    when all steps are complete."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak of memory is that of the steps, not of reading weights
    except OSError:
        pass
    print("ready", parameters, flush=True)
    for line in sys.stdin:
        command, argument = (line.split() + [""])[:2]
        if command == "step":
            tokens, start = 0, time.perf_counter()
            for _ in range(int(argument)):
                loss, count = step()
                tokens += count
            loss = float(loss)
            if wait:
                wait()
            print(f"{time.perf_counter() - start:.9f} {tokens} {flops * tokens:.6e} {loss:.6f}", flush=True)
        elif command == "memory":
            print(peak_memory(), flush=True)
        elif command == "matmul" and matmul:
            print(f"{matmul(argument):.6e}", flush=True)
        else:
            sys.exit(f"unknown command {command}")
