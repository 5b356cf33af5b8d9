// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

TensorType WithLast(const TensorType& type, int64_t last) {
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims.back() = last;
  return {type.dtype, Shape(dims)};
}

// concat

absl::StatusOr<std::vector<TensorType>> InferConcat(const OpTypes& types) {
  int64_t width = 0;
  for (size_t i = 0; i < types.inputs.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, absl::StrCat("part ", i)));
    if (WithLast(types.in(i), 1) != WithLast(types.in(0), 1)) {
      return absl::InvalidArgumentError(absl::StrCat("part ", i, " is ", types.in(i).ToString(),
                                                     ", must have the rows of ",
                                                     types.in(0).ToString()));
    }
    width += types.in(i).shape.last();
  }
  if (!types.attrs.Has("dims")) return std::vector<TensorType>{WithLast(types.in(0), width)};
  std::vector<int64_t> dims;
  for (const double dim : types.attrs.GetDoubles("dims")) dims.push_back(static_cast<int64_t>(dim));
  const Shape shape(dims);
  if (types.in(0).shape.rank() != 1 || shape.num_elements() != width) {
    return absl::InvalidArgumentError("only vectors can become a tensor of other dimensions");
  }
  return std::vector<TensorType>{{types.in(0).dtype, shape}};
}

// y = [x_1, .., x_n], so dL/dx_i is part i of dL/dy.
std::vector<ValueId> VjpConcat(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  std::vector<double> widths;
  for (const ValueId id : node.inputs) {
    widths.push_back(static_cast<double>(b.type(id).shape.last()));
  }
  return b.ApplyAll("split", {d_outputs[0]},
                    Attrs({{"widths", widths}, {"flat", node.attrs.Has("dims")}}));
}

absl::Status ReferenceConcat(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows();
  size_t e = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const int64_t width = args.shape(i).last();
      for (int64_t j = 0; j < width; ++j) {
        args.out(0)[e++] = args.f(i)[static_cast<size_t>(row * width + j)];
      }
    }
  }
  return absl::OkStatus();
}

// split

bool IsFlat(const Attrs& attrs) { return attrs.GetBool("flat", false); }

absl::StatusOr<std::vector<TensorType>> InferSplit(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  const TensorType& x = types.in(0);
  const int64_t whole = IsFlat(types.attrs) ? x.num_elements() : x.shape.last();
  std::vector<TensorType> parts;
  int64_t total = 0;
  for (const double width : types.attrs.GetDoubles("widths")) {
    const int64_t part = static_cast<int64_t>(width);
    if (part < 1) return absl::InvalidArgumentError("a part needs a channel");
    parts.push_back(IsFlat(types.attrs) ? TensorType{x.dtype, Shape({part})} : WithLast(x, part));
    total += part;
  }
  if (total == whole) return parts;
  return absl::InvalidArgumentError(
      absl::StrCat("the parts have ", total, " channels together, not ", whole));
}

// x = [y_1, .., y_n], so dL/dx = [dL/dy_1, .., dL/dy_n], with 0 for parts that the loss does not
// use.
std::vector<ValueId> VjpSplit(GraphBuilder& b, const Node& node,
                              absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  std::vector<ValueId> parts(d_outputs.begin(), d_outputs.end());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != kNoValue) continue;
    const TensorType type = b.type(node.outputs[i]);
    const auto dims = type.shape.dims();
    parts[i] = b.Apply("fill", {},
                       Attrs({{"dims", std::vector<double>(dims.begin(), dims.end())},
                              {"value", 0.0},
                              {"bf16", type.dtype == DType::kBF16}}));
  }
  Attrs attrs;
  if (IsFlat(node.attrs)) {
    const auto dims = b.type(node.inputs[0]).shape.dims();
    attrs.Set("dims", std::vector<double>(dims.begin(), dims.end()));
  }
  return {b.Apply("concat", std::move(parts), std::move(attrs))};
}

absl::Status ReferenceSplit(const ReferenceArgs& args) {
  const std::vector<double>& widths = args.attrs.GetDoubles("widths");
  const int64_t rows = IsFlat(args.attrs) ? 1 : args.shape(0).rows();
  size_t e = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < widths.size(); ++i) {
      const int64_t width = static_cast<int64_t>(widths[i]);
      for (int64_t j = 0; j < width; ++j) {
        args.out(i)[static_cast<size_t>(row * width + j)] = args.f(0)[e++];
      }
    }
  }
  return absl::OkStatus();
}

// stop

absl::StatusOr<std::vector<TensorType>> InferStop(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  return std::vector<TensorType>{types.in(0)};
}

std::vector<ValueId> VjpStop(GraphBuilder&, const Node&, absl::Span<const ValueId>,
                             const std::vector<bool>&) {
  return {kNoValue};
}

absl::Status ReferenceStop(const ReferenceArgs& args) {
  args.out(0) = args.f(0);
  return absl::OkStatus();
}

}  // namespace

void RegisterConcat(OpRegistry* registry) {
  OpDef concat;
  concat.name = "concat";
  concat.min_inputs = 1;
  concat.max_inputs = OpDef::kVariadic;
  concat.infer = InferConcat;
  concat.vjp = VjpConcat;
  concat.make_kernel = ProgramKernelFactory("concat");
  concat.reference = ReferenceConcat;
  concat.token_wise = InputsWithRows;
  registry->Add(std::move(concat));

  OpDef split;
  split.name = "split";
  split.min_inputs = split.max_inputs = 1;
  split.infer = InferSplit;
  split.vjp = VjpSplit;
  split.make_kernel = ProgramKernelFactory("split");
  split.reference = ReferenceSplit;
  split.token_wise = [](const OpTypes& types) {
    return IsFlat(types.attrs) ? std::vector<size_t>() : InputsWithRows(types);
  };
  registry->Add(std::move(split));

  OpDef stop;
  stop.name = "stop";
  stop.min_inputs = stop.max_inputs = 1;
  stop.infer = InferStop;
  stop.vjp = VjpStop;
  stop.make_kernel = ProgramKernelFactory("stop");
  stop.reference = ReferenceStop;
  stop.token_wise = InputsWithRows;
  registry->Add(std::move(stop));
}

}  // namespace plumb
