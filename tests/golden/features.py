# SPDX-License-Identifier: Apache-2.0
"""Rules and blocks that no shipped placement has, one for each feature of the language.

generate.py has the text of each rule next to the name of its function here.
"""

import torch
import torch.nn.functional as F

import placements
from decoder import Norm


def sigmoid_gate(m, x):
    """x = x + sigmoid(gate) * f(norm(x)), a gate per channel."""
    for i in range(m.c.n_layer):
        a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + torch.sigmoid(m.learned(f"layers.{i}.attention.gate", m.c.d_model)) * a
        f = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
        x = x + torch.sigmoid(m.learned(f"layers.{i}.mlp.gate", m.c.d_model)) * f
    return m.norm(x, "end.norm")


def tensor_gate(m, x):
    """The gate is a tensor: y = f(norm(x)); x = x + sigmoid(gate * y) * tanh(y)."""
    for i in range(m.c.n_layer):
        y = m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + torch.sigmoid(m.learned(f"layers.{i}.attention.gate", 1) * y) * torch.tanh(y)
        y = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
        x = x + torch.sigmoid(m.learned(f"layers.{i}.mlp.gate", 1) * y) * torch.tanh(y)
    return m.norm(x, "end.norm")


def arithmetic(m, x):
    """Signs, parentheses, a constant and every scalar of the position in the stack."""
    n = 2 * m.c.n_layer
    for s in range(1, n + 1):
        i = (s - 1) // 2
        sublayer, name = (m.attention, "attention") if s % 2 else (m.mlp, "mlp")
        y = -sublayer(i, m.norm(x, f"layers.{i}.{name}.norm")) / 2
        x = 0.9 * (x - y / (i + 1)) + y * (s / n)**2 - 0.125
    return m.norm(x, "end.norm")


def repeated_slot(m, x):
    """h = norm(x); x = x + norm(f(h)): the norm is applied twice, with two sets of parameters."""
    for i in range(m.c.n_layer):
        a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.norm(a, f"layers.{i}.attention.norm_2")
        f = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
        x = x + m.norm(f, f"layers.{i}.mlp.norm_2")
    return m.norm(x, "end.norm")


def learned_ends(m, x):
    """begin: x = gain * x; end: x = gain * norm(x)."""
    x = m.learned("begin.gain", m.c.d_model) * x
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.learned("end.gain", m.c.d_model) * m.norm(x, "end.norm")


def conditions(m, x):
    """Post-norm in the first and last layer, pre-norm and query norms in the others."""
    last = m.c.n_layer - 1
    for i in range(m.c.n_layer):
        if i in (0, last):
            x = m.norm(x + m.attention(i, x), f"layers.{i}.attention.norm_after")
            x = m.norm(x + m.mlp(i, x), f"layers.{i}.mlp.norm_after")
        else:
            x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm_before"),
                                q=lambda q: m.norm(q, f"layers.{i}.attention.q_norm"))
            x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm_before"))
    return x


def embedding_skip(m, x):
    """The embedding is a stream of its own, read by every MLP."""
    embedding = x
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.norm_1"))
        x = x + m.mlp(i, m.norm(x + 0.5 * embedding, f"layers.{i}.norm_2"))
    return m.norm(x, "end.norm")


def head_scales(m, x):
    """A trained scale per query head and per key head."""
    for i in range(m.c.n_layer):
        q_scale = m.learned(f"layers.{i}.attention.q_scale", m.c.n_head)
        k_scale = m.learned(f"layers.{i}.attention.k_scale", m.c.n_kv_head)
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"),
                            q=lambda q: q * q_scale.repeat_interleave(m.c.head_dim),
                            k=lambda k: k * k_scale.repeat_interleave(m.c.head_dim))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def inside_channels(m, x):
    """A trained scale per channel at each point (Liu et al. 2022, (IA)^3)."""
    for i in range(m.c.n_layer):
        q_scale = m.learned(f"layers.{i}.attention.scale", m.c.n_head * m.c.head_dim)
        hidden_scale = m.learned(f"layers.{i}.mlp.scale", m.c.d_ff)
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"), q=lambda q: q_scale * q)
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"), hidden=lambda h: hidden_scale * h)
    return m.norm(x, "end.norm")


