# SPDX-License-Identifier: Apache-2.0
"""The tiny models that transformers computes: the configuration of each, and how its family publishes it.

Sizes are odd on purpose, as those of cases.py.
"""

import dataclasses

import transformers

SIZES = dict(vocab_size=53, hidden_size=20, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=24, bos_token_id=None, eos_token_id=None,
             pad_token_id=None)


EAGER = dict(attn_implementation="eager", experts_implementation="eager")


@dataclasses.dataclass
class Case:
    """A model. `published` and `without` turn the config.json of transformers 5 into the published form."""
    name: str
    model_type: str
    settings: dict
    published: dict = dataclasses.field(default_factory=dict)
    without: tuple = ()
    top_k: int = None  # experts of a token
    unit_offset: bool = False  # gains are stored less 1
    auto: str = "AutoModelForCausalLM"
    unused: tuple = ()  # tensors that are saved, and that nothing reads

    @property
    def vocab(self):
        return self.settings.get("text_config", self.settings)["vocab_size"]

    @property
    def encoder(self):
        return self.auto == "AutoModelForMaskedLM"

    def model(self):
        config = transformers.AutoConfig.for_model(self.model_type, **self.settings)
        model = getattr(transformers, self.auto).from_config(config, **EAGER)
        return model.float().eval()

    def load(self, folder):
        model = getattr(transformers, self.auto).from_pretrained(folder, **EAGER)
        return model.float().eval()


def case(name, model_type, top_k=None, published=None, without=(), unit_offset=False, auto="AutoModelForCausalLM",
         unused=(), **settings):
    sizes = {**SIZES, **settings}
    return Case(name, model_type, {k: v for k, v in sizes.items() if v is not ABSENT}, published or {},
                without, top_k, unit_offset, auto, unused)


ABSENT = object()
WINDOWS = ["sliding_attention", "sliding_attention", "full_attention"]


def default(theta, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


def version4(theta, **more):
    """Fields of version 4 for the positions: those of version 5 are dropped."""
    return dict(published=dict(rope_theta=theta, **more), without=("rope_parameters",))


def llama_like():
    short = [1.0, 1.2, 1.5]
    yield case("phi3", "phi3", hidden_size=24, rms_norm_eps=0.01, sliding_window=5,
               original_max_position_embeddings=24, rope_parameters=default(500.0),
               **version4(500.0, rope_scaling=None))
    # A part of the head turns in Phi-4 mini.
    longrope = dict(short_factor=short, long_factor=[2 * f for f in short])
    yield case("phi3_longrope", "phi3", hidden_size=32, rms_norm_eps=0.01, tie_word_embeddings=True,
               max_position_embeddings=48, original_max_position_embeddings=24,
               rope_parameters={"rope_type": "longrope", "rope_theta": 500.0,
                                "partial_rotary_factor": 0.75, **longrope},
               **version4(500.0, rope_scaling={"type": "longrope", **longrope}, partial_rotary_factor=0.75))
    yield case("seed_oss", "seed_oss", head_dim=6, rms_norm_eps=0.01, attention_out_bias=False,
               mlp_bias=True, rope_parameters=default(500.0))
    yield case("starcoder2", "starcoder2", hidden_size=24, num_hidden_layers=2, norm_epsilon=0.01,
               sliding_window=5, rope_parameters=default(500.0),
               **version4(500.0, activation_function="gelu_pytorch_tanh", mlp_type="default",
                          norm_type="layer_norm"))
    yield case("starcoder2_plain", "starcoder2", hidden_size=24, num_hidden_layers=2, norm_epsilon=0.01,
               use_bias=False, tie_word_embeddings=False, rope_parameters=default(500.0))


def sliding():
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, attention_factor=1.1,
                beta_fast=8.0, beta_slow=1.0)
    yield case("olmo3", "olmo3", hidden_size=24, num_hidden_layers=4, rms_norm_eps=0.01, sliding_window=5,
               max_position_embeddings=32,
               rope_parameters={"full_attention": {"rope_theta": 500000.0, **yarn},
                                "sliding_attention": default(500000.0)},
               **version4(500000.0, rope_scaling=yarn))
    yield case("olmo3_types", "olmo3", hidden_size=24, rms_norm_eps=0.01, sliding_window=5,
               layer_types=WINDOWS, max_position_embeddings=32,
               rope_parameters={"full_attention": {"rope_theta": 300.0, **yarn},
                                "sliding_attention": default(700.0)})
    yield case("cohere2", "cohere2", hidden_size=24, num_hidden_layers=4, layer_norm_eps=0.01,
               sliding_window=5, logit_scale=0.7, rope_parameters=default(500.0),
               **version4(500.0, layer_switch=4, order_of_interleaved_layers="local_attn_first",
                          position_embedding_type="rope_gptj", rotary_pct=1.0, sliding_window_pattern=4,
                          use_parallel_block=True))
    yield case("cohere2_bias", "cohere2", hidden_size=24, layer_norm_eps=0.01, sliding_window=5,
               attention_bias=True, tie_word_embeddings=False, layer_types=WINDOWS,
               rope_parameters=default(500.0))
    yield case("exaone4", "exaone4", hidden_size=24, rms_norm_eps=0.01, sliding_window=5,
               sliding_window_pattern="LLLG", layer_types=WINDOWS, rope_parameters=default(500.0),
               **version4(500.0, rope_scaling=None))
    yield case("exaone4_full", "exaone4", hidden_size=24, rms_norm_eps=0.01, sliding_window=None,
               layer_types=["full_attention"] * 3, tie_word_embeddings=True,
               rope_parameters=default(500.0))


