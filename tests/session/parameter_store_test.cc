// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/parameter_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "tests/app/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

// Returns a matrix of more than two blocks of a megabyte, with neighbours of odd sizes.
std::vector<ParameterSpec> Parameters() {
  using Role = ParameterSpec::Role;
  const InitSpec normal = {InitSpec::Kind::kNormal, 0.1, 2};
  return {{"bias", Shape({3}), Role::kWeight, normal},
          {"large", Shape({701, 903}), Role::kWeight, normal},
          {"gains", Shape({5, 7}), Role::kNorm, normal},
          {"constant", Shape({9, 11}), Role::kWeight, {InitSpec::Kind::kConstant, 0.3, 0}},
          {"last", Shape({1, 1}), Role::kWeight, normal}};
}

class ParameterStoreTest : public ::testing::Test {
 protected:
  ParameterStoreTest() {
    for (const ParameterStore* store : {&floats_, &split_}) {
      EXPECT_TRUE(DrawParameters(parameters_, {}, 5, /*threads=*/2, *store).ok());
    }
  }

  const std::vector<ParameterSpec> parameters_ = Parameters();
  const ParameterStore floats_{parameters_, {}};
  const ParameterStore split_{parameters_, {}, WeightFormat::kBf16};
  const ScratchDir dir_;
};

TEST_F(ParameterStoreTest, SplitsMatricesOfProducts) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    EXPECT_FALSE(floats_.is_split(i));
    const bool weight = parameters_[i].role == ParameterSpec::Role::kWeight;
    EXPECT_EQ(split_.is_split(i), weight && parameters_[i].is_matrix()) << parameters_[i].name;
  }
}

TEST_F(ParameterStoreTest, SplitValuesHaveTheSameBits) {
  EXPECT_EQ(Floats(split_), Floats(floats_));
  const size_t large = 1;
  const SplitF32 split = split_.split(large);
  const float* floats = floats_.floats(large);
  for (int64_t e = 0; e < 701 * 903; ++e) {
    ASSERT_EQ(JoinFloat(split.high[e], split.low[e]), floats[e]) << e;
    ASSERT_NEAR(FloatFromBf16(split.high[e]), floats[e], std::fabs(floats[e]) / 256) << e;
  }
}

TEST_F(ParameterStoreTest, ReadsAndWritesAnyRange) {
  for (size_t entry = 0; entry < parameters_.size(); ++entry) {
    const int64_t n = parameters_[entry].shape.num_elements();
    const int64_t begin = n / 3, length = n - begin - n / 4;
    std::vector<float> part(static_cast<size_t>(length));
    for (size_t i = 0; i < part.size(); ++i) part[i] = 1.0f + 1e-6f * static_cast<float>(i);
    for (const ParameterStore* store : {&floats_, &split_}) {
      store->Write(entry, begin, length, part.data());
      std::vector<float> back(part.size());
      store->Read(entry, begin, length, back.data());
      EXPECT_EQ(back, part) << parameters_[entry].name;
    }
  }
  EXPECT_EQ(Floats(split_), Floats(floats_)) << "and nothing else is written";
}

TEST_F(ParameterStoreTest, FilesDoNotDependOnTheForm) {
  const std::string from_floats = dir_.File("floats"), from_split = dir_.File("split");
  ASSERT_TRUE(WriteSafetensors(from_floats, floats_.Tensors()).ok());
  ASSERT_TRUE(WriteSafetensors(from_split, split_.Tensors()).ok());
  EXPECT_TRUE(*ReadFile(from_floats) == *ReadFile(from_split));
  const SafetensorsFile file = *SafetensorsFile::Open(from_split);
  for (const WeightFormat form : {WeightFormat::kF32, WeightFormat::kBf16}) {
    const ParameterStore store(parameters_, {}, form);
    ASSERT_TRUE(store.Read(file).ok());
    EXPECT_EQ(Floats(store), Floats(floats_));
  }
}

TEST_F(ParameterStoreTest, RefusesFilesOfAnotherShape) {
  std::vector<ParameterSpec> others = parameters_;
  others[3].shape = Shape({11, 9});
  const ParameterStore other(others, {}, WeightFormat::kBf16);
  const std::string path = dir_.File("other");
  ASSERT_TRUE(WriteSafetensors(path, other.Tensors()).ok());
  const std::vector<float> before = Floats(split_);
  const absl::Status status = split_.Read(*SafetensorsFile::Open(path));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("misshapen: constant"));
  EXPECT_EQ(Floats(split_), before);
}

TEST_F(ParameterStoreTest, ListsTheFirstErrorsAndCountsTheRest) {
  std::vector<TensorToWrite> tensors = split_.Tensors();
  const float value = 1;
  for (int i = 0; i < 20000; ++i) {
    tensors.push_back({absl::StrCat("surplus", i), {DType::kF32, Shape({1})}, &value});
  }
  const std::string path = dir_.File("surplus");
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const std::string message(split_.Read(*SafetensorsFile::Open(path)).message());
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 21);
  EXPECT_THAT(message, testing::HasSubstr("surplus: surplus0"));
  EXPECT_THAT(message, testing::EndsWith("... and 19980 more"));
}

}  // namespace
}  // namespace plumb
