# SPDX-License-Identifier: Apache-2.0
"""Blocks with parallel attention and MLP: GPT-J, GPT-NeoX, Phi, Falcon, Cohere."""

from activation import activate, gated_mlp
from attention import alibi, attend, frequencies, join, rotary, rotate, split
from checkpoint import centered


class GptJ:
    """One norm for both, interleaved rotary pairs, a head with a bias."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def attention(self, x, name):
        m, c = self.m, self.c
        q, k, v = (split(m.linear(x, f"{name}.{p}_proj", c.n_embd), c.n_head) for p in "qkv")
        angles, _ = frequencies(c.rotary_dim, 10000.0)
        q, k = rotate(q, angles, interleaved=True), rotate(k, angles, interleaved=True)
        return m.linear(join(attend(q, k, v, (c.n_embd // c.n_head) ** -0.5)),
                        name + ".out_proj", c.n_embd)

    def forward(self, tokens):
        m, c = self.m, self.c
        x = m.table("transformer.wte.weight", c.vocab_size, c.n_embd)[tokens]
        for i in range(c.n_layer):
            name = f"transformer.h.{i}"
            h = m.layer_norm(x, name + ".ln_1", c.layer_norm_epsilon)
            y = m.linear(h, name + ".mlp.fc_in", c.n_inner or 4 * c.n_embd, True)
            y = m.linear(activate(m, c.activation_function, y), name + ".mlp.fc_out", c.n_embd, True)
            x = x + self.attention(h, name + ".attn") + y
        x = m.layer_norm(x, "transformer.ln_f", c.layer_norm_epsilon)
        return m.linear(x, "lm_head", c.vocab_size, True)


class GptNeox:
    """Two norms of the same stream, rotation of a part of each head; q, k and v are stored per head."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def attention(self, x, name):
        m, c = self.m, self.c
        head_dim = c.hidden_size // c.num_attention_heads
        fused = m.linear(x, name + ".query_key_value", 3 * c.hidden_size, c.attention_bias)
        q, k, v = fused.unflatten(-1, (c.num_attention_heads, 3, head_dim)).permute(3, 0, 2, 1, 4)
        angles, stretch = frequencies(int(head_dim * c.rotary_pct), c.rotary_emb_base,
                                      c.get("rope_scaling"))
        y = attend(rotate(q, angles, stretch), rotate(k, angles, stretch), v, head_dim ** -0.5)
        return m.linear(join(y), name + ".dense", c.hidden_size, c.attention_bias)

    def mlp(self, x, name):
        m, c = self.m, self.c
        y = m.linear(x, name + ".dense_h_to_4h", c.intermediate_size, True)
        return m.linear(activate(m, c.hidden_act, y), name + ".dense_4h_to_h", c.hidden_size, True)

    def forward(self, tokens):
        m, c = self.m, self.c
        x = m.table("gpt_neox.embed_in.weight", c.vocab_size, c.hidden_size)[tokens]
        for i in range(c.num_hidden_layers):
            name = f"gpt_neox.layers.{i}"
            a = self.attention(m.layer_norm(x, name + ".input_layernorm", c.layer_norm_eps),
                               name + ".attention")
            read = x if c.use_parallel_residual else x + a
            x = x + a + self.mlp(
                m.layer_norm(read, name + ".post_attention_layernorm", c.layer_norm_eps),
                name + ".mlp")
        x = m.layer_norm(x, "gpt_neox.final_layer_norm", c.layer_norm_eps)
        return m.linear(x, "embed_out", c.vocab_size)


