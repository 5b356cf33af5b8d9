#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes training steps of PyTorch on request: a worker of compare_peers.py.

The models are written for speed with PyTorch on CPUs: fused query, key and value projections, the faster of
PyTorch's fused attention and products of scores with the scale and the mask inside (measured at the start),
fused AdamW (foreach before PyTorch 2.4), denormals flushed, and bf16 through autocast. --compile compiles the
whole step, AdamW included. compare_peers.py sets the environment that makes PyTorch fastest.
"""
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

import peer_worker


class RmsNorm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


class LayerNorm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class GatedDeltaNet(nn.Module):
    """Linear attention of Qwen3-Next, as transformers implements it in PyTorch, in chunks of tokens."""

    def __init__(self, c):
        super().__init__()
        from transformers import Qwen3NextConfig
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

        head = c.d_model // c.n_head
        config = Qwen3NextConfig(
            hidden_size=c.d_model, num_hidden_layers=1, layer_types=["linear_attention"],
            linear_num_value_heads=c.n_head, linear_num_key_heads=c.n_head,
            linear_key_head_dim=head, linear_value_head_dim=head)
        self.net = Qwen3NextGatedDeltaNet(config, 0)

    def load(self, w):
        """Sets the weights from those of plumb's layer; the rows of a head are consecutive here."""
        net, n_head = self.net, self.net.num_k_heads
        heads = lambda *names: torch.cat([w[name].view(n_head, -1, w[name].shape[1]) for name in names], 1).flatten(0, 1)
        for parameter, values in (
                (net.in_proj_qkvz.weight, heads("q.weight", "k.weight", "v.weight", "z.weight")),
                (net.in_proj_ba.weight, heads("beta.weight", "decay.weight")),
                (net.conv1d.weight, torch.cat([w[f"{x}_conv.weight"] for x in "qkv"])[:, None]),
                (net.dt_bias, w["dt_bias"]), (net.A_log, w["a_log"]), (net.norm.weight, w["head_norm.weight"]),
                (net.out_proj.weight, w["o.weight"])):
            parameter.copy_(values)

    def forward(self, x):
        return self.net(x)


def fused_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_by_products(q, k, v):
    batch, heads, seq, head = q.shape
    q, k, v = (x.reshape(batch * heads, seq, head) for x in (q, k, v))
    mask = torch.full((seq, seq), -math.inf, dtype=q.dtype).triu(1)
    scores = torch.baddbmm(mask[None], q, k.transpose(1, 2), alpha=1 / math.sqrt(head))
    return torch.bmm(F.softmax(scores, -1).to(v.dtype), v).view(batch, heads, seq, head)


