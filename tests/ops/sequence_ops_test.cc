// SPDX-License-Identifier: Apache-2.0
// Properties that op_cases_sequence.cc cannot express: causality, caches, rejected operands.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/attention_shape.h"
#include "runtime/ops/ops.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_test_util.h"

namespace plumb {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::HasSubstr;
using testing::Pointwise;

class SequenceOpsTest : public testing::Test {
 protected:
  SequenceOpsTest() { RegisterOps(&registry_); }

  absl::StatusOr<std::vector<ReferenceTensor>> Run(const OpCase& c,
                                                   const std::vector<ReferenceTensor>& inputs,
                                                   int threads = 1) {
    absl::StatusOr<Graph> graph = BuildCase(registry_, c);
    if (!graph.ok()) return graph.status();
    return RunKernel(*graph, inputs, threads);
  }
  absl::StatusOr<std::vector<ReferenceTensor>> Run(const OpCase& c) {
    return Run(c, MakeInputs(c));
  }
  std::string Refusal(const OpCase& c) { return Run(c).status().ToString(); }

  OpRegistry registry_;
};

// -- Attention

struct Sizes {
  int64_t batch, tokens, heads, kv_heads, head_dim, capacity;
};
constexpr Sizes kSizes = {2, 70, 4, 2, 12, 96};

OpCase Attention(const Sizes& s) {
  OpCase c;
  c.op = "attention";
  c.inputs = {Random({s.batch, s.tokens, s.heads * s.head_dim}),
              Random({s.batch, s.tokens, s.kv_heads * s.head_dim}),
              Random({s.batch, s.tokens, s.kv_heads * s.head_dim})};
  c.attrs = {{"n_head", s.heads}, {"n_kv_head", s.kv_heads}, {"scale", 0.3}};
  return c;
}

// Returns the case with bf16 operands.
OpCase Bf16Attention(const Sizes& s) {
  OpCase c = Attention(s);
  for (CaseInput& input : c.inputs) input.type.dtype = DType::kBF16;
  return c;
}

OpCase CachedAttention(const Sizes& s, int64_t tokens, int32_t first) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < s.batch * tokens; ++i) {
    positions.push_back(first + static_cast<int32_t>(i % tokens));
  }
  const Shape cache = {s.batch, s.kv_heads, s.capacity, s.head_dim};
  Sizes chunk = s;
  chunk.tokens = tokens;
  OpCase c = Attention(chunk);
  c.op = "attention_cached";
  c.inputs.push_back(Random(cache));
  c.inputs.push_back(Random(cache));
  c.inputs.push_back(Ints({s.batch, tokens}, positions));
  return c;
}

// Returns tokens [from, from + count) of x[batch, tokens, width].
ReferenceTensor Tokens(const ReferenceTensor& x, int64_t from, int64_t count) {
  const int64_t batch = x.type.shape[0], tokens = x.type.shape[1], width = x.type.shape[2];
  ReferenceTensor out;
  out.type = {x.type.dtype, {batch, count, width}};
  for (int64_t b = 0; b < batch; ++b) {
    const auto begin = x.f.begin() + (b * tokens + from) * width;
    out.f.insert(out.f.end(), begin, begin + count * width);
  }
  return out;
}

// Returns the first `count` tokens of a cache[batch, heads, capacity, head_dim] as x[batch, count,
// width].
ReferenceTensor CachedRows(const ReferenceTensor& cache, int64_t count) {
  const Shape& shape = cache.type.shape;
  const int64_t heads = shape[1], capacity = shape[2], head_dim = shape[3];
  ReferenceTensor out;
  out.type = {cache.type.dtype, {shape[0], count, heads * head_dim}};
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const auto row = cache.f.begin() + ((b * heads + h) * capacity + t) * head_dim;
        out.f.insert(out.f.end(), row, row + head_dim);
      }
    }
  }
  return out;
}

