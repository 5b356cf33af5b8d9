# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of `bert`: python3 tests/golden/bert.py

The model is a small BERT (Devlin et al. 2018) with its head for masked tokens. Its sequences differ
in length and are padded to a batch. Nothing here comes from decoder.py, which is causal. README.md
describes layout, weights and tolerances; tokens.json is an object of sequences, targets and token
types.
"""

import json
import math
import os
import zlib

import torch
import torch.nn.functional as F

import tensor_file

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HEADS, WIDTH, HIDDEN, VOCAB, CONTEXT, TYPES, EPS = 2, 2, 8, 12, 13, 9, 2, 1e-3

MODEL = """n_layer: 2
n_head: 2
d_model: 8
d_ff: "12"
vocab_size: 13
context_length: 9
bidirectional: true
token_types: 2
tie_embeddings: true
head_bias: true
attention { bias: true }
mlp { activation: GELU bias: true }
norm { name: "norm" plugin: "layer_norm" attr { name: "eps" number: 1e-3 } }
placement {
  name: "bert"
  linear { name: "head_dense" bias: true }
  begin: "x = embedding_norm(x)"
  each: "x = norm(x + f(x))"
  end: "h = head_dense(x)"
  end: "x = head_norm(0.5 * h * (1 + erf(h / sqrt(2))))"
}
block { placement: "bert" norm: "norm" }
"""

BATCH = {
    "sequences": [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3], [12, 12, 7, 9, 8]],
    "targets": [[None, 1, -100, 11, None, 9, None], [6, -100, 0], [-100, 4, 4, None, -100]],
    "token_types": [[0, 0, 0, 1, 1, 1, 1], [0, 1, 1], [0, 0, 0, 0, 0]],
}


def shapes():
    """Yields the name and shape of every parameter, in plumb's order."""
    yield "embedding.token.weight", (VOCAB, WIDTH)
    yield "embedding.position.weight", (CONTEXT, WIDTH)
    yield "embedding.type.weight", (TYPES, WIDTH)
    yield from norm_shapes("begin.embedding_norm")
    for layer in range(LAYERS):
        for part in "qkvo":
            yield from linear_shapes(f"layers.{layer}.attention.{part}", WIDTH, WIDTH)
        yield from norm_shapes(f"layers.{layer}.attention.norm")
        yield from linear_shapes(f"layers.{layer}.mlp.up", HIDDEN, WIDTH)
        yield from linear_shapes(f"layers.{layer}.mlp.down", WIDTH, HIDDEN)
        yield from norm_shapes(f"layers.{layer}.mlp.norm")
    yield from linear_shapes("end.head_dense", WIDTH, WIDTH)
    yield from norm_shapes("end.head_norm")
    yield "head.bias", (VOCAB,)


def linear_shapes(name, out, width):
    yield f"{name}.weight", (out, width)
    yield f"{name}.bias", (out,)


def norm_shapes(name):
    yield f"{name}.weight", (WIDTH,)
    yield f"{name}.bias", (WIDTH,)


def draw():
    generator = torch.Generator().manual_seed(zlib.crc32(b"bert"))
    weights = {}
    for name, shape in shapes():
        value = torch.randn(shape, generator=generator)
        if "norm.weight" in name:
            value = 1 + 0.2 * value
        elif name.startswith("embedding."):
            value = 0.7 * value
        else:
            value = 0.4 * value
        weights[name] = value.double().requires_grad_()
    return weights


def forward(w, tokens, types, mask):
    """Returns logits [batch, seq, vocab]; `mask` [batch, seq] is 1 for tokens and 0 for padding."""
    def linear(name, x):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], EPS)

    def heads(x):
        return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

    x = F.embedding(tokens, w["embedding.token.weight"])
    x = x + w["embedding.position.weight"][:tokens.shape[1]]
    x = norm("begin.embedding_norm", x + F.embedding(types, w["embedding.type.weight"]))
    hidden_keys = (1 - mask)[:, None, None, :] * torch.finfo(torch.float64).min
    for layer in range(LAYERS):
        attention, mlp = f"layers.{layer}.attention", f"layers.{layer}.mlp"
        q, k, v = (heads(linear(f"{attention}.{part}", x)) for part in "qkv")
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS) + hidden_keys
        context = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(-2)
        x = norm(f"{attention}.norm", x + linear(f"{attention}.o", context))
        x = norm(f"{mlp}.norm", x + linear(f"{mlp}.down", F.gelu(linear(f"{mlp}.up", x))))
    x = norm("end.head_norm", F.gelu(linear("end.head_dense", x)))
    return F.linear(x, w["embedding.token.weight"], w["head.bias"])


def padded(rows, padding):
    longest = max(len(row) for row in rows)
    return torch.tensor([[padding if value is None else value for value in row]
                         + [padding] * (longest - len(row)) for row in rows])


def main():
    torch.set_num_threads(1)
    weights = draw()
    mask = padded([[1] * len(row) for row in BATCH["sequences"]], 0).double()
    logits = forward(weights, padded(BATCH["sequences"], 0), padded(BATCH["token_types"], 0), mask)
    loss = F.cross_entropy(logits.flatten(0, 1), padded(BATCH["targets"], -100).flatten())
    loss.backward()

    folder = os.path.join(HERE, "bert")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.pbtxt"), "w") as file:
        file.write(MODEL)
    with open(os.path.join(folder, "tokens.json"), "w") as file:
        file.write(json.dumps(BATCH) + "\n")
    tensor_file.write(os.path.join(folder, "weights.safetensors"), weights)
    # Values at padding are unspecified and become 0.
    expected = {"logits": logits * mask[:, :, None], "loss": loss.reshape(1)}
    expected.update({f"grad.{name}": value.grad for name, value in weights.items()})
    tensor_file.write(os.path.join(folder, "expected.safetensors"), expected)
    norms = {name: float(f"{value.grad.norm().item():.9g}") for name, value in weights.items()}
    with open(os.path.join(folder, "grads.json"), "w") as file:
        json.dump({"loss": float(f"{loss.item():.9g}"), "grad_l2": norms}, file,
                  separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
