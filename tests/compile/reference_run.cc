// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/reference_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

absl::Status CheckFeed(const Value& value, const ReferenceTensor& feed) {
  if (feed.type != value.type) {
    return absl::InvalidArgumentError(absl::StrCat(
        "feed ", value.name, " is ", feed.type.ToString(), ", needs ", value.type.ToString()));
  }
  const size_t elements = IsFloating(feed.type.dtype) ? feed.f.size() : feed.i.size();
  if (elements != static_cast<size_t>(value.type.num_elements())) {
    return absl::InvalidArgumentError(absl::StrCat("feed ", value.name, " has ", elements,
                                                   " elements, needs ", value.type.num_elements()));
  }
  return absl::OkStatus();
}

ReferenceTensor Zeros(const TensorType& type) {
  ReferenceTensor tensor;
  tensor.type = type;
  const size_t elements = static_cast<size_t>(type.num_elements());
  if (IsFloating(type.dtype)) {
    tensor.f.assign(elements, 0.0);
  } else {
    tensor.i.assign(elements, 0);
  }
  return tensor;
}

}  // namespace

absl::StatusOr<ReferenceTensors> ReferenceRun(const Graph& graph, const ReferenceTensors& feeds) {
  PLUMB_RETURN_IF_ERROR(Verify(graph));
  std::vector<ReferenceTensor> tensors(graph.values.size());
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.kind == ValueKind::kComputed) continue;
    const auto feed = feeds.find(value.name);
    if (feed == feeds.end()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no feed for ", value.name));
    }
    PLUMB_RETURN_IF_ERROR(CheckFeed(value, feed->second));
    tensors[id] = feed->second;
  }

  for (const Node& node : graph.nodes) {
    std::vector<const ReferenceTensor*> inputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? nullptr : &tensors[Index(id)]);
    }
    std::vector<ReferenceTensor*> outputs;
    for (const ValueId id : node.outputs) {
      tensors[Index(id)] = Zeros(graph.value(id).type);
      outputs.push_back(&tensors[Index(id)]);
    }
    for (const auto& [out, in] : node.op->updates) {
      *outputs[static_cast<size_t>(out)] = *inputs[static_cast<size_t>(in)];
    }
    PLUMB_RETURN_IF_ERROR(Annotate(node.op->reference(ReferenceArgs{inputs, outputs, node.attrs}),
                                   absl::StrCat(ToString(graph, node), ": ")));
  }

  ReferenceTensors results;
  const std::vector<ValueId> state = StateOfValues(graph);
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].kind == ValueKind::kComputed && state[id] != kNoValue) {
      results[graph.value(state[id]).name] = tensors[id];  // the last version is the final state
    }
  }
  for (const GraphOutput& output : graph.outputs) {
    results[output.name] = tensors[Index(output.value)];
  }
  return results;
}

}  // namespace plumb
