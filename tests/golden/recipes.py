# SPDX-License-Identifier: Apache-2.0
"""Training by recipes, in plain PyTorch and float64: python3 tests/golden/recipes.py [case ...]

Trains twenty steps from the weights of the case `pre`. The model and the updates are written here
from the papers and share nothing with plumb. README.md describes the files.
"""

import json
import math
import os
import struct
import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F
import torch.optim.swa_utils

import tensor_file

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, SEQ, VOCABULARY = 20, 2, 8, 11
LAYERS, HEADS, WIDTH, EPS = 3, 2, 8, 1e-6


def read(path):
    """Returns the tensors of a safetensors file as float64 leaves."""
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack_from("<Q", data)
    tensors = OrderedDict()
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            tensors[name] = torch.tensor(values, dtype=torch.float64).reshape(entry["shape"]).requires_grad_(True)
    return tensors


# ---- the model of pre/model.pbtxt: pre-norm, RMS norms, GELU (tanh), learned positions

def rms_norm(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def attention(p, name, x):
    def heads(which):
        return (x @ p[f"{name}.{which}.weight"].t()).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    scores = heads("q") @ heads("k").transpose(-1, -2) / (WIDTH // HEADS)**0.5
    future = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
    mixed = torch.softmax(scores.masked_fill(future, -torch.inf), -1) @ heads("v")
    return mixed.transpose(1, 2).flatten(-2) @ p[f"{name}.o.weight"].t()


def logits(p, tokens):
    x = p["embedding.token.weight"][tokens] + p["embedding.position.weight"][:SEQ]
    for i in range(LAYERS):
        layer = f"layers.{i}"
        x = x + attention(p, f"{layer}.attention", rms_norm(x, p[f"{layer}.attention.norm.weight"]))
        hidden = rms_norm(x, p[f"{layer}.mlp.norm.weight"]) @ p[f"{layer}.mlp.up.weight"].t()
        x = x + F.gelu(hidden, approximate="tanh") @ p[f"{layer}.mlp.down.weight"].t()
    return rms_norm(x, p["end.norm.weight"]) @ p["head.weight"].t()


# ---- updates

def orthogonalize(g, steps):
    """Newton-Schulz of Muon's reference code, without its rounding to bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.mT if g.size(-2) > g.size(-1) else g
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if g.size(-2) > g.size(-1) else x


class Muon:
    def __init__(self, momentum=0.95, nesterov=True, steps=5, matches_adamw=False):
        self.momentum, self.nesterov, self.steps = momentum, nesterov, steps
        self.matches_adamw = matches_adamw
        self.buffers = {}

    def update(self, name, p, lr, weight_decay):
        buffer = self.buffers.setdefault(name, torch.zeros_like(p))
        buffer.lerp_(p.grad, 1 - self.momentum)
        direction = p.grad.lerp(buffer, self.momentum) if self.nesterov else buffer
        scale = 0.2 * max(p.shape)**0.5 if self.matches_adamw else max(1, p.size(0) / p.size(1))**0.5
        p.mul_(1 - lr * weight_decay)
        p.add_(orthogonalize(direction, self.steps), alpha=-lr * scale)


def normalize(p, axis_of):
    """Normalizes rows (axis -1) or columns (axis 0) to unit length, as in nGPT."""
    with torch.no_grad():
        for name, value in p.items():
            if axis_of(name) is not None:
                value.copy_(value / value.norm(dim=axis_of(name), keepdim=True))


def ngpt(name):
    if name.endswith((".o.weight", ".down.weight")):
        return 0
    return None if name.endswith("norm.weight") else -1


def is_hidden_matrix(name, p):
    return name.startswith("layers.") and p.dim() == 2


def train(losses, lr, muon=None, muon_lr=None, weight_decay=0.1, clip=1.0, smoothing=0.0, z_loss=0.0,
          ema_decay=0.0, normalized=lambda name: None, schedule=lambda t: 1.0):
    """Returns the parameters after STEPS steps by name. Appends the cross-entropies to `losses`.

    schedule(t), from t = 0, is the factor of the learning rate.
    """
    p = read(os.path.join(HERE, "pre", "weights.safetensors"))
    with open(os.path.join(HERE, "recipes", "tokens.json"), encoding="utf-8") as file:
        tokens = torch.tensor(json.load(file))
    normalize(p, normalized)
    by_muon = [name for name in p if muon and is_hidden_matrix(name, p[name])]
    rest = [p[name] for name in p if name not in by_muon]
    adamw = torch.optim.AdamW(
        [{"params": [q for q in rest if q.dim() == 2], "weight_decay": weight_decay},
         {"params": [q for q in rest if q.dim() == 1], "weight_decay": 0.0}],
        lr=lr, betas=(0.9, 0.95), eps=1e-8)
    scheduler = torch.optim.lr_scheduler.LambdaLR(adamw, schedule)
    for step in range(STEPS):
        output = logits(p, tokens[step][:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(output, tokens[step][:, 1:].flatten())
        losses.append(loss.detach())
        objective = F.cross_entropy(output, tokens[step][:, 1:].flatten(), label_smoothing=smoothing)
        objective = objective + z_loss * torch.logsumexp(output, -1).square().mean()
        adamw.zero_grad()
        for q in p.values():
            q.grad = None
        objective.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), clip)
        with torch.no_grad():
            for name in by_muon:
                muon.update(name, p[name], muon_lr, weight_decay)
        adamw.step()
        scheduler.step()
        normalize(p, normalized)
        if ema_decay:
            average = average if step else torch.optim.swa_utils.AveragedModel(
                Holder(p), avg_fn=lambda old, new, _: ema_decay * old + (1 - ema_decay) * new)
            average.update_parameters(Holder(p))
    if ema_decay:
        averages = average.module.list
        p.update((f"average.{name}", a) for name, a in zip(list(p), averages))
    return p


class Holder(torch.nn.Module):
    """The parameters in the form that PyTorch's averaging requires."""

    def __init__(self, parameters):
        super().__init__()
        self.list = torch.nn.ParameterList(parameters.values())


def cosine(t, warmup=4, floor=0.1):
    """Linear warm-up, then half a cosine (Loshchilov & Hutter 2017, equation 5) down to a tenth."""
    if t < warmup:
        return (t + 1) / warmup
    p = (t - warmup) / (STEPS - warmup)
    return floor + (1 - floor) * (1 + math.cos(math.pi * p)) / 2


def wsd(t, warmup=4, cooldown=8):
    """Warm-up, stable, decay by 1 - sqrt (Hägele et al. 2024, section 3)."""
    if t < warmup:
        return (t + 1) / warmup
    return 1 - math.sqrt(max(0, t - (STEPS - cooldown)) / cooldown)


# Each case has the equivalent text for plumb.
CASES = {
    "muon": (
        'optimizer: MUON learning_rate: 0.003 weight_decay: 0.1\nmuon { learning_rate: "5 * lr" }\n',
        lambda losses: train(losses, 0.003, Muon(), muon_lr=0.015)),
    "muon_match_adamw": (
        "optimizer: MUON learning_rate: 0.003 weight_decay: 0.2 grad_clip: 0.5\n"
        "muon { scale: MATCH_ADAMW nesterov: false momentum: 0.9 newton_schulz_steps: 4 }\n",
        lambda losses: train(losses, 0.003, Muon(0.9, nesterov=False, steps=4, matches_adamw=True),
                             muon_lr=0.003, weight_decay=0.2, clip=0.5)),
    "cosine": (
        f"learning_rate: 0.01 min_learning_rate: 0.001 schedule: COSINE warmup_steps: 4 max_steps: {STEPS}\n",
        lambda losses: train(losses, 0.01, schedule=cosine)),
    "wsd": (
        f"learning_rate: 0.01 schedule: WSD warmup_steps: 4 cooldown_steps: 8 cooldown: ONE_MINUS_SQRT max_steps: {STEPS}\n",
        lambda losses: train(losses, 0.01, schedule=wsd)),
    "label_smoothing": (
        "learning_rate: 0.01 label_smoothing: 0.1\n",
        lambda losses: train(losses, 0.01, smoothing=0.1)),
    "z_loss": (
        "learning_rate: 0.01 z_loss: 0.05 label_smoothing: 0.2\n",
        lambda losses: train(losses, 0.01, smoothing=0.2, z_loss=0.05)),
    "average": (
        "learning_rate: 0.01 ema_decay: 0.8\n",
        lambda losses: train(losses, 0.01, ema_decay=0.8)),
    "normalize": (
        "learning_rate: 0.01 weight_decay: 0\n"
        + "".join(f'normalize {{ match: "{name}.weight" axis: {axis} }}\n' for name, axis in [
            ("embedding.*", "IN"), ("*.q", "IN"), ("*.k", "IN"), ("*.v", "IN"), ("*.o", "OUT"),
            ("*.up", "IN"), ("*.down", "OUT"), ("head", "IN")]),
        lambda losses: train(losses, 0.01, weight_decay=0.0, normalized=ngpt)),
}


def write_tokens():
    generator = torch.Generator().manual_seed(20)
    tokens = torch.randint(VOCABULARY, (STEPS, BATCH, SEQ + 1), generator=generator)
    with open(os.path.join(HERE, "recipes", "tokens.json"), "w", encoding="utf-8") as file:
        json.dump(tokens.tolist(), file, separators=(",", ":"))
        file.write("\n")


def main(names):
    os.makedirs(os.path.join(HERE, "recipes"), exist_ok=True)
    write_tokens()
    for name, (text, run) in CASES.items():
        if names and name not in names:
            continue
        losses = []
        tensors = OrderedDict(run(losses))
        tensors["losses"] = torch.stack(losses)
        with open(os.path.join(HERE, "recipes", f"{name}.pbtxt"), "w", encoding="utf-8") as file:
            file.write(f"batch_size: {BATCH}\n{text}")
        tensor_file.write(os.path.join(HERE, "recipes", f"{name}.safetensors"), tensors)


if __name__ == "__main__":
    main(sys.argv[1:])
