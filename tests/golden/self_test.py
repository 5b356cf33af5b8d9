# SPDX-License-Identifier: Apache-2.0
"""Checks the golden implementation itself: python3 tests/golden/self_test.py

Compares its parts with PyTorch's, reads the files a second time, and compares float32 with float64
over all cases, which shows how much a correct float32 program may differ.
"""

import json
import os
import struct

import torch
import torch.nn.functional as F

import decoder
import generate
import rope


def check_attention():
    """Compares with torch.nn.functional.multi_head_attention_forward."""
    config = generate.Config(d_model=12, n_head=3, qkv_bias=True, out_bias=True)
    model = decoder.Decoder(config, seed=1)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    ours = model.attention(0, x)
    parts = {name.split("attention.")[1]: value for name, value in model.parameters.items()}
    theirs, _ = F.multi_head_attention_forward(
        x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), 12, 3,
        torch.cat([parts[f"{t}.weight"] for t in "qkv"]),
        torch.cat([parts[f"{t}.bias"] for t in "qkv"]),
        None, None, False, 0.0, parts["o.weight"], parts["o.bias"], need_weights=False,
        attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1))
    torch.testing.assert_close(ours, theirs.transpose(0, 1))


def check_rotation():
    """Compares with complex multiplication: e^(i position frequency) times (x_i, x_{i + half})."""
    x = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    position = torch.arange(6, dtype=torch.float64)[:, None]
    angle = position * 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(decoder.rotate(x, 100.0), torch.cat([turned.real, turned.imag], -1))


def check_other_rotations():
    """Compares rope.py's plain case with decoder.py; scaling by 1, or of no pair, changes nothing."""
    x = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    plain = rope.frequencies(100.0, 8)
    torch.testing.assert_close(rope.turn(x, plain), decoder.rotate(x, 100.0))
    halves = torch.cat([x[..., 0::2], x[..., 1::2]], -1)
    turned = decoder.rotate(halves, 100.0)
    pairs = torch.stack([turned[..., :4], turned[..., 4:]], -1).flatten(-2)
    torch.testing.assert_close(rope.turn(x, plain, interleaved=True), pairs)
    torch.testing.assert_close(rope.turn(x, plain[:2])[..., 4:], x[..., 4:])
    torch.testing.assert_close(rope.llama3(plain, 1, 1, 4, 40), plain)
    torch.testing.assert_close(rope.yarn(100, 8, 1, 40), plain)


def check_grouped_queries():
    """Query heads 0 and 1 share key head 0, which equals repeating key and value heads."""
    grouped = decoder.Decoder(generate.Config(n_head=4, n_kv_head=2), seed=2)
    full = decoder.Decoder(generate.Config(n_head=4), seed=3)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    expected = grouped.attention(0, x)
    for name, value in grouped.parameters.items():
        if name.endswith(("k.weight", "v.weight")):
            first, second = value[:2], value[2:]
            value = torch.cat([first, first, second, second])
        full.parameters[name] = value
    torch.testing.assert_close(full.attention(0, x), expected)


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__")
    tensors, end = {}, 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = "i" if entry["dtype"] == "I32" else "f"
        values = struct.unpack_from(f"<{(end - begin) // 4}{kind}", data, 8 + size + begin)
        tensors[name] = torch.tensor(values).reshape(entry["shape"])
    assert 8 + size + end == len(data) and size % 8 == 0, path
    return tensors


def check_files(case, result):
    folder = os.path.join(generate.HERE, case.name)
    if case.name in generate.FOLDERS:
        tensors = read(os.path.join(folder, "weights.safetensors"))
        tensors.update(read(os.path.join(folder, "expected.safetensors")))
        with open(os.path.join(folder, "model.pbtxt")) as file:
            assert file.read() == generate.model_text(case)
    else:
        tensors = read(os.path.join(generate.HERE, "cases", case.name + ".safetensors"))
        assert torch.equal(tensors.pop("tokens"), result.tokens), case.name
    expected = generate.expected(result)
    assert set(tensors) == set(result.weights) | set(expected), case.name
    for name, value in result.weights.items():
        assert torch.equal(tensors[name].double(), value), name  # exact in float32
    for name, value in expected.items():
        torch.testing.assert_close(tensors[name].double(), value, rtol=1e-6, atol=1e-12)


def main():
    torch.manual_seed(0)
    check_attention()
    check_rotation()
    check_other_rotations()
    check_grouped_queries()
    with open(os.path.join(generate.HERE, "models.txt")) as file:
        assert file.read() == generate.models()
    worst_logit = worst_gradient = 0.0
    for case in generate.all_cases():
        exact, single = generate.run(case), generate.run(case, torch.float32)
        check_files(case, exact)
        dead = [name for name, grad in exact.gradients.items() if not grad.abs().max() > 1e-12]
        if dead:
            print(f"{case.name}: no gradient reaches {', '.join(dead)}")
        largest = max(grad.abs().max().item() for grad in exact.gradients.values())
        worst_logit = max(worst_logit, (single.logits - exact.logits).abs().max().item()
                          / exact.logits.abs().max().item())
        worst_gradient = max(worst_gradient, *(
            (single.gradients[name] - grad).abs().max().item() / largest
            for name, grad in exact.gradients.items()))
    print(f"float32 against float64: logits differ by {worst_logit:.1e} of the largest, "
          f"gradients by {worst_gradient:.1e} of the model's largest")


if __name__ == "__main__":
    main()