TEST_F(SequenceOpsTest, CachedAttentionInChunksEqualsAttentionToAll) {
  const OpCase whole = Attention(kSizes);
  const std::vector<ReferenceTensor> inputs = MakeInputs(whole);
  const auto want = Run(whole, inputs);
  ASSERT_TRUE(want.ok()) << want.status();

  const std::vector<std::vector<int64_t>> all_chunks = {
      std::vector<int64_t>(70, 1), {70}, {33, 1, 36}, {5, 8, 57}};
  for (const std::vector<int64_t>& chunks : all_chunks) {
    SCOPED_TRACE(testing::PrintToString(chunks));
    const OpCase first = CachedAttention(kSizes, 1, 0);
    ReferenceTensor k_cache = MakeInputs(first)[3], v_cache = MakeInputs(first)[4];
    int64_t position = 0;
    for (const int64_t count : chunks) {
      const OpCase c = CachedAttention(kSizes, count, static_cast<int32_t>(position));
      const auto got =
          Run(c, {Tokens(inputs[0], position, count), Tokens(inputs[1], position, count),
                  Tokens(inputs[2], position, count), k_cache, v_cache, MakeInputs(c)[5]});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_THAT((*got)[0].f, Pointwise(DoubleNear(3e-6), Tokens((*want)[0], position, count).f));
      k_cache = (*got)[1];
      v_cache = (*got)[2];
      position += count;
    }
    EXPECT_EQ(CachedRows(k_cache, kSizes.tokens).f, inputs[1].f);
    EXPECT_EQ(CachedRows(v_cache, kSizes.tokens).f, inputs[2].f);
  }
}

TEST_F(SequenceOpsTest, AttentionDoesNotLookAhead) {
  for (const OpCase& c : {Attention(kSizes), Bf16Attention(kSizes)}) {
    const std::vector<ReferenceTensor> inputs = MakeInputs(c);
    const auto before = Run(c, inputs);
    ASSERT_TRUE(before.ok()) << before.status();
    for (const int64_t from : {1, 5, 31, 64, 66, 69}) {
      std::vector<ReferenceTensor> changed = inputs;
      for (ReferenceTensor& x : changed) {
        const int64_t width = x.type.shape[2];
        for (size_t i = 0; i < x.f.size(); ++i) {
          // Large enough that the running maximum is raised late.
          if (static_cast<int64_t>(i) / width % kSizes.tokens >= from) x.f[i] *= -16;
        }
      }
      const auto after = Run(c, changed);
      ASSERT_TRUE(after.ok()) << after.status();
      EXPECT_EQ(Tokens((*after)[0], 0, from).f, Tokens((*before)[0], 0, from).f) << from;
      EXPECT_NE((*after)[0].f, (*before)[0].f);
    }
  }
}

// Scores that grow with the key's position make every block of keys raise the maximum.
TEST_F(SequenceOpsTest, AttentionRescalesForGrowingScores) {
  Sizes sizes = kSizes;
  sizes.tokens = 200;
  for (OpCase c : {Attention(sizes), Bf16Attention(sizes)}) {
    const bool bf16 = c.inputs[0].type.dtype == DType::kBF16;
    const int64_t q_size = c.inputs[0].type.num_elements();
    c.inputs[0].values.assign(static_cast<size_t>(q_size), 1.0);
    const int64_t width = sizes.kv_heads * sizes.head_dim;
    for (int64_t i = 0; i < c.inputs[1].type.num_elements(); ++i) {
      const int64_t place = i / width % sizes.tokens;
      c.inputs[1].values.push_back(0.125 * static_cast<double>(place));
    }
    c.tolerance = bf16 ? 4e-3 : 1e-5;
    ExpectKernelMatchesReference(registry_, c);
  }
}

