#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes steps of plumb on request, through its Python package: a worker of compare_peers.py. It draws the
weights and saves them for the peers. PYTHONPATH and PLUMB_LIBRARY name the package and libplumb.so."""
import plumb_runtime as plumb

import peer_worker


def recipe(c):
    return (f"batch_size: {c.batch} learning_rate: {c.learning_rate} beta2: {c.beta2} "
            f"weight_decay: {c.weight_decay} weight_decay_on: {'EVERYTHING' if c.decay_everything else 'MATRICES'} "
            f"grad_clip: {int(c.clip)} dtype: {c.dtype.upper()}")


def training(c, model):
    """Returns a function that does a step of training."""
    trainer, batches = plumb.Trainer(model, recipe(c)), peer_worker.Batches(c)

    def step():
        inputs, targets = batches()
        if c.data:
            return trainer.step_micro_batches([(inputs, targets)]).loss, inputs.size
        return trainer.step(inputs, targets).loss, inputs.size

    return step


def session(c, model):
    """Returns a function that does a pass of a session over new sequences."""
    sequences = plumb.Session(model, c.batch, weights=c.dtype)
    tokens, targets = peer_worker.session_tokens(c)
    columns = [column.copy() for column in tokens.T]

    def step():
        for i in range(c.batch):
            sequences.truncate(0, i)
        if c.task == "prompt":
            for i in range(c.batch):
                sequences.feed(tokens[i], i)
        else:
            for column in columns:
                sequences.feed_batch(column)
        losses = [peer_worker.session_loss(sequences.logits(i), targets[i]) for i in range(c.batch)]
        return sum(losses) / c.batch, tokens.size

    return step


def main():
    c = peer_worker.parse_options()
    runtime = plumb.Runtime(threads=c.threads)
    spec = plumb.Spec.from_file(c.model)
    spec["vocab_size"], spec["context_length"] = c.vocab, c.context
    model = plumb.Model(runtime, spec, seed=1)
    model.save(c.weights)
    trains = c.task == "train"
    flops = model.work(trains, c.context if trains else c.tokens)[0] / (c.context if trains else c.tokens)
    step = training(c, model) if trains else session(c, model)

    def matmul(dtype):
        try:
            return runtime.measure_speed(f"gemm {dtype}")
        except plumb.Error:  # this processor or build has no such product
            return 0.0

    peer_worker.serve(model.info.parameters, step, flops, matmul=matmul)


if __name__ == "__main__":
    main()
