"""A model of plumb for PyTorch, written by plumb export --format pytorch."""

import json
import math
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    """Sizes of this model. Numbers in the code below follow from them."""

    n_layer: int = 8
    n_head: int = 4
    n_kv_head: int = 4
    d_model: int = 16
    d_ff: int = 64
    head_dim: int = 4
    vocab_size: int = 27
    context_length: int = 16


def read_safetensors(path):
    """Reads the tensors of a safetensors file."""
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            whole = torch.frombuffer(data[begin:end], dtype=types[entry["dtype"]])
            tensors[name] = whole.view(entry["shape"])
    return tensors


def find_rule(rules, name):
    """Returns the rule of a parameter; "layers.*" stands for every layer that is not named."""
    general = re.sub(r"^layers\.\d+\.", "layers.*.", name)
    by_name = {each: rule for *rule, names in rules for each in names}
    return by_name.get(name) or by_name[general]


class Dot(nn.Module):
    """A projection to one number; its weight is a vector."""

    def __init__(self, dim, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))
        self.bias = nn.Parameter(torch.empty(1)) if bias else None

    def forward(self, x):
        y = (x * self.weight).sum(-1, keepdim=True)
        return y if self.bias is None else y + self.bias


def heads(x, n_head, group=1):
    """Returns [batch, heads, tokens, head_dim], with each head repeated `group` times."""
    x = x.unflatten(-1, (n_head, -1)).transpose(1, 2)
    return x if group == 1 else x.repeat_interleave(group, 1)


class RMSNorm(nn.Module):
    """y = weight * x / sqrt(mean(x^2) + eps); with unit_offset the gain is 1 + weight."""

    def __init__(self, dim, eps=1e-05, affine=True, unit_offset=False):
        super().__init__()
        self.eps = eps
        self.unit_offset = unit_offset
        self.weight = nn.Parameter(torch.full((dim,), 0.0 if unit_offset else 1.0)) if affine else None

    def forward(self, x):
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        if self.weight is not None:
            y = y * (1 + self.weight if self.unit_offset else self.weight)
        return y.type_as(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16, bias=False)
        self.k = nn.Linear(16, 16, bias=False)
        self.v = nn.Linear(16, 16, bias=False)
        self.o = nn.Linear(16, 16, bias=False)

    def forward(self, x):
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        q = heads(q, 4)
        k = heads(k, 4)
        v = heads(v, 4)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5).transpose(1, 2).flatten(2)
        return self.o(context)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64, bias=False)
        self.down = nn.Linear(64, 16, bias=False)

    def forward(self, x):
        up = self.up(x)
        hidden = F.relu(up)
        return self.down(hidden)


class Layer(nn.Module):
    """Placement hyper_connections.

        let: n = 4
        begin: h[i] = x for i = 0..n - 1
        each: g[j] = norm_h(h[j]) for j = 0..n - 1
        each: a[j] = s_a * tanh(w_r(g[j])) for j = 0..n - 1
        each: y = f(norm(sum(j = 0..n - 1, (m[j] + s_a * tanh(w_m(g[j]))) * h[j])))
        each: h[i] = sum(j = 0..n - 1, (r[j, i] + part(a[j], i, n)) * h[j]) + (b[i] + s_b * tanh(w_b(g[i]))) * y for i = 0..n - 1
        end: x = norm(sum(j = 0..n - 1, h[j]))
    """

    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.attention.norm_h = RMSNorm(16)
        self.attention.s_a = nn.Parameter(torch.empty(1))
        self.attention.w_r = nn.Linear(16, 4, bias=False)
        self.attention.m = nn.Parameter(torch.empty(4))
        self.attention.w_m = Dot(16)
        self.attention.norm = RMSNorm(16)
        self.attention.r = nn.Parameter(torch.empty(4, 4))
        self.attention.b = nn.Parameter(torch.empty(4))
        self.attention.s_b = nn.Parameter(torch.empty(1))
        self.attention.w_b = Dot(16)
        self.mlp = MLP()
        self.mlp.norm_h = RMSNorm(16)
        self.mlp.s_a = nn.Parameter(torch.empty(1))
        self.mlp.w_r = nn.Linear(16, 4, bias=False)
        self.mlp.m = nn.Parameter(torch.empty(4))
        self.mlp.w_m = Dot(16)
        self.mlp.norm = RMSNorm(16)
        self.mlp.r = nn.Parameter(torch.empty(4, 4))
        self.mlp.b = nn.Parameter(torch.empty(4))
        self.mlp.s_b = nn.Parameter(torch.empty(1))
        self.mlp.w_b = Dot(16)

    def forward(self, x, h):
        h = dict(h)
        g = {i: self.attention.norm_h(h[i]) for i in range(4)}
        a = {i: torch.tanh(self.attention.w_r(g[i])) * self.attention.s_a for i in range(4)}
        y = self.attention(self.attention.norm(sum(h[k] * (self.attention.m[k] + torch.tanh(self.attention.w_m(g[k])) * self.attention.s_a) for k in range(4))))
        h.update({i: sum(h[k] * (self.attention.r[k, i] + a[k].chunk(4, -1)[i]) for k in range(4)) + y * (self.attention.b[i] + torch.tanh(self.attention.w_b(g[i])) * self.attention.s_b) for i in range(4)})
        g.update({i: self.mlp.norm_h(h[i]) for i in range(4)})
        a.update({i: torch.tanh(self.mlp.w_r(g[i])) * self.mlp.s_a for i in range(4)})
        y = self.mlp(self.mlp.norm(sum(h[k] * (self.mlp.m[k] + torch.tanh(self.mlp.w_m(g[k])) * self.mlp.s_a) for k in range(4))))
        h.update({i: sum(h[k] * (self.mlp.r[k, i] + a[k].chunk(4, -1)[i]) for k in range(4)) + y * (self.mlp.b[i] + torch.tanh(self.mlp.w_b(g[i])) * self.mlp.s_b) for i in range(4)})
        return x, h


