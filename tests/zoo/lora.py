# SPDX-License-Identifier: Apache-2.0
"""Adapts tiny checkpoints by LoRA through the command line: lora.py PLUMB

Trains updates of an imported model, whose own weights must not change. The merged export must compute the
same, and the export for PEFT must have the names, shapes and configuration that PEFT itself writes
(peft_layout.json, by make_peft_layout.py), and give the merged weights when it is added as PEFT does.
"""

import glob
import os
import shutil
import sys
import tempfile

from plumb_cli import (CHECKPOINTS, HERE, Failed, failed_with, largest_difference, plumb, read_json,
                       read_safetensors, write_json)

RANK, ALPHA = 2, 6
ALL = ("q", "k", "v", "o", "gate", "up", "down")
# Checkpoint -> updated projections. Queries, keys and values are fused in most, in different orders.
CASES = {"llama": ("q", "v"), "qwen2": ALL, "gpt2": ALL, "phi3": ALL, "gpt_neox": ALL, "falcon_40b": ("q", "k")}
TEXT = "the quick brown fox\njumps over\nthe lazy dog\n" * 20


def adapt(binary, imported, run, targets, *settings, freezes=True):
    lets = [f"rank = {RANK}", f"alpha = {ALPHA}"] + [f"on_{p} = {int(p in targets)}" for p in ALL]
    words = [word for i, let in enumerate(lets) for word in ("--set", f"model.adapter.let[{i}]={let}")]
    text = os.path.join(os.path.dirname(run), "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write(TEXT)
    plumb(binary, "train", os.path.join(imported, "model.pbtxt"), "--init", imported, "--data", text, "--out", run,
          "--set", "model.adapter.extends=lora", *words, *(["--set", "train.import=lora"] if freezes else []),
          "--set", "train.max_steps=12", "--set", "train.learning_rate=0.05", *settings, "--quiet")


def logits(binary, run, tokens, scratch):
    """Returns the logits of a run for sequences of tokens."""
    path = os.path.join(scratch, "tokens.json"), os.path.join(scratch, "logits.safetensors")
    write_json(path[0], tokens)
    plumb(binary, "eval", run, "--tokens", path[0], "--logits", path[1], "--json")
    return read_safetensors(path[1])["logits"][1]


def differ(a, b):
    """Returns the largest difference, relative to the largest value."""
    return largest_difference(a, b) / max(abs(value) for value in b)


def changed_weights(run, imported):
    """Returns the names of the imported model's weights that training changed."""
    checkpoint = sorted(glob.glob(os.path.join(run, "checkpoints", "*", "model.safetensors")))[-1]
    after = read_safetensors(checkpoint)
    before = read_safetensors(os.path.join(imported, "weights.safetensors"))
    return [name for name, (_, values) in before.items() if after[name][1] != values]


def added(config, tensors, merged, base):
    """Returns the largest difference between the merged weights and the base's with PEFT's updates, relative to the
    largest change of a weight."""
    largest, change = 0, 0
    for name, (shape, a) in tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name[len("base_model.model."):-len(".lora_A.weight")]
        (out, rank), b = tensors[name.replace("lora_A", "lora_B")]
        assert rank == shape[0] == config["rank_pattern"].get(module, config["r"]), module
        width = shape[1]
        scale = config["alpha_pattern"].get(module, config["lora_alpha"]) / rank
        before, after = base[module + ".weight"][1], merged[module + ".weight"][1]
        for row in range(out):
            for column in range(width):
                delta = scale * sum(b[row * rank + r] * a[r * width + column] for r in range(rank))
                at = column * out + row if config["fan_in_fan_out"] else row * width + column
                change = max(change, abs(delta))
                largest = max(largest, abs(before[at] + delta - after[at]))
    return largest / change


def check(binary, name, targets, scratch):
    """Returns a line for each thing that is wrong."""
    def at(path):
        return os.path.join(scratch, path)

    source = os.path.join(CHECKPOINTS, name)
    tokens = read_json(source, "expected.json")["tokens"]
    plumb(binary, "import", source, "--out", at("base"), "--copy")
    adapt(binary, at("base"), at("run"), targets)
    wrong = [f"{weight} was trained" for weight in changed_weights(at("run"), at("base"))]
    base, adapted = (logits(binary, at(run), tokens, scratch) for run in ("base", "run"))
    if not differ(adapted, base) > 1e-2:
        wrong.append("the updates change nothing")

    plumb(binary, "export", at("run"), "--out", at("merged"))
    plumb(binary, "import", at("merged"), "--out", at("again"))
    if not differ(logits(binary, at("again"), tokens, scratch), adapted) <= 1e-5:
        wrong.append("the merged model computes something else")

    plumb(binary, "export", at("run"), "--adapter", "--out", at("adapter"))
    plumb(binary, "export", at("base"), "--out", at("exported"))
    config = read_json(at("adapter"), "adapter_config.json")
    tensors = read_safetensors(at("adapter/adapter_model.safetensors"))
    merged, exported = (read_safetensors(at(path + "/model.safetensors")) for path in ("merged", "exported"))
    if not added(config, tensors, merged, exported) <= 1e-5:
        wrong.append("PEFT's updates are not those that were merged")
    layout = read_json(HERE, "peft_layout.json")[name]
    shapes = {tensor: shape for tensor, (shape, _) in tensors.items()}
    wrong += [f"{tensor} is {shapes.get(tensor)}, PEFT has {layout['tensors'].get(tensor)}"
              for tensor in sorted(shapes.keys() | layout["tensors"].keys())
              if shapes.get(tensor) != layout["tensors"].get(tensor)]
    wrong += [f"{key} is {config.get(key)}, PEFT has {value}" for key, value in layout["config"].items()
              if config.get(key) != value]
    plumb(binary, "import", source, "--adapter", at("adapter"), "--out", at("with_adapter"))
    if not differ(logits(binary, at("with_adapter"), tokens, scratch), adapted) <= 1e-5:
        wrong.append("the base imported with the exported adapter computes something else")
    return wrong


def check_refusals(binary, scratch):
    """Checks that what cannot be exported is refused, with a reason."""
    def at(path):
        return os.path.join(scratch, path)

    plumb(binary, "import", os.path.join(CHECKPOINTS, "llama"), "--out", at("base"))
    failed_with(binary, "has no adapter", "export", at("base"), "--adapter", "--out", at("out"))
    with open(at("base/model.pbtxt"), encoding="utf-8") as file:
        text = file.read()
    with open(at("model.pbtxt"), "w", encoding="utf-8") as file:
        file.write(text + 'adapter { linear { name: "a" out: "2" } linear { name: "b" } inside { point: "attention.q" '
                   'rule: "q = q + 0.5 * q + b(a(input))" } }\n')
    with open(at("text.txt"), "w", encoding="utf-8") as file:
        file.write(TEXT)
    plumb(binary, "train", at("model.pbtxt"), "--init", at("base"), "--data", at("text.txt"), "--out", at("run"),
          "--set", "train.max_steps=1", "--quiet")
    failed_with(binary, "does not only add scale * b(a(input))", "export", at("run"), "--out", at("out"))
    adapt(binary, at("base"), at("all"), ALL, freezes=False)
    failed_with(binary, "weights have changed besides the adapter", "export", at("all"), "--adapter", "--out", at("out"))
    left = ["a refused export left files"] if os.path.exists(at("out")) else []
    plumb(binary, "export", at("all"), "--out", at("out"))
    return left


def check_types(binary, scratch):
    """Checks that config.json states the type of the weights that are written, under every key."""
    source, copy, out = os.path.join(CHECKPOINTS, "llama"), os.path.join(scratch, "copy"), os.path.join(scratch, "out")
    shutil.copytree(source, copy)
    write_json(os.path.join(copy, "config.json"), {**read_json(source, "config.json"), "dtype": "bfloat16"})
    plumb(binary, "import", copy, "--out", os.path.join(scratch, "base"))
    plumb(binary, "export", os.path.join(scratch, "base"), "--out", out)
    config = read_json(out, "config.json")
    if (config["dtype"], config["torch_dtype"]) != ("float32", "float32"):
        return [f"f32 weights are described as {config['dtype']} and {config['torch_dtype']}"]
    return []


def main():
    binary, failed = sys.argv[1], 0
    checks = [(name, lambda scratch, n=name, t=targets: check(binary, n, t, scratch))
              for name, targets in CASES.items()]
    checks += [("refusals", lambda scratch: check_refusals(binary, scratch)),
               ("types", lambda scratch: check_types(binary, scratch))]
    for name, run in checks:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                wrong = run(scratch)
            except Failed as error:
                wrong = [str(error)]
        failed += len(wrong)
        for line in wrong:
            print(f"{name}: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
