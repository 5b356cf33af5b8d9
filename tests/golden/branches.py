# SPDX-License-Identifier: Apache-2.0
"""Placements with one stream, which differ in the norms and in the scales of the branches.

Each follows its paper or its authors' code, which the placement's file names. Layers count from 0.
"""

import math

import torch

import placements
from decoder import Norm
from sublayers import each, root_mean_square


# ---- the place of the norms


def span_norm(m, x):
    """The residual spans the block: around attention, and around attention and MLP together."""
    for i in range(m.c.n_layer):
        given = m.norm(x, "layers.0.norm_in") if i == 0 else x
        y = m.norm(x + m.attention(i, given), f"layers.{i}.norm_1")
        x = m.norm(x + m.mlp(i, y), f"layers.{i}.norm_2")
    return x


def minimax(m, x):
    alpha = (2 * m.c.n_layer)**0.25
    for _, name, f in each(m):
        h = m.norm(x, name + ".norm")
        x = alpha * h + f(h)
    return m.norm(x, "end.norm")


def depth_scaled_sandwich(m, x):
    """The outer norm is RMS with a gain, which is initialized to 1 / sqrt(L)."""
    for _, name, f in each(m):
        y = f(m.norm(x, name + ".norm"))
        x = x + m.learned(name + ".gain", m.c.d_model) * y / root_mean_square(y, 1e-6)
    return m.norm(x, "end.norm")


def dyt(m, x):
    """Dynamic tanh replaces every norm: gamma tanh(alpha x). The embedding has a trained scale."""
    def norm(x, place, number):
        bent = torch.tanh(m.learned(f"{place}.alpha_{number}", 1) * x)
        return m.learned(f"{place}.gamma_{number}", m.c.d_model) * bent

    x = m.learned("begin.scale", 1) * x
    for i in range(m.c.n_layer):
        x = x + m.attention(i, norm(x, f"layers.{i}", 1))
        x = x + m.mlp(i, norm(x, f"layers.{i}", 2))
    return norm(x, "end", 2)


def seednorm(m, x):
    """Self-rescaled dynamic norm: (tanh(beta . x) alpha + gamma) x / rms(x)."""
    def norm(x, name):
        size = m.c.d_model
        rescaling = torch.tanh((m.learned(name + ".beta", size) * x).sum(-1, keepdim=True))
        gain = rescaling * m.learned(name + ".alpha", size) + m.learned(name + ".gamma", size)
        return gain * x / root_mean_square(x, 1e-6)

    for _, name, f in each(m):
        x = x + f(norm(x, name))
    return norm(x, "end")


def qkv_norm(m, x):
    def inside(m, i):
        return dict(placements.head_qk(m, i),
                    v=lambda v: m.head_norm(v, f"layers.{i}.attention.v_norm"))
    return _pre(m, x, inside)


def qk_norm_rotated(m, x):
    def inside(m, i):
        return dict(q_rot=lambda q: m.head_norm(q, f"layers.{i}.attention.q_norm"),
                    k_rot=lambda k: m.head_norm(k, f"layers.{i}.attention.k_norm"))
    return _pre(m, x, inside)


def head_norm(m, x):
    def inside(m, i):
        return dict(context=lambda c: m.head_norm(c, f"layers.{i}.attention.head_norm"))
    return _pre(m, x, inside)


def cosine_attention(m, x):
    """Queries and keys have unit length per head; the temperature, exp of a trained number, is at
    most 100."""
    unit = Norm("l2_norm")
    for i in range(m.c.n_layer):
        logit = m.parameter(f"layers.{i}.attention.log_scale", [m.c.n_head], center=2.0)
        tau = torch.exp(logit.clamp(max=math.log(100))).repeat_interleave(m.c.head_dim)
        a = m.attention(i, x, q=lambda q: tau * m.head_norm(q, "", unit),
                        k=lambda k: m.head_norm(k, "", unit))
        x = x + m.norm(a, f"layers.{i}.attention.norm")
        x = x + m.norm(m.mlp(i, x), f"layers.{i}.mlp.norm")
    return m.norm(x, "end.norm")


