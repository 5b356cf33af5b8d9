# SPDX-License-Identifier: Apache-2.0
"""Golden cases: a model as numbers for decoder.py and as the text that plumb reads."""

from dataclasses import dataclass

from decoder import Norm

LAYER_NORM = Norm("layer_norm", eps=1e-5)
RMS_NORM = Norm("rms_norm", eps=1e-6)


@dataclass
class Config:
    """Configuration of decoder.py. `Case.text` may have expressions for these values."""
    n_layer: int = 2
    n_head: int = 2
    n_kv_head: int = 0  # 0: n_head
    d_model: int = 8
    d_ff: int = 16
    head_dim: int = 0  # 0: d_model / n_head
    vocab_size: int = 11
    context_length: int = 8
    learned_positions: bool = True
    rope_theta: float = None
    rope: object = None  # (layer, heads) -> rotated heads; replaces rope_theta
    alibi: float = 0.0  # factor of the slopes
    position_offset: int = 0
    embedding_width: int = 0  # 0: d_model
    embedding_scale: float = None
    attention_scale: float = None
    score_cap: float = 0.0
    windows: tuple = ()  # one per layer; 0: none
    sinks: bool = False
    tied: bool = False
    head_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    activation: str = "GELU_TANH"
    gated: bool = False
    mlp_bias: bool = False
    norm: Norm = None

    def __post_init__(self):
        self.n_kv_head = self.n_kv_head or self.n_head
        self.head_dim = self.head_dim or self.d_model // self.n_head


@dataclass
class Case:
    name: str
    forward: object  # (Decoder, embedding) -> input of the head
    config: Config
    # Text of model.pbtxt beyond the dimensions and the norm.
    text: str
    logits: object = None  # (Decoder, logits) -> logits
    # True if the text declares its norms.
    own_norms: bool = False
    # True if the text gives n_layer by its groups of layers.
    own_layers: bool = False


def norm_text(name, norm):
    attrs = [f'attr {{ name: "eps" number: {norm.eps:g} }}']
    if not norm.affine:
        attrs.append('attr { name: "affine" flag: false }')
    if norm.kind == "layer_norm" and not norm.bias:
        attrs.append('attr { name: "bias" flag: false }')
    if norm.unit_offset:
        attrs.append('attr { name: "unit_offset" flag: true }')
    return f'norm {{ name: "{name}" plugin: "{norm.kind}" {" ".join(attrs)} }}'


def model_text(case):
    c, lines = case.config, []
    if not case.own_layers:
        lines.append(f"n_layer: {c.n_layer}")
    lines.append(f"n_head: {c.n_head}")
    if c.n_kv_head != c.n_head:
        lines.append(f"n_kv_head: {c.n_kv_head}")
    lines.append(f"d_model: {c.d_model}")
    lines.append(f'd_ff: "{c.d_ff}"')
    if c.head_dim * c.n_head != c.d_model:
        lines.append(f"head_dim: {c.head_dim}")
    lines.append(f"vocab_size: {c.vocab_size}")
    lines.append(f"context_length: {c.context_length}")
    if c.norm and not case.own_norms:
        lines.append(norm_text("norm", c.norm))
    return "\n".join(lines) + "\n" + case.text.strip() + "\n"


def block(placement, extra=""):
    return f'block {{ placement: "{placement}" norm: "norm" {extra}}}'


def own(name, rule, **kwargs):
    """Returns the text of a placement of the model's own, and a block that uses it."""
    lines = "\n".join("  " + line.strip() for line in rule.strip().splitlines())
    return f'placement {{\n  name: "{name}"\n{lines}\n}}\n' + block(name, **kwargs)
