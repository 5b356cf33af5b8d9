#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes steps of llm.c's train_gpt2 (CPU) on request: a worker of compare_peers.py. The program runs without
requests, reads fixed file names and does 40 steps; it is stopped between the requests. Its batch is 4 x 64."""
import os
import re
import signal
import subprocess
import sys

import numpy

import peer_worker

ORDER = ["embedding.token.weight", "embedding.position.weight", "attention.norm.weight", "attention.norm.bias",
         "attention.qkv.weight", "attention.qkv.bias", "attention.o.weight", "attention.o.bias", "mlp.norm.weight",
         "mlp.norm.bias", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias", "end.norm.weight",
         "end.norm.bias"]


def write_files(c, directory):
    """Writes a checkpoint and the tokens; returns the number of parameters."""
    tensors, parameters = dict(peer_worker.weights(c)), 0
    header = numpy.zeros(256, numpy.int32)
    header[:8] = [20240326, 3, c.context, c.vocab, c.n_layer, c.n_head, c.d_model, c.vocab]
    with open(os.path.join(directory, "gpt2_124M.bin"), "wb") as file:
        file.write(header.tobytes())
        for name in ORDER:
            names = [name] if name in tensors else [f"layers.{i}.{name}" for i in range(c.n_layer)]
            for each in names:
                parameters += tensors[each].size
                file.write(tensors[each].tobytes())
    tokens = peer_worker.Batches(c).stream.astype(numpy.uint16)
    header[:3], header[3:] = [20240520, 1, len(tokens)], 0
    data = os.path.join(directory, "dev", "data", "tinyshakespeare")
    os.makedirs(data)
    for part in ("train", "val"):
        with open(os.path.join(data, f"tiny_shakespeare_{part}.bin"), "wb") as file:
            file.write(header.tobytes() + tokens.tobytes())
    return parameters


def serve(c, process):
    for line in sys.stdin:
        command, argument = (line.split() + [""])[:2]
        if command == "memory":
            print(peer_worker.peak_memory(process.pid), flush=True)
            continue
        seconds, done = 0.0, 0
        process.send_signal(signal.SIGCONT)
        while done < int(argument):
            line = process.stdout.readline()
            if not line:
                sys.exit("train_gpt2 ended: it does 40 steps")
            found = re.match(r"step \d+: train loss (\S+) \(took ([\d.]+) ms\)", line)
            if found:
                loss, seconds, done = found[1], seconds + 1e-3 * float(found[2]), done + 1
        process.send_signal(signal.SIGSTOP)
        print(f"{seconds:.9f} {done * c.batch * c.context} 0 {loss}", flush=True)


def main():
    c = peer_worker.parse_options()
    directory = c.weights + ".llm.c"
    os.mkdir(directory)
    parameters = write_files(c, directory)
    environment = dict(os.environ, OMP_NUM_THREADS=str(c.threads))
    process = subprocess.Popen(["stdbuf", "-oL", os.path.realpath(c.program)], cwd=directory, env=environment, text=True,
                               stdout=subprocess.PIPE)
    process.send_signal(signal.SIGSTOP)
    print("ready", parameters, flush=True)
    try:
        serve(c, process)
    finally:
        process.kill()


if __name__ == "__main__":
    main()