TEST_F(SequenceOpsTest, AttentionPropagatesANaNKey) {
  for (const OpCase& c : {Attention(kSizes), Bf16Attention(kSizes)}) {
    std::vector<ReferenceTensor> inputs = MakeInputs(c);
    inputs[1].f[static_cast<size_t>(3 * kSizes.kv_heads * kSizes.head_dim)] =
        std::numeric_limits<double>::quiet_NaN();
    const auto got = Run(c, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    const size_t width = static_cast<size_t>(kSizes.heads * kSizes.head_dim);
    EXPECT_FALSE(std::isnan((*got)[0].f[2 * width]));
    EXPECT_TRUE(std::isnan((*got)[0].f[3 * width]));
    EXPECT_TRUE(std::isnan((*got)[0].f[69 * width]));
  }
}

TEST_F(SequenceOpsTest, AttentionPropagatesANaNSink) {
  for (OpCase c : {Attention(kSizes), Bf16Attention(kSizes), CachedAttention(kSizes, 1, 90)}) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    c.inputs.push_back(Values({kSizes.heads}, {0, nan, 0, 0}));
    const auto got = Run(c);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_FALSE(std::isnan((*got)[0].f[0])) << c.op;
    EXPECT_TRUE(std::isnan((*got)[0].f[static_cast<size_t>(kSizes.head_dim)])) << c.op;
    EXPECT_FALSE(std::isnan((*got)[0].f[static_cast<size_t>(2 * kSizes.head_dim)])) << c.op;
  }
}

// Feeds chunks, shorter and longer than the window, to a ring of the window's size and to a cache
// of all tokens. All bits must agree: a ring changes where keys are stored, not how they are added
// up.
TEST_F(SequenceOpsTest, RingCacheEqualsFullCache) {
  constexpr int64_t kWindow = 20, kAll = 260;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<ReferenceTensor> caches[2];
    int32_t first = 0;
    for (const int64_t tokens : {7, 1, 30, 1, 1, 70, 9, 1, 20, 100, 1}) {
      OpCase all = CachedAttention({2, 0, 4, 2, 12, kAll}, tokens, first);
      all.attrs.Set("window", kWindow);
      all.attrs.Set("alibi", 0.5);
      OpCase ring = all;
      for (const size_t i : {size_t{3}, size_t{4}}) {
        ring.inputs[i] = Random({2, 2, kWindow, 12});
      }
      for (size_t i = 0; i < 5; ++i) all.inputs[i].type.dtype = ring.inputs[i].type.dtype = dtype;
      std::vector<ReferenceTensor> inputs[2] = {MakeInputs(all), MakeInputs(ring)};
      std::copy_n(inputs[0].begin(), 3, inputs[1].begin());
      std::vector<double> contexts[2];
      for (const size_t i : {size_t{0}, size_t{1}}) {
        if (!caches[i].empty()) std::copy_n(caches[i].begin(), 2, inputs[i].begin() + 3);
        const auto got = Run(i == 0 ? all : ring, inputs[i]);
        ASSERT_TRUE(got.ok()) << got.status();
        contexts[i] = (*got)[0].f;
        caches[i] = {(*got)[1], (*got)[2]};
      }
      EXPECT_EQ(contexts[1], contexts[0]) << tokens << " tokens from " << first;
      first += static_cast<int32_t>(tokens);
    }
  }
}

TEST_F(SequenceOpsTest, ACacheMustHoldTheWindow) {
  OpCase c = CachedAttention(kSizes, 1, 10);
  c.attrs.Set("window", kSizes.capacity + 1);
  EXPECT_THAT(Refusal(c), HasSubstr("caches of 96 tokens do not hold a window of 97"));
}

