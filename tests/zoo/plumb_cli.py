# SPDX-License-Identifier: Apache-2.0
"""The command line, and the files that it reads and writes, with only the standard library."""

import json
import math
import os
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKPOINTS = os.path.join(HERE, "checkpoints")


class Failed(Exception):
    """Raised if plumb ended with an error or if numbers differ."""


def plumb(binary, *arguments):
    """Runs plumb, which must succeed. Returns its standard output."""
    run = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=300)
    if run.returncode != 0:
        raise Failed(f"plumb {' '.join(arguments)}: {run.returncode}\n{run.stderr.strip()}")
    return run.stdout


def failed_with(binary, words, *arguments):
    """Runs plumb, which must fail with these words. Returns its standard error."""
    run = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=300)
    if run.returncode <= 0 or words not in run.stderr:
        raise Failed(f"plumb {' '.join(arguments)}: {run.returncode}, and should fail with "
                     f"{words!r}\n{run.stderr.strip()}")
    return run.stderr


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def read_safetensors(path):
    """Returns name -> (shape, list of numbers) of a float32 file."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", (path, name, entry["dtype"])
        begin, end = entry["data_offsets"]
        values = struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + size + begin)
        tensors[name] = (entry["shape"], values)
    return tensors


def norm(values):
    return math.sqrt(math.fsum(v * v for v in values))


def largest_difference(a, b):
    """Returns the largest difference; infinity if one is NaN, so that it exceeds every tolerance."""
    assert len(a) == len(b), (len(a), len(b))
    differences = [abs(x - y) for x, y in zip(a, b)]
    return math.inf if any(math.isnan(d) for d in differences) else max(differences)
