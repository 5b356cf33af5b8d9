# SPDX-License-Identifier: Apache-2.0
"""Qwen3-Next: gated DeltaNet in three of four layers, computed token by token."""

import torch
import torch.nn.functional as F

from activation import gated_mlp
from attention import attend, join, rotary, rotate, split
from checkpoint import root_mean_square
from experts import mixture
from llama_like import Llama


def unit(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def delta_rule(q, k, v, log_decay, beta):
    """Returns the outputs [batch, seq, heads, value_dim]; q and k are [batch, seq, heads, key_dim]."""
    state = torch.zeros(*v.shape[:1], *v.shape[2:], k.shape[-1], dtype=v.dtype)
    out = []
    for t in range(q.shape[1]):
        state = state * log_decay[:, t].exp()[..., None, None]
        known = (state @ k[:, t][..., None])[..., 0]
        change = beta[:, t][..., None] * (v[:, t] - known)
        state = state + change[..., :, None] * k[:, t][..., None, :]
        out.append((state @ q[:, t][..., None])[..., 0])
    return torch.stack(out, 1)


class Qwen3Next(Llama):
    def norm(self, x, name):
        return self.m.gemma_norm(x, name, self.c.rms_norm_eps)

    def mlp(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".mlp"

        def expert(x, e):
            return gated_mlp(m, x, f"{at}.experts.{e}", c.moe_intermediate_size, c.hidden_act)

        y = mixture(m, x, at + ".gate", c.num_experts, c.num_experts_per_tok, c.norm_topk_prob, expert)
        shared = gated_mlp(m, x, at + ".shared_expert", c.shared_expert_intermediate_size, c.hidden_act)
        return y + torch.sigmoid(m.linear(x, at + ".shared_expert_gate", 1)) * shared

    def attention(self, x, name, layer):
        if self.c.layer_types[layer] == "linear_attention":
            return self.delta_net(x, name + ".linear_attn")
        m, c, at = self.m, self.c, name + ".self_attn"
        both = split(m.linear(x, at + ".q_proj", 2 * self.n_head * self.head_dim), self.n_head)
        q, gate = both[..., :self.head_dim], both[..., self.head_dim:]
        k = split(m.linear(x, at + ".k_proj", self.n_kv_head * self.head_dim), self.n_kv_head)
        v = split(m.linear(x, at + ".v_proj", self.n_kv_head * self.head_dim), self.n_kv_head)
        q, k = self.norm(q, at + ".q_norm"), self.norm(k, at + ".k_norm")
        angles, _ = rotary(c, int(self.head_dim * c.partial_rotary_factor))
        y = attend(rotate(q, angles), rotate(k, angles), v, self.scale())
        return m.linear(join(y * torch.sigmoid(gate)), at + ".o_proj", c.hidden_size)

    def delta_net(self, x, at):
        m, c = self.m, self.c
        keys, values = c.linear_num_key_heads, c.linear_num_value_heads
        key_dim, value_dim, group = c.linear_key_head_dim, c.linear_value_head_dim, values // keys
        sizes = [key_dim, key_dim, group * value_dim, group * value_dim]
        parts = m.linear(x, at + ".in_proj_qkvz", keys * sum(sizes)).unflatten(-1, (keys, -1))
        q, k, v, z = (part.flatten(-2) for part in parts.split(sizes, -1))
        b, a = (part.flatten(-2) for part in
                m.linear(x, at + ".in_proj_ba", 2 * values).unflatten(-1, (keys, -1)).split(group, -1))
        mixed = torch.cat([q, k, v], -1)
        width, channels = c.linear_conv_kernel_dim, mixed.shape[-1]
        taps = m.tensor(at + ".conv1d.weight", [channels, 1, width], spread=0.6)
        padded = F.pad(mixed.transpose(1, 2), (width - 1, 0))
        mixed = F.silu(F.conv1d(padded, taps, groups=channels).transpose(1, 2))
        q, k, v = mixed.split([keys * key_dim, keys * key_dim, values * value_dim], -1)
        q, k = (unit(part.unflatten(-1, (keys, -1))).repeat_interleave(group, -2) for part in (q, k))
        log_decay = (-m.tensor(at + ".A_log", [values], spread=0.5).exp()
                     * F.softplus(a + m.tensor(at + ".dt_bias", [values])))
        y = delta_rule(q / key_dim ** 0.5, k, v.unflatten(-1, (values, -1)), log_decay, b.sigmoid())
        gain = m.tensor(at + ".norm.weight", [value_dim], center=1.0, spread=0.2)
        y = root_mean_square(y, c.rms_norm_eps) * gain
        return m.linear(y.flatten(-2) * F.silu(z), at + ".out_proj", c.hidden_size)