// A head whose sink is far above its scores attends to nothing; one whose sink is far below attends
// as without a sink.
TEST_F(SequenceOpsTest, ExtremeSinksDominate) {
  OpCase c = Attention(kSizes);
  const std::vector<ReferenceTensor> plain_inputs = MakeInputs(c);
  const auto plain = Run(c, plain_inputs);
  c.inputs.push_back(Values({kSizes.heads}, {1e4, -1e4, 1e30, -1e30}));
  std::vector<ReferenceTensor> inputs = plain_inputs;
  inputs.push_back(MakeInputs(c)[3]);
  const auto got = Run(c, inputs);
  ASSERT_TRUE(plain.ok() && got.ok()) << got.status();
  const size_t width = static_cast<size_t>(kSizes.head_dim);
  for (size_t i = 0; i < (*got)[0].f.size(); ++i) {
    const bool is_sunk = i / width % 2 == 0;
    EXPECT_NEAR((*got)[0].f[i], is_sunk ? 0 : (*plain)[0].f[i], 3e-6) << i;
  }
}

TEST_F(SequenceOpsTest, CachedAttentionRefusesAPositionOutsideBeforeItWrites) {
  const OpCase c = CachedAttention(kSizes, 4, 93);  // 93, 94, 95, 96 of 96
  absl::StatusOr<Graph> graph = BuildCase(registry_, c);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Node& node = graph->nodes[0];
  std::vector<const TensorType*> in_types, out_types;
  std::vector<AlignedBuffer> buffers;
  std::vector<const void*> in;
  for (const ValueId id : node.inputs) {
    in_types.push_back(&graph->value(id).type);
    buffers.emplace_back(in_types.back()->bytes());
    in.push_back(buffers.back().data());
  }
  for (const ValueId id : node.outputs) out_types.push_back(&graph->value(id).type);
  const std::vector<int32_t>& positions = c.inputs[5].ints;
  std::memcpy(buffers[5].data(), positions.data(), positions.size() * sizeof(int32_t));
  for (const size_t i : {size_t{1}, size_t{2}}) buffers[i].as<float>()[0] = 1;  // not to be cached
  AlignedBuffer context(out_types[0]->bytes());
  const std::vector<void*> out = {context.data(), buffers[3].data(), buffers[4].data()};

  const auto kernel = node.op->make_kernel({in_types, out_types, node.attrs});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const AlignedBuffer scratch((*kernel)->scratch_bytes());
  const absl::Status status = (*kernel)->Run({in.data(), out.data(), scratch.data(), 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("position 96 of row 0"));
  const float* cache = buffers[3].as<float>();
  EXPECT_THAT(std::vector<float>(cache, cache + out_types[1]->num_elements()), Each(0.0f));
}

TEST_F(SequenceOpsTest, CachedAttentionRefusesPositionsWithAGap) {
  OpCase c = CachedAttention(kSizes, 3, 10);
  c.inputs[5].ints[4] = 12;
  EXPECT_THAT(Refusal(c), HasSubstr("position 12 of row 1 does not follow position 10"));
  c = CachedAttention(kSizes, 1, -1);
  EXPECT_THAT(Refusal(c), HasSubstr("position -1 of row 0"));
}

TEST_F(SequenceOpsTest, AttentionNamesTheWrongOperand) {
  Sizes sizes = kSizes;
  sizes.kv_heads = 3;
  EXPECT_THAT(Refusal(Attention(sizes)),
              HasSubstr("n_head = 4 is not a multiple of n_kv_head = 3"));
  OpCase c = Attention(kSizes);
  c.inputs[2] = Random({2, 70, 48});
  EXPECT_THAT(Refusal(c), HasSubstr("v f32[2, 70, 48]"));
  c = Attention(kSizes);
  c.inputs[1] = RandomBf16({2, 70, 24});
  EXPECT_THAT(Refusal(c), HasSubstr("k is bf16[2, 70, 24]"));
  c = CachedAttention(kSizes, 1, 0);
  c.inputs[4] = RandomBf16({2, 2, 96, 12});
  EXPECT_THAT(Refusal(c), HasSubstr("the caches are f32[2, 2, 96, 12] and bf16[2, 2, 96, 12]"));
}

// The paper's slopes: 1/2, 1/4, .. for 8 heads; 16 heads interleave additional ones between them.
TEST_F(SequenceOpsTest, SlopesOfAlibi) {
  for (int64_t head = 0; head < 8; ++head) {
    EXPECT_DOUBLE_EQ(AlibiSlope(head, 8), std::exp2(-static_cast<double>(head + 1)));
    EXPECT_DOUBLE_EQ(AlibiSlope(head, 12), AlibiSlope(head, 8));
  }
  for (int64_t head = 8; head < 12; ++head) {
    EXPECT_DOUBLE_EQ(AlibiSlope(head, 12), AlibiSlope(2 * (head - 8), 16));
  }
  EXPECT_DOUBLE_EQ(AlibiSlope(0, 1), std::exp2(-8));
  EXPECT_DOUBLE_EQ(AlibiSlope(2, 3), std::exp2(-2));
}

// -- Rotary embedding

TEST_F(SequenceOpsTest, RotationByTheInverseRestores) {
  OpCase c;
  c.op = "rope";
  c.inputs = {Random({1, 3, 40}), Ints({1, 3}, {0, 999, 54321})};
  c.attrs = {{"head_dim", int64_t{20}}, {"theta", 500000.0}};
  const std::vector<ReferenceTensor> inputs = MakeInputs(c);
  const auto there = Run(c, inputs);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_NE((*there)[0].f, inputs[0].f);
  c.attrs.Set("inverse", true);
  const auto back = Run(c, {(*there)[0], inputs[1]});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT((*back)[0].f, Pointwise(DoubleNear(1e-6), inputs[0].f));
}

TEST_F(SequenceOpsTest, RotationRefusesAnOddHead) {
  OpCase c;
  c.op = "rope";
  c.inputs = {Random({1, 2, 9}), Ints({1, 2}, {0, 1})};
  c.attrs = {{"head_dim", int64_t{9}}, {"theta", 10000.0}};
  EXPECT_THAT(Refusal(c), HasSubstr("head_dim = 9"));
  c.attrs.Set("dims", int64_t{3});
  EXPECT_THAT(Refusal(c), HasSubstr("dims = 3 is odd"));
  c.attrs.Set("dims", int64_t{10});
  EXPECT_THAT(Refusal(c), HasSubstr("dims = 10 are more than head_dim = 9"));
}

// Computed by hand, at position 1. Of the frequencies 1, 0.1 and 0.01 the first completes so many
// turns in 100 tokens that it is kept, the last so few that it is divided by 2, and the second is
// at 1.59 turns on the ramp from 1 to 4.
TEST_F(SequenceOpsTest, RotationOfScaledFrequenciesByHand) {
  OpCase c;
  c.op = "rope";
  c.inputs = {Random({1, 1, 6}), Ints({1, 1}, {1})};
  c.inputs[0].values = {1, 1, 1, 0, 0, 0};
  c.attrs = {{"head_dim", int64_t{6}},           {"theta", 1000.0},
             {"scaling", std::string("llama3")}, {"factor", 2.0},
             {"original_context", int64_t{100}}, {"low_freq_factor", 1.0},
             {"high_freq_factor", 4.0}};
  const auto llama3 = Run(c);
  ASSERT_TRUE(llama3.ok()) << llama3.status();
  const double share = (10 / 6.283185307179586 - 1) / 3, second = 0.05 + 0.05 * share;
  EXPECT_THAT((*llama3)[0].f,
              Pointwise(DoubleNear(1e-6), {std::cos(1), std::cos(second), std::cos(0.005),
                                           std::sin(1), std::sin(second), std::sin(0.005)}));
  // The ramp begins at floor(3 ln(100 / 2 pi 20) / ln 10) < 0 and ends at ceil(.. 4 ..) = 1.
  c.attrs = {{"head_dim", int64_t{6}},
             {"theta", 1000.0},
             {"scaling", std::string("yarn")},
             {"factor", 2.0},
             {"original_context", int64_t{100}},
             {"beta_fast", 20.0},
             {"beta_slow", 10.0},
             {"magnitude", 0.5}};
  const auto yarn = Run(c);
  ASSERT_TRUE(yarn.ok()) << yarn.status();
  EXPECT_THAT((*yarn)[0].f, Pointwise(DoubleNear(1e-6),
                                      {std::cos(1) / 2, std::cos(0.05) / 2, std::cos(0.005) / 2,
                                       std::sin(1) / 2, std::sin(0.05) / 2, std::sin(0.005) / 2}));
}

TEST_F(SequenceOpsTest, RotationRefusesInvalidScalings) {
  OpCase c;
  c.op = "rope";
  c.inputs = {Random({1, 2, 8}), Ints({1, 2}, {0, 1})};
  c.attrs = {{"head_dim", int64_t{8}}, {"theta", 10000.0}, {"scaling", std::string("linear")}};
  EXPECT_THAT(Refusal(c), HasSubstr("factor = 0 must be finite and not 0"));
  c.attrs.Set("factor", 2.0);
  c.attrs.Set("scaling", std::string("longrope"));
  c.attrs.Set("factors", std::vector<double>{1, 2, 3});
  EXPECT_THAT(Refusal(c), HasSubstr("factors must have a finite number, not 0, for each pair"));
  c.attrs.Set("scaling", std::string("ntk"));
  c.attrs.Set("original_context", int64_t{10});
  EXPECT_THAT(Refusal(c), HasSubstr("unknown scaling ntk; there are"));
  c.attrs.Set("scaling", std::string("llama3"));
  EXPECT_THAT(Refusal(c), HasSubstr("low_freq_factor = 0"));
  c.attrs.Set("low_freq_factor", 4.0);
  c.attrs.Set("high_freq_factor", 4.0);
  EXPECT_THAT(Refusal(c), HasSubstr("low_freq_factor must be less than high_freq_factor"));
  c.attrs.Set("scaling", std::string("yarn"));
  c.attrs.Set("beta_slow", 1.0);
  c.attrs.Set("beta_fast", 32.0);
  c.attrs.Set("theta", 1.0);
  EXPECT_THAT(Refusal(c), HasSubstr("theta must be above 1"));
}

// -- Cross entropy

TEST_F(SequenceOpsTest, CrossEntropyRefusesATargetOutsideTheVocabulary) {
  OpCase c;
  c.op = "cross_entropy";
  c.inputs = {Random({2, 5}), Ints({2}, {4, 5})};
  EXPECT_THAT(Refusal(c), HasSubstr("target 5 of row 1 is outside the vocabulary of 5"));
  c.op = "cross_entropy_grad";
  c.inputs.push_back(Random({2}));
  c.inputs.push_back(Random({1}));
  EXPECT_THAT(Refusal(c), HasSubstr("target 5 of row 1"));
}

TEST_F(SequenceOpsTest, CrossEntropyOfNoTargetIsZero) {
  OpCase c;
  c.op = "cross_entropy";
  c.inputs = {Random({2, 5}), Ints({2}, {-1, -7})};
  const auto loss = Run(c);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ((*loss)[0].f, std::vector<double>{0});
  c.op = "cross_entropy_grad";
  c.inputs.push_back(Random({2}));
  c.inputs.push_back(Random({1}));
  const auto grad = Run(c);
  ASSERT_TRUE(grad.ok()) << grad.status();
  EXPECT_THAT((*grad)[0].f, Each(0.0));
}

TEST_F(SequenceOpsTest, CrossEntropyOfExtremeLogits) {
  OpCase c;
  c.op = "cross_entropy";
  c.inputs = {Values({1, 3}, {3e38, -3e38, 3e38}), Ints({1}, {2})};
  const auto large = Run(c);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_TRUE(std::isfinite((*large)[0].f[0]));
  c.inputs[0] = Values({1, 3}, {std::nan(""), 0, 1});
  const auto broken = Run(c);
  ASSERT_TRUE(broken.ok()) << broken.status();
  EXPECT_TRUE(std::isnan((*broken)[0].f[0]));
}

}  // namespace
}  // namespace plumb
