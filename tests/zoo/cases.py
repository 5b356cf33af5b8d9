# SPDX-License-Identifier: Apache-2.0
"""The tiny models: the config.json of each, in the form of its family's published files.

Sizes are odd on purpose. Heads of keys are fewer than of queries, a head is wider than
d_model / n_head where the family allows it, windows are shorter than the sequences, there are more
layers than the pattern of layers has, and the eps of norms is large enough for another one to show.
"""

import bert
import experts
import gemma
import gpt2
import linear_attention
import llama_like
import opt
import parallel
import ungated
from checkpoint import Config


def case(name, model, architecture, model_type, **config):
    return name, model, Config(architectures=[architecture], model_type=model_type,
                               torch_dtype="float32", **config)


def llama_case(name, model, architecture, model_type, **changes):
    config = dict(
        attention_bias=False, head_dim=6, hidden_act="silu", hidden_size=20, intermediate_size=28,
        max_position_embeddings=24, num_attention_heads=4, num_hidden_layers=3,
        num_key_value_heads=2, rms_norm_eps=0.01, rope_theta=10000.0, tie_word_embeddings=False,
        vocab_size=53)
    config.update(changes)
    return case(name, model, architecture, model_type,
                **{k: v for k, v in config.items() if v is not ABSENT})


ABSENT = object()


def llama_cases():
    def llama(name, **changes):
        return llama_case(name, llama_like.Llama, "LlamaForCausalLM", "llama", **changes)

    # The first Llama has neither head_dim nor the number of key heads.
    yield llama("llama", head_dim=ABSENT, num_key_value_heads=ABSENT, attention_bias=ABSENT,
                hidden_size=24, rope_scaling=None, pretraining_tp=1)
    yield llama("llama2", head_dim=ABSENT, hidden_size=24, rms_norm_eps=0.02,
                rope_scaling={"type": "linear", "factor": 2.5})
    yield llama("llama3", rope_theta=500.0, attention_bias=True, mlp_bias=True, head_dim=8,
                rope_scaling={"factor": 3.0, "high_freq_factor": 4.0, "low_freq_factor": 0.5,
                              "original_max_position_embeddings": 16, "rope_type": "llama3"})
    yield llama("llama3_2", tie_word_embeddings=True, rope_theta=500.0,
                rope_scaling={"factor": 4.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                              "original_max_position_embeddings": 12, "rope_type": "llama3"})
    yield llama_case("mistral", llama_like.Mistral, "MistralForCausalLM", "mistral",
                     sliding_window=5, attention_bias=ABSENT)
    yield llama_case("qwen2", llama_like.Qwen2, "Qwen2ForCausalLM", "qwen2", head_dim=ABSENT,
                     hidden_size=24, use_sliding_window=True, sliding_window=5, max_window_layers=1,
                     tie_word_embeddings=True, attention_bias=ABSENT)
    yield llama_case("qwen3", llama_like.Qwen3, "Qwen3ForCausalLM", "qwen3", head_dim=10,
                     use_sliding_window=False, sliding_window=None, max_window_layers=3,
                     rope_theta=1000.0, max_position_embeddings=32,
                     rope_scaling={"rope_type": "yarn", "factor": 4.0,
                                   "original_max_position_embeddings": 8})
    yield llama_case("olmo", llama_like.Olmo, "OlmoForCausalLM", "olmo", head_dim=ABSENT,
                     hidden_size=24, clip_qkv=None, rms_norm_eps=ABSENT, tie_word_embeddings=True)
    yield llama_case("olmo2", llama_like.Olmo2, "Olmo2ForCausalLM", "olmo2", head_dim=ABSENT,
                     hidden_size=24, rope_theta=500.0)
    yield llama_case("smollm3", llama_like.SmolLM3, "SmolLM3ForCausalLM", "smollm3",
                     num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0], no_rope_layer_interval=2,
                     use_sliding_window=False, sliding_window=None, rope_scaling=None,
                     head_dim=ABSENT, hidden_size=24, tie_word_embeddings=True)
    yield llama_case("granite", llama_like.Granite, "GraniteForCausalLM", "granite",
                     head_dim=ABSENT, hidden_size=24, embedding_multiplier=0.7,
                     attention_multiplier=0.3, residual_multiplier=0.8, logits_scaling=0.6,
                     mlp_bias=False, rope_scaling=None, tie_word_embeddings=True)


