# SPDX-License-Identifier: Apache-2.0
"""Placements with several streams, which are copies or parts of the stream, and their wiring.

Each follows its paper or its authors' code, which the placement's file names. Layers count from 0.
"""

import torch

from sublayers import each, root_mean_square


def siamese_norm(m, x):
    """A post-norm and a pre-norm stream that share every branch."""
    y = x
    for _, name, f in each(m):
        out = f(x + m.norm(y, name + ".norm_y"))
        y = y + out
        x = m.norm(x + out, name + ".norm_x")
    return x + m.norm(y, "end.norm")


def siamese_norm_scaled(m, x):
    """Follows the authors' DeiT file: the branch's input is normalized too, and x is scaled by 1 /
    sqrt(2 l)."""
    y = x
    for i, name, f in each(m):
        x = m.norm(x, name + ".norm_post")
        z = f(m.norm(x + m.norm(y, name + ".norm_pre"), name + ".norm_in"))
        x, y = x + z / (2 * (i + 1))**0.5, y + z
    return m.norm(m.norm(x, "end.norm_x") + m.norm(y, "end.norm_y"), "end.norm")


def _mix(weights, streams):
    """Returns sum_j weights[j] streams[j]."""
    return sum(w * h for w, h in zip(weights, streams))


def hc_static(m, x, n=4):
    streams = [x] * n
    for _, name, f in each(m):
        read = m.learned(name + ".m", n)
        mix = m.learned(name + ".r", n, n)  # [from, to]
        write = m.learned(name + ".b", n)
        y = f(m.norm(_mix(read, streams), name + ".norm"))
        streams = [_mix(mix[:, i], streams) + write[i] * y for i in range(n)]
    return m.norm(sum(streams), "end.norm")


def hc_static_2(m, x):
    return hc_static(m, x, n=2)


def hyper_connections(m, x, n=4):
    streams = [x] * n
    for _, name, f in each(m):
        scale_a = m.learned(name + ".s_a", 1)
        scale_b = m.learned(name + ".s_b", 1)
        normed = [m.norm(h, name + ".norm_h") for h in streams]
        read, mix, write = [], [], []
        for j, g in enumerate(normed):
            read.append(m.learned(name + ".m", n)[j]
                        + scale_a * torch.tanh(m.project(g, name + ".w_m", 1)))
            mix.append(m.learned(name + ".r", n, n)[j]
                       + scale_a * torch.tanh(m.project(g, name + ".w_r", n)))
            write.append(m.learned(name + ".b", n)[j]
                         + scale_b * torch.tanh(m.project(g, name + ".w_b", 1)))
        y = f(m.norm(_mix(read, streams), name + ".norm"))
        streams = [_mix([row[..., i:i + 1] for row in mix], streams) + write[i] * y
                   for i in range(n)]
    return m.norm(sum(streams), "end.norm")


def mhc_static(m, x):
    """Two streams: a doubly stochastic 2 x 2 matrix is (p, 1 - p; 1 - p, p)."""
    streams = [x, x]
    for _, name, f in each(m):
        read = torch.sigmoid(m.learned(name + ".m", 2))
        write = 2 * torch.sigmoid(m.learned(name + ".b", 2))
        p = torch.sigmoid(m.learned(name + ".a", 1))
        y = f(m.norm(_mix(read, streams), name + ".norm"))
        first, second = streams
        streams = [p * first + (1 - p) * second + write[0] * y,
                   (1 - p) * first + p * second + write[1] * y]
    return m.norm(sum(streams), "end.norm")


def _two_by_two(p):
    """Maps [.., 1] to the doubly stochastic [.., 2, 2]."""
    return torch.stack([torch.cat([p, 1 - p], -1), torch.cat([1 - p, p], -1)], -2)


def _kronecker(a, b):
    """Returns the Kronecker product [.., 4, 4] of two [.., 2, 2]."""
    product = a[..., :, None, :, None] * b[..., None, :, None, :]
    return product.flatten(-4, -3).flatten(-2)


def kromhc_static(m, x):
    streams = [x] * 4
    for _, name, f in each(m):
        read = torch.sigmoid(m.learned(name + ".m", 4))
        write = 2 * torch.sigmoid(m.learned(name + ".b", 4))
        p = torch.sigmoid(m.learned(name + ".a", 2))
        mix = _kronecker(_two_by_two(p[:1]), _two_by_two(p[1:]))
        y = f(m.norm(_mix(read, streams), name + ".norm"))
        streams = [_mix(mix[i], streams) + write[i] * y for i in range(4)]
    return m.norm(sum(streams), "end.norm")


