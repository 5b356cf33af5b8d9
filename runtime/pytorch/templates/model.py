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

    # <sizes>


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


# <helpers>
# <classes>


INITIAL_VALUES = [
    # <initial_values>
]


# Peak of the recipe's schedule.
# <learning_rate>
# Factor of the learning rate, what is added to it, options of AdamW (None: frozen).
UPDATES = [
    # <updates>
]


class Model(nn.Module):
    """The whole model. Names of parameters are those of plumb."""

    def __init__(self, config=Config()):
        super().__init__()
        if config != Config():
            raise ValueError("this code is for one size; export the model at the other")
        # <modules>
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
        # <forward>
        if targets is None:
            return logits, None
        rows, targets = logits.float().flatten(0, -2), targets.flatten().clamp(min=-1)
        # <loss>
        return logits, loss