def gemma_cases():
    common = dict(hidden_act=ABSENT, tie_word_embeddings=True, rms_norm_eps=0.02)
    yield llama_case("gemma", gemma.Gemma, "GemmaForCausalLM", "gemma", head_dim=8,
                     num_key_value_heads=1, **{**common, "hidden_act": "gelu"})
    yield llama_case("gemma2", gemma.Gemma2, "Gemma2ForCausalLM", "gemma2",
                     attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
                     hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10,
                     sliding_window=5, **common)
    yield llama_case("gemma3_text", gemma.Gemma3, "Gemma3ForCausalLM", "gemma3_text",
                     attn_logit_softcapping=None, final_logit_softcapping=None,
                     hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10,
                     sliding_window=5, sliding_window_pattern=3, num_hidden_layers=4,
                     rope_local_base_freq=100.0, rope_scaling={"factor": 2.0, "rope_type": "linear"},
                     **common)


def expert_cases():
    yield llama_case("mixtral", experts.Mixtral, "MixtralForCausalLM", "mixtral",
                     num_local_experts=4, num_experts_per_tok=2, intermediate_size=14,
                     sliding_window=None, attention_bias=ABSENT, head_dim=ABSENT, hidden_size=16,
                     num_hidden_layers=2)
    qwen = dict(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=9, mlp_only_layers=[],
                hidden_size=16, use_sliding_window=False, sliding_window=None, max_window_layers=2,
                num_hidden_layers=2)
    yield llama_case("qwen3_moe", experts.Qwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe",
                     norm_topk_prob=True, decoder_sparse_step=2, **qwen)
    yield llama_case("qwen3_moe_shares", experts.Qwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe",
                     norm_topk_prob=False, decoder_sparse_step=1, **qwen)
    yield llama_case("qwen3_next", linear_attention.Qwen3Next, "Qwen3NextForCausalLM", "qwen3_next",
                     norm_topk_prob=True, decoder_sparse_step=1, full_attention_interval=4,
                     layer_types=3 * ["linear_attention"] + ["full_attention"],
                     linear_conv_kernel_dim=3, linear_key_head_dim=6, linear_value_head_dim=5,
                     linear_num_key_heads=2, linear_num_value_heads=4, partial_rotary_factor=0.5,
                     shared_expert_intermediate_size=7,
                     **{**qwen, "head_dim": 8, "num_hidden_layers": 4})
    yield llama_case("grok1", experts.Grok1, "Grok1ModelForCausalLM", "grok-1",
                     num_experts=4, num_experts_per_tok=2, intermediate_size=14, head_dim=ABSENT,
                     hidden_size=16, attention_bias=ABSENT, hidden_act=ABSENT, num_hidden_layers=2,
                     attn_output_multiplier=0.6, max_attn_value=1.5, embedding_multiplier_scale=3.0,
                     output_multiplier_scale=0.7)


    yield llama_case("gpt_oss", experts.GptOss, "GptOssForCausalLM", "gpt_oss", attention_bias=True,
                     num_local_experts=4, num_experts_per_tok=2, intermediate_size=9, hidden_size=16,
                     sliding_window=4, swiglu_limit=0.6, rope_theta=500.0, layer_types=[
                         "sliding_attention", "full_attention", "sliding_attention"],
                     rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 3.0,
                                   "beta_slow": 0.05, "truncate": False,
                                   "original_max_position_embeddings": 8})
    glm = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=5, hidden_size=16,
               first_k_dense_replace=1, partial_rotary_factor=0.5, head_dim=8, rope_scaling=None,
               num_nextn_predict_layers=1)
    yield llama_case("glm4_moe", experts.Glm4Moe, "Glm4MoeForCausalLM", "glm4_moe", use_qk_norm=True,
                     attention_bias=True, n_shared_experts=2, n_group=4, topk_group=2,
                     norm_topk_prob=True, routed_scaling_factor=1.5, **glm)
    yield llama_case("glm4_moe_air", experts.Glm4Moe, "Glm4MoeForCausalLM", "glm4_moe",
                     use_qk_norm=False, attention_bias=False, n_shared_experts=1, n_group=1,
                     topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.0,
                     **{**glm, "num_hidden_layers": 2})