class Phi:
    """GPT-J's block with Llama's names, biases everywhere, and rotation of a part of each head."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def attention(self, x, name):
        m, c = self.m, self.c
        n_head = c.num_attention_heads
        n_kv_head, head_dim = c.get("num_key_value_heads") or n_head, c.hidden_size // n_head
        q = split(m.linear(x, name + ".q_proj", n_head * head_dim, True), n_head)
        k = split(m.linear(x, name + ".k_proj", n_kv_head * head_dim, True), n_kv_head)
        v = split(m.linear(x, name + ".v_proj", n_kv_head * head_dim, True), n_kv_head)
        if c.qk_layernorm:
            q = m.layer_norm(q, name + ".q_layernorm", c.layer_norm_eps)
            k = m.layer_norm(k, name + ".k_layernorm", c.layer_norm_eps)
        part = (c.get("rope_parameters") or c)["partial_rotary_factor"]
        angles, stretch = rotary(c, int(head_dim * part))
        y = attend(rotate(q, angles, stretch), rotate(k, angles, stretch), v, head_dim ** -0.5)
        return m.linear(join(y), name + ".dense", c.hidden_size, True)

    def forward(self, tokens):
        m, c = self.m, self.c
        x = m.table("model.embed_tokens.weight", c.vocab_size, c.hidden_size)[tokens]
        for i in range(c.num_hidden_layers):
            name = f"model.layers.{i}"
            h = m.layer_norm(x, name + ".input_layernorm", c.layer_norm_eps)
            y = activate(m, c.hidden_act, m.linear(h, name + ".mlp.fc1", c.intermediate_size, True))
            x = x + self.attention(h, name + ".self_attn") + m.linear(y, name + ".mlp.fc2",
                                                                      c.hidden_size, True)
        x = m.layer_norm(x, "model.final_layernorm", c.layer_norm_eps)
        return m.linear(x, "lm_head", c.vocab_size, True)


class Falcon:
    """Three layouts: of 7B (one key head, one norm), 40B (groups, two norms) and RW (ALiBi, pre-norm)."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def fused(self, x, name):
        """Returns q, k, v as heads, from one projection whose order depends on the layout."""
        m, c, n_head = self.m, self.c, self.c.num_attention_heads
        head_dim = c.hidden_size // n_head

        def project(rows):
            y = m.linear(x, name + ".query_key_value", rows * head_dim, c.bias)
            return split(y, rows)

        if c.new_decoder_architecture:
            heads = project(n_head + 2 * c.num_kv_heads)
            groups = heads.unflatten(1, (c.num_kv_heads, -1))
            return groups[:, :, :-2].flatten(1, 2), groups[:, :, -2], groups[:, :, -1]
        if c.multi_query:
            heads = project(n_head + 2)
            return heads[:, :-2], heads[:, -2:-1], heads[:, -1:]
        heads = project(3 * n_head).unflatten(1, (n_head, 3))
        return heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]

    def attention(self, x, name):
        m, c = self.m, self.c
        head_dim = c.hidden_size // c.num_attention_heads
        (q, k, v), bias = self.fused(x, name), None
        if c.alibi:  # added before the scale, so that it is scaled, too
            bias = alibi(c.num_attention_heads, x.shape[1]) * head_dim ** -0.5
        else:
            angles, stretch = rotary(c, head_dim)
            q, k = rotate(q, angles, stretch), rotate(k, angles, stretch)
        y = attend(q, k, v, head_dim ** -0.5, bias=bias)
        return m.linear(join(y), name + ".dense", c.hidden_size, c.bias)

    def mlp(self, x, name):
        m, c = self.m, self.c
        y = m.linear(x, name + ".dense_h_to_4h", c.get("ffn_hidden_size") or 4 * c.hidden_size,
                     c.bias)
        y = activate(m, c.get("activation", "gelu"), y)
        return m.linear(y, name + ".dense_4h_to_h", c.hidden_size, c.bias)

    def layer(self, x, i):
        m, c, name = self.m, self.c, f"transformer.h.{i}"

        def norm(x, which):
            return m.layer_norm(x, f"{name}.{which}", c.layer_norm_epsilon)

        if c.new_decoder_architecture and (c.get("num_ln_in_parallel_attn") or 2) == 2:
            return (x + self.attention(norm(x, "ln_attn"), name + ".self_attention")
                    + self.mlp(norm(x, "ln_mlp"), name + ".mlp"))
        h = norm(x, "input_layernorm")
        a = self.attention(h, name + ".self_attention")
        if c.new_decoder_architecture or c.parallel_attn:
            return x + a + self.mlp(h, name + ".mlp")
        x = x + a
        return x + self.mlp(norm(x, "post_attention_layernorm"), name + ".mlp")

    def forward(self, tokens):
        m, c = self.m, self.c
        table = m.table("transformer.word_embeddings.weight", c.vocab_size, c.hidden_size)
        x = table[tokens]
        for i in range(c.num_hidden_layers):
            x = self.layer(x, i)
        return m.layer_norm(x, "transformer.ln_f", c.layer_norm_epsilon) @ table.t()


class Cohere:
    """One norm without bias, interleaved rotary pairs, scaled logits; a gain per head for q and k."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    def head_norm(self, x, name):
        """Normalizes [batch, heads, seq, head_dim]; the gain is [heads, head_dim]."""
        gain = self.m.tensor(name + ".weight", [x.shape[1], x.shape[3]], center=1.0, spread=0.2)
        return centered(x, self.c.layer_norm_eps) * gain[:, None]

    def attention(self, x, name):
        m, c = self.m, self.c
        n_head, n_kv_head = c.num_attention_heads, c.num_key_value_heads
        head_dim, bias = c.hidden_size // n_head, c.attention_bias
        q = split(m.linear(x, name + ".q_proj", n_head * head_dim, bias), n_head)
        k = split(m.linear(x, name + ".k_proj", n_kv_head * head_dim, bias), n_kv_head)
        v = split(m.linear(x, name + ".v_proj", n_kv_head * head_dim, bias), n_kv_head)
        if c.use_qk_norm:
            q, k = self.head_norm(q, name + ".q_norm"), self.head_norm(k, name + ".k_norm")
        angles, stretch = rotary(c, head_dim)
        q = rotate(q, angles, stretch, interleaved=True)
        k = rotate(k, angles, stretch, interleaved=True)
        return m.linear(join(attend(q, k, v, head_dim ** -0.5)), name + ".o_proj", c.hidden_size,
                        bias)

    def forward(self, tokens):
        m, c = self.m, self.c
        table = m.table("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
        x = table[tokens]
        for i in range(c.num_hidden_layers):
            name = f"model.layers.{i}"
            h = m.layer_norm(x, name + ".input_layernorm", c.layer_norm_eps, bias=False)
            x = x + self.attention(h, name + ".self_attn") + gated_mlp(
                m, h, name + ".mlp", c.intermediate_size, c.hidden_act)
        x = m.layer_norm(x, "model.norm", c.layer_norm_eps, bias=False)
        return c.logit_scale * (x @ table.t())
