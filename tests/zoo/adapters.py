# SPDX-License-Identifier: Apache-2.0
"""Imports tiny checkpoints with LoRA adapters of PEFT: adapters.py PLUMB

Logits must be those of PEFT's merge_and_unload (adapters/, by make_peft_adapters.py; with PEFT installed also those of
other random adapters), and what plumb does not understand must be refused by name.
"""

import glob
import json
import os
import shutil
import struct
import sys
import tempfile

from lora import differ, logits
from plumb_cli import CHECKPOINTS, HERE, Failed, failed_with, plumb, read_json, read_safetensors, write_json

ADAPTERS = os.path.join(HERE, "adapters")
TOLERANCE = 1e-5  # of the largest logit
# Changes of adapter_config.json of llama_lora, and words of the error.
REFUSED = [
    ({"use_dora": True}, '"use_dora": plumb does not read this key'),
    ({"lora_bias": True}, '"lora_bias"'),
    ({"target_parameters": ["mlp.experts.gate_up_proj"]}, '"target_parameters"'),
    ({"trainable_token_indices": [1]}, '"trainable_token_indices"'),
    ({"layer_replication": [[0, 2]]}, '"layer_replication"'),
    ({"alora_invocation_tokens": [1, 2]}, '"alora_invocation_tokens"'),
    ({"a_new_key": 3}, '"a_new_key"'),
    ({"peft_type": "IA3"}, 'peft_type is "IA3"; only LORA is merged'),
    ({"init_lora_weights": "pissa"}, 'init_lora_weights is "pissa"'),
    ({"bias": "all"}, "bias was trained as a whole, and is not in the file"),
    ({"modules_to_save": ["lm_head"]}, "lm_head was trained as a whole, and is not in the file"),
    ({"r": 4}, "its matrices have a rank of 2, which r and rank_pattern deny"),
    ({"rank_pattern": {"q_proj": 4}}, "self_attn.q_proj: its matrices have a rank of 2"),
    ({"alpha_pattern": {".*q_proj": 4}}, 'alpha_pattern: ".*q_proj": 4'),
    ({"alpha_pattern": {"q_proj": 4, "self_attn.q_proj": 5}}, "several names of a pattern fit"),
    ({"lora_alpha": "6"}, "lora_alpha is not a number"),
]


def check_golden(binary, case, adapter, scratch):
    base = os.path.join(CHECKPOINTS, case)
    run = os.path.join(scratch, "run")
    plumb(binary, "import", base, "--adapter", adapter, "--out", run)
    tokens = read_json(base, "expected.json")["tokens"]
    expected = read_safetensors(os.path.join(adapter, "expected.safetensors"))["logits"][1]
    difference = differ(logits(binary, run, tokens, scratch), expected)
    if not difference <= TOLERANCE:
        raise Failed(f"logits differ by {difference:.3g}")
    plumb(binary, "export", run, "--out", os.path.join(scratch, "exported"))  # reads back what it writes


def base_of(case):
    """Returns the checkpoint of an adapter, the longest with whose name that of the adapter begins."""
    return max((name for name in os.listdir(CHECKPOINTS) if case.startswith(name + "_")), key=len)


def check_refused(binary, change, words):
    with tempfile.TemporaryDirectory() as scratch:
        adapter = os.path.join(scratch, "adapter")
        shutil.copytree(os.path.join(ADAPTERS, "llama_lora"), adapter)
        config = os.path.join(adapter, "adapter_config.json")
        write_json(config, {**read_json(config), **change})
        refuse(binary, "llama", adapter, words, scratch)


def refuse(binary, case, adapter, words, scratch):
    out = os.path.join(scratch, "run")
    failed_with(binary, words, "import", os.path.join(CHECKPOINTS, case), "--adapter", adapter, "--out", out)
    if os.path.exists(out):
        raise Failed("a refused import left files")


def rename(adapter, change):
    """Changes names of tensors, which must keep their lengths in the file's header."""
    path = os.path.join(adapter, "adapter_model.safetensors")
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    header = {change(name): entry for name, entry in json.loads(data[8:8 + size]).items()}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data[8 + size:])


def check_tensors(binary):
    """Checks that tensors of other models and other methods are refused by name."""
    for old, new, words in (
            ("lora_B", "lora_C", "is not a matrix A or B"),
            ("layers.0.self_attn.q_proj.lora_B", "layers.9.self_attn.q_proj.lora_B",
             '"layers.9.self_attn.q_proj.weight": the checkpoint has no such tensor to adapt'),
            ("layers.0.self_attn.q_proj.lora_B", "layers.9.self_attn.q_proj.lora_B",
             "layers.0.self_attn.q_proj: one of the matrices A and B is missing"),
            ("lora_A.weight", "lora_magnitude_vector", "is not a matrix A or B"),
            ("q_proj", "up_proj", ", and \"model.layers.0.mlp.up_proj.weight\" [28, 24]"),
            ("base_model.model.", "", "does not begin with base_model.model.")):
        with tempfile.TemporaryDirectory() as scratch:
            adapter = os.path.join(scratch, "adapter")
            shutil.copytree(os.path.join(ADAPTERS, "llama_lora"), adapter)
            rename(adapter, lambda name: name.replace("self_attn.q_proj", "mlp.up_proj") if new == "up_proj"
                   else name.replace(old, new))
            refuse(binary, "llama", adapter, words, scratch)


def check_models(binary):
    """Checks that an adapter of another model, and one of a tied embedding, are refused."""
    with tempfile.TemporaryDirectory() as scratch:
        refuse(binary, "gpt2", os.path.join(ADAPTERS, "llama_lora"), "the checkpoint has no such tensor", scratch)
        base = os.path.join(scratch, "base")
        shutil.copytree(os.path.join(CHECKPOINTS, "llama"), base)
        failed_with(binary, "adapter_config.json: there is no such file", "import", base, "--adapter", base, "--out",
                    os.path.join(scratch, "run"))
        failed_with(binary, "--adapter", "import", os.path.join(ADAPTERS, "llama_lora"), "--out",
                    os.path.join(scratch, "run"))
        tied = os.path.join(scratch, "tied")
        shutil.copytree(os.path.join(ADAPTERS, "gpt2_conv1d"), tied)
        rename(tied, lambda name: name.replace("wpe", "wte"))
        refuse(binary, "gpt2", tied, '"wte.weight" is the embedding and the head', scratch)


def check_installed(binary):
    """Compares adapters that the installed PEFT makes of other random numbers."""
    try:
        import make_peft_adapters
    except ImportError as error:
        print(f"without adapters that PEFT makes now: {error}")
        return
    for case, (checkpoint, _) in make_peft_adapters.CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            adapter = os.path.join(scratch, "adapter")
            make_peft_adapters.make(case, adapter, seed=100)
            check_golden(binary, checkpoint, adapter, scratch)


def main():
    binary, = sys.argv[1:]
    checks = []
    for adapter in sorted(glob.glob(os.path.join(ADAPTERS, "*"))):
        case = os.path.basename(adapter)

        def golden(case=case, adapter=adapter):
            with tempfile.TemporaryDirectory() as scratch:
                check_golden(binary, base_of(case), adapter, scratch)
        checks.append((case, golden))
    checks += [(words, lambda change=change, words=words: check_refused(binary, change, words))
               for change, words in REFUSED]
    checks += [(check.__name__, lambda check=check: check(binary))
               for check in (check_tensors, check_models, check_installed)]
    wrong = 0
    for name, check in checks:
        try:
            check()
        except Failed as error:
            wrong += 1
            print(f"{name}: {error}")
    print(f"{len(checks)} checks, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