def macaron(m, x):
    """Half an MLP, attention, half an MLP (Gulati et al. 2020), each pre-normed."""
    for i in range(m.c.n_layer):
        x = x + 0.5 * m.mlp(i, m.norm(x, f"layers.{i}.norm_1"), name="mlp_1")
        x = x + m.attention(i, m.norm(x, f"layers.{i}.norm_2"))
        x = x + 0.5 * m.mlp(i, m.norm(x, f"layers.{i}.norm_3"), name="mlp_2")
    return m.norm(x, "end.norm")


def three_sublayers(m, x):
    """Pre-norm by `each` over three sublayers, two of one kind."""
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.mixer.norm"), name="mixer")
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp_1.norm"), name="mlp_1")
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp_2.norm"), name="mlp_2")
    return m.norm(x, "end.norm")


def canon(m, x):
    """Canon layers A and C (Allen-Zhu 2025): the inputs of attention and MLP plus their
    convolutions."""
    for i in range(m.c.n_layer):
        h = m.norm(x, f"layers.{i}.norm_1")
        x = x + m.attention(i, h + m.conv(i, h, "canon_a", 4))
        h = m.norm(x, f"layers.{i}.norm_2")
        x = x + m.mlp(i, h + m.conv(i, h, "canon_c", 4))
    return m.norm(x, "end.norm")


