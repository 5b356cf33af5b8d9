# SPDX-License-Identifier: Apache-2.0
"""Activations by their names in config.json."""

import torch
import torch.nn.functional as F


def activate(checkpoint, name, x):
    if name == "relu":
        return checkpoint.relu(x)
    if name in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh"):
        return F.gelu(x, approximate="tanh")
    if name == "gelu":
        return F.gelu(x)
    assert name == "silu", name
    return F.silu(x)


def gated_mlp(checkpoint, x, name, size, act, bias=False):
    """The MLP of LLaMA: gate, up and down."""
    gate = activate(checkpoint, act, checkpoint.linear(x, name + ".gate_proj", size, bias))
    up = checkpoint.linear(x, name + ".up_proj", size, bias)
    return checkpoint.linear(gate * up, name + ".down_proj", x.shape[-1], bias)


def soft_cap(x, cap):
    return x if cap is None else cap * torch.tanh(x / cap)
