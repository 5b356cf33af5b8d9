# SPDX-License-Identifier: Apache-2.0
"""Checks that misread fields would be noticed: misread_fields.py PLUMB FAMILIES

Each case edits one field of a tiny checkpoint's config.json, or one line of its family's file, into a typical
error. The results must then differ from the independent implementation's by much more than the tolerance of
run_family.py, which would therefore fail if plumb made this error. FAMILIES is the directory plugins/zoo.
"""

import json
import os
import shutil
import sys
import tempfile

from plumb_cli import CHECKPOINTS, Failed, largest_difference, plumb, read_json, read_safetensors
from run_family import LOGITS, evaluate, meaningful

# Factor of the tolerance.
TIMES = 5


def config(name, case, **fields):
    """A case that gives fields of config.json other values."""
    return name, case, fields, ()


def family(name, case, *edits):
    """A case that replaces texts of the family's file."""
    return name, case, {}, [("", edit) for edit in edits]


def part(name, case, file, *edits):
    """A case that replaces texts of a part that the family imports."""
    return name, case, {}, [(file, edit) for edit in edits]


CASES = [
    config("norm eps", "llama", rms_norm_eps=1e-05),
    config("norm eps of a layer norm", "gpt2", layer_norm_epsilon=1e-05),
    part("gain less 1", "gemma", "gemma_block", (' attr { name: "unit_offset" flag: true }', "")),
    config("a window that is one longer", "mistral", sliding_window=6),
    config("a window that is one shorter", "mistral", sliding_window=4),
    config("which layers slide, by number", "qwen2", max_window_layers=2),
    config("whether layers slide", "qwen2", use_sliding_window=False),
    family("which layers slide, by turns", "gemma2",
           ('text: "layer % 2"', 'text: "(layer + 1) % 2"')),
    config("which layers slide, by a pattern", "gemma3_text", sliding_window_pattern=2),
    part("which layers turn with which base", "gemma3_text", "rope_by_type",
         ("(${local_theta} - ${rope_theta}) * (${slides})", "0 * ${local_theta}")),
    part("which layers have the scaling", "gemma3_text", "rope_by_type", ("not (${slides})", "${slides}")),
    part("scale after the cap", "gemma2", "gemma_sandwich",
         ('score_cap: "${cap}"', 'score_cap: "${cap} / sqrt(${query_scale})"')),
    family("scale after the cap, with experts", "grok1",
           ('score_cap: "${cap}"', 'score_cap: "${cap} * ${scale}"')),
    config("scale of the scores by head_dim", "gemma2", query_pre_attn_scalar=6),
    config("cap of the logits", "gemma2", final_logit_softcapping=None),
    part("scale of the embedding", "gemma", "gemma_block", ('embedding_scale: "sqrt(d_model)"', "")),
    config("scale of the logits", "cohere", logit_scale=1.0),
    family("rope layout, halves as pairs", "llama",
           ("mlp { gated: true }", "mlp { gated: true } positions { rope_interleaved: true }")),
    part("rope layout, pairs as halves", "gptj", "gptj_block", (" rope_interleaved: true", "")),
    part("rope layout, pairs as halves", "cohere", "cohere_block",
         (" rope_interleaved: true", "")),
    config("a part of each head turns", "gpt_neox", rotary_pct=1.0),
    config("a part of each head turns", "phi", partial_rotary_factor=1.0),
    config("base of the rotary embedding", "llama3", rope_theta=10000.0),
    config("scaling of the rotary embedding", "llama2", rope_scaling=None),
    config("scaling of Llama 3", "llama3_2", rope_scaling=None),
    config("scaling of YaRN", "qwen3", rope_scaling=None),
    part("magnitude of YaRN", "qwen3", "rope_scaling",
         ('yarn.attention_factor" text: "${@prefix@rope_attention}"',
          'yarn.attention_factor" text: "1"')),
    part("mscale of YaRN", "scaled_yarn_mscale", "rope_scaling",
         ("@prefix@rope_mscale != 0 and @prefix@rope_mscale_all != 0", "0")),
    part("ramp of YaRN", "scaled_yarn_truncate", "rope_scaling",
         ('"${not @prefix@rope_truncate}"', '"0"')),
    part("factors of LongRoPE", "scaled_longrope", "rope_scaling",
         ('field: "@first@.short_factor" field: "@second@.short_factor"',
          'field: "@first@.long_factor" field: "@second@.long_factor"'),
         ('field: "@first@.long_factor"\n  field: "@second@.long_factor"',
          'field: "@first@.short_factor"\n  field: "@second@.short_factor"')),
    part("magnitude of LongRoPE", "scaled_longrope_5", "rope_scaling",
         ('longrope.attention_factor" text: "${@prefix@rope_attention}"',
          'longrope.attention_factor" text: "1"')),
    part("scalings of the types of layers", "scaled_by_layer", "rope_by_type",
         ('text: "${slides}"', 'text: "0"')),
    family("a window in all layers", "qwen3_moe_slides", ("slides and window", "0")),
    config("layers without positions", "smollm3", no_rope_layers=[1, 1, 1, 0]),
    family("first row of the positions", "opt", ("offset: 2", "offset: 0"),
           ("prefix:", 'model { computed { model_field: "context_length" '
                       'text: "${context_length + 2}" } }\nprefix:')),
    family("order of q, k and v: one after the other", "gpt_neox",
           ('"groups" text: "n_head"', '"groups" text: "1"'), ('text: "head_dim"', 'text: "d_model"')),
    family("order of q, k and v: one after the other", "falcon_40b",
           ('"groups" text: "n_kv_head"', '"groups" text: "1"'),
           ('text: "n_head / n_kv_head * head_dim"', 'text: "d_model"'),
           ('text: "head_dim"', 'text: "n_kv_head * head_dim"')),
    family("slopes of ALiBi scaled", "falcon_rw", (' alibi_scale: "1 / sqrt(head_dim)"', "")),
    config("top-k weights renormalized", "qwen3_moe_shares", norm_topk_prob=True),
    config("top-k weights not renormalized", "qwen3_moe", norm_topk_prob=False),
    family("top-k before softmax", "grok1", ("router: SOFTMAX", "router: SOFTMAX_OF_TOP_K")),
    config("number of experts taken", "mixtral", num_experts_per_tok=1),
    config("a part of each head turns", "qwen3_next", partial_rotary_factor=1.0),
    part("keys of length 1", "qwen3_next", "gated_delta", ("k = unit_norm(silu(k)) / sqrt(${key_dim})", "k = silu(k)")),
    part("activation after the convolution", "qwen3_next", "gated_delta",
         ('inside { point: "linear_attention.v" rule: "v = silu(v)" }', "")),
    config("clamp of the experts", "gpt_oss", swiglu_limit=7.0),
    family("columns of gate and up, in halves", "gpt_oss",
           ('rows { groups: "d_ff" first: "0" count: "1" }', 'rows { first: "0" count: "d_ff" }'),
           ('rows { groups: "d_ff" first: "1" count: "1" }', 'rows { first: "d_ff" count: "d_ff" }')),
    family("gate before or after its clamp", "gpt_oss",
           ('rule: "gate = min(gate, ${limit})"', ""),
           ('rule: "gate = gate * sigmoid(${slope} * gate)"',
            'rule: "gate = min(gate * sigmoid(${slope} * gate), ${limit})"')),
    config("groups of experts", "glm4_moe", n_group=1, topk_group=1),
    config("sigmoids not renormalized", "glm4_moe", norm_topk_prob=False),
    config("sigmoids renormalized", "glm4_moe_air", norm_topk_prob=True),
    config("scale of the experts", "glm4_moe", routed_scaling_factor=1.0),
    family("gain less 1, of a layer norm", "nemotron", ("f(norm(x) * (1 + gain)", "f(norm(x) * gain")),
    family("slopes of xIELU", "apertus", ("mlp.act_fn.alpha_p", "mlp.act_fn.@"),
           ("mlp.act_fn.alpha_n", "mlp.act_fn.alpha_p"), ("mlp.act_fn.@", "mlp.act_fn.alpha_n")),
    family("ReLU without its square", "arcee", ("relu(up) ^ 2", "relu(up)")),
    config("activation, tanh or erf", "gpt2", activation_function="gelu"),
    family("order of q, k and v: values first", "gpt2",
           ('first: "d_model" count', 'first: "@" count'),
           ('first: "2 * d_model" count', 'first: "d_model" count'),
           ('first: "@" count', 'first: "2 * d_model" count')),
    config("post- or pre-norm", "gpt_neox_serial", use_parallel_residual=True),
    config("scale of the residual", "granite", residual_multiplier=1.0),
    config("scale of the scores", "granite", attention_multiplier=0.5),
    config("scale by layer", "gpt2_scaled", scale_attn_by_inverse_layer_idx=False),
    part("values before keys", "phi3", "fused_qkv",
         ('first: "@q@ + @kv@"', 'first: "@"'), ('first: "@q@"', 'first: "@q@ + @kv@"'),
         ('first: "@"', 'first: "@q@"')),
    part("up before gate", "phi3", "fused_gate_up",
         ('first: "0"', 'first: "@"'), ('first: "d_ff"', 'first: "0"'), ('first: "@"', 'first: "d_ff"')),
    config("factors of LongRoPE", "phi3_longrope", rope_scaling=None),
    part("pairs that turn, a part of a narrower head", "gemma4_text", "gemma4_block",
         ("floor(${turning} * head_dim / 2)", "floor(${turning} * ${head_dim} / 2)")),
    part("all pairs turn", "gemma4_text", "gemma4_block", ("(pair >= floor(${turning} * head_dim / 2))", "0")),
    part("scale of the scores", "gemma4_text", "gemma4_block", ('scale: "1"', "")),
    part("values are normalized keys", "gemma4_text", "gemma4_block",
         ('inside { point: "attention.k" rule: "projected[0] = k if full and own" }', ""),
         ('"k = k_norm(k) if own"', '"k = k_norm(k) if own" rule: "projected[0] = k if full and own"')),
    part("scale of the embedding of each layer", "gemma4_text", "gemma4_block", ("sqrt(${ple}) * ple", "ple")),
    part("which layers have the scaling", "olmo3", "rope_by_type", ('"not (${slides})"', '"1"')),
    part("base of layers that slide", "olmo3_types", "rope_by_type",
         ("(${local_theta} - ${rope_theta}) * (${slides})", "0 * ${local_theta}")),
    family("layers without positions", "cohere2", ('"head_dim * (${slides})"', '"head_dim"')),
    family("layers without positions", "exaone4", ('"head_dim * (${slides})"', '"head_dim"')),
    part("rope layout, pairs as halves", "glm4", "glm_block", ("rope_interleaved: true", "")),
    config("a part of each head turns", "glm4", partial_rotary_factor=1.0),
    part("up before gate, of all experts", "granitemoe", "granite_experts",
         ('first: "0"', 'first: "@"'), ('first: "d_ff"', 'first: "0"'), ('first: "@"', 'first: "d_ff"')),
    config("top-k weights renormalized", "qwen2_moe", norm_topk_prob=True),
    config("bounds of queries, keys and values", "olmoe", clip_qkv=None),
    family("rope layout, pairs as halves", "ernie4_5", ("rope_interleaved: true", "")),
    family("norms before the rotary embedding", "hunyuan_dense", ('"qk_norm_rotated"', '"qk_norm"')),
    family("base of the positions", "hunyuan_dense_alpha", ("* alpha ^ (head_dim / (head_dim - 2))", "")),
    family("order of q, k and v: one after the other", "gpt_bigcode_heads",
           ('"groups" text: "n_kv_head"', '"groups" text: "1"'),
           ('text: "n_head / n_kv_head * head_dim"', 'text: "d_model"'), ('text: "head_dim"', 'text: "d_model"')),
    family("scale of the scores", "gpt_neo", ('scale: "1" ', "")),
    config("a part of each head turns", "stablelm", partial_rotary_factor=0.5),
    part("order of the gates", "lfm2", "lfm2_layers", ('first: "0"', 'first: "@"'), ('first: "d_model"', 'first: "0"'),
         ('first: "@"', 'first: "d_model"')),
    family("order of q, k and v: keys before values", "codegen", ('first: "d_model / 4"', 'first: "@"'),
           ('first: "d_model / 2"', 'first: "d_model / 4"'), ('first: "@"', 'first: "d_model / 2"')),
    config("multiplier of the gate", "falcon_h1", ssm_multipliers=[1.0, 1.3, 0.9, 1.2, 0.6]),
    config("multiplier of x, before the bias of its convolution", "falcon_h1", ssm_multipliers=[0.7, 1.0, 0.9, 1.2, 0.6]),
    config("norm before the gate", "falcon_h1", mamba_norm_before_gate=True),
    part("the gate after the norm", "mamba2", "mamba2_mixer", ('scalar { name: "ssm_norm" value: "1" }',
                                                             'scalar { name: "ssm_norm" value: "2" }')),
    config("positions unless there are none", "granitemoehybrid_dense", position_embedding_type="nope"),
    config("layers that see all have no positions", "exaone_moe", sliding_window=None),
    config("scale of the streams' correction", "gemma3n_text", altup_correct_scale=False),
    family("the mean of the gates in their cut", "gemma3n_text", (" - dot(gate, gate - gate + 1) / (${d_ff})", "")),
    family("order of q, k and v: one after the other", "persimmon",
           ('"groups" text: "n_head"', '"groups" text: "1"'), ('text: "head_dim"', 'text: "d_model"')),
    config("a part of each head turns", "persimmon", partial_rotary_factor=1.0),
    family("direction in which pairs turn", "nanochat", ('linear: "-1"', 'linear: "1"')),
    family("a norm on the embedding", "nanochat", ('begin: "x = norm(x)"', "")),
    config("cap of the logits", "nanochat", final_logit_softcapping=None),
    config("bounds of queries, keys and values", "dbrx",
           attn_config={"clip_qkv": 8, "kv_n_heads": 2, "rope_theta": 500.0}),
    family("top-k weights not renormalized", "dbrx", ('choice { when: "power"', 'choice { when: "0"'),
           ('choice { when: "not power"', 'choice { when: "1"')),
    part("queries beyond the original context", "ministral3", "ministral_block", ("1 + floor(", "0 + floor(1 + 0 * ")),
    family("up before gate", "dbrx", ("mlp.w1", "mlp.@"), ("mlp.v1", "mlp.w1"), ("mlp.@", "mlp.v1")),
]
# Cases that are refused, because tensors would be missing or unused.
REFUSED = [
    config("a tied head", "llama3_2", tie_word_embeddings=False),
    config("a head of its own", "llama", tie_word_embeddings=True),
    config("biases of queries, keys and values", "llama3", attention_bias=False),
    config("post-norm", "opt_350m", do_layer_norm_before=True),
    config("two norms of a parallel block", "falcon_40b", num_ln_in_parallel_attn=1),
    config("heads of keys", "qwen3", num_key_value_heads=4),
    config("norms of queries and keys", "cohere_plus", use_qk_norm=False),
    config("which layers have experts", "qwen3_moe", decoder_sparse_step=1),
    config("embeddings of another width", "opt_350m", word_embed_proj_dim=20),
    family("gate of the shared expert", "qwen2_moe", ('"shared_gate" text: "1"', '"shared_gate" text: "0"')),
    part("a depthwise convolution", "lfm2", "lfm2_layers", (" depthwise: true", "")),
    family("norms after sublayers", "glm4", ('placement: "double"', 'placement: "pre"')),
    config("norms of queries and keys", "persimmon", qk_layernorm=False),
    family("matrices down are transposed", "dbrx", ("  transpose: true\n", "")),
]