def _pre(m, x, inside):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"), **inside(m, i))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


# ---- the scales of the branches


def ds_init(m, x):
    """Only the initial weights differ from post."""
    return placements.post(m, x)


def admin(m, x):
    """x = N(omega x + f(x)). omega is initialized from a measured forward pass."""
    for _, name, f in each(m):
        x = m.norm(m.learned(name + ".omega", m.c.d_model) * x + f(x), name + ".norm")
    return x


def mup(m, x):
    for _, name, f in each(m):
        x = x + f(m.norm(x, name + ".norm")) / math.sqrt(m.c.n_layer)
    return m.norm(x, "end.norm")


def mup_logits(m, logits):
    """Logits are divided by the width over the base width of 64."""
    return logits / (m.c.d_model / 64)


def prores(m, x):
    """x + min(1, step / (1000 l)) f(N(x)): at step 1500 the scales of layers 1, 2, 3 are 1, 3/4 and
    1/2."""
    step = m.buffer("step", 1, 1500)
    for i, name, f in each(m):
        x = x + (step / (1000 * (i + 1))).clamp(max=1) * f(m.norm(x, name + ".norm"))
    return m.norm(x, "end.norm")


def normformer_res_scale(m, x):
    for i in range(m.c.n_layer):
        scale = m.learned(f"layers.{i}.attention.head_scale", m.c.n_head)
        a = m.attention(i, m.norm(x, f"layers.{i}.norm_1"),
                        context=lambda c: c * scale.repeat_interleave(m.c.head_dim))
        x = x + m.norm(a, f"layers.{i}.norm_out")
        f = m.mlp(i, m.norm(x, f"layers.{i}.norm_2"),
                  hidden=lambda h: m.norm(h, f"layers.{i}.mlp.hidden_norm"))
        x = m.learned(f"layers.{i}.res_scale", m.c.d_model) * x + f
    return m.norm(x, "end.norm")


def laurel_rw(m, x):
    for _, name, f in each(m):
        y = f(m.norm(x, name + ".norm"))
        x = m.learned(name + ".alpha", 1) * y + m.learned(name + ".beta", 1) * x
    return m.norm(x, "end.norm")


def laurel_lr(m, x):
    for _, name, f in each(m):
        low = m.project(x, name + ".left", 4)
        x = f(m.norm(x, name + ".norm")) + x + m.project(low, name + ".right", m.c.d_model)
    return m.norm(x, "end.norm")


def gpas(m, x):
    """Subtracts silu(a) x after each sum; the gradient ignores that."""
    for i in range(m.c.n_layer):
        a = m.learned(f"layers.{i}.a", 1)
        x = x + m.attention(i, m.norm(x, f"layers.{i}.norm_1"))
        x = x - a * torch.sigmoid(a) * x.detach()
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.norm_2"))
        x = x - a * torch.sigmoid(a) * x.detach()
    return m.norm(x, "end.norm")


def highway(m, x):
    for _, name, f in each(m):
        gate = torch.sigmoid(m.project(x, name + ".transform", m.c.d_model, bias=True))
        x = gate * f(m.norm(x, name + ".norm")) + (1 - gate) * x
    return m.norm(x, "end.norm")


def gtrxl(m, x):
    """Updates the stream by a gated recurrent unit: the stream is its state, the sublayer's output
    its input."""
    for _, name, f in each(m):
        def w(part, of):
            return m.project(of, f"{name}.{part}", m.c.d_model)

        y = m.relu(f(m.norm(x, name + ".norm")))
        r = torch.sigmoid(w("w_r", y) + w("u_r", x))
        z = torch.sigmoid(w("w_z", y) + w("u_z", x) - m.learned(name + ".bias", m.c.d_model))
        h = torch.tanh(w("w_g", y) + w("u_g", r * x))
        x = (1 - z) * x + z * h
    return m.norm(x, "end.norm")


