# SPDX-License-Identifier: Apache-2.0
"""Trains a step of exported models on two processes, whose layers torch's fully_shard (FSDP2) wraps: the loss and every
gradient are those of one process. Also under torch.autocast, whose loss is near. Skipped without torch of 2.6 or later.

    sharded_test.py MODEL ..
"""
import os
import pathlib
import sys
import tempfile

try:
    import torch
    from torch import distributed, multiprocessing
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import golden_test

RANKS = 2


def train(rank, directories, address):
    """Compares the sharded models with whole ones. Runs once a rank; an exception fails the test."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    for directory in directories:
        module = golden_test.run_code(pathlib.Path(directory, "model.py").read_text())
        weights = pathlib.Path(directory, "model.safetensors")
        whole, sharded = module.Model.from_safetensors(weights), module.Model.from_safetensors(weights)
        for layer in (part for part in sharded.modules() if isinstance(part, module.Layer)):
            fully_shard(layer)
        fully_shard(sharded)
        ids = torch.randint(27, (2, 16), generator=torch.Generator().manual_seed(7))
        targets = golden_test.next_tokens(ids)
        losses = [model(ids, targets)[1] for model in (whole, sharded)]
        for loss in losses:
            loss.backward()
        assert losses[0].item() == losses[1].item(), losses
        golden_test.compare(
            {"grad." + name: p.grad.full_tensor() for name, p in sharded.named_parameters() if p.grad is not None},
            {"grad." + name: p.grad for name, p in whole.named_parameters() if p.grad is not None})
        with torch.autocast("cpu", dtype=torch.bfloat16):
            near = whole(ids, targets)[1]
        assert abs(near.item() - losses[0].item()) < 0.02 * losses[0].item(), near
        if rank == 0:
            print(f"{directory}: loss {losses[0].item():.4f}, in bf16 {near.item():.4f}")
    distributed.destroy_process_group()


def main(*files):
    import plumb_runtime as plumb
    runtime = plumb.Runtime()
    with tempfile.TemporaryDirectory() as directory:
        directories = []
        for file in files:
            directories.append(os.path.join(directory, pathlib.Path(file).stem))
            spec = plumb.Spec(pathlib.Path(file).read_text())
            spec["vocab_size"] = 27
            plumb.Model(runtime, spec, seed=3).export_pytorch(directories[-1])
        multiprocessing.spawn(train, (directories, f"file://{directory}/group"), nprocs=RANKS)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
