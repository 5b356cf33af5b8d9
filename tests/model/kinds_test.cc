// SPDX-License-Identifier: Apache-2.0
// Tests of kinds and fields of sublayers beyond plain attention and MLPs. Each must have the
// properties of every model: decoding equals the full pass, gradients equal central differences,
// and bits depend neither on the number of threads nor on recomputation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/evaluator.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kContext = 14;

struct Kind {
  std::string name;
  std::string text;  // fields of the model besides its dimensions
  // True if it chooses experts. Rounding to bf16 may change the choice, which makes results jump.
  bool chooses = false;
  uint64_t seed = 1;  // of parameters that are far enough from a jump or a kink for differences
};
void PrintTo(const Kind& kind, std::ostream* os) { *os << kind.name; }

constexpr char kPre[] = " block { placement: \"pre\" norm: \"rms_norm\" }";

// Canon layers A and C, and a convolution as a sublayer at the end of the stack.
constexpr char kCanon[] = R"pbtxt(
  n_layer: 2
  placement {
    name: "canon"
    block: "h = norm_1(x)" block: "x = x + attention(h + canon_a(h))"
    block: "g = norm_2(x)" block: "x = x + mlp(g + canon_c(g))"
    block: "x = x + last(x)"
    end: "x = norm(x)"
  }
  block {
    placement: "canon" norm: "rms_norm"
    sublayer { name: "canon_a" conv {} } sublayer { attention {} }
    sublayer { name: "canon_c" conv { width: 6 bias: true } } sublayer { mlp {} }
    sublayer { name: "last" conv { width: 2 } }
  })pbtxt";

// Gated DeltaNet as in Qwen3-Next, and full attention in every second layer.
constexpr char kGatedDeltaNet[] = R"pbtxt(
  norm { name: "l2" plugin: "l2_norm" }
  placement {
    name: "delta" extends: "pre"
    learned { name: "a_log" init: 0.5 per_head: true }
    learned { name: "dt_bias" init: 0.3 per_head: true }
    linear { name: "z" out: "4 * 3" }
    slot { name: "q_norm" per_head: true } slot { name: "k_norm" per_head: true }
    slot { name: "head_norm" per_head: true }
    inside {
      point: "linear_attention.decay"
      rule: "t = decay + dt_bias"
      rule: "decay = -exp(a_log) * (max(t, 0) + log(1 + exp(-abs(t))))"
    }
    inside { point: "linear_attention.q" rule: "q = q_norm(q * sigmoid(q))" }
    inside { point: "linear_attention.k" rule: "k = k_norm(k * sigmoid(k))" }
    inside {
      point: "linear_attention.context"
      rule: "g = z(input)" rule: "context = head_norm(context) * g * sigmoid(g)"
    }
  }
  layers {
    repeat: 3
    block {
      placement: "delta" norm: "rms_norm"
      slot { name: "q_norm" norm: "l2" } slot { name: "k_norm" norm: "l2" }
      sublayer {
        linear_attention {
          n_key_head: "2" key_dim: "5" value_dim: "3" decay: PER_HEAD delta: true
          conv { width: 3 bias: true }
        }
      }
      sublayer { mlp {} }
    }
    block { placement: "pre" norm: "rms_norm" }
  })pbtxt";
// Linear attention with a decay per channel and the delta rule, as in Kimi Linear; without the
// delta rule, as in GLA; with the fixed decays of RetNet; and without decays.
constexpr char kLinearAttentions[] = R"pbtxt(
  norm { name: "l2" plugin: "l2_norm" }
  placement {
    name: "kda" extends: "pre" slot { name: "k_norm" per_head: true }
    inside { point: "linear_attention.k" rule: "k = k_norm(k)" }
  }
  placement {
    name: "retention" extends: "pre"
    inside {
      point: "linear_attention.decay"
      rule: "decay = concat(h = 0..n_head - 1, part(decay, h, n_head) + log(1 - 2 ^ (-5 - h)))"
    }
  }
  layers { block {
    placement: "kda" norm: "rms_norm" slot { name: "k_norm" norm: "l2" }
    sublayer { linear_attention { n_head: "2 * layer" n_key_head: "1" decay: PER_KEY delta: true } }
    sublayer { mlp {} }
  } }
  layers { block {
    placement: "pre" norm: "rms_norm"
    sublayer { linear_attention { value_dim: "6" decay: PER_KEY conv { width: 30 } } }
  } }
  layers { block {
    placement: "retention" norm: "rms_norm"
    sublayer { linear_attention { decay: FIXED } } sublayer { name: "plain" linear_attention {} }
  } })pbtxt";