def glm():
    yield case("glm4", "glm4", head_dim=8, rms_norm_eps=0.01, rope_parameters=default(500.0,
               partial_rotary_factor=0.5), **version4(500.0, partial_rotary_factor=0.5))
    yield case("glm", "glm", head_dim=8, rms_norm_eps=0.01, attention_bias=True,
               rope_parameters=default(500.0, partial_rotary_factor=0.5))
    yield case("glm4_plain", "glm4", head_dim=8, rms_norm_eps=0.01, attention_bias=False,
               num_key_value_heads=1, tie_word_embeddings=True,
               rope_parameters=default(500.0, partial_rotary_factor=0.75))


def experts():
    qwen = dict(hidden_size=16, num_hidden_layers=2, num_experts=5, num_experts_per_tok=3,
                moe_intermediate_size=9, shared_expert_intermediate_size=11, rms_norm_eps=0.01,
                rope_parameters=default(500.0))
    yield case("qwen2_moe", "qwen2_moe", top_k=3, norm_topk_prob=False, decoder_sparse_step=2, **qwen,
               **version4(500.0))
    yield case("qwen2_moe_slides", "qwen2_moe", top_k=3, norm_topk_prob=True, qkv_bias=False,
               use_sliding_window=True, sliding_window=5,
               layer_types=["full_attention", "sliding_attention"], **qwen)
    yield case("granitemoe", "granitemoe", top_k=2, hidden_size=16, intermediate_size=9,
               num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=0.01,
               embedding_multiplier=0.7, attention_multiplier=0.3, residual_multiplier=0.8,
               logits_scaling=0.6, tie_word_embeddings=True, rope_parameters=default(500.0),
               **version4(500.0, rope_scaling=None))
    yield case("olmoe", "olmoe", top_k=3, hidden_size=16, intermediate_size=9, num_hidden_layers=2,
               num_experts=5, num_experts_per_tok=3, rms_norm_eps=0.01, clip_qkv=0.8,
               rope_parameters=default(500.0), **version4(500.0, rope_scaling=None))
    yield case("olmoe_plain", "olmoe", top_k=3, hidden_size=16, intermediate_size=9, num_hidden_layers=2,
               num_experts=5, num_experts_per_tok=3, rms_norm_eps=0.01, norm_topk_prob=True,
               num_key_value_heads=4, rope_parameters=default(500.0))


    granite = dict(hidden_size=16, intermediate_size=9, num_local_experts=4, num_experts_per_tok=2,
                   shared_intermediate_size=7, rms_norm_eps=0.01, embedding_multiplier=0.7, attention_multiplier=0.3,
                   residual_multiplier=0.8, logits_scaling=0.6, rope_parameters=default(500.0))
    yield case("granitemoeshared", "granitemoeshared", top_k=2, num_hidden_layers=2, **granite)
    yield case("flex_olmo", "flex_olmo", top_k=3, hidden_size=16, intermediate_size=9, num_hidden_layers=2,
               num_experts=5, num_experts_per_tok=3, rms_norm_eps=0.01, rope_parameters=default(500.0))
    yield case("minimax_m2", "minimax_m2", hidden_size=16, intermediate_size=9, num_hidden_layers=2, head_dim=8,
               num_local_experts=5, num_experts_per_tok=3, rms_norm_eps=0.01,
               rope_parameters=default(500.0, partial_rotary_factor=0.5),
               published=dict(rope_theta=500.0, rotary_dim=4, use_qk_norm=True, scoring_func="sigmoid"),
               without=("rope_parameters",))
    ernie = dict(hidden_size=16, moe_intermediate_size=9, moe_num_experts=5, moe_k=2, rms_norm_eps=0.01,
                 rope_parameters=default(500.0))
    yield case("ernie4_5_moe", "ernie4_5_moe", use_bias=True, moe_num_shared_experts=2, **ernie)
    yield case("ernie4_5_moe_plain", "ernie4_5_moe", moe_num_shared_experts=0, moe_layer_interval=2,
               moe_layer_start_index=0, tie_word_embeddings=False, **ernie)
    yield case("exaone_moe", "exaone_moe", hidden_size=24, num_hidden_layers=4, moe_intermediate_size=9, num_experts=6,
               num_experts_per_tok=2, num_shared_experts=2, n_group=3, topk_group=2, rms_norm_eps=0.01, sliding_window=5,
               layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=default(500.0),
               mlp_layer_types=["dense", "sparse", "dense", "sparse"])
    yield case("lfm2_moe", "lfm2_moe", hidden_size=24, num_hidden_layers=4, norm_eps=0.01, moe_intermediate_size=9,
               num_experts=5, num_experts_per_tok=2, num_dense_layers=2, routed_scaling_factor=1.4, conv_bias=True,
               layer_types=["conv", "full_attention"] * 2, rope_parameters=default(500.0))
    # Layers without experts.
    yield case("qwen2_moe_mixed", "qwen2_moe", top_k=3, mlp_only_layers=[0], **{**qwen, "num_hidden_layers": 3})
    yield case("qwen3_moe_mixed", "qwen3_moe", top_k=3, norm_topk_prob=True, head_dim=6, decoder_sparse_step=2,
               **{**qwen, "num_hidden_layers": 3, "shared_expert_intermediate_size": ABSENT})
    delta = dict(head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4,
                 linear_value_head_dim=6, rope_parameters=default(500.0, partial_rotary_factor=0.5))
    yield case("qwen3_5_text", "qwen3_5_text", unit_offset=True, hidden_size=16, rms_norm_eps=0.01,
               layer_types=["linear_attention", "full_attention", "linear_attention"], **delta)
    yield case("qwen3_5_moe_text", "qwen3_5_moe_text", top_k=3, unit_offset=True, attention_bias=True,
               **{**qwen, **delta, "num_hidden_layers": 3},
               layer_types=["linear_attention", "linear_attention", "full_attention"])
    yield case("qwen3_next_mixed", "qwen3_next", top_k=3, unit_offset=True, attention_bias=True, mlp_only_layers=[1, 3],
               **{**qwen, **delta, "num_hidden_layers": 4},
               layer_types=["linear_attention", "linear_attention", "full_attention", "full_attention"])


