# SPDX-License-Identifier: Apache-2.0
"""Writes adapters/: LoRA adapters of tiny checkpoints as PEFT saves them, and the logits of the models with the
adapters merged by merge_and_unload, in float32. Needs transformers and peft, from PyPI."""

import os
import shutil

import peft
import safetensors.torch
import torch
import transformers

from plumb_cli import CHECKPOINTS, HERE, read_json, write_json

ADAPTERS = os.path.join(HERE, "adapters")
# Name -> checkpoint, and arguments of LoraConfig.
CASES = {
    "llama_lora": ("llama", dict(r=2, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"])),
    "llama_patterns": ("llama", dict(
        r=3, lora_alpha=4, use_rslora=True, target_modules="all-linear", init_lora_weights="gaussian",
        rank_pattern={"k_proj": 1, "layers.1.mlp.up_proj": 2}, alpha_pattern={"model.layers.0.self_attn.o_proj": 9})),
    "llama_whole": ("llama", dict(r=2, lora_alpha=3, target_modules=["embed_tokens", "gate_proj"],
                                  modules_to_save=["lm_head", "norm"])),
    "gpt2_conv1d": ("gpt2", dict(r=2, lora_alpha=5, target_modules=["c_attn", "c_proj", "c_fc", "wpe"], bias="all",
                                 fan_in_fan_out=True)),
    "phi3_fused": ("phi3", dict(r=2, lora_alpha=5, target_modules=["qkv_proj", "gate_up_proj"])),
    "gpt_neox_fused": ("gpt_neox", dict(r=2, lora_alpha=5, bias="lora_only",
                                        target_modules=["query_key_value", "dense", "embed_in", "embed_out"])),
}


def make(case, directory, seed):
    """Saves the adapter of a case with random numbers, and the merged model's logits."""
    checkpoint, arguments = CASES[case]
    base = os.path.join(CHECKPOINTS, checkpoint)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **arguments))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    os.remove(os.path.join(directory, "README.md"))
    path = os.path.join(directory, "adapter_config.json")
    write_json(path, {**read_json(path), "base_model_name_or_path": checkpoint})
    merged = model.merge_and_unload().eval()
    tokens = torch.tensor(read_json(base, "expected.json")["tokens"])
    with torch.no_grad():
        logits = merged(tokens).logits
    safetensors.torch.save_file({"logits": logits.contiguous()}, os.path.join(directory, "expected.safetensors"))


def main():
    shutil.rmtree(ADAPTERS, ignore_errors=True)
    for i, case in enumerate(CASES):
        make(case, os.path.join(ADAPTERS, case), i)


if __name__ == "__main__":
    main()
