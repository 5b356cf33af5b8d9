# SPDX-License-Identifier: Apache-2.0
"""Checks that every key of config.json is read, irrelevant or refused: config_keys.py PLUMB

Adds keys to the config.json of tiny checkpoints and asks what plumb import says of them; looks up keys in
what `plumb zoo keys` prints.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from plumb_cli import CHECKPOINTS, Failed, failed_with, plumb, read_json, write_json

# Entries are (case, added keys, words of the error).
REFUSED = [
    ("llama", {"residual_multiplier": 0.22}, '"residual_multiplier": granite'),
    ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}},
     'quantization_config: weights of the method "gptq" are not read'),
    ("llama", {"use_qk_norm": True}, '"use_qk_norm": cohere'),
    ("llama", {"logit_scale": 0.5}, '"logit_scale": cohere'),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "gamma": 3}},
     '"rope_scaling.gamma": the rest of rope_scaling is read'),
    ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}},
     '"rope_parameters.full_attention": it is an object, and none of its keys is read'),
    ("llama", {"partial_rotary_factor": 0.5}, '"partial_rotary_factor": '),
    ("gpt2", {"rope_scaling": {"type": "linear", "factor": 2.0}}, '"rope_scaling"'),
    ("mistral", {"layer_types": ["full_attention"] * 3}, '"layer_types"'),
    ("qwen2", {"num_experts": 1}, '"num_experts"'),  # 1 is neutral only for a multiplier
    ("llama", {"is_encoder_decoder": True}, "is_encoder_decoder"),
    # Two fields hold one number, or two layouts hold one object.
    ("llama3", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters"),
    ("mistral", {"rope_parameters": {"rope_theta": 5.0}},
     '"rope_theta" is "10000.0" and "rope_parameters.rope_theta" is "5.0"'),
    ("llama2", {"rope_parameters": {"rope_type": "linear", "factor": 2.5}},
     "rope_scaling and rope_parameters: both are there"),
    ("gpt_neox", {"rope_theta": 5.0}, "rotary_emb_base"),
    # These scalings are incomplete, or readers interpret them in two ways.
    ("llama", {"rope_scaling": {"rope_type": "linear"}}, "needs a factor"),
    ("llama", {"rope_scaling": {"factor": 2.0}}, "it scales, and has no rope_type"),
    ("llama", {"rope_scaling": {"rope_type": "ntk", "factor": 2.0}},
     'plumb\'s llama has "default", "linear"'),
    ("llama", {"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}},
     "both set the same property of the model"),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0}},
     "attention_factor"),
    ("llama", {"original_max_position_embeddings": 8,
               "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "outside of rope_parameters"),
    ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0, 1.0, 1.0],
                                "long_factor": [1, 1, 1], "original_max_position_embeddings": 8}},
     "move it out of rope_scaling"),
    ("llama", {"original_max_position_embeddings": 8, "rope_scaling": {
        "rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "longrope has 1 factors"),
    ("gemma3_text", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False}},
     "truncate"),
    ("gemma3_text", {"attn_logit_softcapping": 3.0}, "readers of Gemma 3 pass over it"),
    ("gemma3", {"text_config": {"final_logit_softcapping": 5.0}}, "readers of Gemma 3 with images pass over it"),
    ("gemma4_text", {"enable_moe_block": True}, "its router reads another tensor"),
    ("gemma4_text", {"use_bidirectional_attention": "all"}, "an encoder"),
    ("gemma4_text", {"vocab_size_per_layer_input": 54}, "it must be vocab_size, 53"),
    ("gemma4_text", {"num_kv_shared_layers": 6}, "no layer has keys of its own"),
    ("gemma4_text", {"num_kv_shared_layers": 5}, '"keys[1]" is not set'),
    ("gemma4_text", {"layer_types": ["full_attention"] * 5 + ["sliding_attention"]}, "the last layer see all"),
    ("gemma4_text", {"per_layer_config": {"1": {"intermediate_size": 12}}}, "the rest of per_layer_config"),
    ("gemma4_text", {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1.0}}},
     "each type of layers needs"),
    ("phi3", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
     'plumb\'s phi3 has "default", "longrope", "su"'),
    ("cohere2", {"sliding_window": None}, "no published model is without positions"),
    ("qwen2_moe", {"use_sliding_window": True, "layer_types": None},
     "versions of readers slide in different layers"),
    ("qwen3_moe", {"use_qk_norm": False}, "readers normalize queries and keys for any value"),
    ("qwen3_moe", {"shared_expert_intermediate_size": 8}, "readers have no shared expert"),
    ("vaultgemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gemma3n_text", {"vocab_size_per_layer_input": 54}, "it must be vocab_size, 53"),
    ("gemma3n_text", {"altup_active_idx": 1}, "altup_active_idx is not 0"),
    ("gemma3n_text", {"activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0]}, '"0.95"'),
    ("mamba2", {"time_step_limit": [0.001, 0.1]}, "readers bound steps in prompts only"),
    ("mamba2", {"use_bias": True}, "linear attention has none"),
    ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func is not sigmoid"),
    ("mpt", {"logit_scale": 0.5}, "readers pass over it"),
    ("lfm2", {"full_attn_idxs": [2, 2]}, '"full_attn_idxs" must be a list of different layers'),
    ("lfm2", {"full_attn_idxs": None}, "layer_types is missing"),
    # Readers take null for false or fail, and ... stands for a key that is missing.
    ("deepseek_v3", {"norm_topk_prob": None}, '"norm_topk_prob" is null, which is not 1'),
    ("glm4", {"partial_rotary_factor": None}, '"partial_rotary_factor" is null'),
    ("cohere", {"rope_theta": ...}, "rope_theta is missing: transformers 4 takes 10000"),
]
# Entries are (case, added keys, entry of import.json for one of them).
ACCEPTED = [
    ("llama", {"residual_multiplier": 1.0}, ("residual_multiplier", "neutral")),
    ("llama", {"quantization_config": None}, ("quantization_config", "neutral")),
    ("llama", {"use_qk_norm": False}, ("use_qk_norm", "neutral")),
    ("llama", {"use_cache": True}, ("use_cache", "irrelevant")),
    ("llama", {"eos_token_id": [1, 2]}, ("eos_token_id", "irrelevant")),
    ("llama", {"id2label": {"0": "A"}}, ("id2label", "irrelevant")),
    ("llama", {"hidden_act": "silu"}, ("hidden_act", "read")),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
     ("rope_parameters.rope_theta", "read")),
    ("gpt_neox", {"rope_theta": 10000.0}, ("rope_theta", "read")),
    ("persimmon", {"num_key_value_heads": 4}, ("num_key_value_heads", "irrelevant")),
    ("qwen3_moe", {"use_qk_norm": True, "shared_expert_intermediate_size": 0}, ("use_qk_norm", "read")),
    ("llama", {"a_limit": [0.0, float("inf"), float("-inf"), float("nan")]}, ("a_limit", "unknown")),
]


def with_keys(case, keys, scratch):
    """Writes a checkpoint whose config.json has additional keys. Returns its directory."""
    directory = os.path.join(scratch, "checkpoint")
    shutil.copytree(os.path.join(CHECKPOINTS, case), directory)
    path = os.path.join(directory, "config.json")
    config = read_json(path)
    text = {"text_config": {**config["text_config"], **keys["text_config"]}} if "text_config" in keys else {}
    write_json(path, {key: value for key, value in {**config, **keys, **text}.items() if value is not ...})
    return directory


def use_of(run, key):
    return {each["key"]: each["use"] for each in read_json(run, "import.json")["config_keys"]}.get(key)


def check_refused(binary, case, keys, words):
    with tempfile.TemporaryDirectory() as scratch:
        directory = with_keys(case, keys, scratch)
        failed_with(binary, words, "import", directory, "--out", os.path.join(scratch, "run"))


def check_accepted(binary, case, keys, wanted):
    with tempfile.TemporaryDirectory() as scratch:
        run = os.path.join(scratch, "run")
        plumb(binary, "import", with_keys(case, keys, scratch), "--out", run)
        found = use_of(run, wanted[0])
        if found != wanted[1]:
            raise Failed(f"import.json: {wanted[0]} is {found}, not {wanted[1]}")


def check_allowed(binary):
    """Checks that --allow-unread imports as if the key did not exist, and reports that."""
    with tempfile.TemporaryDirectory() as scratch:
        run = os.path.join(scratch, "run")
        directory = with_keys("llama", {"residual_multiplier": 0.22, "quantization_config": {"bits": 4}},
                              scratch)
        failed_with(binary, "quantization_config", "import", directory, "--out", run,
                    "--allow-unread", "residual_multiplier")
        plumb(binary, "import", directory, "--out", run, "--allow-unread", "residual_multiplier",
              "--allow-unread", "quantization_config")
        if use_of(run, "residual_multiplier") != "allowed":
            raise Failed("import.json does not say that residual_multiplier was allowed")
        if "quantization_config" in read_json(run, "import.json")["config"]:
            raise Failed("export would write quantization_config")
        failed_with(binary, 'has no key "residual_multiplie"', "import", directory, "--out",
                    os.path.join(scratch, "other"), "--allow-unread", "residual_multiplie")


def check_warnings(binary):
    """Checks that unknown keys are named, and weights that are NaN or infinite."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = with_keys("llama", {"a_new_key": 3}, scratch)
        path = os.path.join(directory, "model.safetensors")
        with open(path, "r+b") as file:
            data = file.read()
            size = struct.unpack_from("<Q", data)[0]
            entry = json.loads(data[8:8 + size])["model.norm.weight"]
            file.seek(8 + size + entry["data_offsets"][0])
            file.write(struct.pack("<2f", float("nan"), float("-inf")))
        run = subprocess.run([binary, "import", directory, "--out", os.path.join(scratch, "run")],
                             capture_output=True, text=True, timeout=300)
        for words in ("a_new_key", 'NaN or infinite, in "model.norm.weight" (2)'):
            if run.returncode != 0 or words not in run.stderr:
                raise Failed(f"no warning of {words}: {run.returncode}\n{run.stderr}")


