# SPDX-License-Identifier: Apache-2.0
"""Placements whose layers read results of earlier layers.

Each follows its paper or its authors' code, which the placement's file names. Layers count from 0.
"""

import torch

from sublayers import each, root_mean_square


def _block(m, x, i):
    x = x + m.attention(i, m.norm(x, f"layers.{i}.norm_1"))
    return x + m.mlp(i, m.norm(x, f"layers.{i}.norm_2"))


def _sum(weights, values):
    return sum(w * v for w, v in zip(weights, values))


def denseformer(m, x):
    outputs = [x]
    for i in range(m.c.n_layer):
        outputs.append(_block(m, x, i))
        x = _sum(m.learned(f"layers.{i}.w", i + 2), outputs)
    return m.norm(x, "end.norm")


def dlcl(m, x):
    """Dynamic linear combination of layers, pre-norm: all outputs except the embedding are
    normalized."""
    outputs = [x]
    for i in range(m.c.n_layer):
        x = _block(m, _sum(m.learned(f"layers.{i}.w", i + 1), outputs), i)
        outputs.append(m.norm(x, f"layers.{i}.norm_h"))
    return m.norm(_sum(m.learned("end.v", m.c.n_layer + 1), outputs), "end.norm")


def elc_bert(m, x):
    """The input of a layer is a mean of the previous outputs; attention adds no residual."""
    outputs = [x]
    for i in range(m.c.n_layer):
        given = _sum(m.learned(f"layers.{i}.w", i + 1).softmax(0), outputs)
        a = m.norm(m.attention(i, m.norm(given, f"layers.{i}.norm_in")), f"layers.{i}.norm_out")
        outputs.append(a + m.mlp(i, m.norm(a, f"layers.{i}.norm")))
    return m.norm(outputs[-1], "end.norm")


def _attend(m, sources, place):
    """Attention over depth: one trained query, normalized sources as keys, sources as values."""
    values = torch.stack(sources, -2)  # [batch, seq, source, d_model]
    scores = m.project(m.norm(values, place + ".norm_k"), place + ".depth_query", 1)
    return (scores.softmax(-2) * values).sum(-2)


def attention_residuals(m, x):
    outputs = [x]
    for _, name, f in each(m):
        outputs.append(f(m.norm(_attend(m, outputs, name), name + ".norm")))
    return m.norm(_attend(m, outputs, "end"), "end.norm")


def block_attention_residuals(m, x):
    """Sources are sums over blocks of four sublayers, and the partial sum of the current block."""
    blocks, partial = [x], None
    for s, (_, name, f) in enumerate(each(m)):
        if s > 0 and s % 4 == 0:
            blocks.append(partial)
            partial = None
        sources = blocks if partial is None else blocks + [partial]
        y = f(m.norm(_attend(m, sources, name), name + ".norm"))
        partial = y if partial is None else partial + y
    return m.norm(_attend(m, blocks + [partial], "end"), "end.norm")


def kimi_k3(m, x):
    """Stored streams, one every four layers; attention's output is the first term of the next stream."""
    def mix(values, norm, score):
        values = torch.stack(values, -2)  # [batch, seq, value, d_model]
        scores = m.project(m.norm(values, norm), score, 1)
        return (scores.softmax(-2) * values).sum(-2)

    stored = []
    for i in range(m.c.n_layer):
        given = mix(stored + [x], f"layers.{i}.norm_k", f"layers.{i}.attention_score")
        a = m.attention(i, m.norm(given, f"layers.{i}.norm_1"))
        if i % 4 == 0:
            stored.append(x)
            x = a
        else:
            x = x + a
        given = mix(stored + [x], f"layers.{i}.norm_m", f"layers.{i}.mlp_score")
        x = x + m.mlp(i, m.norm(given, f"layers.{i}.norm_2"))
    return m.norm(mix(stored + [x], "end.norm_k", "end.end_score"), "end.norm")


