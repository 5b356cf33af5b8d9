#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the pre-norm model of examples/why_normalise by the loop of peer_loop.cc, a name a step:

    loop_study.py LIBRARY NAMES.TXT STEPS     prints the CPU seconds of all steps

Initial numbers are random, since only the time matters here: compare_peers.py compares losses.
"""
import ctypes
import random
import sys
import time

PARAMETERS, CONTEXT = 25968, 16


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    library = ctypes.CDLL(sys.argv[1])
    library.loop_create.restype = ctypes.c_void_p
    library.loop_create.argtypes = [ctypes.c_void_p, ctypes.c_int] + 3 * [ctypes.c_float]
    library.loop_step.restype = ctypes.c_float
    library.loop_step.argtypes = 3 * [ctypes.c_void_p] + [ctypes.c_int]
    draw = random.Random(1)
    weights = (ctypes.c_float * PARAMETERS)(*(draw.uniform(-0.25, 0.25) for _ in range(PARAMETERS)))
    loop = library.loop_create(ctypes.addressof(weights), PARAMETERS, 0.003, 0.99, 0.01)
    if not loop:
        sys.exit("the loop is compiled for another model")
    with open(sys.argv[2], encoding="utf-8") as file:
        names = file.read().split()
    draw.shuffle(names)
    batches = []  # the ids of each name with the token 26 at both ends; the targets are one token later
    for name in names[:4096]:
        ids = [26, *(ord(letter) - ord("a") for letter in name), 26][:CONTEXT + 1]
        batch = (ctypes.c_int * len(ids))(*ids)
        batches.append((batch, ctypes.addressof(batch), len(ids) - 1))
    begin = time.process_time()
    for step in range(int(sys.argv[3])):
        _, tokens, count = batches[step % len(batches)]
        loss = library.loop_step(loop, tokens, tokens + 4, count)
    seconds = time.process_time() - begin
    if not loss < 5:
        sys.exit(f"the loop does not train: its loss is {loss}")
    print(seconds)


if __name__ == "__main__":
    main()