def check_text_model_only(binary):
    """Checks that the import of a model that reads images names the omitted tensors."""
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "run")
        run = subprocess.run([binary, "import", os.path.join(CHECKPOINTS, "gemma3"), "--out", out],
                             capture_output=True, text=True, timeout=300)
        if run.returncode != 0 or "only the text model is imported" not in run.stderr:
            raise Failed(f"no warning of images: {run.returncode}\n{run.stderr}")
        reasons = {each["source"]: each.get("ignored") for each in read_json(out, "import.json")["tensors"]
                   if "vision_tower" in each["source"]}
        if not reasons or set(reasons.values()) != {"the images' model"}:
            raise Failed(f"import.json does not say why tensors of images are ignored: {reasons}")


def check_config_only(binary):
    """Checks that without weights the message names the family, or says that there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = with_keys("llama", {}, scratch)
        os.remove(os.path.join(directory, "model.safetensors"))
        run = os.path.join(scratch, "run")
        said = failed_with(binary, "holds neither model.safetensors", "import", directory, "--out", run)
        if "one of plumb's llama" not in said:
            raise Failed(f"does not say that the family is known: {said}")
        config = os.path.join(directory, "config.json")
        write_json(config, {**read_json(config), "model_type": "mamba", "architectures": ["Mamba"]})
        failed_with(binary, "no family of models has it", "import", directory, "--out", run)


def check_large_tokenizer(binary):
    """Checks that a tokenizer with more tokens than the model causes a warning, and token ids are still
    accepted."""
    with tempfile.TemporaryDirectory() as scratch:
        directory, run = with_keys("llama", {}, scratch), os.path.join(scratch, "run")
        vocab = {chr(ord("A") + i): i for i in range(58)}  # the model has 53
        write_json(os.path.join(directory, "tokenizer.json"), {
            "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": {
                "type": "BPE", "vocab": vocab, "merges": []}})
        plumb(binary, "import", directory, "--out", run)
        prompt = os.path.join(scratch, "prompt.json")
        write_json(prompt, [3, 1, 4])
        sampled = subprocess.run([binary, "sample", run, "--prompt-tokens", prompt, "--temperature",
                                  "0", "--max-tokens", "4", "--json"],
                                 capture_output=True, text=True, timeout=300)
        if sampled.returncode != 0 or "has 58 tokens, more than the model's vocab_size 53" not in sampled.stderr:
            raise Failed(f"a large tokenizer: {sampled.returncode}\n{sampled.stderr}")
        failed_with(binary, "token 57 is not in the model's vocabulary of 53", "sample", run,
                    "--prompt", "Az", "--max-tokens", "4")


def check_list(binary):
    if "\n| `residual_multiplier` | granite, granitemoe, granitemoehybrid, granitemoeshared |  | the others |\n" not in plumb(binary, "zoo", "keys"):
        raise Failed("zoo keys: no line of residual_multiplier")
    rows = {row["key"]: row["families"] for row in
            json.loads(plumb(binary, "zoo", "keys", "--json"))["keys"]}
    for key, family, use in (("residual_multiplier", "granite", "read"),
                             ("residual_multiplier", "llama", "refused"),
                             ("use_cache", "bert", "irrelevant"),
                             ("n_special", "gpt2", "irrelevant"), ("n_special", "llama", None)):
        found = rows[key].get(family, {}).get("use")
        if found != use:
            raise Failed(f"zoo keys: {key} is {found} in {family}, not {use}")


def main():
    binary, = sys.argv[1:]
    checks = [lambda case=case: check_refused(binary, *case) for case in REFUSED]
    checks += [lambda case=case: check_accepted(binary, *case) for case in ACCEPTED]
    checks += [lambda: check_allowed(binary), lambda: check_warnings(binary),
               lambda: check_config_only(binary), lambda: check_text_model_only(binary),
               lambda: check_large_tokenizer(binary),
               lambda: check_list(binary)]
    wrong = 0
    for check in checks:
        try:
            check()
        except Failed as error:
            wrong += 1
            print(error)
    print(f"{len(checks)} checks, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
