// SPDX-License-Identifier: Apache-2.0
// Compares parameter counts of published models with those of their descriptions. The descriptions
// contain only fields that affect the count: no attention windows, soft caps or scalings of rotary
// wavelengths.
#include <gtest/gtest.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/client/recipe.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

struct ZooModel {
  const char* name;
  int64_t parameters;
  std::string text;
  int64_t active = 0;  // parameters used for one token; 0: all
};

void PrintTo(const ZooModel& model, std::ostream* out) { *out << model.name; }

constexpr char kGpt2[] = R"pbtxt(
  vocab_size: 50257 context_length: 1024 tie_embeddings: true
  attention { bias: true } mlp { bias: true }
  block { placement: "pre" norm: "layer_norm" })pbtxt";

constexpr char kLlama[] = R"pbtxt(
  positions { kind: ROPE } mlp { activation: SILU gated: true }
  block { placement: "pre" norm: "rms_norm" })pbtxt";

constexpr char kGemma[] = R"pbtxt(
  vocab_size: 256000 context_length: 8192 tie_embeddings: true head_dim: 256
  positions { kind: ROPE } mlp { activation: GELU_TANH gated: true }
  embedding_scale: "sqrt(d_model)"
  norm { name: "n" plugin: "rms_norm" attr { name: "unit_offset" flag: true } })pbtxt";

// Returns the text of a model: its dimensions, the fields of its family, and further fields.
std::string Join(const char* dims, const char* family, const char* more = "") {
  return absl::StrCat(dims, " ", family, " ", more);
}

std::vector<ZooModel> Zoo() {
  return {
      {"gpt2_124m", 124439808, Join("n_layer: 12 n_head: 12 d_model: 768", kGpt2)},
      {"gpt2_medium", 354823168, Join("n_layer: 24 n_head: 16 d_model: 1024", kGpt2)},
      {"gpt2_large", 774030080, Join("n_layer: 36 n_head: 20 d_model: 1280", kGpt2)},
      {"gpt2_xl", 1557611200, Join("n_layer: 48 n_head: 25 d_model: 1600", kGpt2)},
      {"llama_7b", 6738415616,
       Join("n_layer: 32 n_head: 32 d_model: 4096 d_ff: \"11008\" vocab_size: 32000 "
            "context_length: 2048",
            kLlama)},
      {"llama_3_2_1b", 1235814400,
       Join("n_layer: 16 n_head: 32 n_kv_head: 8 d_model: 2048 d_ff: \"8192\" vocab_size: 128256 "
            "context_length: 131072 tie_embeddings: true",
            kLlama)},
      {"mistral_7b", 7241732096,
       Join("n_layer: 32 n_head: 32 n_kv_head: 8 d_model: 4096 d_ff: \"14336\" vocab_size: 32000 "
            "context_length: 32768",
            kLlama)},
      {"gemma_2b", 2506172416,
       Join("n_layer: 18 n_head: 8 n_kv_head: 1 d_model: 2048 d_ff: \"16384\"", kGemma,
            "block { placement: \"pre\" norm: \"n\" }")},
      {"gemma_2_2b", 2614341888,
       Join("n_layer: 26 n_head: 8 n_kv_head: 4 d_model: 2304 d_ff: \"9216\"", kGemma,
            "block { placement: \"double\" norm: \"n\" "
            "inside { point: \"head.logits\" rule: \"logits = 30 * tanh(logits / 30)\" } }")},
      {"gemma_2_9b", 9241705984,
       Join("n_layer: 42 n_head: 16 n_kv_head: 8 d_model: 3584 d_ff: \"14336\"", kGemma,
            "block { placement: \"double\" norm: \"n\" }")},
      {"olmo_1b", 1176764416, R"pbtxt(
        n_layer: 16 n_head: 16 d_model: 2048 d_ff: "8192" vocab_size: 50304 context_length: 2048
        tie_embeddings: true positions { kind: ROPE } mlp { activation: SILU gated: true }
        norm { name: "plain" plugin: "layer_norm" attr { name: "affine" flag: false } }
        block { placement: "pre" norm: "plain" })pbtxt"},
      {"olmo_2_7b", 7298617344, R"pbtxt(
        n_layer: 32 n_head: 32 d_model: 4096 d_ff: "11008" vocab_size: 100352 context_length: 4096
        positions { kind: ROPE rope_theta: 5e5 } mlp { activation: SILU gated: true }
        block { placement: "olmo2_qk" norm: "rms_norm" })pbtxt"},
      {"qwen3_0_6b", 596049920, R"pbtxt(
        n_layer: 28 n_head: 16 n_kv_head: 8 head_dim: 128 d_model: 1024 d_ff: "3072"
        vocab_size: 151936 context_length: 40960 tie_embeddings: true
        positions { kind: ROPE rope_theta: 1e6 } mlp { activation: SILU gated: true }
        block { placement: "qk_norm" norm: "rms_norm" })pbtxt"},
      {"gemma_3_1b", 999885952, R"pbtxt(
        n_layer: 26 n_head: 4 n_kv_head: 1 head_dim: 256 d_model: 1152 d_ff: "6912"
        vocab_size: 262144 context_length: 32768 tie_embeddings: true
        positions { kind: ROPE } mlp { activation: GELU_TANH gated: true }
        block { placement: "double_qk" norm: "rms_norm" })pbtxt"},
      {"opt_125m", 125239296, R"pbtxt(
        n_layer: 12 n_head: 12 d_model: 768 vocab_size: 50272 context_length: 2048
        positions { offset: 2 } tie_embeddings: true attention { bias: true } mlp { activation: RELU bias: true }
        block { placement: "pre" norm: "layer_norm" })pbtxt"},
      {"opt_350m", 331196416, R"pbtxt(
        n_layer: 24 n_head: 16 d_model: 1024 vocab_size: 50272 context_length: 2048
        embedding_width: "512" positions { offset: 2 } tie_embeddings: true
        attention { bias: true } mlp { activation: RELU bias: true }
        block { placement: "post" norm: "layer_norm" })pbtxt"},
      {"bloom_560m", 559214592, R"pbtxt(
        n_layer: 24 n_head: 16 d_model: 1024 vocab_size: 250880 context_length: 2048
        positions { kind: ALIBI } tie_embeddings: true
        attention { bias: true } mlp { bias: true }
        block { placement: "bloom" norm: "layer_norm" })pbtxt"},
      {"bert_base_body_with_token_and_position_embedding", 108891648 - 2 * 768, R"pbtxt(
        n_layer: 12 n_head: 12 d_model: 768 vocab_size: 30522 context_length: 512
        tie_embeddings: true attention { bias: true } mlp { activation: GELU bias: true }
        placement { name: "bert" extends: "post" begin: "x = norm(x)" }
        block { placement: "bert" norm: "layer_norm" })pbtxt"},
      {"mixtral_8x7b", 46702792704, R"pbtxt(
        n_layer: 32 n_head: 32 n_kv_head: 8 d_model: 4096 d_ff: "14336" vocab_size: 32000
        context_length: 32768 positions { kind: ROPE rope_theta: 1e6 }
        block {
          placement: "pre" norm: "rms_norm" sublayer { attention {} }
          sublayer { experts { n_expert: "8" top_k: "2" gated: true activation: SILU } }
        })pbtxt",
       12879925248},
      {"olmoe_1b_7b", 6919161856, R"pbtxt(
        n_layer: 16 n_head: 16 d_model: 2048 vocab_size: 50304 context_length: 4096
        positions { kind: ROPE }
        block {
          placement: "qk_norm_full" norm: "rms_norm" sublayer { attention {} }
          sublayer {
            experts {
              n_expert: "64" top_k: "8" d_ff: "1024" gated: true activation: SILU router: SOFTMAX
            }
          }
        })pbtxt",
       1282017280},
      {"qwen_1_5_moe_a2_7b", 14315784192, R"pbtxt(
        n_layer: 24 n_head: 16 d_model: 2048 vocab_size: 151936 context_length: 8192
        positions { kind: ROPE rope_theta: 1e6 } attention { qkv_bias: true }
        block {
          placement: "pre" norm: "rms_norm" sublayer { attention {} }
          sublayer {
            experts {
              n_expert: "60" top_k: "4" d_ff: "1408" gated: true activation: SILU router: SOFTMAX
              shared_d_ff: "5632" shared_gate: true
            }
          }
        })pbtxt",
       2689173504},
      {"qwen_3_30b_a3b", 30532122624, R"pbtxt(
        n_layer: 48 n_head: 32 n_kv_head: 4 head_dim: 128 d_model: 2048 vocab_size: 151936
        context_length: 40960 positions { kind: ROPE rope_theta: 1e6 }
        block {
          placement: "qk_norm" norm: "rms_norm" sublayer { attention {} }
          sublayer { experts { n_expert: "128" top_k: "8" d_ff: "768" gated: true activation: SILU } }
        })pbtxt",
       3353032704},
  };
}

