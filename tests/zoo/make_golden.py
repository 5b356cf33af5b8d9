# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny checkpoints: python3 tests/zoo/make_golden.py [case ...]

Needs only PyTorch 1.13 or later. README.md describes the files.
"""

import json
import os
import sys
import zlib

import torch
import torch.nn.functional as F

import cases
from checkpoint import Checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "golden"))

import tensor_file  # noqa: E402  (in tests/golden)

BATCH, SEQ, PROMPT, CONTINUED = 2, 11, 5, 16
# Minimum margins of decisions that float32 must not change: greedy tokens, routers, sides of ReLU's kink.
SMALLEST_LEAD, SMALLEST_MARGIN = 2e-3, 2e-5


def draw(generator, vocab, *shape):
    return torch.randint(vocab, shape, generator=generator)


def continue_greedily(model, prompt):
    """Returns the 16 most likely tokens one after the other, and the smallest lead of one over the next."""
    tokens, lead = prompt, float("inf")
    for _ in range(CONTINUED):
        best = model.forward(tokens[None])[0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        tokens = torch.cat([tokens, best.indices[:1]])
    return tokens[len(prompt):], lead


def decoder_run(checkpoint, model, generator):
    """Returns the next-token loss of two sequences, and a continuation that a float32 run must reproduce."""
    vocab = checkpoint.config.vocab_size
    tokens = draw(generator, vocab, BATCH, SEQ)
    logits = model.forward(tokens)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    prompt = draw(generator, vocab, PROMPT)
    with torch.no_grad():
        continued, lead = continue_greedily(model, prompt)
    fits = lead > SMALLEST_LEAD and len(set(continued.tolist())) > 3
    return fits, tokens.tolist(), logits, loss, {"prompt": prompt.tolist(),
                                                 "greedy": continued.tolist()}


def encoder_run(checkpoint, model, generator):
    """Returns the loss at masked positions. The second sequence is shorter, and tokens have types."""
    config = checkpoint.config
    lengths = [SEQ, SEQ - 3]
    tokens = draw(generator, config.vocab_size, BATCH, SEQ)
    types = (torch.arange(SEQ) >= 6).long().expand(BATCH, SEQ) % config.type_vocab_size
    logits = model.forward(tokens, types, lengths)
    targets = torch.full_like(tokens, -100)
    for row, length in enumerate(lengths):
        for at in range(1, length, 3):
            targets[row, at] = draw(generator, config.vocab_size, 1)[0]
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    loss.backward()

    def rows(tensor):
        return [row[:length].tolist() for row, length in zip(tensor, lengths)]

    return True, rows(tokens), logits, loss, {"types": rows(types), "targets": rows(targets)}


def make(name, model_class, config):
    """Tries seeds until all decisions have margins that float32 does not change."""
    run = encoder_run if model_class.__module__ == "bert" else decoder_run
    for attempt in range(200):
        seed = zlib.crc32(f"{name} {attempt}".encode())
        checkpoint = Checkpoint(config, seed)
        model = model_class(checkpoint)
        fits, *found = run(checkpoint, model, torch.Generator().manual_seed(seed + 1))
        if fits and checkpoint.smallest_margin > SMALLEST_MARGIN:
            return (checkpoint, *found)
    raise SystemExit(f"{name}: no seed keeps away from ties")


def write_json(folder, name, value):
    """Writes one field per line; only the norms of gradients have a line each."""
    lines = (f" {json.dumps(key)}: " + json.dumps(field, indent=2 if key == "grad_l2" else None)
             for key, field in value.items())
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def write(name, config, checkpoint, tokens, logits, loss, more):
    folder = os.path.join(HERE, "checkpoints", name)
    os.makedirs(folder, exist_ok=True)
    write_json(folder, "config.json", config)
    tensor_file.write(os.path.join(folder, "model.safetensors"),
                      {**checkpoint.parameters, **checkpoint.buffers})
    tensor_file.write(os.path.join(folder, "expected.safetensors"), {"logits": logits})
    norms = {key: value.grad.norm().item() for key, value in checkpoint.parameters.items()}
    expected = {"tokens": tokens, **more, "loss": loss.item(), "grad_l2": norms}
    write_json(folder, "expected.json", expected)


def main():
    wanted = sys.argv[1:]
    for name, model_class, config in cases.all_cases():
        if wanted and name not in wanted:
            continue
        checkpoint, *found = make(name, model_class, config)
        write(name, config, checkpoint, *found)
        count = sum(p.numel() for p in checkpoint.parameters.values())
        print(f"{name}: {count} parameters, loss {found[2].item():.4f}", flush=True)


if __name__ == "__main__":
    main()
