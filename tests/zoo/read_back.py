# SPDX-License-Identifier: Apache-2.0
"""Reads a directory that plumb exported with the independent implementation.

read_back.py PLUMB [CASE] imports the case (gpt2), exports it, and computes its logits in PyTorch from the
exported files. They must equal the original's. Without PyTorch the test is skipped with a message.
"""

import os
import sys
import tempfile

from plumb_cli import CHECKPOINTS, Failed, largest_difference, plumb, read_json, read_safetensors

try:
    import torch
except ImportError:
    print("skipped: PyTorch was not found")
    sys.exit(0)

import cases  # noqa: E402
from checkpoint import Checkpoint, Config  # noqa: E402


def logits_of(folder, known, model_class, tokens):
    """Returns a forward pass over the tensors of a directory; a missing tensor is an error.

    `known` are the names that the model requests; those in the directory may have a prefix.
    """
    checkpoint = Checkpoint(Config(read_json(folder, "config.json")), seed=0)
    for name, (shape, values) in read_safetensors(os.path.join(folder, "model.safetensors")).items():
        name = next((ending for ending in known if name.endswith("." + ending)), name)
        checkpoint.parameters[name] = torch.tensor(values, dtype=torch.float64).reshape(shape)
    given = set(checkpoint.parameters)
    with torch.no_grad():
        logits = model_class(checkpoint).forward(torch.tensor(tokens))
    drawn = set(checkpoint.parameters) - given
    if drawn:
        raise Failed(f"not exported: {', '.join(sorted(drawn))}")
    return logits.flatten().tolist()


def main():
    binary, name = sys.argv[1], (sys.argv[2:] or ["gpt2"])[0]
    source = os.path.join(CHECKPOINTS, name)
    model_class = next(model for case, model, _ in cases.all_cases() if case == name)
    with tempfile.TemporaryDirectory() as scratch:
        run, exported = os.path.join(scratch, "run"), os.path.join(scratch, "exported")
        plumb(binary, "import", source, "--out", run)
        plumb(binary, "export", run, "--out", exported)
        expected = read_json(source, "expected.json")
        computed = logits_of(exported, expected["grad_l2"], model_class, expected["tokens"])
    _, reference = read_safetensors(os.path.join(source, "expected.safetensors"))["logits"]
    difference = largest_difference(computed, reference)
    print(f"{name}: read back, logits differ by {difference:.2g}")
    return 0 if difference < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