def deep_cross_attention(m, x):
    """Queries, keys and values are read from three mixtures of all outputs before the layer."""
    def mixture(outputs, weight, bias):
        return sum((weight[k] + bias[k]) * h for k, h in enumerate(outputs))

    outputs = [x]
    for i in range(m.c.n_layer):
        place, n = f"layers.{i}", i + 1
        bias = m.learned(place + ".b", 3, n, m.c.d_model)
        weights = [m.relu(m.project(m.norm(h, place + ".norm_g"), place + ".w", 3))
                   for h in outputs]
        q, k, v = (mixture(outputs, [w[..., o:o + 1] for w in weights], bias[o]) for o in range(3))
        a = m.attention(i, (m.norm(q, place + ".norm_q"), m.norm(k, place + ".norm_k"),
                            m.norm(v, place + ".norm_v")))
        outputs.append(a + m.mlp(i, m.norm(a + q, place + ".norm_2")))
    bias = m.learned("end.c", m.c.n_layer + 1, m.c.d_model)
    weights = [m.relu(m.project(m.norm(h, "end.norm_g"), "end.v", 1)) for h in outputs]
    return m.norm(mixture(outputs, weights, bias), "end.norm")


def muddformer(m, x):
    """A small MLP on the newest output computes four weightings of all outputs: q, k, v and the
    residual."""
    outputs, ways = [x], [x] * 4
    for i in range(m.c.n_layer):
        place, n = f"layers.{i}", i + 2
        if i == 0:
            h = x + m.attention(0, m.norm(x, "layers.0.norm_1"))
        else:
            h = ways[3] + m.attention(i, tuple(
                m.norm(ways[c], f"{place}.norm_{'qkv'[c]}") for c in range(3)))
        h = h + m.mlp(i, m.norm(h, place + ".norm_2"))
        outputs.append(h)
        count = 4 if i + 1 < m.c.n_layer else 1
        hidden = m.project(h / root_mean_square(h, 1e-6), place + ".w_1", count * n)
        hidden = torch.nn.functional.gelu(hidden, approximate="tanh")
        dynamic = m.project(hidden, place + ".w_2", count * n).unflatten(-1, (count, n))
        weights = dynamic + m.learned(place + ".b", count, n)
        ways = [_sum(weights[..., c, :].split(1, -1), outputs) for c in range(count)]
    return m.norm(ways[0], "end.norm")


def muddformer_norm(m, x):
    """The mixtures read normalized outputs, are normalized, and are added to the newest output."""
    newest, outputs, ways = x, [m.norm(x, "begin.norm_h")], [x] * 4
    for i in range(m.c.n_layer):
        place, n = f"layers.{i}", i + 2
        if i == 0:
            h = x + m.attention(0, m.norm(x, "layers.0.norm_1"))
        else:
            given = tuple(m.norm(ways[c], f"{place}.norm_{'qkv'[c]}") for c in range(3))
            h = ways[3] + m.attention(i, given)
        newest = h + m.mlp(i, m.norm(h, place + ".norm_2"))
        outputs.append(m.norm(newest, place + ".norm_h"))
        count = 4 if i + 1 < m.c.n_layer else 1
        hidden = m.project(newest / root_mean_square(newest, 1e-6), place + ".w_1", count * n)
        hidden = torch.nn.functional.gelu(hidden, approximate="tanh")
        dynamic = m.project(hidden, place + ".w_2", count * n).unflatten(-1, (count, n))
        weights = dynamic + m.learned(place + ".b", count, n)
        gains = m.learned(place + ".gain", count, m.c.d_model)
        mixed = [_sum(weights[..., c, :].split(1, -1), outputs) for c in range(count)]
        ways = [newest + gains[c] * mixed[c] / root_mean_square(mixed[c], 1e-6)
                for c in range(count)]
    return m.norm(ways[0], "end.norm")


