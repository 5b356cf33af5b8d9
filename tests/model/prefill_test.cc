// SPDX-License-Identifier: Apache-2.0
// Tests of the pass last-token on the models of all shipped placements. For a prompt, the last
// layer computes only the values that the logits of the last token need.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/compile/executable.h"
#include "runtime/compile/optimize.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/work.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kContext = 40;
constexpr int64_t kVocab = 27;

struct Case {
  std::string placement;
  std::string name;  // name of the sublayers
  std::string positions, sublayers;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& placement : ShippedPlacements()) {
    cases.push_back({placement, "gpt2", "LEARNED",
                     "attention { bias: true } mlp { activation: GELU bias: true }"});
    cases.push_back({placement, "llama", "ROPE", "mlp { activation: SILU gated: true }"});
  }
  return cases;
}

void PrintTo(const Case& c, std::ostream* os) { *os << c.placement << " " << c.name; }

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.placement, "_", info.param.name);
}

int GetLayers(const std::string& placement) { return placement == "swin_v2" ? 6 : 2; }

BuildOptions Prompt(int64_t batch, int64_t seq, WeightFormat format = WeightFormat::kF32) {
  BuildOptions options;
  options.program = Program::kCached;
  options.batch = batch;
  options.seq = seq;
  options.weights = format;
  return options;
}

class PrefillTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelContext> Context(const Case& c) {
    TinyModel model;
    model.placement = c.placement;
    model.norm = "layer_norm";
    model.n_layer = GetLayers(c.placement);
    model.n_head = 4;
    model.d_model = 16;
    model.d_ff = 24;
    model.vocab_size = kVocab;
    model.context_length = kContext;
    model.positions = c.positions;
    model.more = c.sublayers;
    return MakeContext(runtime_.get(), model.Text());
  }

  // Returns the program with the pass alone; Built returns it without passes.
  static Graph Narrowed(const ModelContext& context, const BuildOptions& options) {
    const auto graph =
        BuildProgram(context, options, /*gradients=*/false, OnlyPasses({"last-token"}));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *graph : Graph();
  }
  static Graph Built(const ModelContext& context, const BuildOptions& options) {
    return *BuildForward(context.model, context.parameters, *context.ops, options);
  }

  // Logits of `prompt`, fed in chunks, and of the following tokens, each the most likely one.
  struct Decoded {
    std::vector<int32_t> tokens;
    std::vector<std::vector<float>> logits;
  };
  static Decoded Decode(const ModelContext& context, const PackedWeights& weights,
                        const std::vector<int32_t>& prompt, const std::vector<size_t>& chunks,
                        int threads = 1) {
    Decoded decoded;
    DecodeSession decode(&context, &weights, 1, threads);
    const auto feed = [&](absl::Span<const int32_t> tokens) {
      const absl::Status status = decode.Feed(tokens);
      EXPECT_TRUE(status.ok()) << status;
      decoded.logits.emplace_back(decode.logits(), decode.logits() + kVocab);
    };
    size_t at = 0;
    for (const size_t chunk : chunks) {
      feed(absl::MakeConstSpan(prompt).subspan(at, chunk));
      at += chunk;
    }
    for (int i = 0; i < 6; ++i) {
      const std::vector<float>& last = decoded.logits.back();
      const auto best = std::max_element(last.begin(), last.end()) - last.begin();
      decoded.tokens.push_back(static_cast<int32_t>(best));
      feed({decoded.tokens.back()});
    }
    return decoded;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

class PrefillEveryPlacementTest : public PrefillTest, public ::testing::WithParamInterface<Case> {};

// The references compute a token alike in any batch, so the logits and the caches must be equal bit
// for bit.
TEST_P(PrefillEveryPlacementTest, ComputesTheSameLogitsAndCaches) {
  const std::unique_ptr<ModelContext> context = Context(GetParam());
  const BuildOptions options = Prompt(kBatch, 7);
  const Graph built = Built(*context, options);
  ReferenceTensors feeds = Feeds(GenericParameters(*context), RandomTokens(kBatch, 7, kVocab));
  for (const Value& value : built.values) {
    const bool is_cache = absl::EndsWith(value.name, "_cache");
    if (is_cache)
      feeds[value.name] = {value.type, std::vector<double>(value.type.num_elements()), {}};
  }
  const auto want = ReferenceRun(built, feeds);
  const auto got = ReferenceRun(Narrowed(*context, options), feeds);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  ASSERT_EQ(got->size(), want->size());
  for (const auto& [name, tensor] : *want) EXPECT_EQ(got->at(name).f, tensor.f) << name;
}

TEST_P(PrefillEveryPlacementTest, LastLayerComputesOnlyKeysAndValuesOfAllTokens) {
  const std::unique_ptr<ModelContext> context = Context(GetParam());
  const int layers = GetLayers(GetParam().placement);
  const Graph graph = Narrowed(*context, Prompt(kBatch, 7));
  const auto tokens = [&graph](int layer, const std::string& name) {
    const ValueId id = graph.FindValue(absl::StrCat("layers.", layer, ".", name));
    return id == kNoValue ? -1 : graph.value(id).type.shape[1];
  };
  for (const char* name :
       {"attention.q", "attention.context", "attention.o", "mlp.up", "mlp.hidden", "mlp.down"}) {
    EXPECT_EQ(tokens(layers - 1, name), 1) << name;
    EXPECT_EQ(tokens(layers - 2, name), 7) << name;
  }
  EXPECT_EQ(tokens(layers - 1, "attention.k"), 7);
  EXPECT_EQ(tokens(layers - 1, "attention.v"), 7);
}

TEST_P(PrefillEveryPlacementTest, PromptsContinueIdentically) {
  const std::unique_ptr<ModelContext> context = Context(GetParam());
  const ParameterStore parameters = GenericParameters(*context);
  const std::vector<int32_t> prompt = RandomTokens(1, 30, kVocab)[0];
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    SCOPED_TRACE(absl::StrCat("format ", static_cast<int>(format)));
    const PackedWeights weights(*context, format, parameters);
    // Roundings differ in the order of sums, in values stored as bf16, and in x for int8 weights.
    const double tolerance = format == WeightFormat::kF32 ? 1e-5 : 0.03;
    for (const std::vector<size_t>& chunks :
         {std::vector<size_t>{30}, std::vector<size_t>{17, 13}, std::vector<size_t>{1, 20, 2, 7}}) {
      context->optimize.disabled = {"last-token"};
      const Decoded full = Decode(*context, weights, prompt, chunks);
      context->optimize.disabled.clear();
      const Decoded got = Decode(*context, weights, prompt, chunks);
      for (size_t i = 0; i < chunks.size(); ++i) {
        EXPECT_LE(RelativeError(got.logits[i], full.logits[i]), tolerance) << "chunk " << i;
      }
      EXPECT_EQ(Decode(*context, weights, prompt, chunks, /*threads=*/2).logits, got.logits);
      if (format != WeightFormat::kF32) continue;
      EXPECT_EQ(got.tokens, full.tokens);
      for (size_t i = 0; i < full.logits.size(); ++i) {
        EXPECT_LE(RelativeError(got.logits[i], full.logits[i]), tolerance) << "token " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, PrefillEveryPlacementTest, ::testing::ValuesIn(Cases()),
                         CaseName);

// The formulas have other streams next to x, learned scales, conditions, products of tensors,
// attention as the last sublayer, and a norm over tokens, which decodes with its running
// statistics.
TEST_F(PrefillTest, NarrowsCustomFormulas) {
  const char* const kMacaron = R"pbtxt(
    placement {
      name: "mine"
      block: "x = x + 0.5 * mlp_1(norm_1(x))"
      block: "x = x + 0.5 * mlp_2(norm_2(x))"
      block: "x = x + attention(norm_3(x))"
      end: "x = norm(x)"
    }
    block {
      placement: "mine" norm: "rms_norm"
      sublayer { name: "mlp_1" mlp {} }
      sublayer { name: "mlp_2" mlp {} }
      sublayer { attention {} }
    })pbtxt";
  const char* const kStreams = R"pbtxt(
    placement {
      name: "mine"
      learned { name: "gate" init: 0.3 per_channel: true }
      begin: "d = x" begin: "e = 0.5 * x"
      each: "y = sigmoid(gate) * f(norm(x))"
      each: "e = e - y * tanh(d) if sublayer % 2 == 0"
      each: "d = d / 2 + y"
      each: "x = x + y"
      end: "x = norm(x) + norm_d(d) * e + 1"
    }
    block { placement: "mine" norm: "rms_norm" })pbtxt";
  const char* const kBatchNorm = R"pbtxt(
    norm { name: "bn" plugin: "batch_norm" allow_cross_token: true }
    block { placement: "pre" norm: "bn" })pbtxt";
  for (const char* text : {kMacaron, kStreams, kBatchNorm}) {
    const auto context = MakeContext(
        runtime_.get(),
        absl::StrCat(
            "n_layer: 2 n_head: 4 d_model: 16 d_ff: \"24\" context_length: 40 vocab_size: ", kVocab,
            " positions { kind: ROPE } ", text));
    const ParameterStore parameters = GenericParameters(*context);
    const PackedWeights weights(*context, WeightFormat::kF32, parameters);
    const std::vector<int32_t> prompt = RandomTokens(1, 30, kVocab)[0];
    context->optimize.disabled = {"last-token"};
    const Decoded full = Decode(*context, weights, prompt, {9, 21});
    context->optimize.disabled.clear();
    const Decoded got = Decode(*context, weights, prompt, {9, 21});
    EXPECT_EQ(got.tokens, full.tokens);
    for (size_t i = 0; i < full.logits.size(); ++i) {
      EXPECT_LE(RelativeError(got.logits[i], full.logits[i]), 1e-5) << i;
    }
    const Graph graph = Narrowed(*context, Prompt(kBatch, 7));
    EXPECT_EQ(graph.value(graph.FindValue("layers.1.attention.o")).type.shape[1], 1);
    EXPECT_EQ(graph.value(graph.FindValue("layers.1.attention.k")).type.shape[1], 7);
  }
}