def ungated_cases():
    yield llama_case("apertus", ungated.Apertus, "ApertusForCausalLM", "apertus", hidden_act="xielu",
                     head_dim=ABSENT, hidden_size=24, num_hidden_layers=2, rope_theta=500.0,
                     rope_scaling={"factor": 3.0, "high_freq_factor": 4.0, "low_freq_factor": 0.5,
                                   "original_max_position_embeddings": 16, "rope_type": "llama3"})
    yield llama_case("arcee", ungated.Arcee, "ArceeForCausalLM", "arcee", hidden_act="relu2",
                     mlp_bias=True, num_hidden_layers=2, rope_scaling=None)
    yield llama_case("nemotron", ungated.Nemotron, "NemotronForCausalLM", "nemotron",
                     hidden_act="relu2", mlp_bias=True, attention_bias=True, num_hidden_layers=2,
                     head_dim=8, rms_norm_eps=ABSENT, norm_eps=0.01, partial_rotary_factor=0.5)


def gpt_cases():
    sizes = dict(n_embd=20, n_head=5, n_layer=2, n_positions=24, vocab_size=53,
                 layer_norm_epsilon=0.01)
    yield case("gpt2", gpt2.Gpt2, "GPT2LMHeadModel", "gpt2", n_ctx=24, n_inner=None,
               activation_function="gelu_new", **sizes)
    yield case("gpt2_scaled", gpt2.Gpt2, "GPT2LMHeadModel", "gpt2", n_ctx=24, n_inner=28,
               activation_function="gelu", scale_attn_by_inverse_layer_idx=True, **sizes)
    yield case("gptj", parallel.GptJ, "GPTJForCausalLM", "gptj", n_inner=None, rotary_dim=4,
               activation_function="gelu_new", tie_word_embeddings=False,
               **{**sizes, "n_embd": 24, "n_head": 3})
    yield case("bloom", gpt2.Bloom, "BloomForCausalLM", "bloom", hidden_size=18, n_head=3, n_layer=2,
               vocab_size=53, seq_length=24, layer_norm_epsilon=0.01,
               apply_residual_connection_post_layernorm=False)


def neox_cases():
    def neox(name, **changes):
        config = dict(
            attention_bias=True, hidden_act="gelu", hidden_size=24, intermediate_size=28,
            layer_norm_eps=0.01, max_position_embeddings=24, num_attention_heads=3,
            num_hidden_layers=2, rotary_emb_base=10000, rotary_pct=0.5, tie_word_embeddings=False,
            use_parallel_residual=True, vocab_size=53)
        return case(name, parallel.GptNeox, "GPTNeoXForCausalLM", "gpt_neox", **{**config, **changes})

    yield neox("gpt_neox")
    yield neox("gpt_neox_serial", use_parallel_residual=False, rotary_pct=0.75)


def opt_cases():
    sizes = dict(activation_function="relu", enable_bias=True, ffn_dim=28, hidden_size=20,
                 layer_norm_elementwise_affine=True, max_position_embeddings=22,
                 num_attention_heads=4, num_hidden_layers=2, vocab_size=53)
    yield case("opt", opt.Opt, "OPTForCausalLM", "opt", do_layer_norm_before=True,
               word_embed_proj_dim=20, **sizes)
    yield case("opt_350m", opt.Opt, "OPTForCausalLM", "opt", do_layer_norm_before=False,
               word_embed_proj_dim=12, **sizes)


