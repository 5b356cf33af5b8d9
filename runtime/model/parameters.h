// SPDX-License-Identifier: Apache-2.0
// Tensors of a model: names, shapes, initial distributions. Parameters are trained; buffers are
// statistics that norms collect in training and use in evaluation. Values; stateless functions.
//
// Names are stable, since they are keys of checkpoints and seed the random streams of initial
// values: two models draw equal values for weights that have the same name and shape.
#ifndef PLUMB_RUNTIME_MODEL_PARAMETERS_H_
#define PLUMB_RUNTIME_MODEL_PARAMETERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"
#include "runtime/model/init_rules.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

struct ParameterSpec {
  enum class Role { kWeight, kNorm, kLearned };
  std::string name;  // "layers.0.attention.q.weight"
  Shape shape;       // weights are [out, in]; weights of experts are [n_expert, out, in]
  Role role = Role::kWeight;
  InitSpec init;
  std::optional<Fans> fans = std::nullopt;  // of a weight, and of its bias
  // True or false as a norm or a learned value asks for. Empty: the recipe decides.
  std::optional<bool> weight_decay = std::nullopt;
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

// Storage format of weight matrices, which decides the type that programs compute in. With kBf16
// everything is bf16 except statistics, log-sum-exps, the loss, the "logits" output and gradients
// of parameters. Vectors (biases, norm parameters, learned values) and convolution weights are
// always f32.
//
// kInt8 (programs kEval and kCached of build.h only): a matrix is an i8 parameter of its name plus
// an f32 parameter with its scales, in tiles (runtime/kernels/gemv/quantize.h). All computation is
// f32. The router of experts stays f32.
enum class WeightFormat { kF32, kBf16, kInt8 };

// Returns the element type of the parameter in a program.
DType StoredDType(const ParameterSpec& parameter, WeightFormat weights);

// Returns the name of the parameter that holds the scales of the int8 matrix `matrix`.
std::string ScalesName(const std::string& matrix);

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
int64_t GetLayer(const std::string& name);

// Returns the name of the state of the norm applied at `site`: "layers.0.attention.norm".
std::string StateName(const std::string& site);

// Name of the buffer, f32[1], of models whose formulas read the training step. It holds the number
// of the last step, 0 before the first.
inline constexpr char kStepBuffer[] = "step";

// Parameter names of layers that share parameters. A shared parameter has the name of the first
// layer that uses it; graph values, caches and norm statistics belong to each layer. `model` must
// outlive this object, which is immutable.
class SharedLayers {
 public:
  explicit SharedLayers(const ResolvedModel& model) : model_(model) {}

  // Returns the stored name of a parameter that would be `name` without sharing:
  // "layers.0.attention.q.weight" for "layers.3.attention.q.weight". With own_norms, a layer shares
  // only weights: pass is_weight = false for norm parameters and learned values.
  std::string GetName(const std::string& name, bool is_weight) const;

 private:
  const ResolvedModel& model_;
};

struct ModelTensors {
  std::vector<ParameterSpec> parameters;
  std::vector<NormStateSpec> states;  // states of cross-row norms
};

// Lists everything that a checkpoint of the model contains, in the order of the data. Errors: an
// init rule that matches nothing or cannot be evaluated, a norm that rejects its dimension, two
// tensors with the same name.
absl::StatusOr<ModelTensors> ListTensors(const ResolvedModel& model);

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
