# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files: python3 tests/golden/generate.py [case ...]

Needs only PyTorch 1.13 or later. README.md describes the files.
"""

import json
import math
import os
import sys
import zlib
from dataclasses import dataclass, field

import torch

import experts
import features
import placements
import position_cases
import tensor_file
import wiring_cases
from case import LAYER_NORM, RMS_NORM, Case, Config, block, model_text, norm_text, own
from decoder import SMALLEST_RELU_INPUT, Decoder, Norm, next_token_loss

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, SEQ = 2, 7
FOLDERS = ("pre",)  # cases that tests pass to plumb eval as files


def placement_cases():
    """Yields one case per shipped placement, alternating norms, activations and widths."""
    for index, forward in enumerate(placements.ALL):
        name = forward.__name__
        config = Config(n_layer=6 if name == "swin_v2" else 3,
                        d_ff=(16, 20, 18)[index % 3] if name != "swin_v2" else 8,
                        norm=(LAYER_NORM, RMS_NORM)[index % 2])
        text = block(name)
        if name in ("none", "rezero", "skip_init"):  # no slots
            config.norm, text = None, f'block {{ placement: "{name}" }}'
        yield Case(name, forward, config, text)


def schema_cases():
    """Yields cases of all other features of models, mostly with the placement `pre`."""
    def case(name, text="", forward=features.pre, placement="pre", **config):
        config.setdefault("norm", RMS_NORM)
        return Case(name, forward, Config(**config), text + "\n" + block(placement))

    yield case("gqa", n_head=4, n_kv_head=2)
    yield case("mqa", n_head=4, n_kv_head=1, norm=LAYER_NORM)
    yield case("rope", "positions { kind: ROPE }", learned_positions=False, rope_theta=10000.0)
    yield case("no_positions", "positions { kind: NONE }", learned_positions=False)
    yield case("biases", "head_bias: true\nattention { bias: true }\nmlp { bias: true }",
               head_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True, norm=LAYER_NORM)
    yield case("qkv_bias", "positions { kind: ROPE }\nattention { qkv_bias: true }",
               learned_positions=False, rope_theta=10000.0, qkv_bias=True)
    yield case("out_bias", "attention { out_bias: true }", out_bias=True)
    yield case("swiglu", "mlp { activation: SILU gated: true }", activation="SILU", gated=True)
    yield case("geglu_bias", "mlp { gated: true bias: true }", gated=True, mlp_bias=True)
    yield case("silu", "mlp { activation: SILU }", activation="SILU")
    yield case("gelu", "mlp { activation: GELU }", activation="GELU")
    yield case("gelu_tanh", "mlp { activation: GELU_TANH }", norm=LAYER_NORM)
    yield case("relu", "mlp { activation: RELU }", activation="RELU")
    yield case("tied", "tie_embeddings: true", tied=True)
    yield case("embedding_scale", 'embedding_scale: "sqrt(d_model)"\ntie_embeddings: true',
               embedding_scale=math.sqrt(8), tied=True)
    yield case("attention_scale", 'attention { scale: "1 / head_dim" }', attention_scale=1 / 4)
    yield case("attention_cap", 'attention { score_cap: "1 / 2" }', score_cap=0.5)
    yield case("attention_window", 'positions { kind: ROPE }\nattention { window: "3" }',
               learned_positions=False, rope_theta=10000.0, windows=(3, 3))
    yield case("attention_sinks", "attention { sinks: true }", sinks=True)
    yield Case("forgetting", features.forgetting, Config(n_head=4, n_kv_head=2, norm=RMS_NORM,
                                                         learned_positions=False), """
positions { kind: NONE }
attention { decay: true }
placement {
  name: "forgetting" extends: "pre"
  learned { name: "b" init: 2 per_head: true }
  inside { point: "attention.decay" rule: "decay = -softplus(-decay - b)" }
}
block { placement: "forgetting" norm: "norm" }""")
    yield case("attention_all", """positions { kind: ROPE }
