# SPDX-License-Identifier: Apache-2.0
"""A small decoder in plain PyTorch, in float64, with which plumb's numbers are compared.

It shares nothing with plumb but the names of the parameters. It does not read placements:
placements.py and features.py write each one in Python, as the papers do, with the methods below.
"""

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F

# Minimum |x| of a ReLU's input, so that a float32 run is on the same side of the kink.
SMALLEST_RELU_INPUT = 1e-4


class Norm:
    """One configuration of a norm: kind "layer_norm", "rms_norm", "l2_norm" or "none"."""

    def __init__(self, kind, eps=1e-5, affine=True, bias=True, unit_offset=False):
        self.kind, self.eps, self.affine, self.bias = kind, eps, affine, bias
        self.unit_offset = unit_offset


class Decoder:
    """The parameters of one model and its building blocks.

    A parameter is drawn at its first use, rounded to float32 and kept as a float64 leaf, so that
    the file holds exactly the values of the computation.
    """

    def __init__(self, config, seed, dtype=torch.float64):
        self.c = config
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters = OrderedDict()
        self.buffers = OrderedDict()  # tensors of the weights file that are not trained
        self.extra_losses = []  # added to the cross-entropy
        self.smallest_relu_input = math.inf

    # ---- parameters

    def parameter(self, name, shape, center=0.0, spread=0.3):
        if name not in self.parameters:
            drawn = center + spread * torch.randn(shape, generator=self.generator)
            self.parameters[name] = drawn.to(self.dtype).requires_grad_(True)
        found = self.parameters[name]
        assert tuple(found.shape) == tuple(shape), (name, found.shape, shape)
        return found

    def learned(self, name, *shape):
        """Returns a trained scalar, vector or table, drawn away from 0 and 1."""
        return self.parameter(name, shape, center=0.6, spread=0.2)

    def buffer(self, name, size, value):
        """Returns values that a weights file holds and that are not trained."""
        self.buffers[name] = torch.full([size], float(value), dtype=self.dtype)
        return self.buffers[name]

    def project(self, x, name, size, bias=False):
        """Returns a projection of a placement's own. If `size` is 1, its weight is a vector."""
        if size > 1:
            return self.linear(x, name, size, bias)
        y = (x * self.parameter(name + ".weight", [x.shape[-1]])).sum(-1, keepdim=True)
        return y + self.parameter(name + ".bias", [1]) if bias else y

    def linear(self, x, name, size, bias):
        y = x @ self.parameter(name + ".weight", [size, x.shape[-1]]).t()
        return y + self.parameter(name + ".bias", [size]) if bias else y

    # ---- norms

    def norm(self, x, name, norm=None):
        """Normalizes the last dimension with the parameters `name`.weight and `name`.bias."""
        norm = norm or self.c.norm
        if norm.kind == "none":
            return x
        if norm.kind == "l2_norm":
            return x / x.norm(dim=-1, keepdim=True)
        size = x.shape[-1]
        if norm.kind == "layer_norm":
            weight = bias = None
            if norm.affine:
                weight = self.parameter(name + ".weight", [size], center=1.0, spread=0.2)
                if norm.bias:
                    bias = self.parameter(name + ".bias", [size], spread=0.2)
            return F.layer_norm(x, [size], weight, bias, norm.eps)
        assert norm.kind == "rms_norm", norm.kind
        y = x / torch.sqrt((x * x).mean(-1, keepdim=True) + norm.eps)
        if not norm.affine:
            return y
        if norm.unit_offset:
            return y * (1 + self.parameter(name + ".weight", [size], spread=0.2))
        return y * self.parameter(name + ".weight", [size], center=1.0, spread=0.2)

    def head_norm(self, x, name, norm=None):
        """Normalizes each head of a projection by itself; the heads share the parameters."""
        heads = x.unflatten(-1, (-1, self.c.head_dim))
        return self.norm(heads, name, norm).flatten(-2)

    # ---- sublayers

    def attention(self, layer, x, name="attention", q=None, k=None, v=None, context=None,
                  q_rot=None, k_rot=None):
        """Causal attention of layer `layer` (from 0) of x, or of a triple x for queries, keys, values.

        q, k, v, q_rot, k_rot (after the rotary embedding) and context are functions applied at
        these points.
        """
        c, name = self.c, f"layers.{layer}.{name}"
        for_queries, for_keys, for_values = x if isinstance(x, tuple) else (x, x, x)
        queries = self.linear(for_queries, name + ".q", c.n_head * c.head_dim, c.qkv_bias)
        keys = self.linear(for_keys, name + ".k", c.n_kv_head * c.head_dim, c.qkv_bias)
        values = self.linear(for_values, name + ".v", c.n_kv_head * c.head_dim, c.qkv_bias)
        queries = q(queries) if q else queries
        keys = k(keys) if k else keys
        values = v(values) if v else values
        heads = causal_attention(
            self._heads(queries, self._turn(layer), q_rot),
            self._heads(keys, self._turn(layer), k_rot).repeat_interleave(c.n_head // c.n_kv_head, 1),
            self._heads(values).repeat_interleave(c.n_head // c.n_kv_head, 1),
            c.attention_scale or c.head_dim**-0.5, c.score_cap,
            c.windows[layer] if c.windows else 0,
            self.parameter(name + ".sink", [c.n_head], spread=1.0) if c.sinks else None,
            [c.alibi * s for s in alibi_slopes(c.n_head)] if c.alibi else None)
        joined = heads.transpose(1, 2).flatten(-2)
        joined = context(joined) if context else joined
        return self.linear(joined, name + ".o", c.d_model, c.out_bias)

    def _turn(self, layer):
        """Returns the function that rotates the heads of a layer by position, or None."""
        c = self.c
        if c.rope is not None:
            return lambda x: c.rope(layer, x)
        return None if c.rope_theta is None else lambda x: rotate(x, c.rope_theta)

    def _heads(self, x, turn=None, then=None):
        """Splits [batch, seq, heads * head_dim] into rotated heads [batch, heads, seq, head_dim].

        `then` is applied after the rotation, to the concatenated heads.
        """
        x = x.unflatten(-1, (-1, self.c.head_dim)).transpose(1, 2)
        x = turn(x) if turn else x
        if then:
            joined = then(x.transpose(1, 2).flatten(-2))
            x = joined.unflatten(-1, (-1, self.c.head_dim)).transpose(1, 2)
        return x

    def mlp(self, layer, x, name="mlp", up=None, gate=None, hidden=None):
        """The MLP of layer `layer` (from 0).

        up, gate (before the activation) and hidden (before `down`) are functions applied at these
        points.
        """
        c, name = self.c, f"layers.{layer}.{name}"
        u = self.linear(x, name + ".up", c.d_ff, c.mlp_bias)
        u = up(u) if up else u
        if c.gated:
            g = self.linear(x, name + ".gate", c.d_ff, c.mlp_bias)
            h = self.activate(gate(g) if gate else g) * u
        else:
            h = self.activate(u)
        h = hidden(h) if hidden else h
        return self.linear(h, name + ".down", c.d_model, c.mlp_bias)

    def conv(self, layer, x, name, width, bias=False):
        """A depthwise convolution over tokens by PyTorch, whose taps are in reverse order."""
        size, name = x.shape[-1], f"layers.{layer}.{name}"
        weight = self.parameter(name + ".weight", [size, width])
        offset = self.parameter(name + ".bias", [size]) if bias else None
        padded = F.pad(x.transpose(1, 2), (width - 1, 0))
        return F.conv1d(padded, weight.flip(-1).unsqueeze(1), offset, groups=size).transpose(1, 2)

    def activate(self, x):
        kind = self.c.activation
        if kind == "RELU":
            return self.relu(x)
        if kind == "GELU":
            return F.gelu(x)
        if kind == "GELU_TANH":
            return F.gelu(x, approximate="tanh")
        assert kind == "SILU", kind
        return F.silu(x)

    def relu(self, x):
        self.smallest_relu_input = min(self.smallest_relu_input, x.abs().min().item())
        return F.relu(x)

    # ---- embedding and head

    def embed(self, tokens):
        c, self.tokens = self.c, tokens
        width = c.embedding_width or c.d_model
        x = self.parameter("embedding.token.weight", [c.vocab_size, width])[tokens]
        if c.embedding_scale is not None:
            x = x * c.embedding_scale
        if c.embedding_width:
            x = self.linear(x, "embedding.project", c.d_model, bias=False)
        if c.learned_positions:
            rows = c.context_length + c.position_offset
            table = self.parameter("embedding.position.weight", [rows, c.d_model])
            x = x + table[c.position_offset:c.position_offset + tokens.shape[1]]
        return x

    def head(self, x):
        c = self.c
        width = c.embedding_width or c.d_model
        if c.embedding_width:
            x = self.linear(x, "head.project", width, bias=False)
        if c.tied:
            logits = x @ self.parameters["embedding.token.weight"].t()
        else:
            logits = x @ self.parameter("head.weight", [c.vocab_size, width]).t()
        return logits + self.parameter("head.bias", [c.vocab_size]) if c.head_bias else logits


def rotate(x, theta):
    """Rotary embedding (Su et al. 2021) of [.., seq, head_dim]; i and i + half form a pair."""
    seq, size = x.shape[-2:]
    frequency = theta ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
    angle = torch.arange(seq, dtype=x.dtype)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)
    first, second = x[..., :size // 2], x[..., size // 2:]
    return x * angle.cos() + torch.cat([-second, first], -1) * angle.sin()


def alibi_slopes(heads):
    """Returns ALiBi's slopes as get_slopes in the code of Press et al. 2021."""
    def of_power(n):
        first = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [first * first**i for i in range(n)]

    if math.log2(heads).is_integer():
        return of_power(heads)
    nearest = 2 ** math.floor(math.log2(heads))
    return of_power(nearest) + alibi_slopes(2 * nearest)[0::2][:heads - nearest]


def causal_attention(q, k, v, scale, cap=0.0, window=0, sink=None, slopes=None):
    """softmax(scale q k^T) v over [batch, heads, seq, head_dim]; no token sees a later one.

    cap: Gemma 2's bound on the scores. window: number of tokens that each one sees, with itself; 0: all.
    slopes: ALiBi's, one per head.
    sink: a logit per head that takes part in the softmax and is then dropped, as in gpt-oss.
    """
    scores = scale * q @ k.transpose(-1, -2)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if slopes:
        position = torch.arange(scores.shape[-1], dtype=scores.dtype)
        distance = position[:, None] - position
        scores = scores - torch.tensor(slopes, dtype=scores.dtype)[:, None, None] * distance
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    if window:
        hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-window)
    scores = scores.masked_fill(hidden, -math.inf)
    if sink is None:
        return scores.softmax(-1) @ v
    column = sink.reshape(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v


def next_token_loss(logits, tokens):
    """Returns the mean cross-entropy of each token given the previous ones."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
