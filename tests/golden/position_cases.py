# SPDX-License-Identifier: Apache-2.0
"""Cases of position information."""

import math

import features
import rope
from case import LAYER_NORM, RMS_NORM, Case, Config, block


def _case(name, text, **config):
    config.setdefault("norm", RMS_NORM)
    config.setdefault("d_model", 16)
    return Case(name, features.pre, Config(**config), text + "\n" + block("pre"))


def _rope(name, fields, turn, **config):
    return _case(name, f"positions {{ kind: ROPE {fields} }}", learned_positions=False, rope=turn,
                 **config)


def _rope_cases():
    # GPT-NeoX and Phi rotate a part of a head, GPT-J and Cohere rotate adjacent pairs.
    yield _rope("rope_partial", 'rope_dims: "head_dim / 2"',
                lambda layer, x: rope.turn(x, rope.frequencies(10000, 4)))
    yield _rope("rope_interleaved", "rope_interleaved: true rope_theta: 50",
                lambda layer, x: rope.turn(x, rope.frequencies(50, 8), interleaved=True),
                n_head=4, n_kv_head=2, head_dim=8, norm=LAYER_NORM)
    yield _rope("rope_interleaved_partial", 'rope_interleaved: true rope_dims: "4"',
                lambda layer, x: rope.turn(x, rope.frequencies(10000, 4), interleaved=True),
                head_dim=6)
    # Gemma 3 has another base and interpolated positions in some layers. SmolLM 3 has none in some
    # layers.
    yield _rope("rope_by_layer",
                'rope_base: "100 + 9900 * (layer % 3 == 0)" rope_dims: "head_dim * (layer != 2)" '
                'rope_scaling { linear: "1 + 7 * (layer % 3 == 0)" }',
                lambda layer, x: (rope.turn(x, rope.frequencies(100, 8)), x,
                                  rope.turn(x, rope.frequencies(10000, 8) / 8))[layer],
                n_layer=3, d_ff=12)
    yield _rope("rope_llama3",
                "rope_theta: 100 rope_scaling { llama3 { factor: 8 low_freq_factor: 1 "
                "high_freq_factor: 4 original_context_length: 40 } }",
                lambda layer, x: rope.turn(
                    x, rope.llama3(rope.frequencies(100, 8), 8, 1, 4, 40)))
    yield _rope("rope_yarn",
                "rope_theta: 100 rope_scaling { yarn { factor: 4 original_context_length: 40 } }",
                lambda layer, x: rope.turn(x, rope.yarn(100, 8, 4, 40),
                                           magnitude=0.1 * math.log(4) + 1))
    # DeepSeek sets the attention factor; gpt-oss does not round the ends of the ramp.
    yield _rope("rope_yarn_fractional",
                "rope_theta: 100 rope_interleaved: true rope_scaling { yarn { factor: 4 "
                "original_context_length: 40 beta_fast: 4 beta_slow: 0.5 attention_factor: 0.8 "
                "fractional: true } }",
                lambda layer, x: rope.turn(x, rope.yarn(100, 8, 4, 40, 4, 0.5, rounded=False),
                                           interleaved=True, magnitude=0.8))


def _alibi_cases():
    yield _case("alibi", "positions { kind: ALIBI }", learned_positions=False, n_head=4,
                n_kv_head=2, alibi=1.0, norm=LAYER_NORM)
    # Falcon's slopes, for a number of heads that is no power of 2, combined with other options.
    yield _case("alibi_scaled",
                'positions { kind: ALIBI alibi_scale: "1 / sqrt(head_dim)" }\n'
                'attention { window: "4" score_cap: "2" sinks: true }', learned_positions=False,
                n_head=6, head_dim=4, alibi=0.5, windows=(4, 4), score_cap=2.0, sinks=True)


def _table_cases():
    # OPT and RoBERTa reserve two rows of their table for padding tokens.
    yield _case("position_offset", "positions { offset: 2 }", position_offset=2, norm=LAYER_NORM)
    # The table and the embedding width are those of OPT-350M.
    yield _case("embedding_width",
                'positions { kind: LEARNED offset: 2 }\nembedding_width: "d_model / 4"\n'
                'tie_embeddings: true', position_offset=2, embedding_width=4, tied=True)
    yield _case("embedding_width_untied",
                'embedding_width: "20"\nembedding_scale: "3"\nhead_bias: true',
                embedding_width=20, embedding_scale=3.0, head_bias=True)


def all_cases():
    yield from _table_cases()
    yield from _rope_cases()
    yield from _alibi_cases()
