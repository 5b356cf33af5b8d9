# SPDX-License-Identifier: Apache-2.0
"""Attention and positions, as pure functions on [batch, heads, seq, head_dim]."""

import math

import torch


def split(x, heads):
    """Splits [batch, seq, heads * head_dim] into [batch, heads, seq, head_dim]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(-2)


def attend(q, k, v, scale, cap=None, window=None, bias=None, causal=True, lengths=None, sinks=None):
    """Returns softmax(scale q k^T) v. Groups of query heads share key heads.

    cap: bound on the scaled scores. window: how many keys a token sees, its own the last of them.
    bias: added to the scaled scores. lengths: of the sequences; keys beyond them are not seen.
    sinks: a further score of each head, which takes a part of its weights.
    """
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = scale * (q @ k.transpose(-1, -2))
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    query = torch.arange(q.shape[2])[:, None]
    key = torch.arange(k.shape[2])[None, :]
    seen = key <= query if causal else torch.ones(len(query), key.shape[1], dtype=torch.bool)
    if window is not None:
        seen = seen & (key > query - window)
    if lengths is not None:
        seen = seen & (key < torch.tensor(lengths)[:, None, None, None])
    scores = torch.where(seen, scores, torch.tensor(-math.inf, dtype=scores.dtype))
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    return scores.softmax(-1)[..., :k.shape[2]] @ v


def rotary(config, dims, layer_type=None):
    """Returns frequencies() of a config.json: rope_scaling next to rope_theta, or rope_parameters, which may
    have an object for each type of layers."""
    said = config.get("rope_parameters") or config.get("rope_scaling") or {}
    said = said.get(layer_type, said)
    outer = config.get("original_max_position_embeddings")
    if outer is not None:
        said = {**said, "original_max_position_embeddings": outer}
    base = said.get("rope_theta") or config.get("rope_theta", 10000.0)
    return frequencies(dims, base, said, config.get("max_position_embeddings"))


def frequencies(dims, base, scaling=None, context_length=None):
    """Returns the angle per position of each pair, and the factor of the cosines and sines. Sequences must
    not exceed the context or, with longrope, the original context."""
    plain = base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if kind in ("default", "dynamic"):
        return plain, 1.0
    original = scaling.get("original_max_position_embeddings", context_length)
    factor = scaling.get("factor") or context_length / original
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        return _llama3(plain, factor, scaling), 1.0
    stretch = scaling.get("attention_factor")
    if kind == "longrope":
        stretch = stretch or math.sqrt(1 + math.log(factor) / math.log(original))
        return plain / torch.tensor(scaling["short_factor"], dtype=torch.float64), stretch
    assert kind == "yarn", kind
    if not stretch:
        def magnitude(scale):
            return 0.1 * scale * math.log(factor) + 1

        both = scaling.get("mscale") and scaling.get("mscale_all_dim")
        stretch = (magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"]) if both
                   else magnitude(1))
    return _yarn(plain, dims, base, factor, original, scaling), stretch


def _llama3(plain, factor, scaling):
    """Stretches long waves, keeps short ones, and interpolates between them."""
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = original * plain / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / factor


def _yarn(plain, dims, base, factor, original, scaling):
    def pair(turns):
        """Returns the pair that makes this number of turns within the original context."""
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    high = high + 0.001 if high == low else high
    stretched = ((torch.arange(dims // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return stretched * plain / factor + (1 - stretched) * plain


def rotate(x, angles, stretch=1.0, interleaved=False):
    """Rotary embedding of the first 2 * len(angles) elements of each head."""
    dims = 2 * len(angles)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * angles
    cos, sin = angle.cos() * stretch, angle.sin() * stretch
    turned, rest = x[..., :dims], x[..., dims:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned[..., :dims // 2], turned[..., dims // 2:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([turned, rest], -1)


def alibi_slopes(heads):
    """Press et al. 2021. A head count that is no power of 2 also uses slopes of the next power."""
    def of_power(n):
        start = 2.0 ** (-8.0 / n)
        return [start ** (i + 1) for i in range(n)]

    power = 2 ** math.floor(math.log2(heads))
    slopes = of_power(power) + of_power(2 * power)[0::2][:heads - power]
    return torch.tensor(slopes, dtype=torch.float64)


def alibi(heads, seq):
    """Returns a bias that grows with the key's position. Only differences within a row matter."""
    return alibi_slopes(heads)[:, None, None] * torch.arange(seq, dtype=torch.float64)