attention { score_cap: "0.2 * n_head" window: "3 * (layer % 2)" sinks: true bias: true }""",
               n_head=4, n_kv_head=2, learned_positions=False, rope_theta=10000.0, score_cap=0.8,
               windows=(3, 0), sinks=True, qkv_bias=True, out_bias=True)
    yield case("head_dim", head_dim=6, norm=LAYER_NORM)
    yield case("unit_offset", norm=Norm("rms_norm", eps=1e-6, unit_offset=True))
    yield case("layer_norm_no_bias", norm=Norm("layer_norm", eps=1e-5, bias=False))
    yield case("layer_norm_no_affine", norm=Norm("layer_norm", eps=1e-5, affine=False))
    yield case("rms_norm_no_affine", norm=Norm("rms_norm", eps=1e-5, affine=False))
    yield case("qwen3_like",
               "positions { kind: ROPE rope_theta: 100 }\nmlp { activation: SILU gated: true }",
               forward=features.qk_norm, placement="qk_norm", n_head=4, n_kv_head=2, head_dim=4,
               learned_positions=False, rope_theta=100.0, activation="SILU", gated=True)
    yield case("sub_ln_gated", "mlp { gated: true }", forward=features.sub_ln,
               placement="sub_ln", d_ff=20, gated=True)
    yield Case("none_plugin", features.none, Config(), 'block { placement: "pre" norm: "none" }')


def rule_cases():
    """Yields cases with rules of the model's own."""
    def case(name, rule, forward=None, **config):
        logits = config.pop("logits", None)
        config.setdefault("norm", RMS_NORM)
        forward = forward or getattr(features, name)
        return Case(name, forward, Config(**config), own(name, rule), logits)

    yield case("sigmoid_gate", """
        learned { name: "gate" init: 0.5 per_channel: true }
        each: "x = x + sigmoid(gate) * f(norm(x))"
        end: "x = norm(x)" """)
    yield case("tensor_gate", """
        learned { name: "gate" init: 0.5 }
        each: "y = f(norm(x))"
        each: "x = x + sigmoid(gate * y) * tanh(y)"
        end: "x = norm(x)" """)
    yield case("arithmetic", """
        let: "progress = sublayer / n_sublayer"
        each: "y = -f(norm(x)) / 2"
        each: "x = 0.9 * (x - y / layer) + y * progress ^ 2 - 0.125"
        end: "x = norm(x)" """, norm=LAYER_NORM)
    yield case("repeated_slot", """
        each: "h = norm(x)"
        each: "x = x + norm(f(h))"
        end: "x = norm(x)" """)
    yield case("learned_ends", """
        extends: "pre"
        learned { name: "gain" init: 1 per_channel: true }
        begin: "x = gain * x"
        end: "x = gain * norm(x)" """)
    yield case("conditions", """
        each: "x = norm_after(x + f(x)) if layer == 1 or layer == n_layer"
        each: "x = x + f(norm_before(x)) if not (layer == 1 or layer >= n_layer)"
        inside { point: "attention.q" rule: "q = q_norm(q) if 1 < layer and layer < n_layer" } """,
               n_layer=4, d_ff=8)
    yield case("embedding_skip", """
        begin: "e = x"
        block: "x = x + attention(norm_1(x))"
        block: "x = x + mlp(norm_2(x + 0.5 * e))"
        end: "x = norm(x)" """, norm=LAYER_NORM)
    yield case("head_scales", """
        extends: "pre"
        learned { name: "q_scale" init: 1 per_head: true }
        learned { name: "k_scale" init: 1 per_head: true }
        inside { point: "attention.q" rule: "q = q_scale * q" }
        inside { point: "attention.k" rule: "k = k_scale * k" } """, n_head=4, n_kv_head=2)
    yield case("inside_channels", """
        extends: "pre"
        learned { name: "scale" init: 1 per_channel: true }
        inside { point: "attention.q" rule: "q = scale * q" }
        inside { point: "mlp.hidden" rule: "hidden = scale * hidden" } """, head_dim=6)
    yield case("soft_cap", """
        extends: "pre"
        inside { point: "head.logits" rule: "logits = 30 * tanh(logits / 30)" } """,
               forward=features.pre, logits=features.cap_logits)
    yield case("logit_norm", """
        extends: "pre"
        inside { point: "head.logits" rule: "logits = logit_norm(logits)" } """,
               forward=features.pre, logits=features.norm_logits)