// Layers that alternately share all parameters, or all but norms and learned values.
constexpr char kLooped[] = R"pbtxt(
  positions { kind: ROPE } attention { sinks: true bias: true } tie_embeddings: true
  layers { repeat: 3 share: true block { placement: "normformer" norm: "layer_norm" } })pbtxt";
constexpr char kSharedInTurns[] = R"pbtxt(
  layers { repeat: 3 share: true
           block { placement: "layer_scale" norm: "rms_norm" own_norms: true }
           block { placement: "post" norm: "layer_norm" } }
  layers { block { placement: "pre" norm: "rms_norm" share: "a" sublayer { mlp { gated: true } } } }
  layers { block { placement: "pre" norm: "rms_norm" sublayer { mlp {} } } }
  layers { block { placement: "pre" norm: "rms_norm" share: "a" sublayer { mlp { gated: true } } } })pbtxt";

// Tables over tokens, which are read at the start, in the values of two layers, and in the head.
constexpr char kTables[] = R"pbtxt(
  n_layer: 2 n_kv_head: 2
  embedding { name: "ve" width: "n_kv_head * head_dim" }
  embedding { name: "extra" }
  embedding { name: "unigram" width: "vocab_size" }
  placement {
    name: "mine" extends: "pre"
    learned { name: "mix" init: 0.5 per_head: true }
    begin: "x = x + 0.5 * extra"
    inside { point: "attention.v" rule: "v = 0.5 * v + mix * ve" }
    inside { point: "head.logits" rule: "logits = logits + unigram" }
  }
  block { placement: "mine" norm: "rms_norm" })pbtxt";

// Mixtures of experts with every router and field, and widths that differ by layer.
constexpr char kExperts[] = R"pbtxt(
  n_layer: 2 positions { kind: ROPE }
  block {
    placement: "pre" norm: "rms_norm" sublayer { attention {} }
    sublayer { experts { n_expert: "5" top_k: "2" d_ff: "8 + 4 * layer" gated: true activation: SILU } }
  })pbtxt";
constexpr char kSharedExpert[] = R"pbtxt(
  n_layer: 2
  block {
    placement: "peri" norm: "layer_norm" sublayer { attention {} }
    sublayer {
      name: "moe"
      experts {
        n_expert: "4" top_k: "3" bias: true router: SOFTMAX shared_d_ff: "20" shared_gate: true
        scale: "1.5" balance_loss: "0.1"
      }
    }
    sublayer { mlp { d_ff: "4 * layer" bias: true } }
  })pbtxt";
constexpr char kAllExperts[] = R"pbtxt(
  n_layer: 2
  block {
    placement: "pre" norm: "rms_norm" sublayer { attention {} }
    sublayer { experts { n_expert: "3" top_k: "3" d_ff: "40" gated: true router: SOFTMAX bias: true } }
  })pbtxt";
constexpr char kSigmoidExperts[] = R"pbtxt(
  layers { repeat: 2 share: true block {
    placement: "pre" norm: "rms_norm" sublayer { attention {} }
    sublayer {
      experts { n_expert: "6" top_k: "1" router: SIGMOID gated: true activation: GELU_TANH shared_d_ff: "5"
        latent: "4" }
    }
    inside { point: "mlp.down" rule: "down = tanh(down) + 0.5" }
  } })pbtxt";

// Multi-head latent attention in its absorbed form: the keys are the values, one for all heads.
constexpr char kLatent[] = R"pbtxt(
  n_layer: 2 n_kv_head: 1 head_dim: 6 positions { kind: ROPE rope_dims: "2" rope_interleaved: true }
  attention { scale: "0.4" keys_as_values: true sinks: true out_bias: true window: "5 * (layer % 2)" }
  placement {
    name: "mla" extends: "pre"
    linear { name: "q_content" out: "3 * n_head" } linear { name: "q_position" out: "2 * n_head" }
    linear { name: "k_position" out: "2" } linear { name: "kv_down" out: "4" }
    linear { name: "k_up" out: "4" } linear { name: "v_up" out: "5" }
    inside {
      point: "attention.q"
      rule: "a = q_content(input)" rule: "b = q_position(input)"
      rule: "q = concat(h = 0..n_head - 1, concat(part(b, h, n_head), k_up[h](part(a, h, n_head))))"
    }
    inside { point: "attention.k" rule: "k = concat(k_position(input), kv_norm(kv_down(input)))" }
    inside {
      point: "attention.context"
      rule: "context = concat(h = 0..n_head - 1, v_up[h](slice(part(context, h, n_head), 2, 4)))"
    }
  }
  block { placement: "mla" norm: "rms_norm" })pbtxt";

