#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the pre-norm model of examples/why_normalise with many seeds at once, by JAX: one compiled program
that is mapped over the seeds and loops over the steps. The peer of compare_study.py.

    jax_study.py NAMES.TXT SEEDS STEPS     prints one line of JSON

A step is one name, padded to the context of 16 tokens, since a compiled program has fixed shapes. Model,
initial distributions, AdamW and its schedule are those of plumb; the order of names and the initial numbers are
JAX's own, so losses agree in the mean over seeds only.
"""
import json
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy

LAYERS, HEADS, WIDTH, HIDDEN, CONTEXT = 8, 4, 16, 64, 16
RATE, BETA1, BETA2, EPS, DECAY = 0.01, 0.85, 0.99, 1e-8, 0.01


def read_names(path):
    """Returns token ids and lengths of all names; the last token begins and ends a name."""
    with open(path, encoding="utf-8") as file:
        names = file.read().split()
    alphabet = sorted(set("".join(names)))
    mark = len(alphabet)
    tokens = numpy.zeros((len(names), CONTEXT + 1), numpy.int32)
    lengths = numpy.zeros(len(names), numpy.int32)
    for row, name in enumerate(names):
        ids = [mark, *map(alphabet.index, name), mark][:CONTEXT + 1]
        tokens[row, :len(ids)] = ids
        lengths[row] = len(ids) - 1
    return tokens, lengths, mark + 1


def draw_weights(seed, vocabulary):
    draw = numpy.random.default_rng(seed)

    def uniform(*shape):
        bound = shape[-2] ** -0.5  # of the input's width
        return draw.uniform(-bound, bound, shape).astype(numpy.float32)

    ones = numpy.ones((LAYERS, WIDTH), numpy.float32)
    return {"token": draw.standard_normal((vocabulary, WIDTH)).astype(numpy.float32),
            "position": draw.standard_normal((CONTEXT, WIDTH)).astype(numpy.float32),
            "gain1": ones, "qkv": uniform(LAYERS, WIDTH, 3 * WIDTH), "o": uniform(LAYERS, WIDTH, WIDTH),
            "gain2": ones, "up": uniform(LAYERS, WIDTH, HIDDEN), "down": uniform(LAYERS, HIDDEN, WIDTH),
            "gain": ones[0], "head": uniform(WIDTH, vocabulary)}


def loss_of(w, tokens, length):
    def norm(x, gain):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * gain

    causal = jnp.tril(jnp.ones((CONTEXT, CONTEXT), bool))
    x = w["token"][tokens[:-1]] + w["position"]
    for i in range(LAYERS):
        q, k, v = jnp.moveaxis((norm(x, w["gain1"][i]) @ w["qkv"][i]).reshape(CONTEXT, 3, HEADS, -1), 1, 0)
        scores = jnp.einsum("qhd,khd->hqk", q, k) * (WIDTH / HEADS) ** -0.5
        mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.where(causal, scores, -jnp.inf)), v)
        x = x + mixed.reshape(CONTEXT, WIDTH) @ w["o"][i]
        x = x + jax.nn.relu(norm(x, w["gain2"][i]) @ w["up"][i]) @ w["down"][i]
    logits = norm(x, w["gain"]) @ w["head"]
    losses = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, tokens[1:, None], -1)[:, 0]
    return jnp.where(jnp.arange(CONTEXT) < length, losses, 0).sum() / length


def train(weights, tokens, lengths):
    """Returns the loss of each step of one seed."""
    steps = len(lengths)

    def step(state, batch):
        w, m, v = state
        t, ids, length = batch
        loss, g = jax.value_and_grad(loss_of)(w, ids, length)
        rate = RATE * (1 - t / steps)
        m = jax.tree.map(lambda a, b: BETA1 * a + (1 - BETA1) * b, m, g)
        v = jax.tree.map(lambda a, b: BETA2 * a + (1 - BETA2) * b * b, v, g)
        scale1, scale2 = 1 / (1 - BETA1 ** (t + 1)), 1 / (1 - BETA2 ** (t + 1))
        w = jax.tree.map(lambda p, a, b: p * (1 - rate * DECAY) - rate * a * scale1 / (jnp.sqrt(b * scale2) + EPS),
                         w, m, v)
        return (w, m, v), loss

    zeros = jax.tree.map(jnp.zeros_like, weights)
    batches = (jnp.arange(steps, dtype=jnp.float32), tokens, lengths)
    return jax.lax.scan(step, (weights, zeros, zeros), batches)[1]


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    seeds, steps = int(sys.argv[2]), int(sys.argv[3])
    tokens, lengths, vocabulary = read_names(sys.argv[1])
    order = numpy.stack([numpy.random.default_rng(seed).permutation(len(lengths))[:steps] for seed in range(seeds)])
    weights = jax.tree.map(lambda *each: numpy.stack(each), *(draw_weights(seed, vocabulary) for seed in range(seeds)))
    data = (weights, tokens[order], lengths[order])
    compiled = jax.jit(jax.vmap(train)).lower(*data).compile()
    wall, cpu = time.perf_counter(), cpu_seconds()
    losses = numpy.asarray(compiled(*data))
    print(json.dumps({"version": jax.__version__, "training_wall": time.perf_counter() - wall,
                      "training_cpu": cpu_seconds() - cpu, "losses": losses[:, -100:].mean(1).tolist()}))


if __name__ == "__main__":
    main()
