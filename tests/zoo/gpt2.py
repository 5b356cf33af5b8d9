# SPDX-License-Identifier: Apache-2.0
"""GPT-2 and BLOOM: pre-norm with layer norms and biases everywhere, one fused projection."""

import torch

from activation import activate
from attention import alibi, attend, join, split


class Gpt2:
    """Learned positions; Conv1D, whose weights are [in, out]; q, k and v are stored one after the other."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def layer(self, x, i):
        m, c, name = self.m, self.c, f"h.{i}"
        length = c.n_positions
        m.buffer(f"{name}.attn.bias", torch.ones(length, length).tril()[None, None])
        y = m.layer_norm(x, name + ".ln_1", c.layer_norm_epsilon)
        q, k, v = m.conv1d(y, name + ".attn.c_attn", 3 * c.n_embd).chunk(3, -1)
        scale = (c.n_embd // c.n_head) ** -0.5 if c.get("scale_attn_weights", True) else 1.0
        if c.get("scale_attn_by_inverse_layer_idx"):
            scale = scale / (i + 1)
        y = attend(split(q, c.n_head), split(k, c.n_head), split(v, c.n_head), scale)
        x = x + m.conv1d(join(y), name + ".attn.c_proj", c.n_embd)
        y = m.conv1d(m.layer_norm(x, name + ".ln_2", c.layer_norm_epsilon), name + ".mlp.c_fc",
                     c.n_inner or 4 * c.n_embd)
        y = activate(m, c.activation_function, y)
        return x + m.conv1d(y, name + ".mlp.c_proj", c.n_embd)

    def forward(self, tokens):
        m, c = self.m, self.c
        table = m.table("wte.weight", c.vocab_size, c.n_embd)
        x = table[tokens] + m.table("wpe.weight", c.n_positions, c.n_embd)[:tokens.shape[1]]
        for i in range(c.n_layer):
            x = self.layer(x, i)
        return m.layer_norm(x, "ln_f", c.layer_norm_epsilon) @ table.t()


class Bloom:
    """ALiBi, a norm on the embedding; q, k and v are stored per head."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def layer(self, x, i):
        m, c, name = self.m, self.c, f"h.{i}"
        eps, head_dim = c.layer_norm_epsilon, c.hidden_size // c.n_head
        y = m.layer_norm(x, name + ".input_layernorm", eps)
        fused = m.linear(y, name + ".self_attention.query_key_value", 3 * c.hidden_size, True)
        q, k, v = fused.unflatten(-1, (c.n_head, 3, head_dim)).permute(3, 0, 2, 1, 4)
        y = attend(q, k, v, head_dim ** -0.5, bias=alibi(c.n_head, x.shape[1]))
        x = x + m.linear(join(y), name + ".self_attention.dense", c.hidden_size, True)
        y = m.layer_norm(x, name + ".post_attention_layernorm", eps)
        y = m.linear(y, name + ".mlp.dense_h_to_4h", 4 * c.hidden_size, True)
        y = activate(m, "gelu_new", y)
        return x + m.linear(y, name + ".mlp.dense_4h_to_h", c.hidden_size, True)

    def forward(self, tokens):
        m, c = self.m, self.c
        table = m.table("word_embeddings.weight", c.vocab_size, c.hidden_size)
        x = m.layer_norm(table[tokens], "word_embeddings_layernorm", c.layer_norm_epsilon)
        for i in range(c.n_layer):
            x = self.layer(x, i)
        return m.layer_norm(x, "ln_f", c.layer_norm_epsilon) @ table.t()