// Later layers use the keys and values of the first, and have no projections of their own.
constexpr char kSharedKeys[] = R"pbtxt(
  n_layer: 3 n_kv_head: 2 attention { qkv_bias: true }
  placement {
    name: "mine" extends: "pre"
    inside { point: "attention.k" rule: "k = keys[1] if layer > 1" rule: "keys[layer] = k if layer == 1" }
    inside { point: "attention.v" rule: "v = values[1] if layer > 1" rule: "values[layer] = v if layer == 1" }
  }
  block { placement: "mine" norm: "rms_norm" })pbtxt";

// gpt-oss: clamps and an activation as statements inside experts, and a bias of the router.
constexpr char kExpertStatements[] = R"pbtxt(
  n_layer: 2
  placement {
    name: "clamped" extends: "pre"
    learned { name: "slope" init: 1.7 }
    inside { point: "experts.gate" rule: "gate = min(gate, 0.7)" rule: "gate = gate * sigmoid(slope * gate)" }
    inside { point: "experts.up" rule: "up = max(min(up, 0.7), -0.7) + 1" }
    inside { point: "moe.hidden" rule: "hidden = 2 * hidden" }
  }
  block {
    placement: "clamped" norm: "rms_norm" sublayer { attention {} }
    sublayer {
      name: "moe"
      experts {
        n_expert: "4" top_k: "2" gated: true activation: NONE bias: true router_bias: true shared_d_ff: "10"
      }
    }
  })pbtxt";
// DeepSeek-V3: groups of experts, chosen with a correction, and sigmoids divided by their sum.
constexpr char kCorrectedGroups[] = R"pbtxt(
  n_layer: 2
  block {
    placement: "pre" norm: "rms_norm" sublayer { attention {} }
    sublayer {
      experts {
        n_expert: "8" top_k: "3" router: SIGMOID renormalize: true correction: true n_group: "4" top_group: "2"
        scale: "2.5" gated: true activation: SILU
      }
    }
  })pbtxt";
// DeepSeek-V2: groups without a correction. The other layer corrects a softmax (ERNIE 4.5).
constexpr char kGroups[] = R"pbtxt(
  layers {
    block {
      placement: "pre" norm: "rms_norm" sublayer { attention {} }
      sublayer { experts { n_expert: "6" top_k: "2" router: SOFTMAX n_group: "3" top_group: "layer" } }
    }
    block {
      placement: "pre" norm: "rms_norm" sublayer { attention {} }
      sublayer { experts { n_expert: "5" top_k: "2" correction: true router_bias: true } }
    }
  })pbtxt";
// Squared ReLU, and in the second layer xIELU (Huang 2024), whose shapes are learned.
constexpr char kStatementActivations[] = R"pbtxt(
  mlp { activation: NONE }
  placement {
    name: "relu_squared" extends: "pre"
    inside { point: "mlp.up" rule: "up = relu(up) ^ 2" }
  }
  placement {
    name: "xielu" extends: "pre"
    learned { name: "alpha_p" init: 0.8 }
    learned { name: "alpha_n" init: 0.3 }
    inside {
      point: "mlp.up"
      rule: "low = min(up, 0)"
      rule: "up = softplus(alpha_p) * relu(up) ^ 2 + (0.5 + softplus(alpha_n)) * (exp(low) - 1 - low) + 0.5 * up"
    }
  }
  layers {
    block { placement: "relu_squared" norm: "rms_norm" }
    block {
      placement: "xielu" norm: "rms_norm" sublayer { attention {} }
      sublayer { name: "ffn" mlp { activation: NONE } }
      sublayer { name: "ffn_2" mlp { activation: NONE gated: true } }
      inside { point: "ffn_2.gate" rule: "gate = silu(gate)" }
    }
  })pbtxt";

