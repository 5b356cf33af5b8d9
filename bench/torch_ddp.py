#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a training step of PyTorch's DistributedDataParallel over gloo on this machine: the model of
torch_steps.py, one process per rank, random tokens, one batch per rank. Prints the median of the rounds.

  torch_ddp.py RANKS --n_layer 4 --n_head 4 --d_model 128 --vocab 65 --context 64 --batch 8 --threads 1
"""
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import peer_worker
import torch_steps

ROUND_SECONDS = 0.25
ROUNDS = 9


def measure(rank, ranks, port, options):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    trainer = torch_steps.Trainer(options)
    trainer.model = DistributedDataParallel(trainer.model)

    def timed(steps):
        start = time.perf_counter()
        for _ in range(steps):
            loss, _ = trainer.step()
        loss.item()
        return (time.perf_counter() - start) / steps

    timed(3)
    once = torch.tensor([timed(2)])
    torch.distributed.all_reduce(once, torch.distributed.ReduceOp.MAX)
    steps = max(1, int(ROUND_SECONDS / once.item()))
    seconds = [timed(steps) for _ in range(ROUNDS)]
    if rank == 0:
        print(f"{statistics.median(seconds):.9f}", flush=True)
    torch.distributed.destroy_process_group()


def main():
    ranks = int(sys.argv.pop(1))
    options = peer_worker.parse_options()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(measure, (ranks, port, options), nprocs=ranks)


if __name__ == "__main__":
    main()
