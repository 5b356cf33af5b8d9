# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors files (https://github.com/huggingface/safetensors) without a library."""

import json
import struct


def write(path, tensors):
    """Writes `tensors`, name -> tensor, in order, as float32, or as int32 if they hold integers."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        dtype, letter = ("F32", "f") if tensor.is_floating_point() else ("I32", "i")
        values = tensor.detach().flatten().tolist()
        blobs.append(struct.pack(f"<{len(values)}{letter}", *values))
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blobs[-1])]}
        offset += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.write(b"".join(blobs))