def multimodal():
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                  image_size=8, patch_size=4)

    def wrapped(name, outer, vision_type, published=None, without=(), unit_offset=False, more=None,
                **text):
        text = {k: v for k, v in {**SIZES, **text}.items() if v is not ABSENT}
        settings = {"text_config": text, "vision_config": {"model_type": vision_type, **vision}, **(more or {})}
        return Case(name, outer, settings, published or {}, without, None, unit_offset,
                    "AutoModelForImageTextToText")

    yield wrapped("gemma3", "gemma3", "siglip_vision_model", model_type="gemma3_text", head_dim=6,
                  num_hidden_layers=4, rms_norm_eps=0.02, query_pre_attn_scalar=10, sliding_window=5,
                  sliding_window_pattern=3, unit_offset=True, max_position_embeddings=32,
                  more=dict(mm_tokens_per_image=4),
                  rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0,
                                                      "rope_theta": 1000000.0},
                                   "sliding_attention": default(10000.0)},
                  published=dict(rope_scaling={"rope_type": "linear", "factor": 8.0},
                                 sliding_window_pattern=3),
                  without=("rope_parameters", "layer_types"))
    def gemma4(make, name, heads, *more, **settings):
        """Transformers writes heads as per_layer_config; the published files have two fields."""
        return make(name, *more, rms_norm_eps=0.01, head_dim=6, sliding_window=5, published=heads,
                    without=("per_layer_config",), **heads, **settings)

    heads = dict(global_head_dim=12, num_global_key_value_heads=1)
    proportional = {"sliding_attention": default(50.0),
                    "full_attention": dict(rope_type="proportional", rope_theta=500.0, partial_rotary_factor=0.5,
                                           factor=2.0)}
    shared = dict(num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3,
                  num_kv_shared_layers=2, hidden_size_per_layer_input=5, vocab_size_per_layer_input=53)
    shallow = dict(shared, num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2,
                   num_kv_shared_layers=1)
    yield gemma4(case, "gemma4_text", heads, "gemma4_text", attention_k_eq_v=True, use_double_wide_mlp=True,
                 final_logit_softcapping=2.0, rope_parameters=proportional, **shared)
    yield gemma4(case, "gemma4_plain", dict(global_head_dim=8, num_global_key_value_heads=None), "gemma4_text",
                 hidden_size_per_layer_input=0, tie_word_embeddings=False, attention_bias=True,
                 hidden_activation="gelu", layer_types=WINDOWS,
                 rope_parameters={"sliding_attention": default(50.0), "full_attention": default(500.0)})
    yield case("vaultgemma", "vaultgemma", unit_offset=True, rms_norm_eps=0.01, head_dim=6, sliding_window=5,
               query_pre_attn_scalar=10, attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
               layer_types=WINDOWS, rope_parameters=default(500.0))
    yield case("gemma3n_text", "gemma3n_text", rms_norm_eps=0.01, head_dim=6, sliding_window=5, num_hidden_layers=4,
               intermediate_size=[28, 20, 28, 28], layer_types=["sliding_attention", "full_attention"] * 2,
               activation_sparsity_pattern=[0.95, 0.95, 0.0, 0.0], altup_num_inputs=3, laurel_rank=5,
               num_kv_shared_layers=2, hidden_size_per_layer_input=5, vocab_size_per_layer_input=53,
               final_logit_softcapping=2.0,
               rope_parameters={"sliding_attention": default(50.0), "full_attention": default(500.0)})
    yield case("gemma4_layers", "gemma4_text", rms_norm_eps=0.01, head_dim=6, sliding_window=5, **heads,
               attention_k_eq_v=True, rope_parameters=proportional, **shared)
    yield gemma4(wrapped, "gemma4", heads, "gemma4", "gemma4_vision", model_type="gemma4_text", pad_token_id=0,
                 more=dict(vision_config=dict(vision, model_type="gemma4_vision", head_dim=4, num_key_value_heads=2,
                                              position_embedding_size=4)),
                 rope_parameters=proportional, **shallow)
    yarn = dict(rope_type="yarn", type="yarn", rope_theta=500.0, factor=4.0, beta_fast=8.0, beta_slow=1.0,
                original_max_position_embeddings=8, max_position_embeddings=96, mscale=1.0,
                mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
    yield case("ministral3", "ministral3", head_dim=6, rms_norm_eps=0.01, max_position_embeddings=96,
               rope_parameters=yarn)
    yield wrapped("mistral3", "mistral3", "pixtral", model_type="mistral", head_dim=6, rms_norm_eps=0.01,
                  sliding_window=None, rope_parameters=default(500.0), more=dict(tie_word_embeddings=False),
                  **version4(500.0))
    yield wrapped("mistral3_ministral3", "mistral3", "pixtral", model_type="ministral3", head_dim=6,
                  rms_norm_eps=0.01, max_position_embeddings=96, tie_word_embeddings=True,
                  rope_parameters=yarn)


def more_llama_like():
    yield case("stablelm", "stablelm", hidden_size=32, layer_norm_eps=0.01, use_qkv_bias=True,
               rope_parameters=default(500.0, partial_rotary_factor=0.25),
               **version4(500.0, partial_rotary_factor=0.25))
    yield case("stablelm_parallel", "stablelm", hidden_size=32, layer_norm_eps=0.01,
               use_parallel_residual=True, num_hidden_layers=2, tie_word_embeddings=True,
               rope_parameters=default(500.0, partial_rotary_factor=0.5))
    yield case("stablelm_heads", "stablelm", hidden_size=32, layer_norm_eps=0.01, qk_layernorm=True,
               num_hidden_layers=2, rope_parameters=default(500.0, partial_rotary_factor=0.5))
    yield case("stablelm_heads_parallel", "stablelm", hidden_size=32, layer_norm_eps=0.01, qk_layernorm=True,
               use_parallel_residual=True, num_hidden_layers=2,
               rope_parameters=default(500.0, partial_rotary_factor=0.5))
    yield case("ernie4_5", "ernie4_5", head_dim=6, rms_norm_eps=0.01, use_bias=True,
               rope_parameters=default(500.0), **version4(500.0))
    yield case("helium", "helium", hidden_size=24, head_dim=6, rms_norm_eps=0.01, attention_bias=True,
               rope_parameters=default(500.0), **version4(500.0))
    yield case("hunyuan_dense", "hunyuan_v1_dense", head_dim=6, rms_norm_eps=0.01, attention_bias=True,
               rope_parameters=default(500.0))
    alpha = dict(alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.0)
    yield case("hunyuan_dense_alpha", "hunyuan_v1_dense", head_dim=6, rms_norm_eps=0.01,
               tie_word_embeddings=True,
               rope_parameters={"rope_type": "dynamic", "rope_theta": 500.0, **alpha},
               **version4(500.0, rope_scaling={"type": "dynamic", **alpha}, use_qk_norm=True))


def gpts():
    sizes = {**{key: ABSENT for key in SIZES}, "vocab_size": 53, "layer_norm_epsilon": 0.01}
    yield case("codegen", "codegen", **{**sizes, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 24, "n_ctx": 24,
                                        "rotary_dim": 4, "bos_token_id": None, "eos_token_id": None})
    gpt2 = dict(n_embd=20, n_layer=2, n_head=4, n_positions=24, bos_token_id=None, eos_token_id=None)
    yield case("gpt_bigcode", "gpt_bigcode", **{**sizes, **gpt2})
    yield case("gpt_bigcode_heads", "gpt_bigcode", **{**sizes, **gpt2}, multi_query=False, n_inner=28,
               scale_attn_weights=False, tie_word_embeddings=False)
    yield case("gpt_neo", "gpt_neo", **{**sizes, "hidden_size": 20, "max_position_embeddings": 24,
                                       "bos_token_id": None, "eos_token_id": None},
               num_layers=3, num_heads=4, window_size=5,
               attention_types=[[["global", "local"], 1], [["local"], 1]])
    mpt = dict(d_model=18, n_heads=3, n_layers=2, max_seq_len=24)
    yield case("mpt", "mpt", **{**sizes, **mpt})
    yield case("mpt_clip", "mpt", **{**sizes, **mpt}, tie_word_embeddings=False,
               attn_config=dict(clip_qkv=0.8, softmax_scale=0.3))


def convolutions():
    # The published files have the layers with attention, and names of their own for two fields.
    yield case("lfm2", "lfm2", hidden_size=12, num_hidden_layers=16, num_attention_heads=2,
               num_key_value_heads=1, intermediate_size=19, norm_eps=0.01, block_multiple_of=5,
               block_ffn_dim_multiplier=0.8, full_attn_idxs=[2, 5, 8, 10, 12, 14],
               rope_parameters=default(500.0),
               published=dict(rope_theta=500.0, block_ff_dim=19, block_dim=12, num_heads=2,
                              tie_embedding=True),
               without=("rope_parameters", "layer_types", "intermediate_size", "tie_word_embeddings"))
    yield case("lfm2_plain", "lfm2", hidden_size=24, norm_eps=0.01, block_auto_adjust_ff_dim=False,
               conv_bias=True, conv_L_cache=4, tie_word_embeddings=False,
               layer_types=["full_attention", "conv", "conv"], rope_parameters=default(500.0))


def latent_attention():
    sizes = dict(num_key_value_heads=4, intermediate_size=28, moe_intermediate_size=9, n_routed_experts=5,
                 num_experts_per_tok=2, kv_lora_rank=10, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=7,
                 rms_norm_eps=0.01)
    yarn = dict(factor=4.0, original_max_position_embeddings=12, beta_fast=32, beta_slow=1, mscale=0.7,
                mscale_all_dim=0.9)
    yield case("deepseek_v2", "deepseek_v2", top_k=2, q_lora_rank=11, n_shared_experts=2, first_k_dense_replace=1,
               routed_scaling_factor=1.5, max_position_embeddings=48,
               rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **yarn},
               **{**version4(500.0, rope_scaling={"type": "yarn", **yarn}), **sizes})
    yield case("deepseek_v2_lite", "deepseek_v2", top_k=2, q_lora_rank=None, n_shared_experts=1,
               tie_word_embeddings=True, rope_parameters=default(500.0), **{**version4(500.0, rope_scaling=None), **sizes})
    yield case("deepseek_v2_groups", "deepseek_v2", top_k=2, q_lora_rank=None, n_shared_experts=1, n_group=3,
               topk_group=2, topk_method="group_limited_greedy", rope_parameters=default(500.0),
               **{**sizes, "n_routed_experts": 6})
    sizes = {**sizes, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2}
    yield case("deepseek_v3", "deepseek_v3", q_lora_rank=11, first_k_dense_replace=1, max_position_embeddings=48,
               rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **yarn},
               **{**version4(500.0, rope_scaling={"type": "yarn", **yarn}, scoring_func="sigmoid",
                             topk_method="noaux_tc", num_nextn_predict_layers=1), **sizes})
    yield case("deepseek_v3_halves", "deepseek_v3", q_lora_rank=None, first_k_dense_replace=0, rope_interleave=False,
               norm_topk_prob=False, routed_scaling_factor=1.3, n_shared_experts=2, rope_parameters=default(500.0),
               **sizes)


    yield case("glm4_moe_lite", "glm4_moe_lite", q_lora_rank=11, mlp_layer_types=["dense", "sparse", "dense"],
               rope_parameters=default(500.0), **sizes)
    yield case("deepseek_v3_bias", "deepseek_v3", q_lora_rank=11, first_k_dense_replace=1, attention_bias=True,
               num_nextn_predict_layers=0, rope_parameters=default(500.0), **sizes)


