"""Writes safetensors files (https://github.com/huggingface/safetensors) without a library."""

import json
import struct


def write(path, tensors):
    """`tensors`: name -> float tensor. Stored as float32, in order."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        values = tensor.detach().flatten().tolist()
        blobs.append(struct.pack(f"<{len(values)}f", *values))
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blobs[-1])]}
        offset += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.write(b"".join(blobs))
