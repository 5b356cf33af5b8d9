# SPDX-License-Identifier: Apache-2.0
"""Gemma 1, 2 and 3 (text): gains stored minus 1, embeddings times sqrt(d), norms before and after sublayers."""

from activation import soft_cap
from attention import attend, frequencies, join, rotary, rotate, split
from llama_like import Llama, gated_mlp


class Gemma(Llama):
    def norm(self, x, name):
        return self.m.gemma_norm(x, name, self.c.rms_norm_eps)

    def embedded(self, x):
        return x * self.c.hidden_size ** 0.5

    def mlp(self, x, name, layer):
        """In the first files hidden_act is "gelu", which always meant the tanh approximation."""
        act = self.c.get("hidden_activation") or "gelu_pytorch_tanh"
        return gated_mlp(self.m, x, name + ".mlp", self.c.intermediate_size, act)


class Gemma2(Gemma):
    def scale(self):
        return self.c.query_pre_attn_scalar ** -0.5

    def window(self, layer):
        return self.c.sliding_window if layer % 2 == 0 else None

    def angles(self, layer):
        return rotary(self.c, self.head_dim)

    def attention(self, x, name, layer):
        m, at = self.m, name + ".self_attn"
        q = split(m.linear(x, at + ".q_proj", self.n_head * self.head_dim), self.n_head)
        k = split(m.linear(x, at + ".k_proj", self.n_kv_head * self.head_dim), self.n_kv_head)
        v = split(m.linear(x, at + ".v_proj", self.n_kv_head * self.head_dim), self.n_kv_head)
        q, k = self.inside_heads(q, k, at)
        angles, stretch = self.angles(layer)
        y = attend(rotate(q, angles, stretch), rotate(k, angles, stretch), v, self.scale(),
                   cap=self.c.get("attn_logit_softcapping"), window=self.window(layer))
        return m.linear(join(y), at + ".o_proj", self.c.hidden_size)

    def layer(self, x, i):
        name = f"model.layers.{i}"
        y = self.attention(self.norm(x, name + ".input_layernorm"), name, i)
        x = x + self.norm(y, name + ".post_attention_layernorm")
        y = self.mlp(self.norm(x, name + ".pre_feedforward_layernorm"), name, i)
        return x + self.norm(y, name + ".post_feedforward_layernorm")

    def logits(self, x):
        return soft_cap(x, self.c.get("final_logit_softcapping"))


class Gemma3(Gemma2):
    """Every sixth layer has full attention and another rotary base; the others have a window."""

    def slides(self, layer):
        return (layer + 1) % self.c.sliding_window_pattern != 0

    def window(self, layer):
        return self.c.sliding_window if self.slides(layer) else None

    def angles(self, layer):
        if self.c.get("rope_parameters"):
            kind = "sliding_attention" if self.slides(layer) else "full_attention"
            return rotary(self.c, self.head_dim, kind)
        if self.slides(layer):
            return frequencies(self.head_dim, self.c.rope_local_base_freq)
        return rotary(self.c, self.head_dim)

    def inside_heads(self, q, k, name):
        return self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")