// Values of earlier tokens, in streams and inside sublayers, up to beyond the context.
constexpr char kShifts[] = R"pbtxt(
  n_layer: 2
  placement {
    name: "shifts"
    linear { name: "gate" out: "1" }
    begin: "x = x + sigmoid(gate(slice(x, 0, 6))) * shift(x, 1)"
    block: "x = x + attention(norm_1(x) - 0.5 * shift(x, 3))"
    block: "x = x + mlp(norm_2(x))"
    end: "x = norm(x + shift(shift(x, 1), 20) + 0.3 * shift(x, 12))"
    inside { point: "attention.k" rule: "k = k + 0.5 * shift(k, 1)" }
    inside { point: "mlp.hidden" rule: "hidden = hidden * sigmoid(shift(part(hidden, 1, 3), 2))" }
  }
  block { placement: "shifts" norm: "rms_norm" })pbtxt";
// A temperature by position (Llama 4), positions in the stream, and in the head.
constexpr char kByPosition[] = R"pbtxt(
  n_layer: 2 positions { kind: ROPE }
  placement {
    name: "by_position" extends: "pre"
    learned { name: "rate" init: 0.3 }
    linear { name: "mix" out: "d_model" }
    begin: "x = x + mix(concat(position / 8, floor(position / 3) - 1))"
    inside {
      point: "attention.q_rot"
      rule: "q_rot = q_rot * (1 + rate * log(floor((position + 1) / 4) + 1))"
    }
    inside { point: "mlp.up" rule: "up = max(up, position / 10)" }
    inside { point: "head.logits" rule: "logits = logits * (1 + position / 20)" }
  }
  block { placement: "by_position" norm: "rms_norm" })pbtxt";
// LoRA of all projections, whose widths differ by layer, of which the second layer has no keys; and
// in layers that share parameters, with vectors as updates of rank 1, and experts without updates.
constexpr char kAdapter[] = R"pbtxt(
  n_layer: 2 n_kv_head: 2 positions { kind: ROPE } attention { bias: true }
  adapter {
    extends: "lora" let: "rank = 3" let: "alpha = 2"
    let: "on_k = 1" let: "on_o = 1" let: "on_gate = 1" let: "on_up = 1" let: "on_down = 1"
  }
  placement {
    name: "mine" extends: "pre" let: "alpha = 0.5" slot { name: "q_norm" per_head: true }
    inside { point: "attention.q" rule: "q = q_norm(q)" }
    inside { point: "attention.k" rule: "k = keys[1] if layer > 1" rule: "keys[layer] = k if layer == 1" }
    inside { point: "mlp.down" rule: "down = alpha * down + dot(input, input)" }
  }
  block {
    placement: "mine" norm: "rms_norm" sublayer { attention {} }
    sublayer { mlp { gated: true activation: SILU d_ff: "16 * layer" } }
  })pbtxt";
constexpr char kSharedAdapter[] = R"pbtxt(
  adapter { extends: "lora" let: "rank = 1" let: "alpha = 0.1" let: "on_up = 1" let: "on_o = 1" }
  layers { repeat: 2 share: true block {
    placement: "deepnorm" norm: "layer_norm" sublayer { attention {} }
    sublayer { experts { n_expert: "3" top_k: "3" d_ff: "40" gated: true router: SOFTMAX } }
  } })pbtxt";

// Heads of another number and width in each layer, half of which do not turn in the second.
constexpr char kOwnHeads[] = R"pbtxt(
  n_layer: 3
  positions {
    kind: ROPE rope_base: "10 ^ layer"
    rope_scaling { linear: "1e30 ^ (pair >= head_dim / 4)" when: "layer == 2" }
  }
  attention {
    n_head: "layer + 1" n_kv_head: "1 + (layer == 3)" head_dim: "4 * layer"
    window: "4 * (layer != 2)" sinks: true bias: true
  }
  adapter { extends: "lora" let: "rank = 3" let: "alpha = 2" let: "on_k = 1" let: "on_o = 1" }
  placement {
    name: "mine" extends: "qk_norm"
    learned { name: "gain" init: 1.5 per_head: true }
    inside { point: "attention.context" rule: "context = gain * context * n_head / head_dim" }
  }
  block { placement: "mine" norm: "rms_norm" })pbtxt";