def conv_each(m, x):
    """Pre-norm around attention, a convolution of 3 tokens with a bias, and an MLP."""
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.conv(i, m.norm(x, f"layers.{i}.conv.norm"), "conv", 3, bias=True)
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def gated_delta_net(m, x):
    """Gated DeltaNet (Yang et al. 2024) of 4 heads of values and 2 of keys, token by token; attention in
    the second layer."""
    h, at, sizes = m.norm(x, "layers.0.delta.norm"), "layers.0.delta", {"q": (2, 5), "k": (2, 5), "v": (4, 3)}
    heads = {}
    for name, (count, size) in sizes.items():
        y = m.conv(0, m.linear(h, f"{at}.{name}", count * size, False), f"delta.{name}_conv", 3)
        heads[name] = F.silu(y).unflatten(-1, (count, size)).repeat_interleave(4 // count, 2)
    q, k, v = heads["q"] / heads["q"].norm(dim=-1, keepdim=True), heads["k"], heads["v"]
    k = k / k.norm(dim=-1, keepdim=True)
    kept = torch.exp(-m.learned(f"{at}.a_log", 4).exp() * F.softplus(
        m.linear(h, f"{at}.decay", 4, False) + m.learned(f"{at}.dt_bias", 4)))
    beta = torch.sigmoid(m.linear(h, f"{at}.beta", 4, False))
    state, out = torch.zeros(x.shape[0], 4, 3, 5, dtype=x.dtype), []
    for t in range(x.shape[1]):
        state = state * kept[:, t, :, None, None]
        change = v[:, t] - torch.einsum("bhvk,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhv,bhk->bhvk", beta[:, t, :, None] * change, k[:, t])
        out.append(torch.einsum("bhvk,bhk->bhv", state, q[:, t] / 5**0.5))
    y = m.norm(torch.stack(out, 1), f"{at}.head_norm").flatten(-2)
    y = y * F.silu(m.project(h, f"{at}.z", 12))
    x = x + m.linear(y, f"{at}.o", m.c.d_model, False)
    x = x + m.mlp(0, m.norm(x, "layers.0.mlp.norm"))
    x = x + m.attention(1, m.norm(x, "layers.1.attention.norm"))
    x = x + m.mlp(1, m.norm(x, "layers.1.mlp.norm"))
    return m.norm(x, "end.norm")


def forgetting(m, x):
    """Forgetting Transformer (Lin et al. 2025): scores are lowered by the logarithms of the gates in between."""
    c = m.c
    for i in range(c.n_layer):
        h, at = m.norm(x, f"layers.{i}.attention.norm"), f"layers.{i}.attention"
        gate = m.linear(h, f"{at}.decay", c.n_head, False) + m.learned(f"{at}.b", c.n_head)
        total = F.logsigmoid(gate).cumsum(1).transpose(1, 2)
        q, k, v = (m.linear(h, f"{at}.{p}", n * c.head_dim, False).unflatten(-1, (n, -1)).transpose(1, 2)
                   for p, n in (("q", c.n_head), ("k", c.n_kv_head), ("v", c.n_kv_head)))
        k, v = (y.repeat_interleave(c.n_head // c.n_kv_head, 1) for y in (k, v))
        scores = q @ k.transpose(-1, -2) / c.head_dim**0.5 + total[..., :, None] - total[..., None, :]
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + m.linear(y.transpose(1, 2).flatten(-2), f"{at}.o", c.d_model, False)
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def token_tables(m, x):
    """Value embeddings (modded-nanogpt) of 2 key heads, and a second table next to the embedding."""
    def table(name, width):
        return m.parameter(f"embedding.{name}.weight", [m.c.vocab_size, width])[m.tokens]

    x = x + 0.5 * table("extra", m.c.d_model)
    for i in range(m.c.n_layer):
        mix = m.learned(f"layers.{i}.attention.mix", 2).repeat_interleave(m.c.head_dim)
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"),
                            v=lambda v, mix=mix: v + mix * table("ve", 2 * m.c.head_dim))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def looped(m, x):
    """One pre-norm block, run n_layer times with the parameters of layer 0."""
    for _ in range(m.c.n_layer):
        x = x + m.attention(0, m.norm(x, "layers.0.attention.norm"))
        x = x + m.mlp(0, m.norm(x, "layers.0.mlp.norm"))
    return m.norm(x, "end.norm")


def shared_blocks(m, x):
    """Layers 0 and 2 share weights but no norms (pre-norm), 1 and 3 share both (norms on branches)."""
    for i in range(m.c.n_layer):
        if i % 2 == 0:
            x = x + m.attention(0, m.norm(x, f"layers.{i}.attention.norm"))
            x = x + m.mlp(0, m.norm(x, f"layers.{i}.mlp.norm"))
        else:
            x = x + m.norm(m.attention(1, x), "layers.1.attention.norm")
            x = x + m.norm(m.mlp(1, x), "layers.1.mlp.norm")
    return m.norm(x, "end.norm")


def mix_ln(m, x):
    """One post-norm layer, then pre-norm (Li et al. 2024, Mix-LN)."""
    x = m.norm(x + m.attention(0, x), "layers.0.attention.norm")
    x = m.norm(x + m.mlp(0, x), "layers.0.mlp.norm")
    for i in range(1, m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def alternating(m, x):
    """Layers alternate: pre, olmo2, pre, olmo2."""
    for i in range(m.c.n_layer):
        if i % 2 == 0:
            x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
            x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
        else:
            x = x + m.norm(m.attention(i, x), f"layers.{i}.attention.norm")
            x = x + m.norm(m.mlp(i, x), f"layers.{i}.mlp.norm")
    return m.norm(x, "end.norm")


def slot_norms(m, x):
    """A norm of another kind in each slot of `double`; none before the head."""
    layer_norm, rms_norm = Norm("layer_norm", eps=1e-5), Norm("rms_norm", eps=1e-6)
    for i in range(m.c.n_layer):
        a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm_in", layer_norm))
        x = x + m.norm(a, f"layers.{i}.attention.norm_out", rms_norm)
        f = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm_in", layer_norm))
        x = x + m.norm(f, f"layers.{i}.mlp.norm_out", rms_norm)
    return x


def block_inside(m, x):
    """`pre`, with a value norm added by the block."""
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"),
                            v=lambda v: m.norm(v, f"layers.{i}.attention.v_norm"))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def cap_logits(m, logits):
    """Gemma 2's soft cap."""
    del m
    return 30 * torch.tanh(logits / 30)


def norm_logits(m, logits):
    return m.norm(logits, "head.logit_norm")


pre, none, qk_norm, sub_ln = placements.pre, placements.none, placements.qk_norm, placements.sub_ln
