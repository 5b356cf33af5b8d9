# SPDX-License-Identifier: Apache-2.0
"""Tests BERT's first files, which call gains gamma and biases beta: older_names.py PLUMB

The tiny BERT with those names must have the same logits as the other, bit for bit.
"""

import json
import os
import shutil
import struct
import sys
import tempfile

from plumb_cli import CHECKPOINTS, plumb, read_json
from run_family import evaluate


def rename(path, to):
    """Copies a safetensors file and changes names in its header."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    header = {name.replace("LayerNorm.weight", "LayerNorm.gamma")
              .replace("LayerNorm.bias", "LayerNorm.beta"): entry
              for name, entry in json.loads(data[8:8 + size]).items()}
    assert any("gamma" in name for name in header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(to, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data[8 + size:])


def logits_of(binary, source, scratch):
    run = os.path.join(scratch, "run")
    plumb(binary, "import", source, "--out", run)
    _, logits, _ = evaluate(binary, run, read_json(CHECKPOINTS, "bert", "expected.json"), scratch)
    shutil.rmtree(run)
    return logits


def main():
    binary, source = sys.argv[1], os.path.join(CHECKPOINTS, "bert")
    with tempfile.TemporaryDirectory() as scratch:
        older = os.path.join(scratch, "older")
        os.mkdir(older)
        shutil.copy(os.path.join(source, "config.json"), older)
        rename(os.path.join(source, "model.safetensors"), os.path.join(older, "model.safetensors"))
        same = logits_of(binary, older, scratch) == logits_of(binary, source, scratch)
    print("the same logits" if same else "logits differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