def states():
    sizes = dict(vocab_size=53, hidden_size=16, num_hidden_layers=3, bos_token_id=None, eos_token_id=None,
                 pad_token_id=None)
    yield Case("mamba2", "mamba2", dict(sizes, num_heads=4, head_dim=8, state_size=5, n_groups=2, conv_kernel=3,
                                        layer_norm_epsilon=0.01))
    ssm = dict(mamba_n_heads=4, mamba_d_head=8, mamba_d_state=5, mamba_n_groups=2, mamba_d_conv=3, rms_norm_eps=0.01,
               hidden_size=16, rope_parameters=default(500.0))
    granite = dict(embedding_multiplier=0.7, attention_multiplier=0.3, residual_multiplier=0.8, logits_scaling=0.6,
                   shared_intermediate_size=11, layer_types=["mamba", "attention", "mamba"])
    yield case("granitemoehybrid", "granitemoehybrid", top_k=2, intermediate_size=9, num_local_experts=4,
               num_experts_per_tok=2, **ssm, **granite)
    yield case("granitemoehybrid_dense", "granitemoehybrid", num_local_experts=0, position_embedding_type="rope",
               mamba_conv_bias=False, tie_word_embeddings=True, **ssm, **granite)
    multipliers = dict(embedding_multiplier=0.7, lm_head_multiplier=1.3, key_multiplier=0.8, attention_in_multiplier=1.1,
                       attention_out_multiplier=0.9, ssm_in_multiplier=1.2, ssm_out_multiplier=0.6,
                       mlp_multipliers=[0.8, 1.4], ssm_multipliers=[0.7, 1.3, 0.9, 1.2, 0.6])
    yield case("falcon_h1", "falcon_h1", mamba_d_ssm=32, mamba_rms_norm=True, mamba_norm_before_gate=False,
               **ssm, **multipliers)
    yield case("falcon_h1_plain", "falcon_h1", mamba_d_ssm=32, attention_bias=True, mlp_bias=True, **ssm, **multipliers)


