#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes training steps of JAX on request: a worker of compare_peers.py. A step, with AdamW, is one jitted
function whose state is donated. bf16: activations and the weights that products read; weights, norms'
statistics, loss and optimizer are f32."""
import functools
import os

import jax
import jax.numpy as jnp
import numpy

import peer_worker


def norm(p, name, x, kind):
    wide = x.astype(jnp.float32)
    if kind == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * (1 / jnp.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)) * p[name + ".weight"]
    return (wide + p[name + ".bias"] if name + ".bias" in p else wide).astype(x.dtype)


def loss_of(p, tokens, targets, c):
    kind = jnp.bfloat16 if c.dtype == "bf16" else jnp.float32
    batch, seq = tokens.shape

    def linear(name, x):
        y = jnp.einsum("btd,ed->bte", x, p[name + ".weight"].astype(kind))
        return y + p[name + ".bias"].astype(kind) if name + ".bias" in p else y

    activation = {"relu": jax.nn.relu, "gelu": functools.partial(jax.nn.gelu, approximate=False),
                  "gelu_tanh": jax.nn.gelu}[c.activation]
    x = (p["embedding.token.weight"][tokens] + p["embedding.position.weight"][:seq]).astype(kind)
    for i in range(c.n_layer):
        layer = f"layers.{i}."
        qkv = linear(layer + "attention.qkv", norm(p, layer + "attention.norm", x, c.norm))
        q, k, v = qkv.reshape(batch, seq, 3, c.n_head, -1).transpose(2, 0, 3, 1, 4)
        scores = jnp.einsum("bhtd,bhsd->bhts", q, k).astype(jnp.float32) / (c.d_model // c.n_head) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), scores, -jnp.inf)
        context = jnp.einsum("bhts,bhsd->bthd", jax.nn.softmax(scores).astype(kind), v)
        x = x + linear(layer + "attention.o", context.reshape(batch, seq, c.d_model))
        hidden = activation(linear(layer + "mlp.up", norm(p, layer + "mlp.norm", x, c.norm)))
        x = x + linear(layer + "mlp.down", hidden)
    head = "embedding.token" if c.tied else "head"
    logits = linear(head, norm(p, "end.norm", x, c.norm)).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def main():
    c = peer_worker.parse_options()
    # XLA starts as many threads as it may use processors, when the first array is made.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:c.threads])

    def step(state, tokens, targets):
        p, m, v, n = state
        loss, g = jax.value_and_grad(loss_of)(p, tokens, targets, c)
        if c.clip:
            total = jnp.sqrt(sum((each * each).sum() for each in g.values()))
            g = {name: each * jnp.minimum(1, 1 / (total + 1e-6)) for name, each in g.items()}
        n = n + 1
        m = {name: 0.9 * m[name] + 0.1 * g[name] for name in p}
        v = {name: c.beta2 * v[name] + (1 - c.beta2) * g[name] ** 2 for name in p}
        root = jnp.sqrt(1 - c.beta2 ** n)
        new = {}
        for name in p:
            decay = c.weight_decay if c.decay_everything or p[name].ndim > 1 else 0.0
            new[name] = p[name] * (1 - c.learning_rate * decay) - c.learning_rate / (1 - 0.9 ** n) * m[name] / (
                jnp.sqrt(v[name]) / root + 1e-8)
        return (new, m, v, n), loss

    step = jax.jit(step, donate_argnums=0)
    p = {name: jnp.array(values) for name, values in peer_worker.weights(c)}
    zeros = lambda: {name: jnp.zeros_like(values) for name, values in p.items()}
    batches, state = peer_worker.Batches(c), [(p, zeros(), zeros(), jnp.float32(0))]
    parameters = sum(int(numpy.prod(values.shape)) for values in p.values())
    del p

    def run():
        inputs, targets = batches()
        state[0], loss = step(state[0], inputs, targets)
        return loss, inputs.size

    peer_worker.serve(parameters, run, wait=lambda: jax.block_until_ready(state[0]))


if __name__ == "__main__":
    main()
