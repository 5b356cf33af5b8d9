// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/run_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"

namespace plumb {

BoundMemory::BoundMemory(Executable* executable, const ReferenceTensors& feeds, void* workspace)
    : executable_(executable) {
  const Graph& graph = executable->graph();
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kComputed) continue;
    Add(value.name, value.type);
    const ReferenceTensor& feed = feeds.at(value.name);
    std::copy(feed.f.begin(), feed.f.end(), f32(value.name));
    std::copy(feed.i.begin(), feed.i.end(), i32(value.name));
  }
  for (const GraphOutput& output : graph.outputs) {
    if (memory_.count(output.name) == 0) Add(output.name, graph.value(output.value).type);
  }
  if (workspace == nullptr) {
    workspace_ = AlignedBuffer(executable->workspace_bytes());
    workspace = workspace_.data();
  }
  executable->BindWorkspace(workspace);
}

void BoundMemory::Add(const std::string& name, const TensorType& type) {
  AlignedBuffer buffer(type.bytes());
  if (type.dtype == DType::kF32) {
    std::fill_n(buffer.as<float>(), type.num_elements(), std::numeric_limits<float>::quiet_NaN());
  }
  if (!executable_->Bind(name, buffer.data()).ok()) return;  // a state under a second name
  memory_[name] = std::move(buffer);
  types_[name] = type;
}

ReferenceTensor BoundMemory::Read(const std::string& name) const {
  std::string where = name;
  if (memory_.count(name) == 0) {
    const Graph& graph = executable_->graph();
    const MemoryPlan& plan = executable_->plan();
    const int32_t external = plan.places[static_cast<size_t>(graph.FindOutput(name))].external;
    where = graph.value(plan.externals[static_cast<size_t>(external)]).name;
  }
  ReferenceTensor tensor;
  tensor.type = types_.at(where);
  const int64_t elements = tensor.type.num_elements();
  if (tensor.type.dtype == DType::kI32) {
    tensor.i.assign(i32(where), i32(where) + elements);
  } else {
    tensor.f.assign(f32(where), f32(where) + elements);
  }
  return tensor;
}

double LargestDifference(const ReferenceTensor& a, const ReferenceTensor& b) {
  double largest = 0;
  if (a.f.size() != b.f.size()) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < a.f.size(); ++i) {
    const double difference = std::fabs(a.f[i] - b.f[i]) / std::max(1.0, std::fabs(b.f[i]));
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace plumb
