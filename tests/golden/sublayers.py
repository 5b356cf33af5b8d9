# SPDX-License-Identifier: Apache-2.0
"""A walk over the stack for rules that treat all sublayers alike."""

import functools


def each(m):
    """Layer (from 0), name under which parameters are stored, sublayer: for every one in order."""
    for i in range(m.c.n_layer):
        yield i, f"layers.{i}.attention", functools.partial(m.attention, i)
        yield i, f"layers.{i}.mlp", functools.partial(m.mlp, i)


def root_mean_square(x, eps):
    return (x * x).mean(-1, keepdim=True).add(eps).sqrt()