def _constrained(m, x, residual_map):
    """Streams are read by sigmoids and written by twice a sigmoid, all functions of all four
    streams.

    residual_map(name, z) returns the doubly stochastic [batch, seq, to, from].
    """
    n, streams = 4, [x] * 4
    for _, name, f in each(m):
        z = m.norm(torch.cat(streams, -1), name + ".norm_h")
        read = torch.sigmoid(m.learned(name + ".s_m", 1) * m.project(z, name + ".w_m", n)
                             + m.learned(name + ".m", n))
        write = 2 * torch.sigmoid(m.learned(name + ".s_b", 1) * m.project(z, name + ".w_b", n)
                                  + m.learned(name + ".b", n))
        mix = residual_map(name, z)
        y = f(m.norm(_mix(read.split(1, -1), streams), name + ".norm"))
        streams = [_mix(mix[..., i, :].split(1, -1), streams) + write[..., i:i + 1] * y
                   for i in range(n)]
    return m.norm(sum(streams), "end.norm")


def mhc(m, x):
    """Sinkhorn and Knopp: normalizes columns and then rows to a sum of 1, 20 times."""
    def residual_map(name, z):
        logits = (m.learned(name + ".s_r", 1) * m.project(z, name + ".w_r", 16)
                  + m.learned(name + ".r", 16))
        matrix = logits.unflatten(-1, (4, 4)).exp()
        for _ in range(20):
            matrix = matrix / matrix.sum(-2, keepdim=True)
            matrix = matrix / matrix.sum(-1, keepdim=True)
        return matrix

    return _constrained(m, x, residual_map)


def kromhc(m, x):
    """The residual map is a Kronecker product of two 2 x 2 mixtures of identity and swap."""
    def residual_map(name, z):
        logits = (m.learned(name + ".s_r", 1) * m.project(z, name + ".w_r", 4)
                  + m.learned(name + ".r", 4))
        stay = logits.unflatten(-1, (2, 2)).softmax(-1)[..., 0]
        return _kronecker(_two_by_two(stay[..., :1]), _two_by_two(stay[..., 1:]))

    return _constrained(m, x, residual_map)


def frac_connections(m, x):
    """The stream is split in two halves, wired like the streams of hyper-connections."""
    for _, name, f in each(m):
        halves = x.chunk(2, -1)
        scale_a, scale_b = m.learned(name + ".s_a", 1), m.learned(name + ".s_b", 1)
        read, mix, write = [], [], []
        for j, half in enumerate(halves):
            g = m.norm(half, name + ".norm_h")
            read.append(m.learned(name + ".c", 2, 2)[j]
                        + scale_a * torch.tanh(m.project(g, name + ".w_c", 2)))
            mix.append(m.learned(name + ".a", 2, 2)[j]
                       + scale_a * torch.tanh(m.project(g, name + ".w_a", 2)))
            write.append(m.learned(name + ".b", 2)[j]
                         + scale_b * torch.tanh(m.project(g, name + ".w_b", 1)))
        given = [_mix([row[..., i:i + 1] for row in read], halves) for i in range(2)]
        y = f(m.norm(torch.cat(given, -1), name + ".norm")).chunk(2, -1)
        x = torch.cat([_mix([row[..., i:i + 1] for row in mix], halves) + write[i] * y[i]
                       for i in range(2)], -1)
    return m.norm(x, "end.norm")


def altup(m, x):
    """Two streams: predict both, compute one (alternating), correct both."""
    streams = [x, x]
    for i in range(m.c.n_layer):
        p = m.learned(f"layers.{i}.p", 2, 2)  # [to, from]
        g = m.learned(f"layers.{i}.g", 2)
        predicted = [_mix(p[k], streams) for k in range(2)]
        computed = streams[i % 2]
        computed = computed + m.attention(i, m.norm(computed, f"layers.{i}.norm_1"))
        computed = computed + m.mlp(i, m.norm(computed, f"layers.{i}.norm_2"))
        innovation = computed - predicted[i % 2]
        streams = [predicted[k] + g[k] * innovation for k in range(2)]
    return m.norm(sum(streams), "end.norm")


def altup_gemma3n(m, x):
    """Four streams, with coefficients from a router that reads the first one."""
    n, streams = 4, [x] * 4
    for i in range(m.c.n_layer):
        gain = m.learned(f"layers.{i}.router_gain", m.c.d_model)

        def route(h):
            h = gain * h / root_mean_square(h, 1e-6) / m.c.d_model
            return torch.tanh(h @ m.learned(f"layers.{i}.router", n, m.c.d_model).t())

        # The matrix is [to, from] in the order of the projection, as in the authors' code.
        coefs = m.project(route(streams[0]), f"layers.{i}.predict", n * n).unflatten(-1, (n, n))
        predicted = [streams[k] + _mix(coefs[..., k, :].split(1, -1), streams) for k in range(n)]
        h = predicted[0] + m.attention(i, m.norm(predicted[0], f"layers.{i}.norm_1"))
        h = h + m.mlp(i, m.norm(h, f"layers.{i}.norm_2"))
        correct = m.project(route(h), f"layers.{i}.correct", n) + 1
        streams = [predicted[k] + correct[..., k:k + 1] * (h - predicted[0]) for k in range(n)]
    return m.norm(sum(streams) / n, "end.norm")
