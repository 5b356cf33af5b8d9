// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/reverse_pass.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/op.h"

namespace plumb {
namespace {

constexpr int32_t kNoNode = std::numeric_limits<int32_t>::max();

bool AnyOf(const std::vector<ValueId>& ids, const std::vector<bool>& flags) {
  return std::any_of(ids.begin(), ids.end(),
                     [&](ValueId id) { return id != kNoValue && flags[Index(id)]; });
}

}  // namespace

ReversePass::ReversePass(const Graph& forward, std::vector<bool> wanted, GraphBuilder* builder)
    : forward_(forward),
      wanted_(std::move(wanted)),
      builder_(*builder),
      on_path_(forward.values.size(), false),
      first_reader_(forward.values.size(), kNoNode),
      parts_(forward.values.size()),
      total_(forward.values.size(), kNoValue) {}

absl::Status ReversePass::Run(const std::vector<Seed>& seeds) {
  FindPaths(seeds);
  for (const Seed& seed : seeds) {
    if (on_path_[Index(seed.value)]) parts_[Index(seed.value)].push_back(seed.gradient);
  }
  for (size_t i = forward_.nodes.size(); i-- > 0;) {
    PLUMB_RETURN_IF_ERROR(
        Annotate(Backward(forward_.nodes[i], static_cast<int32_t>(i)),
                 absl::StrCat("gradient of ", ToString(forward_, forward_.nodes[i]), ": ")));
  }
  for (size_t id = 0; id < forward_.values.size(); ++id) SumParts(static_cast<ValueId>(id));
  return absl::OkStatus();
}

// A value needs a gradient if it depends on a wanted leaf and a seed depends on it.
void ReversePass::FindPaths(const std::vector<Seed>& seeds) {
  const size_t n = forward_.values.size();
  std::vector<bool> from_leaf = wanted_, to_seed(n, false);
  for (const Node& node : forward_.nodes) {
    if (!AnyOf(node.inputs, from_leaf)) continue;
    for (const ValueId id : node.outputs) {
      from_leaf[Index(id)] = IsFloating(forward_.value(id).type.dtype);
    }
  }
  for (const Seed& seed : seeds) to_seed[Index(seed.value)] = true;
  for (size_t i = forward_.nodes.size(); i-- > 0;) {
    const Node& node = forward_.nodes[i];
    if (!AnyOf(node.outputs, to_seed)) continue;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) to_seed[Index(id)] = true;
    }
  }
  for (size_t id = 0; id < n; ++id) on_path_[id] = from_leaf[id] && to_seed[id];
  for (size_t i = forward_.nodes.size(); i-- > 0;) {
    const Node& node = forward_.nodes[i];
    if (!AnyOf(node.outputs, on_path_)) continue;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) first_reader_[Index(id)] = static_cast<int32_t>(i);
    }
  }
}

absl::Status ReversePass::Backward(const Node& node, int32_t index) {
  std::vector<ValueId> d_outputs;
  bool reached = false;
  for (const ValueId id : node.outputs) {
    SumParts(id);  // an output that only seeds reach is not summed yet
    d_outputs.push_back(total_[Index(id)]);
    reached = reached || total_[Index(id)] != kNoValue;
  }
  std::vector<bool> wanted;
  bool any_wanted = false;
  for (const ValueId id : node.inputs) {
    wanted.push_back(id != kNoValue && on_path_[Index(id)]);
    any_wanted = any_wanted || wanted.back();
  }
  if (!reached || !any_wanted) return absl::OkStatus();
  if (node.op->vjp == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the op ", node.op->name, " cannot be differentiated"));
  }
  const std::vector<ValueId> d_inputs = node.op->vjp(builder_, node, d_outputs, wanted);
  PLUMB_RETURN_IF_ERROR(builder_.status());
  if (d_inputs.size() != node.inputs.size()) {
    return absl::InternalError(absl::StrCat("its VJP gave ", d_inputs.size(), " gradients for ",
                                            node.inputs.size(), " inputs"));
  }
  for (size_t i = 0; i < d_inputs.size(); ++i) {
    if (!wanted[i] || d_inputs[i] == kNoValue) continue;
    const TensorType type = GradientType(forward_.value(node.inputs[i]));
    if (builder_.type(d_inputs[i]) != type) {
      return absl::InternalError(absl::StrCat("its VJP gave ",
                                              builder_.type(d_inputs[i]).ToString(), " for input ",
                                              i, ", whose gradient is ", type.ToString()));
    }
    parts_[Index(node.inputs[i])].push_back(d_inputs[i]);
  }
  // Sums as soon as the last part is computed, so that the parts can be freed.
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && first_reader_[Index(id)] == index) SumParts(id);
  }
  return absl::OkStatus();
}

void ReversePass::SumParts(ValueId id) {
  std::vector<ValueId>& parts = parts_[Index(id)];
  if (total_[Index(id)] != kNoValue || parts.empty()) return;
  total_[Index(id)] =
      parts.size() == 1
          ? parts[0]
          : builder_.Apply(
                "combine", parts,
                Attrs({{"coefs", std::vector<double>(parts.size(), 1.0)}, {"constant", 0.0}}));
}

}  // namespace plumb