def deep_delta(m, x):
    """Adds beta (v - k . x) k, with k the sublayer's output at unit length and 0 < beta < 2."""
    for _, name, f in each(m):
        h = m.norm(x, name + ".norm")
        y = f(h)
        k = y / ((y * y).sum(-1, keepdim=True) + 1e-10).sqrt()
        beta = 2 * torch.sigmoid(m.project(h, name + ".beta", 1, bias=True))
        target = 4 * torch.sigmoid(m.project(x, name + ".target", 1, bias=True))
        x = x + beta * (target - (k * x).sum(-1, keepdim=True)) * k
    return m.norm(x, "end.norm")


def orthogonal_residual(m, x):
    """Adds the part of the sublayer's output that is orthogonal to the stream."""
    for _, name, f in each(m):
        y = f(m.norm(x, name + ".norm"))
        unit = torch.nn.functional.normalize(x, dim=-1)
        x = x + y - (y * unit).sum(-1, keepdim=True) * unit
    return m.norm(x, "end.norm")


def exclusive_attention(m, x):
    """Takes tanh(alpha) of each head's component along the token's own value off the head."""
    def inside(m, i):
        own = []

        def keep(v):
            own.append(v.unflatten(-1, (m.c.n_kv_head, -1)).repeat_interleave(m.c.n_head // m.c.n_kv_head, -2))
            return v

        def context(c):
            heads, v = c.unflatten(-1, (m.c.n_head, -1)), own[0]
            part = (heads * v).sum(-1, keepdim=True) / (v * v).sum(-1, keepdim=True).clamp_min(1e-8)
            alpha = torch.tanh(m.learned(f"layers.{i}.attention.alpha", m.c.n_head))[:, None]
            return (heads - alpha * part * v).flatten(-2)

        return dict(v=keep, context=context)
    return _pre(m, x, inside)


def gated_attention(m, x):
    return _gated(m, x, lambda i, h: m.project(h, f"layers.{i}.attention.gate",
                                               m.c.n_head * m.c.head_dim))


def gated_attention_headwise(m, x):
    return _gated(m, x, lambda i, h: m.project(h, f"layers.{i}.attention.gate", m.c.n_head)
                  .repeat_interleave(m.c.head_dim, -1))


def _gated(m, x, gate):
    for i in range(m.c.n_layer):
        h = m.norm(x, f"layers.{i}.attention.norm")
        x = x + m.attention(i, h, context=lambda c: torch.sigmoid(gate(i, h)) * c)
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def ngpt(m, x):
    """All vectors are on the unit sphere; the stream turns towards each sublayer's output."""
    c, unit = m.c, 1 / math.sqrt(m.c.d_model)

    def norm(x):
        return m.norm(x, "", Norm("l2_norm"))

    x = norm(x)
    for i in range(c.n_layer):
        s_qk = m.learned(f"layers.{i}.attention.s_qk", c.d_model) / unit
        s_u = m.learned(f"layers.{i}.mlp.s_u", c.d_ff) * math.sqrt(c.d_model)
        s_v = m.learned(f"layers.{i}.mlp.s_v", c.d_ff) * math.sqrt(c.d_model)

        def scaled_unit(heads):
            return s_qk * m.head_norm(heads, "", Norm("l2_norm"))

        for name, y in (("attention", lambda x: m.attention(i, x, q_rot=scaled_unit,
                                                            k_rot=scaled_unit)),
                        ("mlp", lambda x: m.mlp(i, x, up=lambda u: s_u * u,
                                                gate=lambda v: s_v * v))):
            alpha = (m.learned(f"layers.{i}.{name}.alpha", c.d_model) * (0.05 / unit)).abs()
            a, b = norm(x), norm(y(x))
            x = norm(a + alpha * (b - a))
    return x


def ngpt_logits(m, logits):
    return m.learned("head.s_z", m.c.vocab_size) * math.sqrt(m.c.d_model) * logits


def command_r_logits(m, logits):
    del m
    return 0.0625 * logits