def fastest_attention(c):
    """Returns the faster function on this machine, forward and backward."""
    if not hasattr(F, "scaled_dot_product_attention"):
        return attention_by_products
    if c.context > 1024:  # the scores of all tokens would not fit into memory
        return fused_attention
    kind = torch.bfloat16 if c.dtype == "bf16" else torch.float32
    shape = c.batch, c.n_head, c.context, c.d_model // c.n_head
    q, k, v = (torch.randn(shape).to(kind).requires_grad_() for _ in range(3))
    seconds = {fused_attention: math.inf, attention_by_products: math.inf}
    for _ in range(4):
        for function in seconds:
            start = time.perf_counter()
            function(q, k, v).sum().backward()
            seconds[function] = min(seconds[function], time.perf_counter() - start)
    return min(seconds, key=seconds.get)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head = c.n_head
        self.qkv = nn.Linear(c.d_model, 3 * c.d_model, bias=c.bias)
        self.out = nn.Linear(c.d_model, c.d_model, bias=c.bias)
        self.attend = c.attend

    def forward(self, x):
        batch, seq, width = x.shape
        qkv = self.qkv(x).view(batch, seq, 3, self.n_head, width // self.n_head).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(*qkv.unbind(0)).transpose(1, 2).reshape(batch, seq, width))


class Block(nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        self.norm_1, self.norm_2 = norm(c.d_model, c.bias), norm(c.d_model, c.bias)
        self.attention = GatedDeltaNet(c) if c.delta else Attention(c)
        self.up = nn.Linear(c.d_model, 4 * c.d_model, bias=c.bias)
        self.down = nn.Linear(4 * c.d_model, c.d_model, bias=c.bias)
        self.activation = {
            "relu": F.relu,
            "gelu": F.gelu,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        }[c.activation]

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.down(self.activation(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        norm = RmsNorm if c.norm == "rms" else LayerNorm
        self.tokens = nn.Embedding(c.vocab, c.d_model)
        self.positions = nn.Embedding(c.context, c.d_model)
        self.blocks = nn.ModuleList(Block(c, norm) for _ in range(c.n_layer))
        self.norm = norm(c.d_model, c.bias)
        self.head = nn.Linear(c.d_model, c.vocab, bias=False)
        if c.tied:
            self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def load(model, c):
    """Sets the weights to those of plumb."""
    parameters, delta = dict(model.named_parameters()), {}
    with torch.no_grad():
        for name, values in peer_worker.weights(c):
            values = torch.from_numpy(values.copy())
            if c.delta and ".attention." in name and ".attention.norm" not in name:
                _, layer, _, name = name.split(".", 3)
                delta.setdefault(int(layer), {})[name] = values
                continue
            for ours, theirs in (("layers", "blocks"), ("embedding.token", "tokens"), (".attention.norm", ".norm_1"),
                                 ("embedding.position", "positions"), (".mlp.norm", ".norm_2"), ("end.norm", "norm"),
                                 (".attention.o.", ".attention.out."), (".mlp.", ".")):
                name = name.replace(ours, theirs)
            parameters.pop(name).copy_(values)
        for layer, values in delta.items():
            model.blocks[layer].attention.load(values)
    if any(".net." not in name for name in parameters):
        raise RuntimeError(f"plumb has no {', '.join(parameters)}")


class Trainer:
    def __init__(self, c):
        self.c = c
        c.attend = fastest_attention(c)
        self.model = Gpt(c)
        if c.weights:
            load(self.model, c)
        self.parameters = list(self.model.parameters())
        groups = [{"params": [p for p in self.parameters if (p.dim() > 1 or c.decay_everything) == decays],
                   "weight_decay": decays * c.weight_decay} for decays in (True, False)]
        version = tuple(map(int, torch.__version__.split(".")[:2]))
        fastest = "fused" if version >= (2, 4) and not c.compile else "foreach"
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=c.learning_rate,
                                           betas=(0.9, c.beta2), **{fastest: True})
        self.batches = peer_worker.Batches(c)
        self.run = torch.compile(self.update) if c.compile else self.update

    def clip(self):
        grads = [p.grad for p in self.parameters]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        scale = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, scale if self.c.compile else scale.item())

    def update(self, tokens, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.c.dtype == "bf16"):
            loss = self.model(tokens, targets)
        if self.c.compile:  # one graph forward and backward, which backward() would end
            grads = torch.autograd.grad(loss, self.parameters)
            loss = loss.detach()
            for parameter, grad in zip(self.parameters, grads):
                parameter.grad = grad
        else:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        if self.c.clip:
            self.clip()
        self.optimizer.step()
        return loss.detach()

    def step(self):
        tokens, targets = (torch.from_numpy(ids).long() for ids in self.batches())
        return self.run(tokens, targets), tokens.numel()


def main():
    c = peer_worker.parse_options()
    torch.set_num_threads(c.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    if c.compile:
        torch._dynamo.config.trace_autograd_ops = True  # the backward pass is a part of the compiled step
    trainer = Trainer(c)
    peer_worker.serve(sum(p.numel() for p in trainer.parameters), trainer.step)


if __name__ == "__main__":
    main()
