# SPDX-License-Identifier: Apache-2.0
"""Iteration over the stack for rules that treat all sublayers alike."""

import functools


def each(m):
    """Yields (layer from 0, name of its parameters, sublayer) for every sublayer in order."""
    for i in range(m.c.n_layer):
        yield i, f"layers.{i}.attention", functools.partial(m.attention, i)
        yield i, f"layers.{i}.mlp", functools.partial(m.mlp, i)


def root_mean_square(x, eps):
    return (x * x).mean(-1, keepdim=True).add(eps).sqrt()
