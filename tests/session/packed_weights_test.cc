// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/packed_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/kernels/gemv/quantize.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

class PackedWeightsTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  const std::unique_ptr<ModelContext> context_ = MakeContext(runtime_.get(), TinyModel().Text());
  const ParameterStore parameters_ = GenericParameters(*context_);

  // Returns the same weights as split f32.
  static ParameterStore Split(const ModelContext& context, const ParameterStore& floats) {
    ParameterStore store(context.parameters, context.states, WeightFormat::kBf16);
    for (size_t i = 0; i < context.parameters.size(); ++i) {
      store.Write(i, 0, context.parameters[i].shape.num_elements(), floats.floats(i));
    }
    return store;
  }
  ParameterStore Split() const { return Split(*context_, parameters_); }
};

TEST_F(PackedWeightsTest, CopiesOnlyMatricesOfAnotherFormat) {
  const PackedWeights f32(*context_, WeightFormat::kF32, parameters_);
  EXPECT_EQ(f32.bytes(), 0);
  const PackedWeights bf16(*context_, WeightFormat::kBf16, parameters_);
  EXPECT_EQ(bf16.matrix_bytes(), f32.matrix_bytes() / 2);
  EXPECT_GE(bf16.bytes(), bf16.matrix_bytes());
  // Rows of 8 and 12 elements, in tiles of 16 rows of 64 elements with a scale per row.
  int64_t tiles = 0;
  for (const ParameterSpec& parameter : context_->parameters) {
    if (StoredDType(parameter, WeightFormat::kInt8) == DType::kI8) {
      tiles += (parameter.shape.rows() + 15) / 16;
    }
  }
  const PackedWeights int8(*context_, WeightFormat::kInt8, parameters_);
  EXPECT_EQ(int8.matrix_bytes(), tiles * 16 * (64 + 4));

  const ParameterStore split = Split();
  const PackedWeights in_place(*context_, WeightFormat::kBf16, split);
  EXPECT_EQ(in_place.bytes(), 0);
  EXPECT_EQ(in_place.matrix_bytes(), bf16.matrix_bytes());
  const PackedWeights joined(*context_, WeightFormat::kF32, split);
  EXPECT_EQ(joined.matrix_bytes(), f32.matrix_bytes());
  EXPECT_GE(joined.bytes(), joined.matrix_bytes());
}

TEST_F(PackedWeightsTest, ProgramsReadSplitOrFloatWeights) {
  const ParameterStore split = Split();
  const Tokens tokens = RandomTokens(2, 7, 5);
  std::vector<std::vector<float>> logits;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    const auto from_floats = RunBatch(*context_, parameters_, tokens, false, 1, nullptr, format);
    const auto from_split = RunBatch(*context_, split, tokens, false, 1, nullptr, format);
    ASSERT_TRUE(from_floats.ok() && from_split.ok()) << from_floats.status() << from_split.status();
    EXPECT_EQ(from_split->loss, from_floats->loss);
    EXPECT_EQ(from_split->logits, from_floats->logits);
    logits.push_back(from_split->logits);
  }
  EXPECT_NE(logits[0], logits[1]);
  EXPECT_NE(logits[0], logits[2]);
}

// Rows of more than a block of a megabyte, and a last block of fewer rows.
TEST_F(PackedWeightsTest, Int8OfSplitEqualsInt8OfFloats) {
  TinyModel model;
  model.vocab_size = 70001;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const ParameterStore floats = GenericParameters(*context);
  const ParameterStore split = Split(*context, floats);
  const Tokens tokens = {{70000, 3, 69999}};
  const auto want = RunBatch(*context, floats, tokens, false, 1, nullptr, WeightFormat::kInt8);
  const auto got = RunBatch(*context, split, tokens, false, 1, nullptr, WeightFormat::kInt8);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  EXPECT_EQ(got->logits, want->logits);
}

TEST_F(PackedWeightsTest, RefreshFollowsTheStore) {
  const Dataset data = TextDataset(200, 5, /*val_fraction=*/0.5);
  for (const bool is_split : {false, true}) {
    const ParameterStore store = is_split ? Split() : GenericParameters(*context_);
    for (const WeightFormat format :
         {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
      PackedWeights packed(*context_, format, store);
      const auto eval =
          *EvalSession::Create(context_.get(), &packed, &data, Split::kValidation, 4, 1);
      const double before = eval->Run(0)->loss;
      const size_t last = store.layout().entries.size() - 1;
      float weight;
      store.Read(last, 0, 1, &weight);
      weight += 1;
      store.Write(last, 0, 1, &weight);
      EXPECT_EQ(eval->Run(0)->loss == before, packed.bytes() > 0) << "read in place, or stale";
      packed.Refresh();
      EXPECT_NE(eval->Run(0)->loss, before);
    }
  }
}

// An evaluation in int8 equals, up to rounding, the evaluation in f32 of the quantized weights.
TEST_F(PackedWeightsTest, Int8ProgramsComputeWithTheQuantizedWeights) {
  for (const char* more : {"",
                           "mlp { gated: true activation: SILU bias: true } "
                           "attention { bias: true } tie_embeddings: true"}) {
    TinyModel model;
    model.more = more;
    model.context_length = 30;
    const auto context = MakeContext(runtime_.get(), model.Text());
    const ParameterStore parameters = GenericParameters(*context);
    const ParameterStore quantized = GenericParameters(*context);
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      if (StoredDType(context->parameters[i], WeightFormat::kInt8) != DType::kI8) continue;
      const Shape& shape = context->parameters[i].shape;
      float* values = quantized.data() + quantized.layout().entries[i].begin;
      std::vector<int8_t> int8(static_cast<size_t>(Int8Elements(shape).num_elements()));
      std::vector<float> scales(static_cast<size_t>(Int8Scales(shape).num_elements()));
      QuantizeInt8(values, shape.rows(), shape.last(), 1, int8.data(), scales.data());
      for (int64_t row = 0; row < shape.rows(); ++row) {
        ReadInt8Row(int8.data(), scales.data(), row, shape.last(), values + row * shape.last());
      }
    }
    for (const int64_t seq : {5, 30}) {
      const Tokens tokens = RandomTokens(2, seq, model.vocab_size);
      const auto expected = RunBatch(*context, quantized, tokens, false, 1);
      ASSERT_TRUE(expected.ok()) << expected.status();
      const auto got =
          RunBatch(*context, parameters, tokens, false, 1, nullptr, WeightFormat::kInt8);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_LE(RelativeError(got->logits, expected->logits), 1e-4);
      const auto f32 = RunBatch(*context, parameters, tokens, false, 1);
      EXPECT_GT(RelativeError(got->logits, f32->logits), 1e-3) << "nothing was quantized";
    }
  }
}

TEST_F(PackedWeightsTest, Int8HasNoTrainingProgram) {
  BuildOptions options;
  options.weights = WeightFormat::kInt8;
  const auto program = BuildProgram(*context_, options, /*gradients=*/true);
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