def others():
    yield case("dots1", "dots1", head_dim=6, rms_norm_eps=0.01, moe_intermediate_size=9, n_routed_experts=6,
               num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1, n_group=3, topk_group=2,
               norm_topk_prob=True, routed_scaling_factor=1.4, attention_bias=True, sliding_window=5,
               layer_types=WINDOWS, rope_parameters=default(500.0))
    yield case("persimmon", "persimmon", hidden_size=32, num_key_value_heads=ABSENT, layer_norm_eps=0.01,
               rope_parameters=default(500.0, partial_rotary_factor=0.5),
               **version4(500.0, partial_rotary_factor=0.5))
    yield case("persimmon_plain", "persimmon", hidden_size=32, num_key_value_heads=ABSENT, num_hidden_layers=2,
               layer_norm_eps=0.01, qk_layernorm=False, tie_word_embeddings=True,
               rope_parameters=default(500.0, partial_rotary_factor=0.25))
    yield case("nanochat", "nanochat", hidden_size=24, rms_norm_eps=0.01, final_logit_softcapping=2.0,
               rope_parameters=default(500.0))
    yield case("nanochat_plain", "nanochat", hidden_size=24, num_key_value_heads=4, rms_norm_eps=0.01,
               num_hidden_layers=2, final_logit_softcapping=None, attention_bias=True, tie_word_embeddings=True,
               rope_parameters=default(500.0))
    dbrx = dict({key: ABSENT for key in SIZES}, vocab_size=53, d_model=16, n_heads=4, n_layers=2, max_seq_len=24)
    yield case("dbrx", "dbrx", top_k=2, attn_config=dict(clip_qkv=0.8, kv_n_heads=2, rope_theta=500.0),
               ffn_config=dict(ffn_hidden_size=9, moe_num_experts=4, moe_top_k=2),
               rope_parameters=default(500.0), **dbrx)
    yield case("dbrx_plain", "dbrx", top_k=3, attn_config=dict(clip_qkv=1.5, kv_n_heads=4, rope_theta=10000.0),
               ffn_config=dict(ffn_hidden_size=9, moe_num_experts=5, moe_top_k=3, ffn_act_fn={"name": "gelu"},
                               moe_normalize_expert_weights=None), **dbrx)


