# SPDX-License-Identifier: Apache-2.0
"""A checkpoint with random weights, and the run of a model that fills it.

A model requests tensors by the names in its published checkpoints. A tensor is drawn at its first use,
rounded to float32 and kept as a float64 leaf, so that the file holds exactly the values of the computation.
Each family's code is in a file of its own, which knows nothing of plumb.
"""

import math
from collections import OrderedDict

import torch


class Config(dict):
    """The config.json. A field is read as an attribute; an absent field is an error."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


class Checkpoint:
    def __init__(self, config, seed):
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters = OrderedDict()
        self.buffers = OrderedDict()
        # Smallest distance of a float32 run from another decision: of an expert, or of a side of ReLU's kink.
        self.smallest_margin = math.inf

    def tensor(self, name, shape, center=0.0, spread=0.3):
        if name not in self.parameters:
            drawn = center + spread * torch.randn(shape, generator=self.generator)
            self.parameters[name] = drawn.to(torch.float64).requires_grad_(True)
        found = self.parameters[name]
        assert tuple(found.shape) == tuple(shape), (name, found.shape, shape)
        return found

    def buffer(self, name, value):
        """Adds a tensor of a published file that is not a parameter: a mask, a table of frequencies."""
        self.buffers[name] = value.to(torch.float64)

    def table(self, name, rows, width, spread=0.4):
        return self.tensor(name, [rows, width], spread=spread)

    def linear(self, x, name, size, bias=False):
        """nn.Linear, whose weight is [out, in]."""
        width = x.shape[-1]
        y = x @ self.tensor(name + ".weight", [size, width], spread=1.2 / math.sqrt(width)).t()
        return y + self.tensor(name + ".bias", [size]) if bias else y

    def conv1d(self, x, name, size):
        """GPT-2's Conv1D, whose weight is [in, out]."""
        width = x.shape[-1]
        weight = self.tensor(name + ".weight", [width, size], spread=1.2 / math.sqrt(width))
        return x @ weight + self.tensor(name + ".bias", [size])

    def layer_norm(self, x, name, eps, bias=True):
        size = x.shape[-1]
        y = centered(x, eps) * self.tensor(name + ".weight", [size], center=1.0, spread=0.2)
        return y + self.tensor(name + ".bias", [size], spread=0.2) if bias else y

    def rms_norm(self, x, name, eps, parameter="weight"):
        return root_mean_square(x, eps) * self.tensor(f"{name}.{parameter}", x.shape[-1:],
                                                      center=1.0, spread=0.2)

    def gemma_norm(self, x, name, eps):
        """RMS norm of Gemma, which stores the gain minus 1."""
        return root_mean_square(x, eps) * (1 + self.tensor(name + ".weight", x.shape[-1:],
                                                           spread=0.2))

    def relu(self, x):
        self.smallest_margin = min(self.smallest_margin, x.abs().min().item())
        return torch.relu(x)


def centered(x, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def root_mean_square(x, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