def more_parallel_cases():
    yield case("phi", parallel.Phi, "PhiForCausalLM", "phi", hidden_act="gelu_new", hidden_size=24,
               intermediate_size=28, layer_norm_eps=0.01, max_position_embeddings=24,
               num_attention_heads=3, num_hidden_layers=2, num_key_value_heads=None,
               partial_rotary_factor=0.5, qk_layernorm=False, rope_scaling=None, rope_theta=10000.0,
               tie_word_embeddings=False, vocab_size=53)

    def falcon(name, **changes):
        config = dict(
            alibi=False, bias=False, hidden_size=24, layer_norm_epsilon=0.01, multi_query=True,
            new_decoder_architecture=False, num_attention_heads=4, num_hidden_layers=2,
            parallel_attn=True, rope_theta=10000.0, vocab_size=53, max_position_embeddings=24)
        return case(name, parallel.Falcon, "FalconForCausalLM", "falcon", **{**config, **changes})

    yield falcon("falcon_7b")
    yield falcon("falcon_40b", new_decoder_architecture=True, num_kv_heads=2)
    yield falcon("falcon_11b", new_decoder_architecture=True, num_kv_heads=2,
                 num_ln_in_parallel_attn=1, ffn_hidden_size=28, activation="gelu")
    yield falcon("falcon_rw", alibi=True, bias=True, multi_query=False, parallel_attn=False)

    def cohere(name, **changes):
        config = dict(
            attention_bias=False, hidden_act="silu", hidden_size=24, intermediate_size=28,
            layer_norm_eps=0.01, logit_scale=0.25, max_position_embeddings=24,
            num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rope_theta=10000.0,
            tie_word_embeddings=True, use_qk_norm=False, vocab_size=53)
        return case(name, parallel.Cohere, "CohereForCausalLM", "cohere", **{**config, **changes})

    yield cohere("cohere")
    yield cohere("cohere_plus", use_qk_norm=True)


def encoder_cases():
    sizes = dict(hidden_act="gelu", hidden_size=20, intermediate_size=28, num_attention_heads=5,
                 num_hidden_layers=2, vocab_size=53)
    yield case("bert", bert.Bert, "BertForMaskedLM", "bert", layer_norm_eps=0.01,
               max_position_embeddings=24, pad_token_id=0, type_vocab_size=2, **sizes)
    yield case("roberta", bert.Roberta, "RobertaForMaskedLM", "roberta", layer_norm_eps=0.01,
               max_position_embeddings=26, pad_token_id=1, type_vocab_size=1, **sizes)


