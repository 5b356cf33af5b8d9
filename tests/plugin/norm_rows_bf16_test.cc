// SPDX-License-Identifier: Apache-2.0
// Tests that bf16 rows of norms that use plumb/norm_rows.h equal their f32 rows, rounded once at
// the end, bit for bit on every instruction set, and also for numbers that are not normal.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/file.h"
#include "runtime/plugin/registry.h"

namespace plumb {
namespace {

constexpr int64_t kBf16Rows = 5;

struct Operands {
  std::vector<plumb_bf16> x, dy;
  std::vector<float> params;  // all parameters are the same
};

// Returns standard normal operands, scaled. The first and the last x of row 2 are `odd`.
Operands MakeOperands(int64_t dim, float scale_params, float scale_dy, float odd) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Operands operands;
  for (int64_t i = 0; i < kBf16Rows * dim; ++i) {
    operands.x.push_back(plumb_bf16_from_float(normal(random)));
    operands.dy.push_back(plumb_bf16_from_float(scale_dy * normal(random)));
  }
  for (int64_t i = 0; i < dim; ++i) operands.params.push_back(scale_params * normal(random));
  for (const int64_t i : {int64_t{0}, dim - 1}) {
    operands.x[static_cast<size_t>(2 * dim + i)] = plumb_bf16_from_float(odd);
  }
  return operands;
}

template <class T>
struct Results {
  std::vector<T> y, dx;
  std::vector<float> dparams;
};

template <class T>
Results<T> RunNorm(const NormInstance& norm, const Operands& operands, uint32_t dtype,
                   const std::vector<T>& x, const std::vector<T>& dy) {
  Results<T> results{std::vector<T>(x.size()), std::vector<T>(x.size()), {}};
  const auto dim = static_cast<size_t>(norm.dim());
  const size_t count = norm.params().size();
  std::vector<float> saved(static_cast<size_t>(kBf16Rows * norm.saved_per_row()));
  results.dparams.assign(count * dim, 0);
  std::vector<const void*> params(count, operands.params.data());
  std::vector<void*> dparams;
  for (size_t i = 0; i < count; ++i) dparams.push_back(results.dparams.data() + i * dim);
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  call.flags = PLUMB_CALL_TRAIN;
  call.dtype = dtype;
  call.dim = static_cast<uint32_t>(dim);
  call.rows = kBf16Rows;
  call.x = x.data();
  call.y = results.y.data();
  call.x_pitch = call.y_pitch = call.dy_pitch = call.dx_pitch =
      static_cast<int64_t>(dim * sizeof(T));
  call.params = params.data();
  call.saved = saved.data();
  call.saved_pitch = norm.saved_per_row() * static_cast<int64_t>(sizeof(float));
  EXPECT_TRUE(norm.Forward(call, 0, kBf16Rows).ok());
  call.y = nullptr;
  call.dy = dy.data();
  call.dx = results.dx.data();
  call.dparams = dparams.data();
  EXPECT_TRUE(norm.Backward(call, 0, kBf16Rows).ok());
  return results;
}

std::vector<float> Widened(const std::vector<plumb_bf16>& values) {
  std::vector<float> wide;
  for (const plumb_bf16 v : values) wide.push_back(plumb_bf16_to_float(v));
  return wide;
}

// Compares bits but treats all NaNs as equal: the processor chooses which of two becomes the
// result.
bool SameBits(plumb_bf16 a, plumb_bf16 b) {
  const auto is_nan = [](plumb_bf16 v) { return (v & 0x7fff) > 0x7f80; };
  return is_nan(a) ? is_nan(b) : a == b;
}

class NormRowsBf16Test : public ::testing::TestWithParam<int> {};

TEST_P(NormRowsBf16Test, AreF32RowsRounded) {
  PluginRegistry registry;
  const std::string directory = GetParam() == 3 ? std::string(PLUMB_TEST_PLUGIN_DIR)
                                                : absl::StrCat(PLUMB_LEVELS_DIR "/", GetParam());
  int64_t denormals = 0, nans = 0;
  for (const char* id : {"layer_norm", "rms_norm"}) {
    ASSERT_TRUE(registry.LoadFile(JoinPath(directory, absl::StrCat(id, ".so"))).ok());
    const NormPlugin* plugin = registry.Loaded().back();
    ASSERT_EQ(plugin->id(), id);
    for (const int64_t dim : {1, 15, 16, 32, 33, 64, 100, 768}) {
      const float nan = std::numeric_limits<float>::quiet_NaN(), tiny = 1e-38f;
      for (const Operands& operands : {MakeOperands(dim, 1, 1, 0), MakeOperands(dim, tiny, 1, 1),
                                       MakeOperands(dim, 1, tiny, 1), MakeOperands(dim, 1, 1, nan),
                                       MakeOperands(dim, 1e38f, 1, 1)}) {
        const auto norm = plugin->Instantiate(dim, {}).value();
        const auto narrow = RunNorm(*norm, operands, PLUMB_DTYPE_BF16, operands.x, operands.dy);
        const auto wide =
            RunNorm(*norm, operands, PLUMB_DTYPE_F32, Widened(operands.x), Widened(operands.dy));
        for (size_t i = 0; i < narrow.y.size(); ++i) {
          const plumb_bf16 y = plumb_bf16_from_float(wide.y[i]);
          const plumb_bf16 dx = plumb_bf16_from_float(wide.dx[i]);
          EXPECT_TRUE(SameBits(narrow.y[i], y)) << id << " dim " << dim << " y of element " << i;
          EXPECT_TRUE(SameBits(narrow.dx[i], dx)) << id << " dim " << dim << " dx of element " << i;
          denormals += (y & 0x7f80) == 0 && (y & 0x7f) != 0;
          nans += (y & 0x7fff) > 0x7f80;
        }
      }
    }
  }
  EXPECT_GT(denormals, 1000);
  EXPECT_GT(nans, 1000);
}

INSTANTIATE_TEST_SUITE_P(Levels, NormRowsBf16Test, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace plumb
