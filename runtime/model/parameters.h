// The trainable tensors of a model: names, shapes, how they are drawn. Pure; values.
//
// Names are stable: they are the keys of checkpoints, and of the random streams that draw initial
// values, so that two models draw the same values for the weights that they share.
#ifndef PLUMB_RUNTIME_MODEL_PARAMETERS_H_
#define PLUMB_RUNTIME_MODEL_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_type.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// One distribution with numbers for its arguments.
struct InitSpec {
  enum class Kind { kConstant, kNormal, kUniform } kind = Kind::kConstant;
  double a = 0;  // constant: the value; normal: mean; uniform: low
  double b = 0;  // normal: standard deviation; uniform: high

  InitSpec Scaled(double factor) const { return {kind, a * factor, b * factor}; }
  std::string ToString() const;  // "normal(0, 0.02)", "uniform(-0.25, 0.25)", "constant(1)"
};

struct ParameterSpec {
  enum class Role { kWeight, kNorm, kLearned };
  std::string name;  // "layers.0.attention.q.weight"
  Shape shape;       // weights are [out, in]
  Role role = Role::kWeight;
  InitSpec init;
  bool asks_for_decay = false;  // norms and learned values: whether weight decay is wanted
  double lr_scale = 1;

  bool is_matrix() const { return shape.rank() >= 2; }
};

// All parameters, in the order of the data. Errors: an init rule that matches nothing or cannot be
// evaluated, a norm that refuses its dimension.
absl::StatusOr<std::vector<ParameterSpec>> ListParameters(const ResolvedModel& model);

// Fills `out` (shape.num_elements() floats) from the stream of (seed, name).
void DrawInitialValues(const ParameterSpec& parameter, uint64_t seed, int threads, float* out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_PARAMETERS_H_
