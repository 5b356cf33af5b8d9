# SPDX-License-Identifier: Apache-2.0
"""OPT: pre-norm in all sizes except 350M, which is post-norm with another embedding width."""

from activation import activate
from attention import attend, join, split

EPS = 1e-5  # not in config.json


class Opt:
    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def attention(self, x, name):
        m, c, at, bias = self.m, self.c, name + ".self_attn", self.c.enable_bias
        q, k, v = (split(m.linear(x, f"{at}.{p}_proj", c.hidden_size, bias), c.num_attention_heads)
                   for p in "qkv")
        y = attend(q, k, v, (c.hidden_size // c.num_attention_heads) ** -0.5)
        return m.linear(join(y), at + ".out_proj", c.hidden_size, bias)

    def mlp(self, x, name):
        m, c = self.m, self.c
        y = activate(m, c.activation_function, m.linear(x, name + ".fc1", c.ffn_dim, c.enable_bias))
        return m.linear(y, name + ".fc2", c.hidden_size, c.enable_bias)

    def layer(self, x, i):
        m, name = self.m, f"model.decoder.layers.{i}"

        def norm_1(x):
            return m.layer_norm(x, name + ".self_attn_layer_norm", EPS)

        def norm_2(x):
            return m.layer_norm(x, name + ".final_layer_norm", EPS)

        if self.c.do_layer_norm_before:
            x = x + self.attention(norm_1(x), name)
            return x + self.mlp(norm_2(x), name)
        x = norm_1(x + self.attention(x, name))
        return norm_2(x + self.mlp(x, name))

    def forward(self, tokens):
        m, c, at = self.m, self.c, "model.decoder"
        projects = c.word_embed_proj_dim != c.hidden_size
        table = m.table(at + ".embed_tokens.weight", c.vocab_size, c.word_embed_proj_dim)
        positions = m.table(at + ".embed_positions.weight", c.max_position_embeddings + 2,
                            c.hidden_size)
        x = table[tokens]
        x = m.linear(x, at + ".project_in", c.hidden_size) if projects else x
        x = x + positions[2:2 + tokens.shape[1]]
        for i in range(c.num_hidden_layers):
            x = self.layer(x, i)
        if c.do_layer_norm_before:
            x = m.layer_norm(x, at + ".final_layer_norm", EPS)
        x = m.linear(x, at + ".project_out", c.word_embed_proj_dim) if projects else x
        return x @ table.t()
