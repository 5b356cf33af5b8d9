#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo's model with a norm that is written here, with numpy: y = g x / (1 + |x|)."""
import demo
import numpy

import plumb_runtime as plumb


@plumb.norm("org.example.softsign", parameters={"gain": 1.0}, attributes={"scale": 1.0})
def softsign(x, gain, scale):
    """y = gain x / (scale + |x|)."""
    return gain * x / (scale + abs(x))


@softsign.backward
def _(x, dy, gain, scale):
    s = 1 / (scale + abs(x))
    return dy * gain * scale * s * s, (dy * x * s).sum(axis=0)


def main():
    softsign.check()
    runtime = plumb.Runtime()
    runtime.register_plugin(softsign)
    tokenizer = plumb.Tokenizer.characters("\n".join(demo.NAMES))
    spec = plumb.Spec(demo.DESCRIPTION.replace("rms_norm", softsign.id))
    spec["vocab_size"] = tokenizer.vocab_size
    model = plumb.Model(runtime, spec, seed=1)
    trainer = plumb.Trainer(model, "max_steps: 40 batch_size: 16 learning_rate: 0.01")
    batches = demo.batches(demo.NAMES, tokenizer, 16, 16)
    for _ in range(40):
        inputs, targets = next(batches)
        info = trainer.step(numpy.reshape(inputs, (16, 16)), numpy.reshape(targets, (16, 16)))
    print(f"step {info.step} loss {info.loss:.2f}")

    for tensor in model.tensors().values():
        weights = tensor.numpy()  # the library's memory
        weights[abs(weights) < 0.01] = 0
    model.changed()
    print(f"loss without small weights {plumb.Evaluator(model, 16).loss(inputs, targets):.2f}")


if __name__ == "__main__":
    main()
