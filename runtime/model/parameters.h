// SPDX-License-Identifier: Apache-2.0
// Tensors of a model: names, shapes, initial distributions. Parameters are trained; buffers are
// statistics that norms collect in training and use in evaluation. Values; stateless functions.
//
// Names are stable, since they are keys of checkpoints and seed the random streams of initial
// values: two models draw equal values for weights that have the same name and shape.
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

// Distribution with numeric arguments.
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
  std::vector<double> table = {};  // table: the values, each repeated over as many elements
  double cut = 0;  // truncated normal: max distance from the mean, in multiples of b
  // Fill: the norm that writes the values, and the index of the tensor in NormInstance::Fill.
  std::shared_ptr<const NormInstance> norm = nullptr;
  size_t tensor = 0;

  InitSpec Scaled(double factor) const;
  // Returns "normal(0, 0.02)", "uniform(-0.25, 0.25)", "constant(1)", "table(0, 0, 1)" or
  // "fill(org.example.norm)".
  std::string ToString() const;
};

struct ParameterSpec {
  enum class Role { kWeight, kNorm, kLearned };
  std::string name;  // "layers.0.attention.q.weight"
  Shape shape;       // weights are [out, in]; weights of experts are [n_expert, out, in]
  Role role = Role::kWeight;
  InitSpec init;
  bool weight_decay = false;  // for norm parameters and learned values
  double lr_scale = 1;
  bool elementwise = false;  // convolution weight, which is no operand of a matrix product
  bool is_router = false;    // selects experts; is never int8, which could change the selection
  bool is_correction =
      false;  // balances the choice of experts; has no gradient and no update by it
  // Above 0: the first dimension counts experts, of which each token uses top_k.
  int64_t top_k = 0;

  bool is_matrix() const { return one().rank() >= 2; }
  // Returns the shape of one expert's tensor, or `shape` for other parameters. count() is the
  // number of experts, or 1.
  Shape one() const { return top_k > 0 ? Shape(shape.dims().subspan(1)) : shape; }
  int64_t count() const { return top_k > 0 ? shape[0] : 1; }
  // Returns the number of elements that one token uses.
  int64_t active_elements() const {
    return shape.num_elements() / count() * (top_k > 0 ? top_k : 1);
  }
};

// Buffer of a norm at one place of the model.
struct BufferSpec {
  std::string name;  // "layers.0.attention.norm.running_mean"
  Shape shape;
  InitSpec init;
  int64_t offset = 0;  // offset in the state, in elements
};

// All buffers of a norm at one place of the model, concatenated to one tensor f32[elements], which
// is one state of programs. Also the loads of one router.
struct NormStateSpec {
  std::string name;  // "layers.0.attention.norm.state"
  int64_t elements = 0;
  std::vector<BufferSpec> buffers;
  // Not empty: the state has no buffers but the loads of experts in a step, for the update of this
  // parameter, a router's correction. Its elements are 0 between steps.
  std::string correction;
};

// Returns 1..n_layer for a tensor of a layer ("layers.0.attention.q.weight"), 0 for others.
int64_t LayerOf(const std::string& name);

// Returns the name of the state of the norm applied at `site`: "layers.0.attention.norm".
std::string StateName(const std::string& site);

// Name of the buffer, f32[1], of models whose formulas read the training step. It holds the number
// of the last step, 0 before the first.
inline constexpr char kStepBuffer[] = "step";

struct ModelTensors {
  std::vector<ParameterSpec> parameters;
  std::vector<NormStateSpec> states;  // states of cross-row norms
};

// Lists everything that a checkpoint of the model contains, in the order of the data. Errors: an
// init rule that matches nothing or cannot be evaluated, a norm that rejects its dimension, two
// tensors with the same name.
absl::StatusOr<ModelTensors> ListTensors(const ResolvedModel& model);
// Returns only the parameters of ListTensors.
absl::StatusOr<std::vector<ParameterSpec>> ListParameters(const ResolvedModel& model);

// Writes initial values to `out` (shape.num_elements() floats), drawn from the random stream of
// (seed, name). Errors: those of a norm that writes its own initial values.
absl::Status DrawInitialValues(const ParameterSpec& parameter, uint64_t seed, int threads,
                               float* out);
// Writes only the elements in `range` to `out` (range.end - range.begin floats).
absl::Status DrawInitialValues(const ParameterSpec& parameter, Range range, uint64_t seed,
                               int threads, float* out);
absl::Status DrawInitialValues(const BufferSpec& buffer, uint64_t seed, int threads, float* out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_PARAMETERS_H_
