# SPDX-License-Identifier: Apache-2.0
"""The placements that ship with plumb, each written by hand.

Every function takes a Decoder and the embedding and returns the input of the head. Layers count
from 0 here, so that the equations' l is i + 1.
"""

import math


def none(m, x):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, x)
        x = x + m.mlp(i, x)
    return x


def pre(m, x):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def post(m, x):
    for i in range(m.c.n_layer):
        x = m.norm(x + m.attention(i, x), f"layers.{i}.attention.norm")
        x = m.norm(x + m.mlp(i, x), f"layers.{i}.mlp.norm")
    return x


def _double_layer(m, x, i, **inside):
    a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm_in"), **inside)
    x = x + m.norm(a, f"layers.{i}.attention.norm_out")
    f = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm_in"))
    return x + m.norm(f, f"layers.{i}.mlp.norm_out")


def double(m, x):
    for i in range(m.c.n_layer):
        x = _double_layer(m, x, i)
    return m.norm(x, "end.norm")


def peri(m, x):
    x = m.norm(x, "begin.norm")
    for i in range(m.c.n_layer):
        x = _double_layer(m, x, i)
    return m.norm(x, "end.norm")


def olmo2(m, x):
    for i in range(m.c.n_layer):
        x = x + m.norm(m.attention(i, x), f"layers.{i}.attention.norm")
        x = x + m.norm(m.mlp(i, x), f"layers.{i}.mlp.norm")
    return m.norm(x, "end.norm")


def swin_v2(m, x):
    for i in range(m.c.n_layer):
        x = x + m.norm(m.attention(i, x), f"layers.{i}.attention.norm")
        x = x + m.norm(m.mlp(i, x), f"layers.{i}.mlp.norm")
        if (i + 1) % 6 == 0:
            x = m.norm(x, f"layers.{i}.mlp.stream_norm")
    return m.norm(x, "end.norm")


def deepnorm(m, x):
    alpha = math.sqrt(math.sqrt(2.0 * m.c.n_layer))
    for i in range(m.c.n_layer):
        x = m.norm(alpha * x + m.attention(i, x), f"layers.{i}.attention.norm")
        x = m.norm(alpha * x + m.mlp(i, x), f"layers.{i}.mlp.norm")
    return x


def keel(m, x):
    """alpha counts sublayers. Layer 0 has none, and no norm after its attention."""
    for i in range(m.c.n_layer):
        alpha = 2 * m.c.n_layer if i > 0 else 1
        a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm_in"))
        x = m.norm(alpha * x + a, f"layers.{i}.attention.norm_out") if i > 0 else x + a
        f = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm_in"))
        x = m.norm(alpha * x + f, f"layers.{i}.mlp.norm_out")
    return x


def resi_dual(m, x):
    dual = x
    for i in range(m.c.n_layer):
        a = m.attention(i, x)
        x, dual = m.norm(x + a, f"layers.{i}.attention.norm"), dual + a
        f = m.mlp(i, x)
        x, dual = m.norm(x + f, f"layers.{i}.mlp.norm"), dual + f
    return x + m.norm(dual, "end.norm")


def normformer(m, x):
    for i in range(m.c.n_layer):
        scale = m.learned(f"layers.{i}.attention.head_scale", m.c.n_head)

        def scale_heads(context):
            return context * scale.repeat_interleave(m.c.head_dim)

        a = m.attention(i, m.norm(x, f"layers.{i}.norm_1"), context=scale_heads)
        x = x + m.norm(a, f"layers.{i}.norm_out")
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.norm_2"),
                      hidden=lambda h: m.norm(h, f"layers.{i}.mlp.hidden_norm"))
    return m.norm(x, "end.norm")


def b2t(m, x):
    for i in range(m.c.n_layer):
        bottom = x
        x = m.norm(x + m.attention(i, x), f"layers.{i}.norm_1")
        x = m.norm(x + m.mlp(i, x) + bottom, f"layers.{i}.norm_2")
    return x


def rezero(m, x):
    for i in range(m.c.n_layer):
        gate = m.learned(f"layers.{i}.gate", 1)
        x = x + gate * m.attention(i, x)
        x = x + gate * m.mlp(i, x)
    return x


def skip_init(m, x):
    for i in range(m.c.n_layer):
        x = x + m.learned(f"layers.{i}.attention.gate", 1) * m.attention(i, x)
        x = x + m.learned(f"layers.{i}.mlp.gate", 1) * m.mlp(i, x)
    return x


