# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: Mixtral, Qwen3-MoE, Grok-1, gpt-oss, GLM-4.5. Experts are computed one by one for every token."""

import torch
import torch.nn.functional as F

from activation import activate, gated_mlp
from attention import attend, join, rotary, rotate, split
from llama_like import Llama, Mistral, Qwen3


def route(m, logits, top_k, renormalized):
    """Returns weights [.., n_expert], zero for the experts that are not chosen."""
    ordered = logits.sort(-1, descending=True).values
    margin = (ordered[..., top_k - 1] - ordered[..., top_k]).min().item()
    m.smallest_margin = min(m.smallest_margin, margin)
    shares = logits.softmax(-1)
    taken = torch.zeros_like(shares).scatter(-1, shares.topk(top_k, -1).indices, 1.0)
    shares = shares * taken
    return shares / shares.sum(-1, keepdim=True) if renormalized else shares


def mixture(m, x, router, n_expert, top_k, renormalized, expert):
    weights = route(m, m.linear(x, router, n_expert), top_k, renormalized)
    return sum(weights[..., e:e + 1] * expert(x, e) for e in range(n_expert))


class Mixtral(Mistral):
    def mlp(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".block_sparse_moe"

        def expert(x, e):
            gate = activate(m, c.hidden_act, m.linear(x, f"{at}.experts.{e}.w1",
                                                      c.intermediate_size))
            up = m.linear(x, f"{at}.experts.{e}.w3", c.intermediate_size)
            return m.linear(gate * up, f"{at}.experts.{e}.w2", c.hidden_size)

        return mixture(m, x, at + ".gate", c.num_local_experts, c.num_experts_per_tok, True, expert)


class Qwen3Moe(Qwen3):
    def window(self, layer):
        """Returns the window of the layers: all have one, or none."""
        return self.c.get("sliding_window") if self.c.use_sliding_window else None

    def mlp(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".mlp"
        n_expert = c.get("num_experts") or c.num_local_experts
        sparse = (layer not in c.mlp_only_layers and n_expert > 0
                  and (layer + 1) % c.decoder_sparse_step == 0)
        if not sparse:
            return gated_mlp(m, x, at, c.intermediate_size, c.hidden_act)

        def expert(x, e):
            return gated_mlp(m, x, f"{at}.experts.{e}", c.moe_intermediate_size, c.hidden_act)

        return mixture(m, x, at + ".gate", n_expert, c.num_experts_per_tok, c.norm_topk_prob, expert)


class GptOss(Llama):
    """gpt-oss: sinks, and experts with biases and a clamped SwiGLU, whose gates are the even columns."""

    def window(self, layer):
        slides = self.c.layer_types[layer] == "sliding_attention"
        return self.c.sliding_window if slides else None

    def attend(self, q, k, v, name, layer):
        sinks = self.m.tensor(name + ".sinks", [self.n_head])
        return attend(q, k, v, self.scale(), window=self.window(layer), sinks=sinks)

    def mlp(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".mlp"
        n, d, size = c.num_local_experts, c.hidden_size, c.intermediate_size
        into = m.tensor(at + ".experts.gate_up_proj", [n, d, 2 * size])
        into_bias = m.tensor(at + ".experts.gate_up_proj_bias", [n, 2 * size])
        out = m.tensor(at + ".experts.down_proj", [n, size, d])
        out_bias = m.tensor(at + ".experts.down_proj_bias", [n, d])

        def expert(x, e):
            both = x @ into[e] + into_bias[e]
            gate = both[..., 0::2].clamp(max=c.swiglu_limit)
            up = both[..., 1::2].clamp(-c.swiglu_limit, c.swiglu_limit)
            return ((up + 1) * gate * torch.sigmoid(1.702 * gate)) @ out[e] + out_bias[e]

        weights = route(m, m.linear(x, at + ".router", n, bias=True), c.num_experts_per_tok, True)
        return sum(weights[..., e:e + 1] * expert(x, e) for e in range(n))


class Glm4Moe(Llama):
    """GLM-4.5: sigmoids choose experts among the best groups, with a correction; the first layers are dense."""

    def out_bias(self):
        return False

    def rotates(self, layer):
        return False  # inside_heads does

    def inside_heads(self, q, k, name):
        if self.c.use_qk_norm:
            q, k = self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")
        angles, stretch = rotary(self.c, int(self.head_dim * self.c.partial_rotary_factor))
        return rotate(q, angles, stretch), rotate(k, angles, stretch)

    def best(self, scores, count):
        """Returns 1 at the highest scores and 0 elsewhere."""
        ordered = scores.sort(-1, descending=True).values
        if count < scores.shape[-1]:
            margin = (ordered[..., count - 1] - ordered[..., count]).min().item()
            self.m.smallest_margin = min(self.m.smallest_margin, margin)
        return torch.zeros_like(scores).scatter(-1, scores.topk(count, -1).indices, 1.0)

    def mlp(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".mlp"
        if layer < c.first_k_dense_replace:
            return gated_mlp(m, x, at, c.intermediate_size, c.hidden_act)
        scores = m.linear(x, at + ".gate", c.n_routed_experts).sigmoid()
        correction = m.tensor(at + ".gate.e_score_correction_bias", [c.n_routed_experts])
        corrected = scores + correction
        groups = corrected.unflatten(-1, (c.n_group, -1))
        open_groups = self.best(groups.topk(2, -1).values.sum(-1), c.topk_group)
        eligible = torch.where(open_groups[..., None] > 0, groups, torch.tensor(-9.0)).flatten(-2)
        weights = scores * self.best(eligible, c.num_experts_per_tok)
        if c.norm_topk_prob:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = c.routed_scaling_factor * weights + 0 * correction  # so that it has a gradient
        y = sum(weights[..., e:e + 1] * gated_mlp(m, x, f"{at}.experts.{e}", c.moe_intermediate_size,
                                                  c.hidden_act)
                for e in range(c.n_routed_experts))
        return y + gated_mlp(m, x, at + ".shared_experts",
                             c.n_shared_experts * c.moe_intermediate_size, c.hidden_act)


class Grok1(Llama):
    """Grok-1: norms before and after sublayers, capped scores, and weights by a softmax over all experts."""

    def norm(self, x, name):
        return self.m.rms_norm(x, name, self.c.rms_norm_eps, parameter="scale")

    def attention(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".attn"
        q = split(m.linear(x, at + ".q_proj", self.n_head * self.head_dim), self.n_head)
        k = split(m.linear(x, at + ".k_proj", self.n_kv_head * self.head_dim), self.n_kv_head)
        v = split(m.linear(x, at + ".v_proj", self.n_kv_head * self.head_dim), self.n_kv_head)
        angles, _ = rotary(c, self.head_dim)
        y = attend(rotate(q, angles), rotate(k, angles), v, c.attn_output_multiplier,
                   cap=c.max_attn_value)
        return m.linear(join(y), at + ".o_proj", c.hidden_size)

    def mlp(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".moe_block"

        def expert(x, e):
            gate = F.gelu(m.linear(x, f"{at}.experts.{e}.linear", c.intermediate_size),
                          approximate="tanh")
            up = m.linear(x, f"{at}.experts.{e}.linear_v", c.intermediate_size)
            return m.linear(gate * up, f"{at}.experts.{e}.linear_1", c.hidden_size)

        return mixture(m, x, at + ".gate", c.num_experts, c.num_experts_per_tok, False, expert)

    def layer(self, x, i):
        name = f"model.layers.{i}"
        y = self.attention(self.norm(x, name + ".pre_attn_norm"), name, i)
        x = x + self.norm(y, name + ".post_attn_norm")
        y = self.mlp(self.norm(x, name + ".pre_moe_norm"), name, i)
        return x + self.norm(y, name + ".post_moe_norm")

    def embedded(self, x):
        return x * self.c.embedding_multiplier_scale

    def logits(self, x):
        return x * self.c.output_multiplier_scale
