# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints with random weights in the layout of Hugging Face's libraries, for tests.

Written from the behaviour of the published modelling code, independently of plumb. Weights are
drawn so that every tensor matters: gains and biases of norms are not 1 and 0.
"""

import json
import os
import struct

import numpy as np


def to_bf16(a):
    """Returns the upper halves of f32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(a):
    return (a.astype(np.uint32) << 16).view(np.float32)


DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64", "uint8": "U8", "int8": "F8_E4M3"}


def safetensors(tensors):
    """Returns the bytes of a safetensors file. bf16 values are passed as uint16, and those of FP8 as int8."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, a in tensors.items():
        header[name] = {
            "dtype": DTYPES[a.dtype.name],
            "shape": list(a.shape),
            "data_offsets": [at, at + a.nbytes],
        }
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values())


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(content[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write(directory, config, tensors):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(safetensors(tensors))


def write_shards(directory, config, tensors, shards=3):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file)
    weight_map, names = {}, list(tensors)
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        weight_map.update({name: shard for name in part})
        with open(os.path.join(directory, shard), "wb") as file:
            file.write(safetensors(part))
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)


def from_fp8(a):
    """Returns the numbers of e4m3 without infinities, whose bits are `a`."""
    bits = a.view(np.uint8).astype(np.int32)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent > 0, np.ldexp(1 + mantissa / 8, exponent - 7), np.ldexp(mantissa / 8, -6))
    return np.where(bits & 127 == 127, np.nan, np.where(bits < 128, size, -size)).astype(np.float32)


def from_fp8_blocks(a, scales, rows, columns):
    """Returns the weights of blocks of rows x columns that share a scale."""
    wide = np.repeat(np.repeat(scales, rows, 0), columns, 1)
    return from_fp8(a) * wide[: a.shape[0], : a.shape[1]]


def from_mxfp4(blocks, scales):
    """Returns [experts, in, out] of blocks [experts, out, groups, 16] and scales [experts, out, groups]."""
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    pairs = np.stack([values[blocks & 15], values[blocks >> 4]], -1)
    experts, out, groups, _ = blocks.shape
    wide = pairs.reshape(experts, out, groups, 32) * np.exp2(scales[..., None].astype(np.float32) - 127)
    return wide.reshape(experts, out, groups * 32).transpose(0, 2, 1)


def convert(tensors, dtype):
    """Converts all f32 tensors to another type: "bf16", "f16"."""
    change = {"f32": lambda a: a, "bf16": to_bf16, "f16": lambda a: a.astype(np.float16)}[dtype]
    return {name: change(a) for name, a in tensors.items()}


def widen(tensors):
    return {
        name: from_bf16(a) if a.dtype == np.uint16 else a.astype(np.float32)
        for name, a in tensors.items()
    }


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, scale):
    """Returns causal attention [seq, heads * head_dim] of q, k, v [heads, seq, head_dim]."""
    scores = np.einsum("htd,hsd->hts", q, k) * scale
    seq = scores.shape[-1]
    scores = np.where(np.tril(np.ones((seq, seq), bool)), scores, -np.inf)
    return np.einsum("hts,hsd->htd", softmax(scores), v)


def heads(x, n):
    """Reshapes [seq, n * d] to [n, seq, d]."""
    return x.reshape(x.shape[0], n, -1).transpose(1, 0, 2)


def unheads(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


# --- GPT-2 ------------------------------------------------------------------------------------------


def gpt2_config(layers=3, head=4, width=32, vocab=50, context=24):
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": layers,
        "n_head": head,
        "n_embd": width,
        "n_positions": context,
        "n_inner": None,
        "vocab_size": vocab,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
    }


def gpt2_tensors(config, prefix="", seed=0, scale=0.3):
    draw = np.random.RandomState(seed)
    width, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]

    def normal(*shape):
        return (draw.standard_normal(shape) * scale).astype(np.float32)

    tensors = {
        "wte.weight": normal(config["vocab_size"], width),
        "wpe.weight": normal(config["n_positions"], width),
    }
    for i in range(config["n_layer"]):
        for name, shape in {
            "attn.c_attn": (width, 3 * width),
            "attn.c_proj": (width, width),
            "mlp.c_fc": (width, inner),
            "mlp.c_proj": (inner, width),
        }.items():
            tensors[f"h.{i}.{name}.weight"] = normal(*shape)
            tensors[f"h.{i}.{name}.bias"] = normal(shape[1])
        for name in ("ln_1", "ln_2"):
            tensors[f"h.{i}.{name}.weight"] = 1 + normal(width)
            tensors[f"h.{i}.{name}.bias"] = normal(width)
    tensors["ln_f.weight"] = 1 + normal(width)
    tensors["ln_f.bias"] = normal(width)
    return {prefix + name: a for name, a in tensors.items()}


def gpt2_logits(config, tensors, tokens, prefix=""):
    w = {name[len(prefix) :]: a.astype(np.float64) for name, a in tensors.items()}

    def norm(x, name):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + config["layer_norm_epsilon"]) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    n = config["n_head"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for i in range(config["n_layer"]):
        q, k, v = np.split(linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, axis=-1)
        scale = (config["n_embd"] // n) ** -0.5
        context = unheads(attend(heads(q, n), heads(k, n), heads(v, n), scale))
        x = x + linear(context, f"h.{i}.attn.c_proj")
        h = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


# --- LLaMA ------------------------------------------------------------------------------------------


def llama_config(layers=3, head=4, kv_head=2, width=32, inner=48, vocab=50, context=24):
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": layers,
        "num_attention_heads": head,
        "num_key_value_heads": kv_head,
        "hidden_size": width,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }


def llama_tensors(config, seed=0, scale=0.3):
    draw = np.random.RandomState(seed)

    def normal(*shape):
        return (draw.standard_normal(shape) * scale).astype(np.float32)

    width, inner = config["hidden_size"], config["intermediate_size"]
    kv = width // config["num_attention_heads"] * config["num_key_value_heads"]
    tensors = {"model.embed_tokens.weight": normal(config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, columns in (
            ("self_attn.q_proj", width, width),
            ("self_attn.k_proj", kv, width),
            ("self_attn.v_proj", kv, width),
            ("self_attn.o_proj", width, width),
            ("mlp.gate_proj", inner, width),
            ("mlp.up_proj", inner, width),
            ("mlp.down_proj", width, inner),
        ):
            tensors[f"{at}{name}.weight"] = normal(rows, columns)
        tensors[f"{at}input_layernorm.weight"] = 1 + normal(width)
        tensors[f"{at}post_attention_layernorm.weight"] = 1 + normal(width)
    tensors["model.norm.weight"] = 1 + normal(width)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = normal(config["vocab_size"], width)
    return tensors


def llama_logits(config, tensors, tokens):
    w = {name: a.astype(np.float64) for name, a in tensors.items()}

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T

    n, n_kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["hidden_size"] // n
    frequency = config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    angle = np.arange(len(tokens))[:, None] * np.concatenate([frequency, frequency])

    def rope(x):
        half = np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        return x * np.cos(angle) + half * np.sin(angle)

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm")
        q, k, v = (
            heads(linear(h, f"{at}self_attn.{p}_proj"), count)
            for p, count in (("q", n), ("k", n_kv), ("v", n_kv))
        )
        k, v = np.repeat(rope(k), n // n_kv, 0), np.repeat(v, n // n_kv, 0)
        x = x + linear(unheads(attend(rope(q), k, v, dim**-0.5)), at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        gate = linear(h, at + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return linear(norm(x, "model.norm"), head)
