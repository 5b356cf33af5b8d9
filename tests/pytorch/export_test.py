# SPDX-License-Identifier: Apache-2.0
"""Exports a trained run with `plumb export --format pytorch`, whose code has the logits of `plumb eval`; checks what is
refused, and that nothing is written then. Skipped without torch.

    export_test.py PLUMB EXAMPLES_DIRECTORY
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

import golden_test

MODEL = """n_layer: 2 n_head: 2 d_model: 8 context_length: 16
block { placement: "prores" norm: "rms_norm" }
"""


def main(plumb, examples):
    def run(*arguments):
        return subprocess.run([plumb, *map(str, arguments)], capture_output=True, text=True)

    def check(*arguments):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr

    def refuse(wanted, *arguments):
        out = directory / "refused"
        done = run("export", *arguments, "--format", "pytorch", "--out", out)
        assert done.returncode != 0 and wanted in done.stderr, (arguments, done.stderr)
        assert not out.exists(), arguments

    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        model, trained, out = directory / "model.pbtxt", directory / "run", directory / "out"
        model.write_text(MODEL)
        check("train", model, "--data", pathlib.Path(examples) / "data" / "names.txt", "--out", trained, "--set",
              "train.max_steps=5", "--set", "train.weight_decay=0.25")
        check("export", trained, "--format", "pytorch", "--out", out)
        module = golden_test.run_code((out / "model.py").read_text())
        exported = module.Model.from_safetensors(out / "model.safetensors")
        assert exported.step.item() == 5
        assert sorted(group["weight_decay"] for group in exported.parameter_groups()) == [0, 0.25]
        assert all(group["lr"] == group["lr_scale"] * 0.5 + group["lr_offset"] for group in exported.parameter_groups(0.5))
        tokens = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
        (directory / "tokens.json").write_text(json.dumps(tokens))
        check("eval", trained, "--tokens", directory / "tokens.json", "--logits", directory / "logits.safetensors")
        (logits,) = module.read_safetensors(directory / "logits.safetensors").values()
        difference = (exported.eval()(torch.tensor(tokens))[0] - logits).abs().max().item()
        assert difference <= 1e-5 * logits.abs().max().item(), difference

        refuse("vocab_size is missing", model)
        refuse("--set is for model files", trained, "--set", "model.d_model=16")
        refuse("a bidirectional model is not covered", model, "--set", "model.vocab_size=11", "--set",
               "model.bidirectional=true")
        refuse("drop them, or --format pytorch", trained, "--adapter")
        refuse("has no averaged weights", model, "--ema", "--set", "model.vocab_size=11")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