def scaled_cases():
    """Yields every scaling of the positions, in the layouts of versions 4 and 5 of transformers."""
    small = dict(hidden_size=16, intermediate_size=18, num_hidden_layers=2, num_attention_heads=2,
                 num_key_value_heads=1, head_dim=ABSENT, vocab_size=29, rope_theta=ABSENT)
    yarn = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 8}
    yield llama_case("scaled_linear", llama_like.Granite, "GraniteForCausalLM", "granite",
                     embedding_multiplier=0.7, attention_multiplier=0.3, residual_multiplier=0.8,
                     logits_scaling=0.6, mlp_bias=False, **small, rope_parameters={
                         "rope_type": "linear", "factor": 2.5, "rope_theta": 500.0})
    yield llama_case("scaled_llama3", llama_like.Olmo2, "Olmo2ForCausalLM", "olmo2",
                     **{**small, "rope_theta": 500.0}, rope_scaling={
                         "rope_type": "llama3", "factor": 3.0, "high_freq_factor": 3.0,
                         "low_freq_factor": 0.5, "original_max_position_embeddings": 16})
    yield llama_case("scaled_yarn_mscale", llama_like.Mistral, "MistralForCausalLM", "mistral",
                     attention_bias=ABSENT, sliding_window=None, **small, rope_parameters={
                         **yarn, "rope_theta": 500.0, "mscale": 2.0, "mscale_all_dim": 0.5})
    yield case("scaled_yarn_truncate", parallel.Cohere, "CohereForCausalLM", "cohere",
               attention_bias=False, hidden_act="silu", hidden_size=16, intermediate_size=18,
               layer_norm_eps=0.01, logit_scale=0.25, max_position_embeddings=24,
               num_attention_heads=2, num_hidden_layers=2, num_key_value_heads=1, rope_theta=500.0,
               tie_word_embeddings=True, use_qk_norm=False, vocab_size=29, rope_scaling={
                   "type": "yarn", "factor": 3.0, "original_max_position_embeddings": 8,
                   "truncate": False, "beta_fast": 3, "beta_slow": 0.05, "attention_factor": 1.4})
    short = {"short_factor": [1.0, 1.5, 2.5, 4.0], "long_factor": [1.0, 3.0, 5.0, 9.0]}
    yield llama_case("scaled_longrope", llama_like.Llama, "LlamaForCausalLM", "llama",
                     **{**small, "rope_theta": 500.0}, original_max_position_embeddings=24,
                     rope_scaling={"type": "longrope", **short}, **{"max_position_embeddings": 48})
    yield llama_case("scaled_longrope_5", gemma.Gemma, "GemmaForCausalLM", "gemma",
                     hidden_act=ABSENT, hidden_activation="gelu_pytorch_tanh", **small,
                     max_position_embeddings=48,
                     rope_parameters={"rope_type": "longrope", **short, "rope_theta": 500.0,
                                      "factor": 3.0, "original_max_position_embeddings": 24})
    yield llama_case("scaled_by_layer", gemma.Gemma3, "Gemma3ForCausalLM", "gemma3_text",
                     hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10,
                     attn_logit_softcapping=None, final_logit_softcapping=None, hidden_act=ABSENT,
                     sliding_window=5, sliding_window_pattern=2, **small, rope_parameters={
                         "full_attention": {**yarn, "rope_theta": 500.0},
                         "sliding_attention": {"rope_type": "linear", "factor": 2.0,
                                               "rope_theta": 100.0}})
    yield case("scaled_partial", parallel.Phi, "PhiForCausalLM", "phi", hidden_act="gelu_new",
               hidden_size=16, intermediate_size=18, layer_norm_eps=0.01, vocab_size=29,
               max_position_embeddings=24, num_attention_heads=2, num_hidden_layers=2,
               num_key_value_heads=None, qk_layernorm=False, tie_word_embeddings=False,
               rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0,
                                "partial_rotary_factor": 0.75})
    yield case("scaled_dynamic", parallel.Falcon, "FalconForCausalLM", "falcon", alibi=False,
               bias=False, hidden_size=16, layer_norm_epsilon=0.01, multi_query=True,
               new_decoder_architecture=False, num_attention_heads=2, num_hidden_layers=2,
               parallel_attn=True, ffn_hidden_size=18, rope_theta=500.0, vocab_size=29,
               max_position_embeddings=24, rope_scaling={"type": "dynamic", "factor": 4.0})
    yield llama_case("qwen3_moe_slides", experts.Qwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe",
                     norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                     num_local_experts=3, num_experts_per_tok=2, moe_intermediate_size=5,
                     use_sliding_window=True, sliding_window=4, **small,
                     rope_parameters={"rope_type": "default", "rope_theta": 500.0})


def all_cases():
    for cases in (llama_cases, gemma_cases, expert_cases, ungated_cases, gpt_cases, neox_cases, opt_cases,
                  more_parallel_cases, encoder_cases, scaled_cases):
        yield from cases()
