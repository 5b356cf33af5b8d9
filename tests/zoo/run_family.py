# SPDX-License-Identifier: Apache-2.0
"""Tests tiny checkpoints through the command line: run_family.py PLUMB CASE..

Imports each; compares logits, loss and gradients with the independent implementation's; continues a prompt
greedily with the KV cache; exports it, imports the export, and expects the same bits.
"""

import json
import os
import sys
import tempfile

from plumb_cli import (CHECKPOINTS, Failed, failed_with, largest_difference, norm, plumb, read_json,
                       read_safetensors, write_json)

LOGITS, LOSS, GRADIENT = 2e-4, 2e-5, 1e-4
# Gradients that are zero in theory, such as those of key biases, are noise below this part of the largest.
NOISE = 1e-5


def tokens_file(expected):
    """Returns the input of `eval --tokens`."""
    if "targets" not in expected:
        return expected["tokens"]
    types = {"token_types": expected["types"]} if "types" in expected else {}
    return {"sequences": expected["tokens"], "targets": expected["targets"], **types}


def evaluate(binary, run, expected, scratch):
    """Returns the loss, the logits and the gradients of a run."""
    def at(name):
        return os.path.join(scratch, name)

    write_json(at("tokens.json"), tokens_file(expected))
    plumb(binary, "eval", run, "--tokens", at("tokens.json"), "--logits", at("logits.safetensors"),
          "--gradients", at("gradients.safetensors"), "--grads", at("grads.json"), "--json")
    _, logits = read_safetensors(at("logits.safetensors"))["logits"]
    return read_json(at("grads.json"))["loss"], logits, read_safetensors(at("gradients.safetensors"))


def meaningful(logits, expected, vocab):
    """Returns logits [batch, seq, vocab] without those beyond the end of a shorter sequence."""
    lengths = [len(row) for row in expected["tokens"]]
    seq = max(lengths)
    return [logits[(row * seq + i) * vocab + j]
            for row, length in enumerate(lengths) for i in range(length) for j in range(vocab)]


def gradient_norms(imported, gradients):
    """Returns L2 norms of plumb's gradients by the checkpoint's names."""
    norms = {}
    for tensor in imported["tensors"]:
        parts = []
        for became in tensor.get("became", []):
            shape, values = gradients[became["tensor"]]
            if "part" in became:  # one of the stacked experts
                size = len(values) // shape[0]
                values = values[became["part"] * size:(became["part"] + 1) * size]
            parts.append(norm(values))
        if parts:
            norms[tensor["source"]] = norm(parts)
    return norms


def compare(expected, reference, loss, logits, norms, vocab):
    """Returns a line for each difference, with its size. Empty if there is none."""
    wrong = []
    difference = largest_difference(meaningful(logits, expected, vocab),
                                    meaningful(reference, expected, vocab))
    if difference > LOGITS:
        wrong.append(f"logits differ by {difference:.3g}")
    if not abs(loss - expected["loss"]) <= LOSS:
        wrong.append(f"loss is {loss}, not {expected['loss']}")
    largest = max(expected["grad_l2"].values())
    if norms.keys() != expected["grad_l2"].keys():
        wrong.append(f"gradients of {sorted(norms.keys() ^ expected['grad_l2'].keys())} on one side only")
    for name, wanted in expected["grad_l2"].items():
        if not abs(norms.get(name, 0) - wanted) <= GRADIENT * wanted + NOISE * largest:
            wrong.append(f"gradient of {name} has norm {norms.get(name)}, not {wanted}")
    return wrong


def continued(binary, run, expected, scratch):
    """Returns the ids that greedy decoding adds to the prompt."""
    path = os.path.join(scratch, "prompt.json")
    write_json(path, expected["prompt"])
    sampled = json.loads(plumb(binary, "sample", run, "--prompt-tokens", path, "--temperature", "0",
                               "--max-tokens", str(len(expected["greedy"])), "--json"))
    return sampled["samples"][0]["ids"]


def lost_tensors(source, exported, prefixes):
    """Returns the checkpoint's parameters that are missing or different in the exported file."""
    before = read_safetensors(os.path.join(source, "model.safetensors"))
    after = read_safetensors(os.path.join(exported, "model.safetensors"))
    # The text model alone is exported if the model also reads images.
    return [name for name in read_json(source, "expected.json")["grad_l2"]
            if not any(after.get(prefix + name.replace("language_model.", "")) == before[name]
                       for prefix in prefixes)]


def check_round_trip(binary, run, source, expected, logits, scratch):
    """Checks that the exported and imported model is the same, bit for bit."""
    exported, again = os.path.join(scratch, "exported"), os.path.join(scratch, "again")
    plumb(binary, "export", run, "--out", exported)
    plumb(binary, "import", exported, "--out", again)
    _, second, _ = evaluate(binary, again, expected, scratch)
    wrong = [] if second == logits else ["logits differ after export and import"]
    lost = lost_tensors(source, exported, ["", "transformer.", "model."])
    text, after = read_json(source, "config.json").get("text_config"), read_json(exported, "config.json")
    if text and (after["model_type"] != text["model_type"] or "text_config" in after
                 or "ForCausalLM" not in after["architectures"][0]):
        wrong.append("the export is not the text model alone")
    return wrong + [f"export lost {name}" for name in lost]


def check(binary, name, scratch):
    source, run = os.path.join(CHECKPOINTS, name), os.path.join(scratch, "run")
    expected, config = read_json(source, "expected.json"), read_json(source, "config.json")
    _, reference = read_safetensors(os.path.join(source, "expected.safetensors"))["logits"]
    plumb(binary, "import", source, "--out", run)
    loss, logits, gradients = evaluate(binary, run, expected, scratch)
    norms = gradient_norms(read_json(run, "import.json"), gradients)
    wrong = compare(expected, reference, loss, logits, norms,
                    config.get("text_config", config)["vocab_size"])
    if "greedy" in expected:
        tokens = continued(binary, run, expected, scratch)
        if tokens != expected["greedy"]:
            wrong.append(f"the greedy continuation is {tokens}, not {expected['greedy']}")
    else:
        path = os.path.join(scratch, "prompt.json")
        write_json(path, expected["tokens"][0])
        failed_with(binary, "bidirectional", "sample", run, "--prompt-tokens", path)
    return wrong + check_round_trip(binary, run, source, expected, logits, scratch)


def main():
    binary, names = sys.argv[1], sys.argv[2:]
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                wrong = check(binary, name, scratch)
            except Failed as error:
                wrong = [str(error)]
        bad += bool(wrong)
        for line in wrong:
            print(f"{name}: {line}")
    print(f"{len(names)} checkpoints, {bad} wrong")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
