# SPDX-License-Identifier: Apache-2.0
"""Llama and families with small differences: mistral, qwen2, qwen3, smollm3, granite, olmo, olmo2."""

from activation import gated_mlp
from attention import attend, join, rotary, rotate, split
from checkpoint import centered


class Llama:
    """Pre-norm with RMS norms, rotary embedding and a gated MLP."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config
        self.n_head = self.c.num_attention_heads
        self.n_kv_head = self.c.get("num_key_value_heads") or self.n_head
        self.head_dim = self.c.get("head_dim") or self.c.hidden_size // self.n_head

    # ---- methods that families override

    def norm(self, x, name):
        return self.m.rms_norm(x, name, self.c.rms_norm_eps)

    def qkv_bias(self):
        return self.c.get("attention_bias", False)

    def out_bias(self):
        return self.c.get("attention_bias", False)

    def window(self, layer):
        return None

    def rotates(self, layer):
        return True

    def scale(self):
        return self.head_dim ** -0.5

    def inside_qk(self, q, k, name):
        """Changes q and k before heads are split: [batch, seq, heads * head_dim]."""
        return q, k

    def inside_heads(self, q, k, name):
        """Changes q and k after heads are split and before they are rotated."""
        return q, k

    def attend(self, q, k, v, name, layer):
        return attend(q, k, v, self.scale(), window=self.window(layer))

    def mlp(self, x, name, layer):
        return gated_mlp(self.m, x, name + ".mlp", self.c.intermediate_size, self.c.hidden_act,
                         self.c.get("mlp_bias", False))

    def layer(self, x, i):
        name = f"model.layers.{i}"
        x = x + self.attention(self.norm(x, name + ".input_layernorm"), name, i)
        return x + self.mlp(self.norm(x, name + ".post_attention_layernorm"), name, i)

    def embedded(self, x):
        return x

    def logits(self, x):
        return x

    # ---- the model

    def attention(self, x, name, layer):
        m, c, at = self.m, self.c, name + ".self_attn"
        q = m.linear(x, at + ".q_proj", self.n_head * self.head_dim, self.qkv_bias())
        k = m.linear(x, at + ".k_proj", self.n_kv_head * self.head_dim, self.qkv_bias())
        v = m.linear(x, at + ".v_proj", self.n_kv_head * self.head_dim, self.qkv_bias())
        q, k = self.inside_qk(q, k, at)
        q, k = self.inside_heads(split(q, self.n_head), split(k, self.n_kv_head), at)
        if self.rotates(layer):
            angles, stretch = rotary(c, self.head_dim)
            q, k = rotate(q, angles, stretch), rotate(k, angles, stretch)
        y = self.attend(q, k, split(v, self.n_kv_head), at, layer)
        return m.linear(join(y), at + ".o_proj", c.hidden_size, self.out_bias())

    def forward(self, tokens):
        m, c = self.m, self.c
        table = m.table("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
        x = self.embedded(table[tokens])
        for i in range(c.num_hidden_layers):
            x = self.layer(x, i)
        x = self.norm(x, "model.norm")
        tied = c.tie_word_embeddings
        return self.logits(x @ table.t() if tied else m.linear(x, "lm_head", c.vocab_size))


class Mistral(Llama):
    def window(self, layer):
        return self.c.get("sliding_window")


class Qwen2(Llama):
    def qkv_bias(self):
        return True

    def window(self, layer):
        slides = self.c.use_sliding_window and layer >= self.c.max_window_layers
        return self.c.sliding_window if slides else None


class Qwen3(Qwen2):
    """Queries and keys are normalized per head, before they are rotated."""

    def qkv_bias(self):
        return self.c.attention_bias

    def inside_heads(self, q, k, name):
        return self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")


class SmolLM3(Llama):
    """Some layers, by default every fourth, have no positions."""

    def rotates(self, layer):
        return bool(self.c.no_rope_layers[layer])


class Granite(Llama):
    """A multiplier scales each of several places."""

    def scale(self):
        return self.c.attention_multiplier

    def layer(self, x, i):
        name, by = f"model.layers.{i}", self.c.residual_multiplier
        x = x + by * self.attention(self.norm(x, name + ".input_layernorm"), name, i)
        return x + by * self.mlp(self.norm(x, name + ".post_attention_layernorm"), name, i)

    def embedded(self, x):
        return self.c.embedding_multiplier * x

    def logits(self, x):
        return x / self.c.logits_scaling


class Olmo(Llama):
    """Norms without parameters; projections may be clipped."""

    def norm(self, x, name):
        return centered(x, 1e-5)

    def inside_qk(self, q, k, name):
        assert self.c.clip_qkv is None
        return q, k


class Olmo2(Llama):
    """The outputs of sublayers are normalized, and queries and keys before heads are split."""

    def inside_qk(self, q, k, name):
        return self.norm(q, name + ".q_norm"), self.norm(k, name + ".k_norm")

    def layer(self, x, i):
        name = f"model.layers.{i}"
        x = x + self.norm(self.attention(x, name, i), name + ".post_attention_layernorm")
        return x + self.norm(self.mlp(x, name, i), name + ".post_feedforward_layernorm")