INITIAL_VALUES = [
    (lambda p: nn.init.constant_(p, 0), [
        "layers.*.attention.w_r.weight",
        "layers.*.attention.w_m.weight",
        "layers.*.attention.w_b.weight",
        "layers.*.mlp.w_r.weight",
        "layers.*.mlp.w_m.weight",
        "layers.*.mlp.w_b.weight",
    ]),
    (lambda p: nn.init.constant_(p, 0.01), [
        "layers.*.attention.s_a",
        "layers.*.attention.s_b",
        "layers.*.mlp.s_a",
        "layers.*.mlp.s_b",
    ]),
    (lambda p: nn.init.constant_(p, 1), [
        "layers.*.attention.norm_h.weight",
        "layers.*.attention.norm.weight",
        "layers.*.attention.b",
        "layers.*.mlp.norm_h.weight",
        "layers.*.mlp.norm.weight",
        "layers.*.mlp.b",
        "end.norm.weight",
    ]),
    (lambda p: nn.init.normal_(p, 0, 1), [
        "embedding.token.weight",
        "embedding.position.weight",
    ]),
    (lambda p: nn.init.uniform_(p, -0.125, 0.125), [
        "layers.*.mlp.down.weight",
    ]),
    (lambda p: nn.init.uniform_(p, -0.25, 0.25), [
        "layers.*.attention.q.weight",
        "layers.*.attention.k.weight",
        "layers.*.attention.v.weight",
        "layers.*.attention.o.weight",
        "layers.*.mlp.up.weight",
        "head.weight",
    ]),
    (lambda p: p.view(16, -1).copy_(torch.tensor([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1])[:, None]), [
        "layers.*.attention.r",
        "layers.*.mlp.r",
    ]),
    (lambda p: p.view(4, -1).copy_(torch.tensor([0, 0, 0, 1])[:, None]), [
        "layers.1.mlp.m",
        "layers.3.mlp.m",
        "layers.5.mlp.m",
        "layers.7.mlp.m",
    ]),
    (lambda p: p.view(4, -1).copy_(torch.tensor([0, 0, 1, 0])[:, None]), [
        "layers.1.attention.m",
        "layers.3.attention.m",
        "layers.5.attention.m",
        "layers.7.attention.m",
    ]),
    (lambda p: p.view(4, -1).copy_(torch.tensor([0, 1, 0, 0])[:, None]), [
        "layers.0.mlp.m",
        "layers.2.mlp.m",
        "layers.4.mlp.m",
        "layers.6.mlp.m",
    ]),
    (lambda p: p.view(4, -1).copy_(torch.tensor([1, 0, 0, 0])[:, None]), [
        "layers.0.attention.m",
        "layers.2.attention.m",
        "layers.4.attention.m",
        "layers.6.attention.m",
    ]),
]


