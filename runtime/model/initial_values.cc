// SPDX-License-Identifier: Apache-2.0
// DrawInitialValues (parameters.h).
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/parallel.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/uniform_draws.h"
#include "runtime/model/parameters.h"

namespace plumb {
namespace {

// Normal draws limited to [-cut, cut], with cut >= 1: draw i of the first stream in which it is
// within the limit. The first stream is the one of normal initial values.
class TruncatedNormals {
 public:
  TruncatedNormals(double cut, uint64_t seed, const std::string& name) : cut_(cut) {
    for (uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
      streams_.emplace_back(seed, absl::StrCat("init ", name), attempt);
    }
  }
  double Draw(uint64_t i) const {
    for (const RngStream& stream : streams_) {
      const double value = stream.Normal(i);
      if (std::fabs(value) <= cut_) return value;
    }
    return 0;
  }

 private:
  static constexpr uint64_t kAttempts = 64;  // all attempts miss once in 1e31 draws
  const double cut_;
  std::vector<RngStream> streams_;
};

// Writes elements `part` of the tensor that the norm fills as a whole.
absl::Status Fill(const std::string& name, int64_t elements, Range part, const InitSpec& init,
                  uint64_t seed, float* out) {
  const uint64_t own_seed = RngStream(seed, absl::StrCat("fill ", name)).Bits(0);
  std::vector<float> values(static_cast<size_t>(elements));
  PLUMB_RETURN_IF_ERROR(
      Annotate(init.norm->Fill(init.tensor, own_seed, elements, values.data()), name + ": "));
  for (int64_t i = part.begin; i < part.end; ++i) {
    out[i - part.begin] =
        static_cast<float>(init.a * static_cast<double>(values[static_cast<size_t>(i)]));
  }
  return absl::OkStatus();
}

// Writes the elements from `begin` on.
void DrawUniform(const RngStream& stream, const InitSpec& init, int64_t begin,
                 absl::Span<float> out) {
  constexpr size_t kTogether = 256;
  double draws[kTogether];
  for (size_t at = 0; at < out.size(); at += kTogether) {
    const size_t n = std::min(kTogether, out.size() - at);
    DrawUniforms(stream, static_cast<uint64_t>(begin) + at, static_cast<int64_t>(n), draws);
    for (size_t i = 0; i < n; ++i) {
      out[at + i] = static_cast<float>(init.a + (init.b - init.a) * draws[i]);
    }
  }
}

// Writes elements `part` of the tensor `name`, which has `elements` elements.
absl::Status Draw(const std::string& name, int64_t elements, Range part, const InitSpec& init,
                  uint64_t seed, int threads, float* out) {
  constexpr int64_t kCostOfADraw = 64;  // in scalar operations, roughly
  const int64_t n = part.end - part.begin;
  if (init.kind == InitSpec::Kind::kFill) return Fill(name, elements, part, init, seed, out);
  if (init.kind == InitSpec::Kind::kConstant) {
    std::fill_n(out, n, static_cast<float>(init.a));
    return absl::OkStatus();
  }
  if (init.kind == InitSpec::Kind::kTable) {
    const int64_t width = elements / static_cast<int64_t>(init.table.size());
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<float>(init.table[static_cast<size_t>((part.begin + i) / width)]);
    }
    return absl::OkStatus();
  }
  // Each draw is a function of its index, so the result does not depend on the number of tasks.
  const RngStream stream(seed, absl::StrCat("init ", name));
  std::optional<TruncatedNormals> truncated;
  if (init.kind == InitSpec::Kind::kTruncatedNormal) truncated.emplace(init.cut, seed, name);
  const int64_t tasks = TaskCount(n, n * kCostOfADraw);
  ParallelFor(tasks, threads, [&](int64_t task) {
    const Range range = TaskRange(n, tasks, task);
    if (init.kind == InitSpec::Kind::kUniform) {
      DrawUniform(stream, init, part.begin + range.begin,
                  absl::MakeSpan(out + range.begin, static_cast<size_t>(range.end - range.begin)));
      return;
    }
    for (int64_t i = range.begin; i < range.end; ++i) {
      const uint64_t index = static_cast<uint64_t>(part.begin + i);
      const double draw = truncated.has_value() ? truncated->Draw(index) : stream.Normal(index);
      out[i] = static_cast<float>(init.a + init.b * draw);
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status DrawInitialValues(const ParameterSpec& parameter, uint64_t seed, int threads,
                               float* out) {
  return DrawInitialValues(parameter, {0, parameter.shape.num_elements()}, seed, threads, out);
}

absl::Status DrawInitialValues(const ParameterSpec& parameter, Range range, uint64_t seed,
                               int threads, float* out) {
  return Draw(parameter.name, parameter.shape.num_elements(), range, parameter.init, seed, threads,
              out);
}

absl::Status DrawInitialValues(const BufferSpec& buffer, uint64_t seed, int threads, float* out) {
  return Draw(buffer.name, buffer.shape.num_elements(), {0, buffer.shape.num_elements()},
              buffer.init, seed, threads, out);
}

}  // namespace plumb
