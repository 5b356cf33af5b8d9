# SPDX-License-Identifier: Apache-2.0
"""BERT and RoBERTa: encoders, post-norm, with the head of a masked language model."""

import torch

from activation import activate
from attention import attend, join, split


class Bert:
    """Every token attends to all tokens of its sequence, and has a type next to its position."""

    def __init__(self, checkpoint):
        self.m, self.c = checkpoint, checkpoint.config

    # ---- differences of RoBERTa

    ENCODER = "bert"
    OFFSET = 0

    def head(self, x, table):
        m, c, at = self.m, self.c, "cls.predictions"
        x = activate(m, c.hidden_act, m.linear(x, at + ".transform.dense", c.hidden_size, True))
        x = m.layer_norm(x, at + ".transform.LayerNorm", c.layer_norm_eps)
        return x @ table.t() + m.tensor(at + ".bias", [c.vocab_size])

    def unused(self):
        """Adds the tensors of published files for the other objective, next-sentence prediction."""
        width = self.c.hidden_size
        self.m.buffer("bert.pooler.dense.weight", torch.full([width, width], 0.5))
        self.m.buffer("bert.pooler.dense.bias", torch.full([width], 0.5))
        self.m.buffer("cls.seq_relationship.weight", torch.full([2, width], 0.5))
        self.m.buffer("cls.seq_relationship.bias", torch.full([2], 0.5))

    # ---- the model

    def layer(self, x, i, lengths):
        m, c, name = self.m, self.c, f"{self.ENCODER}.encoder.layer.{i}"
        at, n_head = name + ".attention", c.num_attention_heads
        q, k, v = (split(m.linear(x, f"{at}.self.{p}", c.hidden_size, True), n_head)
                   for p in ("query", "key", "value"))
        y = attend(q, k, v, (c.hidden_size // n_head) ** -0.5, causal=False, lengths=lengths)
        y = m.linear(join(y), at + ".output.dense", c.hidden_size, True)
        x = m.layer_norm(x + y, at + ".output.LayerNorm", c.layer_norm_eps)
        y = m.linear(x, name + ".intermediate.dense", c.intermediate_size, True)
        y = m.linear(activate(m, c.hidden_act, y), name + ".output.dense", c.hidden_size, True)
        return m.layer_norm(x + y, name + ".output.LayerNorm", c.layer_norm_eps)

    def forward(self, tokens, types=None, lengths=None):
        m, c, at = self.m, self.c, self.ENCODER + ".embeddings"
        types = torch.zeros_like(tokens) if types is None else types
        table = m.table(at + ".word_embeddings.weight", c.vocab_size, c.hidden_size)
        positions = m.table(at + ".position_embeddings.weight", c.max_position_embeddings,
                            c.hidden_size)
        kinds = m.table(at + ".token_type_embeddings.weight", c.type_vocab_size, c.hidden_size)
        x = table[tokens] + kinds[types] + positions[self.OFFSET:self.OFFSET + tokens.shape[1]]
        x = m.layer_norm(x, at + ".LayerNorm", c.layer_norm_eps)
        for i in range(c.num_hidden_layers):
            x = self.layer(x, i, lengths)
        self.unused()
        return self.head(x, table)


class Roberta(Bert):
    """Positions count from pad_token_id + 1, and the head's tensors have other names."""

    ENCODER = "roberta"
    OFFSET = 2

    def head(self, x, table):
        m, c = self.m, self.c
        x = activate(m, "gelu", m.linear(x, "lm_head.dense", c.hidden_size, True))
        x = m.layer_norm(x, "lm_head.layer_norm", c.layer_norm_eps)
        return x @ table.t() + m.tensor("lm_head.bias", [c.vocab_size])

    def unused(self):
        pass
