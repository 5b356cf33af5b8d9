#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes steps of a training loop written by hand in C++ for the study's model, peer_loop.cc, on request: a
worker of compare_peers.py. --program is its shared library."""
import ctypes
import sys

import numpy

import peer_worker


def parameters(c):
    """Returns the weights in the order of the loop's struct Parameters."""
    tensors = dict(peer_worker.weights(c))
    names = ["embedding.token", "embedding.position"]
    for i in range(c.n_layer):
        names += [f"layers.{i}.{name}" for name in (
            "attention.norm", "attention.qkv", "attention.o", "mlp.norm", "mlp.up", "mlp.down")]
    return numpy.concatenate([
        (tensors[name + ".weight"].T if name.endswith(".down") else tensors[name + ".weight"]).ravel()
        for name in (*names, "end.norm", "head")])


def main():
    c = peer_worker.parse_options()
    library = ctypes.CDLL(c.program)
    pointer, integer, number = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    library.loop_create.argtypes, library.loop_create.restype = [pointer, integer] + 3 * [number], pointer
    library.loop_step.argtypes, library.loop_step.restype = 3 * [pointer] + [integer], number
    values = parameters(c)
    loop = library.loop_create(values.ctypes.data, values.size, c.learning_rate, c.beta2, c.weight_decay)
    if not loop:
        sys.exit("the loop is compiled for another model")
    batches = peer_worker.Batches(c)
    # Addresses are taken once, because numpy takes a microsecond for each.
    batches.batches = [(inputs.ctypes.data, targets.ctypes.data, inputs.size, inputs, targets)
                       for inputs, targets in batches.batches]

    def step():
        inputs, targets, size, *_ = batches()
        return library.loop_step(loop, inputs, targets, size), size

    peer_worker.serve(values.size, step)


if __name__ == "__main__":
    main()