# Peak of the recipe's schedule.
LEARNING_RATE = 0.001
# Factor of the learning rate, what is added to it, options of AdamW (None: frozen).
UPDATES = [
    (1, 0, {"weight_decay": 0, "betas": (0.9, 0.95), "eps": 1e-08}, [
        "layers.*.attention.norm_h.weight",
        "layers.*.attention.s_a",
        "layers.*.attention.m",
        "layers.*.attention.w_m.weight",
        "layers.*.attention.norm.weight",
        "layers.*.attention.r",
        "layers.*.attention.b",
        "layers.*.attention.s_b",
        "layers.*.attention.w_b.weight",
        "layers.*.mlp.norm_h.weight",
        "layers.*.mlp.s_a",
        "layers.*.mlp.m",
        "layers.*.mlp.w_m.weight",
        "layers.*.mlp.norm.weight",
        "layers.*.mlp.r",
        "layers.*.mlp.b",
        "layers.*.mlp.s_b",
        "layers.*.mlp.w_b.weight",
        "end.norm.weight",
    ]),
    (1, 0, {"weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-08}, [
        "embedding.token.weight",
        "embedding.position.weight",
        "layers.*.attention.w_r.weight",
        "layers.*.attention.q.weight",
        "layers.*.attention.k.weight",
        "layers.*.attention.v.weight",
        "layers.*.attention.o.weight",
        "layers.*.mlp.w_r.weight",
        "layers.*.mlp.up.weight",
        "layers.*.mlp.down.weight",
        "head.weight",
    ]),
]


class Model(nn.Module):
    """The whole model. Names of parameters are those of plumb."""

    def __init__(self, config=Config()):
        super().__init__()
        if config != Config():
            raise ValueError("this code is for one size; export the model at the other")
        self.embedding = nn.Module()
        self.embedding.token = nn.Embedding(config.vocab_size, 16)
        self.embedding.position = nn.Embedding(config.context_length, config.d_model)
        self.layers = nn.ModuleList(Layer() for _ in range(config.n_layer))
        self.end = nn.Module()
        self.end.norm = RMSNorm(16)
        self.head = nn.Linear(16, config.vocab_size, bias=False)
        self.init_weights()

    @classmethod
    def from_safetensors(cls, path):
        """Returns a model with the weights of a file that plumb wrote."""
        model = cls()
        tensors = read_safetensors(path)
        parameters = dict(model.named_parameters())
        parameters |= {name: buffer for name, buffer in model.named_buffers() if name in tensors}
        if tensors.keys() != parameters.keys():
            raise ValueError(f"{path} has other tensors: {sorted(tensors.keys() ^ parameters.keys())}")
        with torch.no_grad():
            for name, parameter in parameters.items():
                if parameter.shape != tensors[name].shape:
                    raise ValueError(f"{path}: {name} is {tuple(tensors[name].shape)}")
                parameter.copy_(tensors[name])
        return model

    @torch.no_grad()
    def init_weights(self):
        """Draws initial values from the distributions that plumb uses."""
        for name, parameter in self.named_parameters():
            (draw,) = find_rule(INITIAL_VALUES, name)
            draw(parameter)

    def parameter_groups(self, lr=LEARNING_RATE):
        """Returns groups for torch.optim.AdamW. At a scheduled rate, set lr of each to lr_scale * rate + lr_offset."""
        groups = {}
        for name, parameter in self.named_parameters():
            scale, offset, options = find_rule(UPDATES, name)
            if options is None:
                parameter.requires_grad_(False)  # frozen
                continue
            if isinstance(options, str):
                raise NotImplementedError(f"{name}: the recipe has {options}, which AdamW does not do")
            of_rate = {"lr": scale * lr + offset, "lr_scale": scale, "lr_offset": offset}
            group = groups.setdefault((scale, offset, *options.items()), {**options, **of_rate, "params": []})
            group["params"].append(parameter)
        return list(groups.values())

    def forward(self, ids, targets=None):
        """Returns logits and, with targets (negative: none), the mean loss."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.embedding.token(ids) + self.embedding.position(positions)
        h = {i: x for i in range(4)}
        for layer in self.layers:
            x, h = layer(x, h)
        x = self.end.norm(sum(h[k] for k in range(4)))
        logits = self.head(x)
        if targets is None:
            return logits, None
        rows, targets = logits.float().flatten(0, -2), targets.flatten().clamp(min=-1)
        loss = F.cross_entropy(rows, targets, ignore_index=-1)
        return logits, loss
