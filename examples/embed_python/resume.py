#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo's model with a held-out loss, a saved state and a probe: resume.py STATE STEPS.
If it is ended early, by Ctrl-C for example, the same command continues from the last state."""
import os
import sys

import demo
import plumb_runtime as plumb

EVERY = 50


def train(state, steps):
    tokenizer = plumb.Tokenizer.characters("\n".join(demo.NAMES))
    spec = plumb.Spec(demo.DESCRIPTION, name="demo.py")
    spec["vocab_size"] = tokenizer.vocab_size
    model = plumb.Model(plumb.Runtime(), spec, seed=1)
    trainer = plumb.Trainer(model, f"max_steps: {steps} batch_size: 16 learning_rate: 0.01")

    held_out, learned = demo.NAMES[::8], [name for i, name in enumerate(demo.NAMES) if i % 8]
    inputs, targets = next(demo.batches(held_out, tokenizer, 16, 16))
    evaluator = plumb.Evaluator(model, rows=16)

    def after(info):
        if info.step % EVERY == 0:
            loss = evaluator.loss(inputs, targets)
            print(f"step {info.step} loss {info.loss:.2f} held out {loss:.2f}")
            trainer.save(state)

    def look(probe):
        large = sum(abs(value) > 3 * probe.rms for value in probe.view.cast("B").cast("f"))
        print(f"step {probe.step} {probe.name}: {large} of {probe.elements} beyond 3 rms")

    trainer.probe(100, look, ["layers.1.residual"])

    batches = demo.batches(learned, tokenizer, 16, 16)
    if os.path.exists(state):
        trainer.load(state)
        print(f"continues after step {trainer.steps}")
        for _ in range(trainer.steps):
            next(batches)
    trainer.run(batches, after)


if __name__ == "__main__":
    try:
        train(sys.argv[1], int(sys.argv[2]))
    except plumb.Error as error:
        sys.exit(f"resume.py: {error}")
