// SPDX-License-Identifier: Apache-2.0
// plumb_model_map_tensors: weights at any place in files and of any supported type compute the same
// as equal weights in memory.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// File of raw tensors, each `skew` bytes beyond a multiple of 64.
class TensorFile {
 public:
  explicit TensorFile(size_t skew) : skew_(skew) {}

  void Add(const std::string& name, int32_t dtype, const void* data, size_t bytes) {
    bytes_.resize((bytes_.size() + 63) / 64 * 64 + skew_);
    names_.push_back(name);
    offsets_.push_back(static_cast<int64_t>(bytes_.size()));
    dtypes_.push_back(dtype);
    const auto* const from = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
  }
  std::vector<plumb_tensor_in_file> Write(const std::string& path) {
    path_ = path;
    std::ofstream(path, std::ios::binary)
        .write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    std::vector<plumb_tensor_in_file> tensors(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      tensors[i].struct_size = sizeof(tensors[i]);
      tensors[i].name = names_[i].c_str();
      tensors[i].path = path_.c_str();
      tensors[i].offset = offsets_[i];
      tensors[i].dtype = dtypes_[i];
    }
    return tensors;
  }

 private:
  size_t skew_;
  std::string path_;
  std::vector<char> bytes_;
  std::vector<std::string> names_;
  std::vector<int64_t> offsets_;
  std::vector<int32_t> dtypes_;
};

int64_t CountElements(const plumb_tensor& tensor) {
  return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
}

plumb_tensor GetTensor(const plumb_model* model, int64_t i) {
  auto tensor = MakeStruct<plumb_tensor>();
  EXPECT_PLUMB_OK(plumb_model_tensor(model, i, &tensor, err));
  return tensor;
}

class MappedTensorsTest : public CapiTest {
 protected:
  MappedTensorsTest() : memory_(CreateWithWeights()) {
    // The values are exact in bf16, so that all types can hold them.
    for (int64_t i = 0; i < plumb_model_tensor_count(memory_.get); ++i) {
      const plumb_tensor tensor = GetTensor(memory_.get, i);
      for (int64_t e = 0; e < CountElements(tensor); ++e) {
        uint32_t bits;
        std::memcpy(&bits, &tensor.data[e], sizeof(bits));
        bits &= 0xffff0000u;
        std::memcpy(&tensor.data[e], &bits, sizeof(bits));
      }
    }
    plumb_model_changed(memory_.get);
  }

  TensorFile GetFile(int32_t dtype, size_t skew) const {
    TensorFile file(skew);
    for (int64_t i = 0; i < plumb_model_tensor_count(memory_.get); ++i) {
      const plumb_tensor tensor = GetTensor(memory_.get, i);
      const auto n = static_cast<size_t>(CountElements(tensor));
      if (dtype == PLUMB_DTYPE_F32) {
        file.Add(tensor.name, dtype, tensor.data, 4 * n);
        continue;
      }
      std::vector<uint16_t> halves(n);
      for (size_t e = 0; e < n; ++e) {
        uint32_t bits;
        std::memcpy(&bits, &tensor.data[e], sizeof(bits));
        halves[e] = static_cast<uint16_t>(bits >> 16);
      }
      file.Add(tensor.name, dtype, halves.data(), 2 * n);
    }
    return file;
  }

  std::vector<float> ComputeLogits(plumb_model* model, int32_t weights) {
    auto options = MakeStruct<plumb_session_options>();
    options.weights = weights;
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model, &options, &session.get, err));
    const int32_t tokens[] = {1, 2, 3, 1};
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, tokens, 4, err));
    auto info = MakeStruct<plumb_model_info>();
    EXPECT_PLUMB_OK(plumb_model_get_info(model, &info, err));
    return Logits(session.get, 0, static_cast<size_t>(info.vocab_size));
  }

  ScratchDir scratch_;
  ModelHandle memory_;
};

TEST_F(MappedTensorsTest, EqualWeightsInMemory) {
  for (const int32_t dtype : {int32_t{PLUMB_DTYPE_F32}, int32_t{PLUMB_DTYPE_BF16}}) {
    for (const size_t skew : {0, 8, 1}) {  // 1: not aligned for numbers, so they are copied
      TensorFile file = GetFile(dtype, skew);
      const auto tensors = file.Write(scratch_.File("weights"));
      for (const int32_t weights : {PLUMB_WEIGHTS_BF16, PLUMB_WEIGHTS_INT8, PLUMB_WEIGHTS_F32}) {
        const ModelHandle mapped = Create(TinyModel().Text());
        EXPECT_PLUMB_OK(plumb_model_map_tensors(mapped.get, tensors.data(), tensors.size(), err));
        EXPECT_EQ(ComputeLogits(mapped.get, weights), ComputeLogits(memory_.get, weights))
            << dtype << " " << skew << " " << weights;
      }
      const ModelHandle mapped = Create(TinyModel().Text());
      EXPECT_PLUMB_OK(plumb_model_map_tensors(mapped.get, tensors.data(), tensors.size(), err));
      EXPECT_EQ(Weights(mapped.get), Weights(memory_.get));
    }
  }
}

