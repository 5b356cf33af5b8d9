# SPDX-License-Identifier: Apache-2.0
"""Families whose MLP has no gate: Apertus with xIELU, Arcee and Nemotron with squared ReLU."""

import torch

from attention import rotary, rotate
from checkpoint import centered
from llama_like import Llama


class Ungated(Llama):
    def activate(self, x, name):
        return torch.relu(x) ** 2

    def mlp(self, x, name, layer):
        m, c, at, bias = self.m, self.c, name + ".mlp", self.c.get("mlp_bias", False)
        hidden = self.activate(m.linear(x, at + ".up_proj", c.intermediate_size, bias), at)
        return m.linear(hidden, at + ".down_proj", c.hidden_size, bias)


class Arcee(Ungated):
    pass


class Apertus(Ungated):
    """Norms have other names, queries and keys are normalized per head, and xIELU has two slopes."""

    def activate(self, x, name):
        m, at = self.m, name + ".act_fn"
        alpha_p = torch.nn.functional.softplus(m.tensor(at + ".alpha_p", [1], center=0.2))
        alpha_n = 0.5 + torch.nn.functional.softplus(m.tensor(at + ".alpha_n", [1], center=-1.0))
        m.buffer(at + ".beta", torch.tensor(0.5))
        m.buffer(at + ".eps", torch.tensor(-1e-6))
        low = torch.expm1(torch.clamp(x, max=-1e-6)) - x
        return torch.where(x > 0, alpha_p * x * x, alpha_n * low) + 0.5 * x

    def inside_heads(self, q, k, name):
        return self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")

    def layer(self, x, i):
        name = f"model.layers.{i}"
        x = x + self.attention(self.norm(x, name + ".attention_layernorm"), name, i)
        return x + self.mlp(self.norm(x, name + ".feedforward_layernorm"), name, i)


class Nemotron(Ungated):
    """Layer norms with a gain of 1 + weight, and heads of which a part is rotated."""

    def norm(self, x, name):
        size = x.shape[-1:]
        gain = 1 + self.m.tensor(name + ".weight", size, spread=0.2)
        return centered(x, self.c.norm_eps) * gain + self.m.tensor(name + ".bias", size, spread=0.2)

    def rotates(self, layer):
        return False  # inside_heads does

    def inside_heads(self, q, k, name):
        angles, stretch = rotary(self.c, int(self.head_dim * self.c.partial_rotary_factor))
        return rotate(q, angles, stretch), rotate(k, angles, stretch)
