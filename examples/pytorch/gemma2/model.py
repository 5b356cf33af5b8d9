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

    n_layer: int = 26
    n_head: int = 8
    n_kv_head: int = 4
    d_model: int = 2304
    d_ff: int = 9216
    head_dim: int = 256
    vocab_size: int = 256000
    context_length: int = 8192


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


def heads(x, n_head, group=1):
    """Returns [batch, heads, tokens, head_dim], with each head repeated `group` times."""
    x = x.unflatten(-1, (n_head, -1)).transpose(1, 2)
    return x if group == 1 else x.repeat_interleave(group, 1)


def rope(x, n_head, base, dims=0, interleaved=False, frequencies=None, magnitude=1):
    """Rotates pairs of the first `dims` channels of each head by angles that grow with the position."""
    x = x.unflatten(-1, (n_head, -1))
    dims = dims or x.shape[-1]
    pairs = torch.arange(0, dims, 2, dtype=torch.float64, device=x.device)
    turns = base ** (-pairs / dims) if frequencies is None else pairs.new_tensor(frequencies)
    angles = torch.arange(x.shape[1], device=x.device)[:, None] * turns
    cos, sin = ((magnitude * f(angles)).float()[:, None] for f in (torch.cos, torch.sin))
    turning, rest = x[..., :dims], x[..., dims:]
    a, b = (turning[..., ::2], turning[..., 1::2]) if interleaved else turning.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)
    return torch.cat((turned.type_as(x), rest), -1).flatten(-2)


def visible(q, window=0):
    """Returns a mask [tokens, tokens], true where a query sees a key."""
    tokens = torch.arange(q.shape[-2], device=q.device)
    distance = tokens[:, None] - tokens
    return (distance >= 0) & (distance < window) if window else distance >= 0


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
    def __init__(self, window):
        super().__init__()
        self.window = window
        self.q = nn.Linear(2304, 2048, bias=False)
        self.k = nn.Linear(2304, 1024, bias=False)
        self.v = nn.Linear(2304, 1024, bias=False)
        self.o = nn.Linear(2048, 2304, bias=False)

    def forward(self, x):
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        q_rot = rope(q, 8, base=10000)
        k_rot = rope(k, 4, base=10000)
        q = heads(q_rot, 8)
        k = heads(k_rot, 4, group=2)
        v = heads(v, 4, group=2)
        scores = 0.0625 * (q @ k.mT)
        scores = 50 * torch.tanh(scores / 50)
        scores = scores.masked_fill(~visible(q, window=self.window), -math.inf)
        context = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        return self.o(context)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(2304, 9216, bias=False)
        self.up = nn.Linear(2304, 9216, bias=False)
        self.down = nn.Linear(9216, 2304, bias=False)

    def forward(self, x):
        gate = self.gate(x)
        up = self.up(x)
        hidden = F.gelu(gate, approximate="tanh") * up
        return self.down(hidden)


class Layer(nn.Module):
    """Placement gemma2.

        each: x = x + norm_out(f(norm_in(x)))
        end: x = norm(x)
        head.logits: logits = 30 * tanh(logits / 30)
    """

    def __init__(self, window):
        super().__init__()
        self.attention = Attention(window=window)
        self.attention.norm_in = RMSNorm(2304, eps=1e-06, unit_offset=True)
        self.attention.norm_out = RMSNorm(2304, eps=1e-06, unit_offset=True)
        self.mlp = MLP()
        self.mlp.norm_in = RMSNorm(2304, eps=1e-06, unit_offset=True)
        self.mlp.norm_out = RMSNorm(2304, eps=1e-06, unit_offset=True)

    def forward(self, x):
        x = x + self.attention.norm_out(self.attention(self.attention.norm_in(x)))
        x = x + self.mlp.norm_out(self.mlp(self.mlp.norm_in(x)))
        return x


INITIAL_VALUES = [
    (lambda p: nn.init.constant_(p, 0), [
        "layers.*.attention.norm_in.weight",
        "layers.*.attention.norm_out.weight",
        "layers.*.mlp.norm_in.weight",
        "layers.*.mlp.norm_out.weight",
        "end.norm.weight",
    ]),
    (lambda p: nn.init.normal_(p, 0, 0.02), [
        "embedding.token.weight",
        "layers.*.attention.q.weight",
        "layers.*.attention.k.weight",
        "layers.*.attention.v.weight",
        "layers.*.attention.o.weight",
        "layers.*.mlp.gate.weight",
        "layers.*.mlp.up.weight",
        "layers.*.mlp.down.weight",
    ]),
]


# Peak of the recipe's schedule.
LEARNING_RATE = 0.001
# Factor of the learning rate, what is added to it, options of AdamW (None: frozen).
UPDATES = [
    (1, 0, {"weight_decay": 0, "betas": (0.9, 0.95), "eps": 1e-08}, [
        "layers.*.attention.norm_in.weight",
        "layers.*.attention.norm_out.weight",
        "layers.*.mlp.norm_in.weight",
        "layers.*.mlp.norm_out.weight",
        "end.norm.weight",
    ]),
    (1, 0, {"weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-08}, [
        "embedding.token.weight",
        "layers.*.attention.q.weight",
        "layers.*.attention.k.weight",
        "layers.*.attention.v.weight",
        "layers.*.attention.o.weight",
        "layers.*.mlp.gate.weight",
        "layers.*.mlp.up.weight",
        "layers.*.mlp.down.weight",
    ]),
]


class Model(nn.Module):
    """The whole model. Names of parameters are those of plumb."""

    def __init__(self, config=Config()):
        super().__init__()
        if config != Config():
            raise ValueError("this code is for one size; export the model at the other")
        self.embedding = nn.Module()
        self.embedding.token = nn.Embedding(config.vocab_size, 2304)
        self.layers = nn.ModuleList([
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
            Layer(window=4096),
            Layer(window=0),
        ])
        self.end = nn.Module()
        self.end.norm = RMSNorm(2304, eps=1e-06, unit_offset=True)
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
        x = 48 * self.embedding.token(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.end.norm(x)
        logits = F.linear(x, self.embedding.token.weight)
        logits = 30 * torch.tanh(0.03333333333333333 * logits)
        if targets is None:
            return logits, None
        rows, targets = logits.float().flatten(0, -2), targets.flatten().clamp(min=-1)
        loss = F.cross_entropy(rows, targets, ignore_index=-1)
        return logits, loss