def block_cases():
    """Yields cases with other sublayers, several blocks and several norms."""
    yield Case("macaron", features.macaron, Config(norm=RMS_NORM, activation="SILU"), """
mlp { activation: SILU }
placement {
  name: "macaron"
  block: "x = x + 0.5 * mlp_1(norm_1(x))"
  block: "x = x + attention(norm_2(x))"
  block: "x = x + 0.5 * mlp_2(norm_3(x))"
  end: "x = norm(x)"
}
block {
  placement: "macaron"
  norm: "norm"
  sublayer { name: "mlp_1" mlp { activation: SILU } }
  sublayer { attention {} }
  sublayer { name: "mlp_2" mlp { activation: SILU } }
}""")
    yield Case("three_sublayers", features.three_sublayers, Config(norm=LAYER_NORM), """
block {
  placement: "pre"
  norm: "norm"
  sublayer { name: "mixer" attention {} }
  sublayer { name: "mlp_1" mlp {} }
  sublayer { name: "mlp_2" mlp {} }
}""")
    yield Case("canon", features.canon, Config(norm=RMS_NORM), """
placement {
  name: "canon"
  block: "h = norm_1(x)"
  block: "x = x + attention(h + canon_a(h))"
  block: "g = norm_2(x)"
  block: "x = x + mlp(g + canon_c(g))"
  end: "x = norm(x)"
}
block {
  placement: "canon"
  norm: "norm"
  sublayer { name: "canon_a" conv {} }
  sublayer { attention {} }
  sublayer { name: "canon_c" conv { width: 4 } }
  sublayer { mlp {} }
}""")
    yield Case("conv_each", features.conv_each, Config(norm=LAYER_NORM), """
block {
  placement: "pre"
  norm: "norm"
  sublayer { attention {} }
  sublayer { conv { width: 3 bias: true } }
  sublayer { mlp {} }
}""")
    yield Case("gated_delta_net", features.gated_delta_net, Config(norm=RMS_NORM), """
norm { name: "unit" plugin: "l2_norm" }
placement {
  name: "gated_delta_net"
  extends: "pre"
  learned { name: "a_log" init: 1.5 per_head: true }
  learned { name: "dt_bias" init: 1 per_head: true }
  linear { name: "z" out: "12" }
  slot { name: "unit_norm" per_head: true }
  slot { name: "head_norm" per_head: true }
  inside {
    point: "linear_attention.decay"
    rule: "t = decay + dt_bias"
    rule: "decay = -exp(a_log) * (max(t, 0) + log(1 + exp(-abs(t))))"
  }
  inside { point: "linear_attention.q" rule: "q = unit_norm(q * sigmoid(q)) / sqrt(5)" }
  inside { point: "linear_attention.k" rule: "k = unit_norm(k * sigmoid(k))" }
  inside { point: "linear_attention.v" rule: "v = v * sigmoid(v)" }
  inside {
    point: "linear_attention.context"
    rule: "g = z(input)"
    rule: "context = head_norm(context) * g * sigmoid(g)"
  }
}
layers {
  block {
    placement: "gated_delta_net"
    norm: "norm"
    slot { name: "unit_norm" norm: "unit" }
    sublayer {
      name: "delta"
      linear_attention {
        n_head: "4" n_key_head: "2" key_dim: "5" value_dim: "3"
        decay: PER_HEAD delta: true conv { width: 3 }
      }
    }
    sublayer { mlp {} }
  }
}
layers { block { placement: "pre" norm: "norm" } }""", own_layers=True)
    yield Case("mix_ln", features.mix_ln, Config(n_layer=3, norm=LAYER_NORM), """
layers { block { placement: "post" norm: "norm" } }
layers { repeat: 2 block { placement: "pre" norm: "norm" } }""", own_layers=True)
    yield Case("alternating", features.alternating, Config(n_layer=4, d_ff=8, norm=RMS_NORM), """
layers {
  repeat: 4
  block { placement: "pre" norm: "norm" }
  block { placement: "olmo2" norm: "norm" }
}""", own_layers=True)
    yield Case("token_tables", features.token_tables,
               Config(n_head=4, n_kv_head=2, norm=RMS_NORM),
               'embedding { name: "ve" width: "n_kv_head * head_dim" }\n'
               'embedding { name: "extra" }\n' + own("token_tables", """
        extends: "pre"
        learned { name: "mix" init: 0.5 per_head: true }
        begin: "x = x + 0.5 * extra"
        inside { point: "attention.v" rule: "v = v + mix * ve" } """))
    yield Case("looped", features.looped, Config(n_layer=3, norm=LAYER_NORM, qkv_bias=True), """
attention { qkv_bias: true }
layers { repeat: 3 share: true block { placement: "pre" norm: "norm" } }""", own_layers=True)
    yield Case("shared_blocks", features.shared_blocks, Config(n_layer=4, d_ff=8, norm=RMS_NORM), """
layers {
  repeat: 4
  share: true
  block { placement: "pre" norm: "norm" own_norms: true }
  block { placement: "olmo2" norm: "norm" }
}""", own_layers=True)
    yield Case("slot_norms", features.slot_norms, Config(), f"""
{norm_text("ln", LAYER_NORM)}
{norm_text("rms", RMS_NORM)}
block {{
  placement: "double"
  norm: "rms"
  slot {{ name: "norm_in" norm: "ln" }}
  slot {{ name: "norm" norm: "none" }}
}}""", own_norms=True)
    yield Case("block_inside", features.block_inside, Config(norm=RMS_NORM), block(
        "pre", 'inside { point: "attention.v" rule: "v = v_norm(v)" } '))