// Decays by a projection and by statements alone, in layers with other numbers of heads.
constexpr char kDecays[] = R"pbtxt(
  positions { kind: ROPE }
  placement {
    name: "fixed" extends: "pre"
    learned { name: "rate" init: -1 per_head: true } linear { name: "gate" out: "n_head" }
    inside { point: "attention.decay" rule: "decay = -exp(rate) * sigmoid(gate(input))" }
  }
  layers { repeat: 2 block {
    placement: "pre" norm: "rms_norm"
    sublayer { attention { decay: true n_head: "2 * layer" n_kv_head: "layer" head_dim: "2" } }
    sublayer { mlp {} }
  } }
  layers { block {
    placement: "fixed" norm: "rms_norm"
    sublayer { attention { decay: true n_head: "2" n_kv_head: "1" head_dim: "6" } }
  } })pbtxt";

std::vector<Kind> Kinds() {
  return {
      {"cap", absl::StrCat("n_layer: 2 attention { score_cap: \"1.5\" }", kPre)},
      {"window", absl::StrCat("n_layer: 2 attention { window: \"3\" }", kPre)},
      {"sinks", absl::StrCat("n_layer: 2 attention { sinks: true }", kPre)},
      {"all_of_attention",
       absl::StrCat("n_layer: 3 n_kv_head: 2 positions { kind: ROPE } attention { bias: true ",
                    "score_cap: \"1 + layer\" window: \"4 * (layer % 2)\" sinks: true }", kPre)},
      {"rope_partial",
       absl::StrCat("n_layer: 2 positions { kind: ROPE rope_dims: \"2 * (layer - 1)\" "
                    "rope_interleaved: true } ",
                    kPre)},
      {"rope_by_layer", absl::StrCat("n_layer: 2 positions { kind: ROPE rope_base: \"10 ^ layer\" ",
                                     "rope_scaling { linear: \"layer\" } } ", kPre)},
      {"rope_llama3",
       absl::StrCat("n_layer: 2 positions { kind: ROPE rope_scaling { llama3 { factor: 4 ",
                    "low_freq_factor: 1 high_freq_factor: 4 original_context_length: 9 } } } ",
                    kPre)},
      {"rope_yarn",
       absl::StrCat("n_layer: 2 positions { kind: ROPE rope_scaling { yarn { factor: 4 ",
                    "original_context_length: 9 } } } ", kPre)},
      {"rope_longrope_in_one_layer",
       absl::StrCat("n_layer: 2 positions { kind: ROPE rope_scaling { longrope { factor: [1.5, 3] ",
                    "attention_factor: 1.2 } when: \"layer == 2\" } } ", kPre)},
      {"offset", absl::StrCat("n_layer: 2 positions { offset: 2 } ", kPre)},
      {"embedding_width",
       absl::StrCat("n_layer: 2 embedding_width: \"d_model / 2\" tie_embeddings: true ",
                    "embedding_scale: \"2\" head_bias: true ", kPre)},
      {"latent_attention", kLatent},
      {"shared_keys", kSharedKeys},
      {"alibi", absl::StrCat("n_layer: 2 positions { kind: ALIBI } ", kPre)},
      {"alibi_of_three_heads",
       absl::StrCat("n_layer: 2 n_head: 3 head_dim: 4 positions { kind: ALIBI alibi_scale: ",
                    "\"1 / layer\" } attention { window: \"5\" score_cap: \"2\" sinks: true } ",
                    kPre)},
      {"canon", kCanon},
      {"gated_delta_net", kGatedDeltaNet, /*chooses=*/false, /*seed=*/2},
      {"linear_attentions", kLinearAttentions},
      {"experts", kExperts, /*chooses=*/true, /*seed=*/2},
      {"all_experts", kAllExperts},
      {"shared_expert", kSharedExpert, /*chooses=*/true},
      {"sigmoid_experts", kSigmoidExperts, /*chooses=*/true},
      {"expert_statements", kExpertStatements, /*chooses=*/true},
      {"corrected_groups", kCorrectedGroups, /*chooses=*/true},
      {"groups", kGroups, /*chooses=*/true},
      {"statement_activations", kStatementActivations, /*chooses=*/false, /*seed=*/2},
      {"shifts", kShifts},
      {"by_position", kByPosition},
      {"tables", kTables},
      {"looped", kLooped},
      {"shared_in_turns", kSharedInTurns},
      {"adapter", kAdapter},
      {"shared_adapter", kSharedAdapter},
      {"own_heads", kOwnHeads},
      {"decays", kDecays},
  };
}