// The graph is the last layer of GPT-2 after the pass alone.
TEST_F(PrefillTest, NarrowsTheLastLayerOfGpt2) {
  TinyModel model;
  model.n_layer = 1;
  model.norm = "layer_norm";
  model.more = "tie_embeddings: true attention { bias: true } mlp { bias: true }";
  const std::string text =
      ToString(Narrowed(*MakeContext(runtime_.get(), model.Text()), Prompt(kBatch, 4)));
  // The comparison starts at the input of the layer.
  EXPECT_EQ(text.substr(text.find("embedding = ") - 17),
            *ReadFile(PLUMB_SOURCE_DIR "/tests/model/graphs/narrowed_gpt2.txt"));
}

// The model is GPT-2 124M. The last of its twelve layers computes queries, attention, the output
// projection and the MLP for one token of 512.
TEST_F(PrefillTest, SkipsSevenPercentOfGpt2sPrefill) {
  const auto context = MakeContext(runtime_.get(), R"pbtxt(
    n_layer: 12 n_head: 12 d_model: 768 vocab_size: 50304 context_length: 1024
    tie_embeddings: true attention { bias: true } mlp { bias: true }
    block { placement: "pre" norm: "layer_norm" })pbtxt");
  const double seq = 512, d = 768, layer = 24 * seq * d * d + 4 * seq * seq * d;
  const double left_out = 511.0 / 512 * (layer - 4 * seq * d * d);
  const auto work = CountWork(*context, Prompt(1, 512));
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_DOUBLE_EQ(work->forward_flops, 12 * layer - left_out + 2 * d * 50304);
  EXPECT_NEAR(left_out / (12 * layer), 0.07, 0.001);

  // The costs of the executed nodes are compared, too. They count only the unmasked part of
  // attention.
  const auto flops = [&](const OptimizeOptions& optimize) {
    double sum = 0;
    for (const NodeTime& node :
         NodeCosts(*BuildProgram(*context, Prompt(1, 512), false, optimize))) {
      sum += node.flops;
    }
    return sum;
  };
  OptimizeOptions full;
  full.disabled = {"last-token"};
  const double attention = 2 * seq * (seq + 1) * d, attention_of_one = 4 * seq * d;
  EXPECT_DOUBLE_EQ(flops(full) - flops({}),
                   511.0 / 512 * 20 * seq * d * d + attention - attention_of_one);
}

}  // namespace
}  // namespace plumb