def encoders():
    untied = dict(num_hidden_layers=2, num_key_value_heads=ABSENT, tie_word_embeddings=False, auto="AutoModelForMaskedLM")
    yield case("bert_untied", "bert", unused=("cls.predictions.bias",), pad_token_id=0, **untied)
    yield case("roberta_untied", "roberta", unused=("lm_head.bias",), pad_token_id=1, **untied)
    sizes = dict(vocab_size=53, dim=20, hidden_dim=28, n_heads=4, n_layers=2, max_position_embeddings=24,
                 pad_token_id=0)
    yield Case("distilbert", "distilbert", sizes, published=dict(tie_weights_=True),
               auto="AutoModelForMaskedLM")
    by_type = {"full_attention": default(500.0), "sliding_attention": default(50.0)}
    sizes = dict(hidden_size=24, num_hidden_layers=4, norm_eps=0.01, auto="AutoModelForMaskedLM",
                 num_key_value_heads=ABSENT, max_position_embeddings=24)
    yield case("modernbert", "modernbert", local_attention=7, rope_parameters=by_type,
               published=dict(global_rope_theta=500.0, local_rope_theta=50.0, global_attn_every_n_layers=3),
               without=("rope_parameters", "layer_types"), **sizes)
    yield case("modernbert_biases", "modernbert", local_attention=4, rope_parameters=by_type, norm_bias=True,
               attention_bias=True, decoder_bias=False, classifier_bias=True, tie_word_embeddings=False,
               layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"], **sizes)


def all_cases():
    for group in (llama_like, sliding, glm, experts, multimodal, more_llama_like, gpts,
                  convolutions, latent_attention, states, others, encoders):
        yield from group()