std::string ZooName(const ::testing::TestParamInfo<ZooModel>& info) { return info.param.name; }

class ZooTest : public ::testing::TestWithParam<ZooModel> {};

TEST_P(ZooTest, HasThePublishedNumberOfParameters) {
  const auto runtime = MakeRuntime();
  const auto context = TryContext(runtime.get(), GetParam().text);
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ(ParameterLayout((*context)->parameters).num_parameters(), GetParam().parameters);
  int64_t active = 0;
  for (const ParameterSpec& parameter : (*context)->parameters)
    active += parameter.active_elements();
  EXPECT_EQ(active, GetParam().active > 0 ? GetParam().active : GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(All, ZooTest, ::testing::ValuesIn(Zoo()), ZooName);

// Describing a model plans its step and reserves no memory.
TEST(ZooTest, DescribesAModelThatIsLargerThanMemory) {
  const auto runtime = MakeHostRuntime();
  const std::string text = absl::StrCat(
      "n_layer: 32 n_head: 32 d_model: 4096 d_ff: \"11008\" vocab_size: 32000 context_length: "
      "2048 ",
      kLlama);
  const auto model = TryModel(runtime.get(), text);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto description = DescribeModel(*model);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ((*description)["totals"]["parameters"], 6738415616);
  EXPECT_EQ((*description)["totals"]["weight_bytes"], 4 * 6738415616);
  const auto memory = PlanTraining(*model, "", {});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->weights + memory->moments, 12 * 6738415616);
  // The workspace exceeds the logits and their gradient plus the saved scores or hidden values of
  // every layer.
  EXPECT_GT(memory->workspace, int64_t{4} * 2048 * 32000 + int64_t{4} * 32 * 2048 * 11008);
  EXPECT_EQ((*description)["identity_route"], "clean (I)");
}

}  // namespace
}  // namespace plumb
