// SPDX-License-Identifier: Apache-2.0
// The tensors of a model: names, shapes, how they are drawn. Parameters are trained; buffers are
// statistics that norms keep from training for evaluation. Pure; values.
//
// Names are stable: they are the keys of checkpoints, and of the random streams that draw initial
// values, so that two models draw the same values for the weights that they share.
#ifndef PLUMB_RUNTIME_MODEL_PARAMETERS_H_
#define PLUMB_RUNTIME_MODEL_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// One distribution with numbers for its arguments.
struct InitSpec {
  enum class Kind {
    kConstant,
    kNormal,
    kUniform,
    kTruncatedNormal,
    kTable,
    kFill
  } kind = Kind::kConstant;
  double a = 0;  // constant: the value; normal: mean; uniform: low; fill: a factor
  double b = 0;  // normal: standard deviation; uniform: high
  std::vector<double> table = {};  // table: one value after the other, each of as many elements
  double cut = 0;  // truncated normal: no value is further from the mean than cut * b
  // Fill: the norm that writes the values, and which of its tensors it is (NormInstance::Fill).
  std::shared_ptr<const NormInstance> norm = nullptr;
  size_t tensor = 0;

  InitSpec Scaled(double factor) const;
  // "normal(0, 0.02)", "uniform(-0.25, 0.25)", "constant(1)", "table(0, 0, 1)",
  // "fill(org.example.norm)"
  std::string ToString() const;
};

struct ParameterSpec {
  enum class Role { kWeight, kNorm, kLearned };
  std::string name;  // "layers.0.attention.q.weight"
  Shape shape;       // weights are [out, in], those of experts [n_expert, out, in]
  Role role = Role::kWeight;
  InitSpec init;
  bool weight_decay = false;  // of norms' parameters and learned values
  double lr_scale = 1;
  bool elementwise = false;  // a weight of a convolution, no operand of matrix products
  bool is_router = false;    // chooses experts; in int8 it would choose others: it stays f32 there
  // Above 0: the first dimension counts experts, and a token takes so many of them.
  int64_t top_k = 0;

  bool is_matrix() const { return one().rank() >= 2; }
  // The shape of one expert's tensor, and of other parameters their own; how many there are.
  Shape one() const { return top_k > 0 ? Shape(shape.dims().subspan(1)) : shape; }
  int64_t count() const { return top_k > 0 ? shape[0] : 1; }
  // The elements that one token uses.
  int64_t active_elements() const {
    return shape.num_elements() / count() * (top_k > 0 ? top_k : 1);
  }
};

// One buffer of a norm at one place of the model.
struct BufferSpec {
  std::string name;  // "layers.0.attention.norm.running_mean"
  Shape shape;
  InitSpec init;
  int64_t offset = 0;  // into its state, in elements
};

// All buffers of a norm at one place, side by side in one tensor f32[elements]: programs see them
// as one state.
struct NormStateSpec {
  std::string name;  // "layers.0.attention.norm.state"
  int64_t elements = 0;
  std::vector<BufferSpec> buffers;
};

// 1..n_layer for a tensor of a layer, "layers.0.attention.q.weight"; 0 for others.
int64_t LayerOf(const std::string& name);

// The name of the state of the norm that is applied at `site`: "layers.0.attention.norm".
std::string StateName(const std::string& site);

// The buffer, f32[1], of a model whose formulas read the training step: the number of the last one,
// 0 before the first.
inline constexpr char kStepBuffer[] = "step";

struct ModelTensors {
  std::vector<ParameterSpec> parameters;
  std::vector<NormStateSpec> states;  // of cross-row norms
};

// Everything that a checkpoint of the model keeps, in the order of the data. Errors: an init rule
// that matches nothing or cannot be evaluated, a norm that refuses its dimension, two tensors of
// one name.
absl::StatusOr<ModelTensors> ListTensors(const ResolvedModel& model);
// Its parameters alone.
absl::StatusOr<std::vector<ParameterSpec>> ListParameters(const ResolvedModel& model);

// Fills `out` (shape.num_elements() floats) from the stream of (seed, name). Errors: of a norm that
// writes its values itself.
absl::Status DrawInitialValues(const ParameterSpec& parameter, uint64_t seed, int threads,
                               float* out);
// The elements of `range` alone, into range.end - range.begin floats.
absl::Status DrawInitialValues(const ParameterSpec& parameter, Range range, uint64_t seed,
                               int threads, float* out);
absl::Status DrawInitialValues(const BufferSpec& buffer, uint64_t seed, int threads, float* out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_PARAMETERS_H_