def layer_scale(m, x):
    for i in range(m.c.n_layer):
        a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.learned(f"layers.{i}.attention.gamma", m.c.d_model) * a
        f = m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
        x = x + m.learned(f"layers.{i}.mlp.gamma", m.c.d_model) * f
    return m.norm(x, "end.norm")


def sub_ln(m, x):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"),
                            context=lambda h: m.norm(h, f"layers.{i}.attention.context_norm"))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"),
                      hidden=lambda h: m.norm(h, f"layers.{i}.mlp.hidden_norm"))
    return m.norm(x, "end.norm")


def parallel(m, x):
    for i in range(m.c.n_layer):
        h = m.norm(x, f"layers.{i}.norm")
        x = x + m.attention(i, h) + m.mlp(i, h)
    return m.norm(x, "end.norm")


def parallel_two_norms(m, x):
    for i in range(m.c.n_layer):
        a = m.attention(i, m.norm(x, f"layers.{i}.norm_1"))
        f = m.mlp(i, m.norm(x, f"layers.{i}.norm_2"))
        x = x + a + f
    return m.norm(x, "end.norm")


def ln_scaling(m, x):
    for i in range(m.c.n_layer):
        scale = 1 / math.sqrt(i + 1)
        x = x + m.attention(i, scale * m.norm(x, f"layers.{i}.attention.norm"))
        x = x + m.mlp(i, scale * m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def _qkv_norms(m, i):
    return dict(q=lambda q: m.head_norm(q, f"layers.{i}.attention.q_norm"),
                k=lambda k: m.head_norm(k, f"layers.{i}.attention.k_norm"),
                v=lambda v: m.head_norm(v, f"layers.{i}.attention.v_norm"))


def hybrid_norm(m, x):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, x, **_qkv_norms(m, i))
        h = m.norm(x, f"layers.{i}.norm")
        x = h + m.mlp(i, h)
    return m.norm(x, "end.norm")


def hybrid_norm_star(m, x):
    x = x + m.attention(0, m.norm(x, "layers.0.norm_in"), **_qkv_norms(m, 0))
    x = x + m.mlp(0, m.norm(x, "layers.0.norm"))
    for i in range(1, m.c.n_layer):
        x = x + m.attention(i, x, **_qkv_norms(m, i))
        h = m.norm(x, f"layers.{i}.norm")
        x = h + m.mlp(i, h)
    return m.norm(x, "end.norm")


def scaled_residual(m, x):
    scale = 1.4 / math.sqrt(m.c.n_layer)
    for i in range(m.c.n_layer):
        x = x + scale * m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + scale * m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def bloom(m, x):
    return pre(m, m.norm(x, "begin.norm"))


def head_qk(m, i):
    """Query and key norms per head."""
    return dict(q=lambda q: m.head_norm(q, f"layers.{i}.attention.q_norm"),
                k=lambda k: m.head_norm(k, f"layers.{i}.attention.k_norm"))


def full_qk(m, i):
    """Query and key norms over the whole projection."""
    return dict(q=lambda q: m.norm(q, f"layers.{i}.attention.q_norm"),
                k=lambda k: m.norm(k, f"layers.{i}.attention.k_norm"))


def _pre_qk(m, x, inside):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"), **inside(m, i))
        x = x + m.mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def qk_norm(m, x):
    return _pre_qk(m, x, head_qk)


def qk_norm_full(m, x):
    return _pre_qk(m, x, full_qk)


def olmo2_qk(m, x):
    for i in range(m.c.n_layer):
        x = x + m.norm(m.attention(i, x, **full_qk(m, i)), f"layers.{i}.attention.norm")
        x = x + m.norm(m.mlp(i, x), f"layers.{i}.mlp.norm")
    return m.norm(x, "end.norm")


def double_qk(m, x):
    for i in range(m.c.n_layer):
        x = _double_layer(m, x, i, **head_qk(m, i))
    return m.norm(x, "end.norm")


ALL = (none, pre, post, double, olmo2, peri, deepnorm, keel, resi_dual, normformer, b2t, rezero,
       skip_init, layer_scale, sub_ln, parallel, parallel_two_norms, ln_scaling, hybrid_norm,
       hybrid_norm_star, scaled_residual, bloom, swin_v2, qk_norm, qk_norm_full, olmo2_qk,
       double_qk)
