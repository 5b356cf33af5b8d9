#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures GPT-2 124M in Hugging Face's layout, with random weights: import, sampling, fine-tuning.

    bench/import_gpt2.py PLUMB [--dtype f32|bf16|f16] [--directory DIR] [--tokens N] [--steps N] [--json]

Measures, each in a separate process: the import; a prompt of 512 tokens and 128 more, greedily, with the
weights as f32, bf16 and int8 (tokens per second, time to the first token, peak memory); then 20 steps of
training with post-norm in the upper six layers, starting from the imported weights. `plumb bench` of the
same model measures the speed that decoding could reach.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "import"))
import checkpoints  # noqa: E402

PROMPT = 512


def run(words):
    """Returns the output of a command, its seconds and its peak memory in bytes."""
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)}:\n{err}")
    return out, time.perf_counter() - begin, usage.ru_maxrss * 1024


def make_checkpoint(directory, dtype):
    config = checkpoints.gpt2_config(layers=12, head=12, width=768, vocab=50257, context=1024)
    tensors = checkpoints.convert(checkpoints.gpt2_tensors(config, scale=0.02), dtype)
    checkpoints.write(directory, config, tensors)


def sample(plumb, run_directory, prompt, tokens, weights):
    out, seconds, memory = run([plumb, "sample", run_directory, "--prompt-tokens", prompt, "--temperature", "0",
                                "--max-tokens", str(tokens), "--weights", weights, "--json"])
    drawn = json.loads(out)["samples"][0]
    decoding = drawn["seconds"] - drawn["first_seconds"]
    return {
        "weights": weights,
        "first_token_seconds": drawn["first_seconds"],
        "open_seconds": seconds - drawn["seconds"],
        "tokens_per_second": (drawn["tokens"] - 1) / decoding,
        "peak_bytes": memory,
    }


def fine_tune(plumb, run_directory, directory, steps):
    with open(os.path.join(run_directory, "model.pbtxt")) as file:
        model = file.read()
    block = 'block { placement: "pre" norm: "ln" }'
    upper = "layers { repeat: 6 %s }\nlayers { repeat: 6 %s }" % (block, block.replace('"pre"', '"post"'))
    assert block in model
    path = os.path.join(directory, "post_above.pbtxt")
    with open(path, "w") as file:
        file.write(model.replace(block, upper))
    text = os.path.join(directory, "text.txt")
    with open(text, "w") as file:
        file.write("All happy families are alike; each unhappy family is unhappy in its own way.\n" * 400)
    out, seconds, memory = run([plumb, "train", path, "--init", run_directory, "--data", text, "--out",
                                os.path.join(directory, "tuned"), "--json", "--quiet", "--set", f"train.max_steps={steps}",
                                "--set", "train.batch_size=1", "--set", "train.learning_rate=1e-4", "--set", "train.data.vocabulary=BYTES"])
    report = json.loads(out)
    return {
        "seconds": seconds,
        "tokens_per_second": report["tokens_per_second"],
        "loss_last": report["loss_last_100"],
        "init": report["init"],
        "peak_bytes": memory,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plumb")
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16", "f16"))
    parser.add_argument("--directory", help="where the checkpoint is made, and kept; default: a temporary one")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        source, imported = os.path.join(directory, "gpt2"), os.path.join(directory, "run")
        # Runs in a separate process, because the peak memory of a child includes its parent's at the fork.
        maker = multiprocessing.Process(target=make_checkpoint, args=(source, options.dtype))
        maker.start()
        maker.join()
        prompt = os.path.join(directory, "prompt.json")
        with open(prompt, "w") as file:
            json.dump([[(i * 7919) % 50257 for i in range(PROMPT)]], file)
        out, seconds, memory = run([options.plumb, "import", source, "--out", imported, "--json"])
        result = {"import": {**json.loads(out), "seconds": seconds, "peak_bytes": memory}}
        result["sample"] = [
            sample(options.plumb, imported, prompt, options.tokens, weights) for weights in ("f32", "bf16", "int8")
        ]
        if options.steps > 0:
            result["fine_tuning"] = fine_tune(options.plumb, imported, directory, options.steps)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    mib = 1 << 20
    print(f"import {result['import']['seconds']:.2f} s, peak {result['import']['peak_bytes'] / mib:.0f} MiB")
    for each in result["sample"]:
        print(f"{each['weights']:5} open {each['open_seconds'] * 1000:6.0f} ms  first token {each['first_token_seconds']:6.2f} s  "
              f"{each['tokens_per_second']:6.1f} tokens/s  peak {each['peak_bytes'] / mib:.0f} MiB")
    if "fine_tuning" in result:
        tuned = result["fine_tuning"]
        print(f"fine-tuning: {tuned['tokens_per_second']:.0f} tokens/s, loss {tuned['loss_last']:.3f}, "
              f"{tuned['init']['taken']} tensors taken, {len(tuned['init']['drawn'])} new, "
              f"{len(tuned['init']['left'])} dropped, peak {tuned['peak_bytes'] / mib:.0f} MiB")


if __name__ == "__main__":
    main()
