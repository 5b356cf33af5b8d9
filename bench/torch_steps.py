#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes training steps of PyTorch on request, for compare_peers.py: a worker with the protocol of
step_server ("ready PARAMETERS"; "step N" -> seconds, tokens, 0, loss; "memory" -> peak resident bytes).

The models are written for speed with this version of PyTorch: fused query, key and value projections,
scale and mask inside the product of the scores (PyTorch's fused attention beyond 1024 tokens),
foreach AdamW and clipping, denormals flushed, and bf16 through autocast. compare_peers.py sets the
environment that makes PyTorch fastest.
"""
import argparse
import math
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


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

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head = c.n_head
        self.qkv = nn.Linear(c.d_model, 3 * c.d_model, bias=c.bias)
        self.out = nn.Linear(c.d_model, c.d_model, bias=c.bias)
        self.in_blocks = c.context > 1024
        if not self.in_blocks:
            mask = torch.full((c.context, c.context), -math.inf).triu(1)
            self.register_buffer("mask", mask[None], persistent=False)

    def forward(self, x):
        batch, seq, width = x.shape
        head = width // self.n_head
        qkv = self.qkv(x).view(batch, seq, 3, self.n_head, head).permute(2, 0, 3, 1, 4)
        if self.in_blocks:  # the scores of all tokens would not fit into memory
            q, k, v = qkv.unbind(0)
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            return self.out(context.reshape(batch, seq, width))
        q, k, v = qkv.reshape(3, batch * self.n_head, seq, head).unbind(0)
        mask = self.mask[:, :seq, :seq].to(q.dtype)
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(head))
        context = torch.bmm(F.softmax(scores, -1).to(v.dtype), v)
        context = context.view(batch, self.n_head, seq, head).transpose(1, 2)
        return self.out(context.reshape(batch, seq, width))


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


class RandomTokens:
    """Yields windows of random tokens, drawn beforehand."""

    def __init__(self, c):
        self.batches = torch.randint(0, c.vocab, (16, c.batch, c.context + 1))
        self.next = 0

    def __call__(self):
        batch = self.batches[self.next % len(self.batches)]
        self.next += 1
        return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


class Names:
    """Yields one line of a file per step, between begin and end tokens, as in the study."""

    def __init__(self, c):
        lines = [line.strip() for line in open(c.data)]
        lines = [line for line in lines if line]
        letters = sorted(set("".join(lines)))
        mark = len(letters)
        self.rows = [
            torch.tensor([mark] + [letters.index(x) for x in line] + [mark]) for line in lines]
        self.context = c.context
        random.Random(1).shuffle(self.rows)
        self.next = 0

    def __call__(self):
        row = self.rows[self.next % len(self.rows)][: self.context + 1]
        self.next += 1
        return row[None, :-1], row[None, 1:]


class Trainer:
    def __init__(self, c):
        self.c = c
        self.model = Gpt(c)
        self.parameters = list(self.model.parameters())
        if c.decay_everything:
            groups = [{"params": self.parameters, "weight_decay": c.weight_decay}]
        else:
            groups = [
                {"params": [p for p in self.parameters if p.dim() > 1],
                 "weight_decay": c.weight_decay},
                {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-5, betas=(0.9, 0.95), foreach=True)
        self.batches = Names(c) if c.data else RandomTokens(c)

    def clip(self):
        grads = [p.grad for p in self.parameters]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        scale = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, scale.item())

    def step(self):
        tokens, targets = self.batches()
        self.optimizer.zero_grad(set_to_none=True)
        if self.c.dtype == "bf16":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.model(tokens, targets)
        else:
            loss = self.model(tokens, targets)
        loss.backward()
        if self.c.clip:
            self.clip()
        self.optimizer.step()
        return loss, tokens.numel()


def peak_memory():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("n_layer", "n_head", "d_model", "vocab", "context", "batch", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--norm", choices=("rms", "layer"), default="layer")
    parser.add_argument("--activation", default="gelu")
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--data")
    for name in ("tied", "bias", "clip", "delta", "decay_everything"):
        parser.add_argument("--" + name, action="store_true")
    return parser.parse_args()


def main():
    c = parse_options()
    torch.set_num_threads(c.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    trainer = Trainer(c)
    print("ready", sum(p.numel() for p in trainer.parameters), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "step":
            tokens = 0
            start = time.perf_counter()
            for _ in range(int(arguments[0])):
                loss, count = trainer.step()
                tokens += count
            loss = loss.item()
            print(f"{time.perf_counter() - start:.9f} {tokens} 0 {loss:.6f}", flush=True)
        elif command == "memory":
            print(peak_memory(), flush=True)
        else:
            sys.exit(f"unknown command {command}")


if __name__ == "__main__":
    main()
