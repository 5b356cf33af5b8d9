# SPDX-License-Identifier: Apache-2.0
"""Writes peft_layout.json: the tensors and the configuration that PEFT writes for the cases of lora.py. Needs
transformers and peft, from PyPI."""

import json
import os
import tempfile

import peft
import safetensors.torch
import transformers

from lora import ALPHA, CASES, RANK
from plumb_cli import CHECKPOINTS, HERE

# Checkpoint -> module -> number of plumb's projections that are fused in it.
MODULES = {
    "llama": {"q_proj": 1, "v_proj": 1},
    "qwen2": {name: 1 for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")},
    "gpt2": {"c_attn": 3, "c_proj": 1, "c_fc": 1},
    "phi3": {"qkv_proj": 3, "o_proj": 1, "gate_up_proj": 2, "down_proj": 1},
    "gpt_neox": {"query_key_value": 3, "dense": 1, "dense_h_to_4h": 1, "dense_4h_to_h": 1},
    "falcon_40b": {"query_key_value": 2},
}
KEYS = ("peft_type", "task_type", "fan_in_fan_out", "inference_mode")


def main():
    layouts = {}
    for name in CASES:
        modules = MODULES[name]
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(CHECKPOINTS, name))
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, target_modules=list(modules),
                                 rank_pattern={module: RANK * n for module, n in modules.items()},
                                 alpha_pattern={module: ALPHA * n for module, n in modules.items()},
                                 fan_in_fan_out=name == "gpt2")
        with tempfile.TemporaryDirectory() as scratch:
            peft.get_peft_model(model, config).save_pretrained(scratch)
            tensors = safetensors.torch.load_file(os.path.join(scratch, "adapter_model.safetensors"))
            with open(os.path.join(scratch, "adapter_config.json"), encoding="utf-8") as file:
                saved = json.load(file)
        layouts[name] = {"config": {key: saved[key] for key in KEYS},
                         "tensors": {key: list(value.shape) for key, value in sorted(tensors.items())}}
    with open(os.path.join(HERE, "peft_layout.json"), "w", encoding="utf-8") as file:
        json.dump(layouts, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
