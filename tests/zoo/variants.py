# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints saved by transformers: variants.py PLUMB [--family NAME ...] [--keep DIR]

Creates a tiny model with random weights of every rotary family, with every scaling of its positions, saves it
with save_pretrained, and compares plumb's logits and greedy tokens with those of transformers. The layout is
that of the installed version of transformers: rope_scaling in version 4, rope_parameters in 5. If plumb
refuses a variant, that is printed, and is an error unless the variant is in REFUSED.

Needs torch and transformers. Without them it is skipped with a message.
"""

import argparse
import json
import math
import os
import sys
import tempfile

from plumb_cli import Failed, largest_difference, plumb, read_safetensors, write_json

LOGITS = 2e-4
BATCH, SEQ, PROMPT, CONTINUED = 2, 24, 5, 12
ORIGINAL, FACTOR, CONTEXT = 16, 4.0, 64

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, max_position_embeddings=CONTEXT, pad_token_id=0, bos_token_id=1,
             eos_token_id=2)
GROUPED = dict(SIZES, num_key_value_heads=2)
EXPERTS = dict(GROUPED, num_experts_per_tok=2)
# model_type: arguments of its configuration.
FAMILIES = {
    "llama": dict(GROUPED, head_dim=12),
    "mistral": dict(GROUPED, sliding_window=9, head_dim=8),
    "mixtral": dict(EXPERTS, num_local_experts=4, sliding_window=None, head_dim=8),
    "qwen2": dict(GROUPED, use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen3": dict(GROUPED, head_dim=12),
    "qwen3_moe": dict(EXPERTS, head_dim=12, num_experts=4, moe_intermediate_size=24,
                      use_sliding_window=True, sliding_window=7, norm_topk_prob=True),
    "gemma": dict(GROUPED, head_dim=12),
    "gemma2": dict(GROUPED, head_dim=12, sliding_window=9, query_pre_attn_scalar=20),
    "gemma3_text": dict(GROUPED, head_dim=12, sliding_window=9, query_pre_attn_scalar=20,
                        num_hidden_layers=7),
    "olmo": dict(GROUPED, clip_qkv=0.5),
    "olmo2": dict(GROUPED),
    "granite": dict(GROUPED, residual_multiplier=0.7, embedding_multiplier=2.0,
                    attention_multiplier=0.3, logits_scaling=1.5),
    "cohere": dict(GROUPED, logit_scale=0.5, use_qk_norm=True),
    "apertus": dict(GROUPED),
    "arcee": dict(GROUPED, mlp_bias=True),
    "nemotron": dict(GROUPED, partial_rotary_factor=0.5),
    "gpt_oss": dict(EXPERTS, num_local_experts=4, head_dim=12, sliding_window=7, swiglu_limit=0.8),
    "glm4_moe": dict(EXPERTS, n_routed_experts=8, n_group=4, topk_group=2, head_dim=12,
                     moe_intermediate_size=24, routed_scaling_factor=1.5, use_qk_norm=True,
                     attention_bias=True, partial_rotary_factor=0.5),
    "falcon": dict(SIZES, new_decoder_architecture=True, num_kv_heads=2, ffn_hidden_size=48),
    "smollm3": dict(GROUPED, num_hidden_layers=4, use_sliding_window=True, sliding_window=7),
    "phi": dict(GROUPED, hidden_size=64, partial_rotary_factor=0.5),
    "gpt_neox": dict(SIZES, hidden_size=64, rotary_pct=0.25),
    "phi3": dict(GROUPED, partial_rotary_factor=0.75, hidden_size=64,
                 original_max_position_embeddings=32),
    "olmo3": dict(GROUPED, sliding_window=9, num_hidden_layers=5),
    "cohere2": dict(GROUPED, sliding_window=9, num_hidden_layers=5),
    "exaone4": dict(GROUPED, sliding_window=9, num_hidden_layers=5),
    "starcoder2": dict(GROUPED, sliding_window=9),
    "seed_oss": dict(GROUPED, head_dim=12),
    "glm": dict(GROUPED, head_dim=16, partial_rotary_factor=0.5),
    "glm4": dict(GROUPED, head_dim=16, partial_rotary_factor=0.5),
    "stablelm": dict(GROUPED, hidden_size=64, partial_rotary_factor=0.25),
    "ernie4_5": dict(GROUPED, head_dim=12),
    "helium": dict(GROUPED, head_dim=8),
    "hunyuan_v1_dense": dict(GROUPED, head_dim=12),
    "qwen2_moe": dict(EXPERTS, num_experts=4, moe_intermediate_size=24,
                      shared_expert_intermediate_size=20),
    "granitemoe": dict(EXPERTS, num_local_experts=4, residual_multiplier=0.7),
    "olmoe": dict(EXPERTS, num_experts=4),
    "lfm2": dict(GROUPED, layer_types=["conv", "full_attention", "conv"]),
    "lfm2_moe": dict(EXPERTS, layer_types=["conv", "full_attention", "conv"], num_experts=4,
                     moe_intermediate_size=24, num_dense_layers=1),
    "granitemoeshared": dict(EXPERTS, num_local_experts=4, shared_intermediate_size=20),
    "flex_olmo": dict(EXPERTS, num_experts=4),
    "ernie4_5_moe": dict(GROUPED, moe_num_experts=4, moe_k=2, moe_intermediate_size=24),
    "exaone_moe": dict(EXPERTS, num_experts=4, moe_intermediate_size=24, sliding_window=9,
                       layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "minimax_m2": dict(EXPERTS, num_local_experts=4, head_dim=12),
    "vaultgemma": dict(GROUPED, head_dim=12, sliding_window=9, query_pre_attn_scalar=20),
    "qwen3_5_text": dict(GROUPED, head_dim=16, partial_rotary_factor=0.5, linear_num_key_heads=2,
                         linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
                         layer_types=["linear_attention", "full_attention", "full_attention"]),
}

# Variants that versions of transformers interpret in different ways.
REFUSED = {("gemma3_text", "yarn_no_truncate"), ("gemma3_text", "longrope"),
           ("gemma3_text", "longrope_attention"), ("olmo3", "yarn_no_truncate")}


def scalings(pairs):
    """Returns the values of rope_scaling (rope_parameters) by name."""
    original = dict(original_max_position_embeddings=ORIGINAL)
    short = [1 + 0.1 * i for i in range(pairs)]
    yarn = dict(rope_type="yarn", factor=FACTOR, **original)
    return {
        "default": {},
        "linear": dict(rope_type="linear", factor=FACTOR),
        "dynamic": dict(rope_type="dynamic", factor=FACTOR),
        "llama3": dict(rope_type="llama3", factor=FACTOR, low_freq_factor=0.5, high_freq_factor=2.0,
                       **original),
        "yarn": yarn,
        "yarn_betas": dict(yarn, beta_fast=4.0, beta_slow=0.25),
        "yarn_attention": dict(yarn, attention_factor=1.3),
        "yarn_mscales": dict(yarn, mscale=1.0, mscale_all_dim=0.5),
        "yarn_mscale": dict(yarn, mscale=0.7),
        "yarn_no_truncate": dict(yarn, truncate=False, beta_fast=3.0, beta_slow=0.5),
        "longrope": dict(rope_type="longrope", short_factor=short,
                         long_factor=[2 * f for f in short], factor=2.0,
                         original_max_position_embeddings=32),
        "longrope_attention": dict(rope_type="longrope", short_factor=short,
                                   long_factor=[2 * f for f in short], attention_factor=1.2,
                                   factor=2.0, original_max_position_embeddings=32),
    }


def pairs_of(name, settings):
    head = settings.get("head_dim") or settings["hidden_size"] // settings["num_attention_heads"]
    part = settings.get("partial_rotary_factor", settings.get("rotary_pct", 1))
    return int(head * part) // 2


def configuration(transformers, name, scaling):
    """Returns a configuration in the layout of the installed version."""
    settings = dict(FAMILIES[name])
    old = int(transformers.__version__.split(".")[0]) < 5
    theta = 500.0
    part = settings.get("partial_rotary_factor", settings.get("rotary_pct"))
    if name == "falcon":
        del settings["intermediate_size"]
    if old and scaling.get("rope_type") in ("linear", "dynamic"):  # OLMo knows no other name
        scaling = {"type": scaling["rope_type"], "factor": scaling["factor"]}
    if name in ("gemma3_text", "olmo3") and (name == "gemma3_text" or not old):
        if old:
            settings.update(rope_theta=5000.0, rope_local_base_freq=theta,
                            rope_scaling=scaling or None)
        else:
            settings["rope_parameters"] = {
                "full_attention": {"rope_type": "default", "rope_theta": 5000.0, **scaling},
                "sliding_attention": {"rope_type": "default", "rope_theta": theta}}
    elif old:
        settings["rotary_emb_base" if name == "gpt_neox" else "rope_theta"] = theta
        settings["rope_scaling"] = scaling or None
        if scaling.get("rope_type") == "longrope":  # not in rope_scaling in version 4
            inner = dict(scaling)
            settings["original_max_position_embeddings"] = inner.pop("original_max_position_embeddings")
            settings["rope_scaling"] = inner
    else:
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": theta, **scaling}
        if part is not None:
            settings["rope_parameters"]["partial_rotary_factor"] = part
    return transformers.AutoConfig.for_model(name, **settings)


def make(torch, transformers, name, scaling, directory):
    """Saves a model. Returns tokens, logits, a prompt and its greedy continuation."""
    torch.manual_seed(sum(map(ord, name)) + len(scaling))
    config = configuration(transformers, name, scaling)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25) if parameter.dim() > 1 else parameter.uniform_(0.5, 1.5)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.uniform_(-0.3, 0.3)
    tokens = torch.randint(3, SIZES["vocab_size"], (BATCH, SEQ))
    with torch.no_grad():
        logits = model(tokens).logits
        row = tokens[0, :PROMPT]
        for _ in range(CONTINUED):
            row = torch.cat([row, model(row[None]).logits[0, -1].argmax()[None]])
    model.save_pretrained(directory, safe_serialization=True)
    return tokens.tolist(), logits.flatten().tolist(), row.tolist()


def compare(binary, directory, scratch, tokens, logits, row):
    """Returns the largest difference of logits, and True if the greedy tokens are the same."""
    run = os.path.join(scratch, "run")
    plumb(binary, "import", directory, "--out", run)
    write_json(os.path.join(scratch, "tokens.json"), tokens)
    plumb(binary, "eval", run, "--tokens", os.path.join(scratch, "tokens.json"), "--logits",
          os.path.join(scratch, "logits.safetensors"))
    _, own = read_safetensors(os.path.join(scratch, "logits.safetensors"))["logits"]
    write_json(os.path.join(scratch, "prompt.json"), row[:PROMPT])
    sampled = json.loads(plumb(binary, "sample", run, "--prompt-tokens",
                               os.path.join(scratch, "prompt.json"), "--temperature", "0",
                               "--max-tokens", str(CONTINUED), "--json"))["samples"][0]["ids"]
    ending = row[PROMPT:PROMPT + len(sampled)]
    # plumb may stop at an end token.
    return largest_difference(own, logits), bool(sampled) and sampled == ending


def run_variant(libraries, binary, name, kind, scaling, keep):
    """Returns a line about one variant, and True if it is right."""
    torch, transformers = libraries
    with tempfile.TemporaryDirectory() as scratch:
        directory = os.path.join(keep or scratch, f"{name}-{kind}")
        os.makedirs(directory, exist_ok=True)
        try:
            tokens, logits, row = make(torch, transformers, name, scaling, directory)
        except Exception as error:  # any error of the library or of torch
            return True, f"transformers cannot make it: {type(error).__name__}: {error}"
        try:
            difference, same = compare(binary, directory, scratch, tokens, logits, row)
        except Failed as error:
            return (name, kind) in REFUSED, "refused: " + " ".join(str(error).split("\n")[1:3])[:160]
    good = difference <= LOGITS and same and not math.isnan(difference)
    return good, f"logits {difference:.1e} greedy {'same' if same else 'DIFFERENT'} {'ok' if good else 'WRONG'}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plumb")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES))
    parser.add_argument("--keep", help="directory for the checkpoints")
    arguments = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped: {error}; pip install torch transformers")
        return 0
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    wrong = count = 0
    for name in arguments.family or FAMILIES:
        for kind, scaling in scalings(pairs_of(name, FAMILIES[name])).items():
            good, line = run_variant((torch, transformers), arguments.plumb, name, kind, scaling,
                                     arguments.keep)
            count += 1
            wrong += not good
            print(f"{name:12s} {kind:18s} {line}", flush=True)
    print(f"transformers {transformers.__version__}: {count} variants, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