class KindsTest : public ::testing::TestWithParam<Kind> {
 protected:
  std::vector<int32_t> Sequence(uint64_t seed = 1) const {
    return RandomTokens(1, kContext, vocab(), seed)[0];
  }
  int64_t vocab() const { return context_->model.dims.vocab_size; }
  std::vector<float> Logits(const DecodeSession& decode, int64_t sequence = 0) const {
    return {decode.logits(sequence), decode.logits(sequence) + vocab()};
  }

  // Returns the logits [tokens, vocab] of the full pass.
  std::vector<float> FullPass(const PackedWeights& weights, std::vector<int32_t> tokens) {
    Evaluator evaluator(context_.get(), &weights, 1, kContext, /*logits=*/true, 1);
    std::vector<int32_t> positions(tokens.size()), targets(tokens.size(), 0);
    for (size_t i = 0; i < tokens.size(); ++i) positions[i] = static_cast<int32_t>(i);
    const auto loss = evaluator.Run({tokens.data(), positions.data(), targets.data()},
                                    static_cast<int64_t>(tokens.size()));
    EXPECT_TRUE(loss.ok()) << loss.status();
    return {evaluator.logits(), evaluator.logits() + static_cast<int64_t>(tokens.size()) * vocab()};
  }
  // Returns the row of logits after n tokens.
  std::vector<float> Row(const std::vector<float>& logits, size_t n) const {
    const auto end = logits.begin() + static_cast<int64_t>(n) * vocab();
    return {end - vocab(), end};
  }

  // Builds the forward pass or the pass with gradients of a training step, which may have an
  // "objective" besides the loss.
  Graph Build(bool gradients, int64_t batch, int64_t seq) const {
    BuildOptions options;
    options.batch = batch;
    options.seq = seq;
    options.output_logits = gradients;
    if (gradients) return *BuildProgram(*context_, options, true);
    return *BuildForward(context_->model, context_->parameters, *context_->ops, options);
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(3);
  std::unique_ptr<ModelContext> context_ =
      MakeContext(runtime_.get(),
                  absl::StrCat(absl::StrContains(GetParam().text, "n_head: 3") ? "" : "n_head: 4 ",
                               "d_model: 16 d_ff: \"12\" vocab_size: 7 context_length: ", kContext,
                               " ", GetParam().text));
  const ParameterStore parameters_ = GenericParameters(*context_, GetParam().seed);
};

TEST_P(KindsTest, DecodingEqualsTheFullPass) {
  struct Format {
    WeightFormat format;
    double tolerance;
  };
  for (const Format& f : {Format{WeightFormat::kF32, 1e-5}, Format{WeightFormat::kBf16, 8e-2},
                          Format{WeightFormat::kInt8, 1e-3}}) {
    if (f.format == WeightFormat::kBf16 && GetParam().chooses) continue;
    const PackedWeights weights(*context_, f.format, parameters_);
    const std::vector<int32_t> tokens = Sequence();
    const std::vector<float> full = FullPass(weights, tokens);
    DecodeSession decode(context_.get(), &weights, 1, 1);
    const auto feed = [&](size_t from, size_t to) {
      ASSERT_TRUE(decode.Feed(absl::MakeConstSpan(tokens).subspan(from, to - from)).ok());
      EXPECT_LE(RelativeError(Logits(decode), Row(full, to)), f.tolerance)
          << "tokens " << from << " to " << to;
    };
    for (size_t n = 1; n <= tokens.size(); ++n) feed(n - 1, n);
    for (size_t n = 2; n <= tokens.size(); ++n) {
      decode.Reset();
      feed(0, n);
      decode.Reset();
      feed(0, n / 2);
      feed(n / 2, n);
    }
    // Some tokens are truncated. Then others are fed in their place, truncated, and the first ones
    // fed again.
    const std::vector<int32_t> other = Sequence(2);
    decode.Truncate(0, 5);
    ASSERT_TRUE(decode.Feed(absl::MakeConstSpan(other).subspan(5, 3)).ok());
    decode.Truncate(0, 5);
    feed(5, 6);
    feed(6, 9);
    decode.Truncate(0, 7);
    feed(7, 8);
  }
}

TEST_P(KindsTest, BatchedSequencesEqualSingleSequences) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    const PackedWeights weights(*context_, format, parameters_);
    DecodeSession together(context_.get(), &weights, 3, 3), alone(context_.get(), &weights, 1, 1);
    for (int64_t b = 0; b < 3; ++b) {
      const std::vector<int32_t> tokens = Sequence(static_cast<uint64_t>(b + 1));
      ASSERT_TRUE(
          together.Feed(b, absl::MakeConstSpan(tokens).subspan(0, static_cast<size_t>(4 - b)))
              .ok());
    }
    for (size_t i = 0; i < 5; ++i) {
      std::vector<int32_t> next;
      for (int64_t b = 0; b < 3; ++b) {
        next.push_back(Sequence(static_cast<uint64_t>(b + 1))[i + 4 - static_cast<size_t>(b)]);
      }
      ASSERT_TRUE(together.FeedBatch(next).ok());
    }
    for (int64_t b = 0; b < 3; ++b) {
      const std::vector<int32_t> tokens = Sequence(static_cast<uint64_t>(b + 1));
      const size_t prompt = static_cast<size_t>(4 - b);
      alone.Reset();
      ASSERT_TRUE(alone.Feed(absl::MakeConstSpan(tokens).subspan(0, prompt)).ok());
      for (size_t i = prompt; i < prompt + 5; ++i) ASSERT_TRUE(alone.Feed({tokens[i]}).ok());
      EXPECT_EQ(Logits(together, b), Logits(alone)) << "sequence " << b;
    }
  }
}

