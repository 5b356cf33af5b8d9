# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts, computed expert by expert as in the published code of each family."""

import torch

# Minimum margin of the choice, so that a float32 run chooses the same experts.
SMALLEST_MARGIN = 1e-3


def expert(m, x, weights):
    """Returns down(act(gate x) * (up x)), or down(act(up x)) without a gate, with one expert's
    matrices."""
    up = x @ weights["up"].t()
    hidden = m.activate(x @ weights["gate"].t()) * up if "gate" in weights else m.activate(up)
    return hidden @ weights["down"].t()


def matrices(m, name, n_expert, d, d_ff, gated=True):
    """Returns the matrices of all experts, stacked in plumb's layout [n_expert, out, in]."""
    shapes = {"gate": (d_ff, d)} if gated else {}
    shapes.update({"up": (d_ff, d), "down": (d, d_ff)})
    return {which: m.parameter(f"{name}.experts.{which}.weight", [n_expert, *shape])
            for which, shape in shapes.items()}


def mixture(m, layer, x, n_expert, d_ff, choose, gated=True, read=None):
    """Applies the chosen experts in a loop, to `read` instead of x if it is given. choose(logits) ->
    weights and indices, [tokens, k]."""
    name = f"layers.{layer}.mlp"
    flat = x.flatten(0, -2)
    logits = m.linear(flat, name + ".router", n_expert, False)
    weights, chosen = choose(logits)
    lowest_chosen = logits.gather(1, chosen).min(1).values
    others = logits.scatter(1, chosen, -torch.inf).max(1).values
    assert (lowest_chosen - others).min() > SMALLEST_MARGIN, name
    read = x if read is None else read
    rows = read.flatten(0, -2)
    stacked = matrices(m, name, n_expert, rows.shape[-1], d_ff, gated)
    out = torch.zeros_like(rows)
    for e in range(n_expert):
        tokens, slots = torch.where(chosen == e)
        y = expert(m, rows[tokens], {which: w[e] for which, w in stacked.items()})
        out = out.index_add(0, tokens, y * weights[tokens, slots, None])
    return out.view_as(read), logits, chosen


def softmax_then_top_k(k, renormalize):
    """Qwen2-MoE and OLMoE. With norm_topk_prob (Qwen3-MoE), and in Mixtral, chosen weights are
    renormalized."""
    def choose(logits):
        weights, chosen = torch.topk(logits.softmax(-1), k, dim=-1)
        return weights / weights.sum(-1, keepdim=True) if renormalize else weights, chosen
    return choose


def top_k_then_softmax(k):
    """Mixtral as in its authors' code."""
    def choose(logits):
        weights, chosen = torch.topk(logits, k, dim=-1)
        return weights.softmax(-1), chosen
    return choose


def shared_expert(m, layer, x, d_ff):
    """Qwen2-MoE's shared expert: sigmoid(shared_expert_gate x) times an MLP of every token."""
    name = f"layers.{layer}.mlp"
    gate = m.linear(x, name + ".shared.gate", d_ff, False)
    up = m.linear(x, name + ".shared.up", d_ff, False)
    y = m.linear(m.activate(gate) * up, name + ".shared.down", m.c.d_model, False)
    return torch.sigmoid(m.linear(x, name + ".shared_gate", 1, False)) * y


def switch_loss(logits, chosen, n_expert):
    """Fedus et al. 2021, equations 4 to 6: N sum_i f_i P_i; f_i counts all choices of a token."""
    f = torch.stack([(chosen == e).double().mean() for e in range(n_expert)])
    return n_expert * (f * logits.softmax(-1).mean(0)).sum()


def pre(m, x, mlp):
    for i in range(m.c.n_layer):
        x = x + m.attention(i, m.norm(x, f"layers.{i}.attention.norm"))
        x = x + mlp(i, m.norm(x, f"layers.{i}.mlp.norm"))
    return m.norm(x, "end.norm")


def mixtral(m, x):
    return pre(m, x, lambda i, h: mixture(m, i, h, 4, 12, top_k_then_softmax(2))[0])


def qwen3_moe(m, x):
    """128 experts in small: no token chooses some of them."""
    return pre(m, x, lambda i, h: mixture(m, i, h, 16, 4, softmax_then_top_k(3, True))[0])


def qwen2_moe(m, x):
    """The chosen weights are not renormalized, and a shared expert has a gate."""
    return pre(m, x, lambda i, h: mixture(m, i, h, 6, 6, softmax_then_top_k(2, False))[0]
               + shared_expert(m, i, h, 10))


def latent_experts(m, x):
    """Experts between two projections; the router and the shared expert read the full width."""
    def mlp(i, h):
        name = f"layers.{i}.mlp.latent"
        low = m.linear(h, name + ".down", 3, False)
        y = mixture(m, i, h, 6, 5, softmax_then_top_k(2, False), read=low)[0]
        return m.linear(y, name + ".up", m.c.d_model, False) + shared_expert(m, i, h, 10)
    return pre(m, x, mlp)


def grok_1(m, x):
    """Grok-1: a softmax over all, weights of the two chosen of eight unchanged, GEGLU, norms around
    every sublayer."""
    for i in range(m.c.n_layer):
        a = m.attention(i, m.norm(x, f"layers.{i}.attention.norm_in"))
        x = x + m.norm(a, f"layers.{i}.attention.norm_out")
        h = m.norm(x, f"layers.{i}.mlp.norm_in")
        f = mixture(m, i, h, 8, 14, softmax_then_top_k(2, False))[0]
        x = x + m.norm(f, f"layers.{i}.mlp.norm_out")
    return m.norm(x, "end.norm")


def switch(m, x):
    """One of four experts, without a gate, weighted by the softmax; the balance loss is 0.3 N sum f
    P."""
    def mlp(i, h):
        y, logits, chosen = mixture(m, i, h, 4, 10, softmax_then_top_k(1, False), gated=False)
        m.extra_losses.append(0.3 * switch_loss(logits, chosen, 4))
        return y
    return pre(m, x, mlp)


def balanced(m, x):
    """Two of five, with a coefficient and a hidden width that differ by layer."""
    def mlp(i, h):
        y, logits, chosen = mixture(m, i, h, 5, 4 * (i + 1), top_k_then_softmax(2))
        m.extra_losses.append(0.1 * (i + 1) * switch_loss(logits, chosen, 5))
        return 2.5 * y
    return pre(m, x, mlp)
