#include "runtime/session/weight_copies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/bf16.h"
#include "runtime/ops/quantize.h"
#include "runtime/session/evaluate.h"
#include "tests/api/test_models.h"

namespace plumb {
namespace {

class WeightCopiesTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  const std::unique_ptr<ModelContext> context_ = MakeContext(runtime_.get(), TinyModel().Text());
  const ParameterStore parameters_ = GenericParameters(*context_);
};

TEST_F(WeightCopiesTest, Bf16CopiesStandWhereTheirFloatsDoInTheStore) {
  WeightCopies copies(*context_, WeightFormat::kBf16, parameters_);
  const auto expect_copied = [&] {
    for (size_t i = 0; i < context_->parameters.size(); ++i) {
      if (StoredDType(context_->parameters[i], WeightFormat::kBf16) != DType::kBF16) continue;
      const ParameterLayout::Entry& entry = parameters_.layout().entries[i];
      for (int64_t e = entry.begin; e < entry.end; ++e) {
        ASSERT_EQ(copies.bf16_data()[e], Bf16FromFloat(parameters_.data()[e])) << entry.name;
      }
    }
  };
  expect_copied();
  parameters_.data()[0] += 1;
  ASSERT_NE(copies.bf16_data()[0], Bf16FromFloat(parameters_.data()[0]));
  copies.Refresh();
  expect_copied();
}

TEST_F(WeightCopiesTest, OnlyMatricesAreCopied) {
  const WeightCopies f32(*context_, WeightFormat::kF32, parameters_);
  EXPECT_EQ(f32.bf16_data(), nullptr);
  const WeightCopies bf16(*context_, WeightFormat::kBf16, parameters_);
  EXPECT_EQ(bf16.matrix_bytes(), f32.matrix_bytes() / 2);
  // Rows of 8 and 12 elements with a scale each.
  const WeightCopies int8(*context_, WeightFormat::kInt8, parameters_);
  EXPECT_GT(int8.matrix_bytes(), f32.matrix_bytes() / 4);
  EXPECT_LT(int8.matrix_bytes(), f32.matrix_bytes());
}

// An evaluation in int8 is, to rounding, the evaluation in f32 of the weights that int8 can say.
TEST_F(WeightCopiesTest, Int8ProgramsComputeWithTheQuantizedWeights) {
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
      std::vector<int8_t> int8(static_cast<size_t>(shape.num_elements()));
      std::vector<float> scales(static_cast<size_t>(shape.rows() * Int8Groups(shape.last())));
      QuantizeInt8(values, shape.rows(), shape.last(), 1, int8.data(), scales.data());
      DequantizeInt8(int8.data(), scales.data(), shape.rows(), shape.last(), values);
    }
    for (const int64_t seq : {5, 30}) {  // few rows and many
      const Tokens tokens = RandomTokens(2, seq, model.vocab_size);
      const auto expected = RunBatch(*context, quantized, tokens, false, 1);
      ASSERT_TRUE(expected.ok()) << expected.status();
      const auto got =
          RunBatch(*context, parameters, tokens, false, 1, nullptr, WeightFormat::kInt8);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_LE(RelativeError(got->logits, expected->logits), 1e-5);
      const auto f32 = RunBatch(*context, parameters, tokens, false, 1);
      EXPECT_GT(RelativeError(got->logits, f32->logits), 1e-5) << "nothing was quantized";
    }
  }
}

TEST_F(WeightCopiesTest, Int8HasNoTrainingProgram) {
  BuildOptions options;
  options.weights = WeightFormat::kInt8;
  const auto program = BuildProgram(*context_, options, /*gradients=*/true);
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