// The direction is random in every tensor, so a wrong element shows with probability one.
TEST_P(KindsTest, GradientsEqualCentralDifferencesAndTheReference) {
  constexpr int64_t kBatch = 2, kSeq = 6;
  const Tokens tokens = RandomTokens(kBatch, kSeq, vocab());
  ReferenceTensors feeds = Feeds(parameters_, tokens);
  const auto analytic = ReferenceRun(Build(true, kBatch, kSeq), feeds);
  ASSERT_TRUE(analytic.ok()) << analytic.status();
  double largest = 0;
  for (const ParameterSpec& parameter : context_->parameters) {
    for (const double g : analytic->at("grad." + parameter.name).f) {
      largest = std::max(largest, std::fabs(g));
    }
  }
  ASSERT_GT(largest, 1e-3);
  const Graph forward = Build(false, kBatch, kSeq);
  for (const ParameterSpec& parameter : context_->parameters) {
    const std::vector<double>& gradient = analytic->at("grad." + parameter.name).f;
    const RngStream stream(7, parameter.name);
    std::vector<double>& values = feeds[parameter.name].f;
    const std::vector<double> start = values;
    double expected = 0;
    for (size_t i = 0; i < gradient.size(); ++i) expected += stream.Normal(i) * gradient[i];
    const auto loss_at = [&](double step) {
      for (size_t i = 0; i < start.size(); ++i) values[i] = start[i] + step * stream.Normal(i);
      const auto outputs = ReferenceRun(forward, feeds);
      return outputs->at(outputs->count("objective") > 0 ? "objective" : "loss").f[0];
    };
    // The five-point formula has an error of order h^4.
    const double h = 2e-4;
    const double difference =
        (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
    EXPECT_NEAR(difference, expected, 1e-6 * largest) << parameter.name;
    values = start;
  }

  const auto outputs = RunBatch(*context_, parameters_, tokens, /*with_gradients=*/true, 1);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_LE(RelativeError(outputs->logits, analytic->at("logits").f), 1e-5);
  std::vector<double> gradients(outputs->gradients.size(), 0);
  for (const ParameterLayout::Entry& entry : parameters_.layout().entries) {
    const std::vector<double>& gradient = analytic->at("grad." + entry.name).f;
    std::copy(gradient.begin(), gradient.end(), gradients.begin() + entry.begin);
  }
  EXPECT_LE(RelativeError(outputs->gradients, gradients), 1e-5);
}

TEST_P(KindsTest, ThreadsAndRecomputationChangeNoBit) {
  const Tokens tokens = RandomTokens(3, kContext, vocab());
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    const auto run = [&](int threads) {
      return RunBatch(*context_, parameters_, tokens, /*with_gradients=*/true, threads, nullptr,
                      format);
    };
    const auto one = run(1), three = run(3);
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(three.ok()) << three.status();
    EXPECT_EQ(one->gradients, three->gradients);
    EXPECT_EQ(one->loss, three->loss);
    context_->optimize.recompute_blocks = true;
    const auto again = run(1);
    context_->optimize.recompute_blocks = false;
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->gradients, one->gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KindsTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace plumb