TEST_F(MappedTensorsTest, WritesReachAllFormatsButNotTheFile) {
  TensorFile file = GetFile(PLUMB_DTYPE_BF16, 8);
  const auto tensors = file.Write(scratch_.File("weights"));
  const ModelHandle mapped = Create(TinyModel().Text());
  EXPECT_PLUMB_OK(plumb_model_map_tensors(mapped.get, tensors.data(), tensors.size(), err));
  const std::vector<float> before = ComputeLogits(mapped.get, PLUMB_WEIGHTS_BF16);
  for (plumb_model* const model : {mapped.get, memory_.get}) {
    const plumb_tensor tensor = GetTensor(model, 0);
    for (int64_t e = 0; e < CountElements(tensor); ++e) tensor.data[e] *= 2;
    plumb_model_changed(model);
  }
  EXPECT_EQ(ComputeLogits(mapped.get, PLUMB_WEIGHTS_BF16),
            ComputeLogits(memory_.get, PLUMB_WEIGHTS_BF16));
  const ModelHandle again = Create(TinyModel().Text());
  EXPECT_PLUMB_OK(plumb_model_map_tensors(again.get, tensors.data(), tensors.size(), err));
  EXPECT_EQ(ComputeLogits(again.get, PLUMB_WEIGHTS_BF16), before);
}

TEST_F(MappedTensorsTest, WidenEveryF16) {
  TensorFile file = GetFile(PLUMB_DTYPE_F32, 0);
  std::vector<plumb_tensor_in_file> tensors = file.Write(scratch_.File("weights"));
  const plumb_tensor first = GetTensor(memory_.get, 0);
  const auto n = static_cast<size_t>(CountElements(first));
  // The values are normal numbers, denormals, zeros of both signs, and infinity.
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x0400,
                             0x7bff, 0x0000, 0x8000, 0x7c00};
  const float floats[] = {1, -2, 0x1p-24f, -0x1.ff8p-15f, 0x1p-14f, 65504, 0, -0.0f, HUGE_VALF};
  std::vector<uint16_t> data(n);
  for (size_t e = 0; e < n; ++e) data[e] = halves[e % 9];
  TensorFile other(0);
  other.Add(first.name, PLUMB_DTYPE_F16, data.data(), 2 * n);
  tensors[0] = other.Write(scratch_.File("halves"))[0];
  const ModelHandle mapped = Create(TinyModel().Text());
  EXPECT_PLUMB_OK(plumb_model_map_tensors(mapped.get, tensors.data(), tensors.size(), err));
  const plumb_tensor widened = GetTensor(mapped.get, 0);
  for (size_t e = 0; e < n; ++e) {
    EXPECT_EQ(std::memcmp(&widened.data[e], &floats[e % 9], sizeof(float)), 0) << e;
  }
}

TEST_F(MappedTensorsTest, ListsAllTensorsThatDoNotFit) {
  TensorFile file = GetFile(PLUMB_DTYPE_F32, 0);
  std::vector<plumb_tensor_in_file> tensors = file.Write(scratch_.File("weights"));
  tensors[0].offset = int64_t{1} << 40;
  tensors[1].name = "nothing";
  const ModelHandle mapped = Create(TinyModel().Text());
  const auto map = [&](plumb_error** e) {
    return plumb_model_map_tensors(mapped.get, tensors.data(), tensors.size(), e);
  };
  EXPECT_THAT(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, map),
      AllOf(HasSubstr("beyond the end of"), HasSubstr("missing: "), HasSubstr("surplus: nothing")));
  tensors[0].offset = -1;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, map), HasSubstr("beyond the end of"));
  tensors[0].dtype = PLUMB_DTYPE_F64;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, map), HasSubstr("there is no dtype"));
  tensors[0].path = "/nowhere";
  tensors[0].dtype = PLUMB_DTYPE_F32;
  EXPECT_THAT(Fails(PLUMB_STATUS_NOT_FOUND, map), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace plumb
