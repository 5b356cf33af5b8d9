# SPDX-License-Identifier: Apache-2.0
"""Cases of placements that do more than place norms around sublayers."""

import branches
import memory
import streams
from case import LAYER_NORM, RMS_NORM, Case, Config, block, own
from decoder import Norm

PLAIN_RMS = Norm("rms_norm", eps=1e-6, affine=False)


def _shipped(forward, norm=RMS_NORM, text="", more="", logits=None, **config):
    """Returns the case of the shipped placement of the function's name."""
    config.setdefault("n_layer", 3)
    config.setdefault("d_ff", 12)
    name = forward.__name__
    if norm is None:  # no slots
        rule = f'block {{ placement: "{name}" }}'
    else:
        rule = block(name, more)
    return Case(name, forward, Config(norm=norm, **config), text + "\n" + rule, logits)


def _rope(**config):
    return dict(text="positions { kind: ROPE }", learned_positions=False, rope_theta=10000.0,
                **config)


def _branch_cases():
    yield _shipped(branches.span_norm, LAYER_NORM)
    yield _shipped(branches.minimax)
    yield _shipped(branches.depth_scaled_sandwich)
    yield _shipped(branches.dyt, None)
    yield _shipped(branches.seednorm, None)
    yield _shipped(branches.qkv_norm, LAYER_NORM)
    yield _shipped(branches.qk_norm_rotated, **_rope(n_head=4, n_kv_head=2, d_model=16))
    yield _shipped(branches.head_norm, LAYER_NORM, n_head=4, d_model=16)
    yield _shipped(branches.cosine_attention, text='attention { scale: "1" }',
                   more='slot { name: "q_norm" norm: "l2_norm" } '
                        'slot { name: "k_norm" norm: "l2_norm" } ', attention_scale=1.0)
    yield _shipped(branches.ds_init, LAYER_NORM)
    yield _shipped(branches.admin, LAYER_NORM)
    yield _shipped(branches.mup, text='attention { scale: "8 / head_dim" }', attention_scale=2.0,
                   logits=branches.mup_logits)
    yield _shipped(branches.prores)
    for name in ("dropout", "stochastic_depth"):  # evaluation does not drop
        yield Case(name, branches.placements.pre, Config(norm=RMS_NORM), block(name))
    yield _shipped(branches.normformer_res_scale, LAYER_NORM)
    yield Case("command_r", branches.placements.parallel,
               Config(n_layer=3, norm=Norm("layer_norm", eps=1e-5, bias=False)),
               block("command_r"), branches.command_r_logits)
    yield _shipped(branches.laurel_rw)
    yield _shipped(branches.laurel_lr, LAYER_NORM)
    yield _shipped(branches.gpas)
    yield _shipped(branches.highway, LAYER_NORM)
    yield _shipped(branches.gtrxl, LAYER_NORM)
    yield _shipped(branches.deep_delta)
    yield _shipped(branches.orthogonal_residual)
    yield _shipped(branches.exclusive_attention, n_head=4, n_kv_head=2, d_model=16)
    yield _shipped(branches.gated_attention, n_head=4, d_model=16)
    yield _shipped(branches.gated_attention_headwise, n_head=4, n_kv_head=2, d_model=16)


def _stream_cases():
    yield _shipped(streams.siamese_norm, LAYER_NORM)
    yield _shipped(streams.siamese_norm_scaled, LAYER_NORM)
    yield _shipped(streams.hc_static)
    yield _shipped(streams.hc_static_2, LAYER_NORM)
    yield _shipped(streams.hyper_connections, LAYER_NORM)
    yield _shipped(streams.mhc_static)
    yield _shipped(streams.kromhc_static)
    yield _shipped(streams.mhc, n_layer=2)
    yield _shipped(streams.kromhc)
    yield _shipped(streams.frac_connections)
    yield _shipped(streams.altup, LAYER_NORM)
    yield _shipped(streams.altup_gemma3n)


def _memory_cases():
    yield _shipped(memory.denseformer, n_layer=4)
    yield _shipped(memory.dlcl, LAYER_NORM, n_layer=4)
    yield _shipped(memory.elc_bert, LAYER_NORM, n_layer=4)
    yield _shipped(memory.attention_residuals)
    yield _shipped(memory.block_attention_residuals, n_layer=5, d_ff=8)
    yield _shipped(memory.kimi_k3, n_layer=6, d_ff=8)
    yield _shipped(memory.deep_cross_attention, **_rope(n_head=4, n_kv_head=2))
    yield _shipped(memory.muddformer)
    yield _shipped(memory.muddformer_norm)
    yield _shipped(memory.laurel_pa)
    yield _shipped(memory.unet_skip, n_layer=4)
    yield _shipped(memory.backout)
    yield _shipped(memory.x0_lambdas, PLAIN_RMS)
    yield _shipped(memory.smear, PLAIN_RMS, d_model=32)
    yield _shipped(memory.value_residual, n_head=4, n_kv_head=2)
    yield _shipped(memory.svformer)
    yield _shipped(memory.modded_nanogpt, PLAIN_RMS,
                   text="positions { kind: ROPE }\nmlp { activation: RELU }", n_layer=4,
                   learned_positions=False, rope_theta=10000.0, activation="RELU",
                   logits=memory.modded_nanogpt_logits)


NGPT = """
positions { kind: ROPE }
attention { scale: "sqrt(head_dim)" }
mlp { activation: SILU gated: true }
placement {
  name: "ngpt"
  let: "unit = 1 / sqrt(d_model)"
  learned { name: "alpha" init_expression: "unit" per_channel: true }
  learned { name: "s_qk" init_expression: "unit" per_channel: true }
  learned { name: "s_u" init: 1 per_channel: true }
  learned { name: "s_v" init: 1 per_channel: true }
  learned { name: "s_z" init_expression: "unit" per_channel: true }
  slot { name: "q_norm" per_head: true }
  slot { name: "k_norm" per_head: true }
  begin: "x = norm(x)"
  each: "h = norm(x)"
  each: "x = norm(h + abs(0.05 / unit * alpha) * (norm(f(x)) - h))"
  inside { point: "attention.q_rot" rule: "q_rot = s_qk / unit * q_norm(q_rot)" }
  inside { point: "attention.k_rot" rule: "k_rot = s_qk / unit * k_norm(k_rot)" }
  inside { point: "mlp.up" rule: "up = s_u * sqrt(d_model) * up" }
  inside { point: "mlp.gate" rule: "gate = s_v * sqrt(d_model) * gate" }
  inside { point: "head.logits" rule: "logits = s_z / unit * logits" }
}
block { placement: "ngpt" norm: "l2_norm" }"""


def _model_cases():
    """Yields cases that need model fields next to their placement."""
    yield Case("ngpt", branches.ngpt,
               Config(n_layer=3, d_ff=12, attention_scale=2.0, learned_positions=False,
                      rope_theta=10000.0, activation="SILU", gated=True),
               NGPT, branches.ngpt_logits)
    yield Case("value_embeddings", memory.value_embeddings,
               Config(n_head=4, n_kv_head=2, norm=RMS_NORM),
               'embedding { name: "ve" width: "n_kv_head * head_dim" per_layer: true }\n'
               + own("value_embeddings", """
        extends: "pre"
        learned { name: "lamb" init: 0.5 }
        inside { point: "attention.v" rule: "v = (1 - lamb) * v + lamb * ve[layer]" } """))


def all_cases():
    yield from _branch_cases()
    yield from _stream_cases()
    yield from _memory_cases()
    yield from _model_cases()