def edited(case, fields, edits, families, scratch):
    """Writes the edited checkpoint. Returns the arguments of `plumb import` for it."""
    source = os.path.join(CHECKPOINTS, case)
    settings = read_json(source, "config.json")
    arguments = []
    if edits:
        # plumb searches for parts next to the family first.
        names = {"": settings["model_type"] + ".import.pbtxt"}
        names.update({of: of + ".part.pbtxt" for of, _ in edits if of})
        for of, name in names.items():
            path = os.path.join(families, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for old, new in [edit for to, edit in edits if to == of]:
                if old not in text:
                    raise Failed(f"{path} has no {old}")
                text = text.replace(old, new)
            with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
                file.write(text)
        arguments = ["--family", os.path.join(scratch, names[""])]
    for name in fields.keys() - settings.keys():
        if name not in ("num_ln_in_parallel_attn",):  # absent if it has its default
            raise Failed(f"config.json has no {name}")
    directory = os.path.join(scratch, "checkpoint")
    os.mkdir(directory)
    shutil.copy(os.path.join(source, "model.safetensors"), directory)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**settings, **fields}, file)
    return [directory, *arguments]


def difference(binary, case, fields, edits, families, scratch):
    """Returns the difference of the logits of the edited checkpoint from the original's."""
    arguments = edited(case, fields, edits, families, scratch)
    source, run = os.path.join(CHECKPOINTS, case), os.path.join(scratch, "run")
    expected = read_json(source, "expected.json")
    _, reference = read_safetensors(os.path.join(source, "expected.safetensors"))["logits"]
    plumb(binary, "import", *arguments, "--out", run)
    _, logits, _ = evaluate(binary, run, expected, scratch)
    vocab = read_json(source, "config.json")["vocab_size"]
    return largest_difference(meaningful(logits, expected, vocab),
                              meaningful(reference, expected, vocab))


def run_case(binary, families, case, fields, edits, refused):
    """Returns the error, or None."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = difference(binary, case, fields, edits, families, scratch)
        except Failed as error:
            said = any(word in str(error) for word in ("missing: ", "surplus: ", "misshapen: "))
            return None if refused and said else str(error)
    if refused:
        return "is not refused"
    return None if found > TIMES * LOGITS else f"logits differ by {found:.3g} only"


def main():
    binary, families = sys.argv[1:]
    wrong = 0
    for refused, cases in ((False, CASES), (True, REFUSED)):
        for name, case, fields, edits in cases:
            why = run_case(binary, families, case, fields, edits, refused)
            if why is not None:
                wrong += 1
                print(f"{case}, {name}: {why}")
    print(f"{len(CASES) + len(REFUSED)} fields, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
