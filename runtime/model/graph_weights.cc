// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/graph_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {

GraphWeights::GraphWeights(GraphBuilder* builder, const std::vector<ParameterSpec>& parameters,
                           WeightFormat format, const SharedLayers& shared)
    : b_(*builder), format_(format), shared_(shared) {
  for (const ParameterSpec& parameter : parameters) {
    const DType dtype = StoredDType(parameter, format);
    if (dtype != DType::kI8) {
      parameters_[parameter.name] = b_.Parameter(parameter.name, {dtype, parameter.shape});
      continue;
    }
    const std::string scales = ScalesName(parameter.name);
    parameters_[parameter.name] = b_.Parameter(parameter.name, Int8Elements(parameter.shape));
    parameters_[scales] = b_.Parameter(scales, Int8Scales(parameter.shape));
    int8_shapes_[parameter.name] = parameter.shape;
  }
}

// A name that is not declared refers to the parameter of the first layer that shares it.
std::string GraphWeights::GetName(const std::string& name) const {
  return parameters_.count(name) > 0 ? name : shared_.GetName(name, /*is_weight=*/true);
}

ValueId GraphWeights::Param(const std::string& name) const {
  const auto it = parameters_.find(GetName(name));
  if (it != parameters_.end()) return it->second;
  b_.Fail(absl::InternalError(absl::StrCat("no parameter ", name)));
  return kNoValue;
}

ValueId GraphWeights::Matmul(ValueId x, const std::string& weight, ValueId bias,
                             absl::string_view name, bool f32_out) const {
  const auto int8 = int8_shapes_.find(GetName(weight));
  std::vector<ValueId> inputs = {x, Param(weight)};
  if (int8 != int8_shapes_.end()) inputs.push_back(Param(ScalesName(weight)));
  if (bias != kNoValue) inputs.push_back(bias);
  if (int8 != int8_shapes_.end()) {
    const std::vector<double> rows = {static_cast<double>(int8->second.rows())};
    return b_.Apply("matmul_int8", std::move(inputs), {{"rows", rows}}, name);
  }
  Attrs attrs = {{"transpose_b", true}};
  if (f32_out && format_ == WeightFormat::kBf16) attrs.Set("f32_out", true);
  return b_.Apply("matmul", std::move(inputs), std::move(attrs), name);
}

ValueId GraphWeights::Linear(const std::string& name, ValueId x, bool bias) const {
  return Matmul(x, absl::StrCat(name, ".weight"),
                bias ? Param(absl::StrCat(name, ".bias")) : kNoValue, name);
}

ValueId GraphWeights::ExpertLinear(const std::string& name, ValueId x, ValueId starts,
                                   bool bias) const {
  const std::string weight = absl::StrCat(name, ".weight");
  const auto int8 = int8_shapes_.find(GetName(weight));
  std::vector<ValueId> inputs = {x, Param(weight), starts};
  if (int8 != int8_shapes_.end()) inputs.push_back(Param(ScalesName(weight)));
  if (bias) inputs.push_back(Param(absl::StrCat(name, ".bias")));
  if (int8 != int8_shapes_.end()) {
    return b_.Apply("expert_matmul_int8", std::move(inputs), {{"rows", int8->second[1]}}, name);
  }
  return b_.Apply("expert_matmul", std::move(inputs), {{"transpose_b", true}}, name);
}

ValueId GraphWeights::Embedding(const std::string& name, ValueId ids, bool f32_out,
                                int64_t offset) const {
  const std::string table = absl::StrCat(name, ".weight");
  const auto int8 = int8_shapes_.find(table);
  Attrs attrs;
  if (offset > 0) attrs.Set("offset", offset);
  if (int8 == int8_shapes_.end()) {
    if (f32_out && format_ == WeightFormat::kBf16) attrs.Set("f32_out", true);
    return b_.Apply("embedding", {Param(table), ids}, std::move(attrs), name);
  }
  const Shape& shape = int8->second;
  attrs.Set("rows", shape.rows());
  attrs.Set("width", shape.last());
  return b_.Apply("embedding_int8", {Param(table), Param(ScalesName(table)), ids}, std::move(attrs),
                  name);
}

}  // namespace plumb