def expert_cases():
    """Yields cases with mixtures of experts of published families."""
    def case(name, fields, placement="pre", n_layer=2, activation="SILU"):
        sublayer = f"experts {{ {fields} }}"
        return Case(name, getattr(experts, name), Config(n_layer=n_layer, activation=activation,
                                                         norm=RMS_NORM), f"""
block {{
  placement: "{placement}"
  norm: "norm"
  sublayer {{ attention {{}} }}
  sublayer {{
    {sublayer}
  }}
}}""")

    gated = "gated: true activation: SILU"
    yield case("mixtral", f'n_expert: "4" top_k: "2" d_ff: "12" {gated}')
    yield case("qwen3_moe", f'n_expert: "16" top_k: "3" d_ff: "4" {gated}')
    yield case("qwen2_moe", f'n_expert: "6" top_k: "2" d_ff: "6" {gated} router: SOFTMAX '
               'shared_d_ff: "10" shared_gate: true')
    yield case("latent_experts", f'n_expert: "6" top_k: "2" d_ff: "5" {gated} router: SOFTMAX '
               'shared_d_ff: "10" shared_gate: true latent: "3"')
    yield case("grok_1", 'n_expert: "8" top_k: "2" d_ff: "14" gated: true activation: GELU_TANH '
               "router: SOFTMAX", placement="double", activation="GELU_TANH")
    yield case("switch", 'n_expert: "4" top_k: "1" d_ff: "10" activation: GELU router: SOFTMAX '
               'balance_loss: "0.3"', activation="GELU")
    yield case("balanced", f'n_expert: "5" top_k: "2" d_ff: "4 * layer" {gated} scale: "2.5" '
               'balance_loss: "layer / 10"')


def all_cases():
    cases = [*placement_cases(), *wiring_cases.all_cases(), *position_cases.all_cases(),
             *schema_cases(), *rule_cases(), *block_cases(), *expert_cases()]
    assert len({case.name for case in cases}) == len(cases)
    return cases


@dataclass
class Result:
    tokens: torch.Tensor
    logits: torch.Tensor
    loss: torch.Tensor
    weights: dict  # parameters and buffers
    gradients: dict = field(default_factory=dict)  # of parameters


def run(case, dtype=torch.float64):
    """Draws the weights, which depend only on the case's name, and computes forward and backward."""
    seed = zlib.crc32(case.name.encode())
    decoder = Decoder(case.config, seed, dtype)
    tokens = torch.randint(case.config.vocab_size, (BATCH, SEQ),
                           generator=torch.Generator().manual_seed(seed + 1))
    logits = decoder.head(case.forward(decoder, decoder.embed(tokens)))
    if case.logits:
        logits = case.logits(decoder, logits)
    loss = next_token_loss(logits, tokens)
    (loss + sum(decoder.extra_losses)).backward()
    assert decoder.smallest_relu_input > SMALLEST_RELU_INPUT, case.name
    return Result(tokens, logits, loss, {**decoder.parameters, **decoder.buffers},
                  {name: p.grad for name, p in decoder.parameters.items()})


def write(case, result):
    """Writes the case's file: its tokens, its weights, and the expected results."""
    tensors = {"tokens": result.tokens, **result.weights, **expected(result)}
    os.makedirs(os.path.join(HERE, "cases"), exist_ok=True)
    tensor_file.write(os.path.join(HERE, "cases", case.name + ".safetensors"), tensors)


def expected(result):
    tensors = {"logits": result.logits, "loss": result.loss.reshape(1)}
    tensors.update({"grad." + name: grad for name, grad in result.gradients.items()})
    return tensors


def write_folder(case, result):
    """Writes the case as files for plumb eval."""
    folder = os.path.join(HERE, case.name)
    with open(os.path.join(folder, "model.pbtxt"), "w") as file:
        file.write(model_text(case))
    with open(os.path.join(folder, "tokens.json"), "w") as file:
        file.write(json.dumps(result.tokens.tolist()) + "\n")
    tensor_file.write(os.path.join(folder, "weights.safetensors"), result.weights)
    tensor_file.write(os.path.join(folder, "expected.safetensors"), expected(result))
    norms = {name: float(f"{grad.norm().item():.9g}") for name, grad in result.gradients.items()}
    with open(os.path.join(folder, "grads.json"), "w") as file:
        json.dump({"loss": float(f"{result.loss.item():.9g}"), "grad_l2": norms}, file,
                  separators=(",", ":"))
        file.write("\n")


def models():
    """Returns the content of models.txt: the model of every case without a folder."""
    return "\n".join(f"# case {case.name}\n{model_text(case)}" for case in all_cases()
                     if case.name not in FOLDERS)


def main():
    torch.set_num_threads(1)
    wanted = set(sys.argv[1:])
    cases = [case for case in all_cases() if not wanted or case.name in wanted]
    unknown = wanted - {case.name for case in cases}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    for case in cases:
        (write_folder if case.name in FOLDERS else write)(case, run(case))
    with open(os.path.join(HERE, "models.txt"), "w") as file:
        file.write(models())
    print(f"wrote {len(cases)} cases to {HERE}")


if __name__ == "__main__":
    main()