def laurel_pa(m, x):
    """The inputs of the last three sublayers are added through one low-rank pair, newest first."""
    inputs = []
    for _, name, f in each(m):
        inputs = [x] + inputs[:2]
        earlier = _sum(m.learned(name + ".g", len(inputs)), inputs)
        back = m.project(m.project(earlier, name + ".left", 4), name + ".right", m.c.d_model)
        x = f(m.norm(x, name + ".norm")) + x + back
    return m.norm(x, "end.norm")


def unet_skip(m, x):
    """The second half of the layers adds the outputs of the first half in reverse order."""
    skips = []
    for i in range(m.c.n_layer):
        if i >= m.c.n_layer // 2 and skips:
            x = x + m.learned(f"layers.{i}.g", 1) * skips.pop()
        x = _block(m, x, i)
        if i < m.c.n_layer // 2:
            skips.append(x)
    return m.norm(x, "end.norm")


def backout(m, x):
    """The head subtracts a part of the stream in the middle of the stack."""
    for i in range(m.c.n_layer):
        x = _block(m, x, i)
        if i == m.c.n_layer // 2:
            middle = x
    return m.norm(x - m.learned("end.b", 1) * middle, "end.norm")


def x0_lambdas(m, x):
    x = x0 = m.norm(x, "begin.norm")
    for i in range(m.c.n_layer):
        x = m.learned(f"layers.{i}.l_x", 1) * x + m.learned(f"layers.{i}.l_0", 1) * x0
        x = _block(m, x, i)
    return m.norm(x, "end.norm")


def smear(m, x):
    """The stack reads embeddings that take a part of the previous token's."""
    x = m.norm(x, "begin.norm")
    gate = torch.sigmoid(m.project(x[..., :24], "begin.gate", 1)) * m.learned("begin.s", 1)
    x = torch.cat([x[:, :1], x[:, 1:] + gate[:, 1:] * x[:, :-1]], dim=1)
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def value_residual(m, x):
    return _with_values(m, x, lambda v, first: 0.5 * v + 0.5 * first)


def svformer(m, x):
    """All layers use the first one's values. Their own value projections have no effect."""
    return _with_values(m, x, lambda v, first: first + 0 * v)


def _with_values(m, x, mix):
    first = []

    def values(v):
        first.append(v)
        return mix(v, first[0])

    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"), v=values)
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def value_embeddings(m, x):
    """Every layer mixes its values with the token's row in a table of its own."""
    width = m.c.n_kv_head * m.c.head_dim
    for i in range(m.c.n_layer):
        rows = m.parameter(f"embedding.ve.{i}.weight", [m.c.vocab_size, width])[m.tokens]
        lamb = m.learned(f"layers.{i}.attention.lamb", 1)
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"),
                            v=lambda v: (1 - lamb) * v + lamb * rows)
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def modded_nanogpt(m, x):
    """The speedrun's model of November 2024: U-Net skips, x0, value residual, squared ReLU."""
    x = x0 = m.norm(x, "begin.norm")
    skips, first = [], []
    for i in range(m.c.n_layer):
        place = f"layers.{i}"
        if i >= m.c.n_layer // 2 and skips:
            x = x + m.learned(place + ".g", 1) * skips.pop()
        lamb = m.learned(place + ".attention.lamb", 1)

        def values(v):
            first.append(v)
            return (1 - lamb) * v + lamb * first[0]

        x = m.learned(place + ".l_x", 1) * x + m.learned(place + ".l_0", 1) * x0
        x = x + m.attention(i, m.norm(x, place + ".norm_1"), v=values,
                            q=lambda q: m.head_norm(q, place + ".attention.q_norm"),
                            k=lambda k: m.head_norm(k, place + ".attention.k_norm"))
        x = x + m.mlp(i, m.norm(x, place + ".norm_2"), hidden=lambda h: h * h)
        if i < m.c.n_layer // 2:
            skips.append(x)
    return m.norm(x, "end.norm")


def modded_nanogpt_logits(m, logits):
    del m
    return 30 * torch.tanh(logits / 30)
