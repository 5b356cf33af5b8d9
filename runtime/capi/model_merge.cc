// SPDX-License-Identifier: Apache-2.0
// plumb_model_merge: adds the low-rank updates of an adapter to the weights of a new model.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/model/describe.h"
#include "runtime/zoo/peft_adapter.h"

namespace plumb::capi {
namespace {

// Returns the index of a tensor. Requires: there is one.
size_t FindIndex(const ParameterStore& store, const std::string& name) {
  const std::vector<ParameterLayout::Entry>& entries = store.layout().entries;
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return entry.name == name; });
  return static_cast<size_t>(at - entries.begin());
}

std::vector<float> ReadAll(const ParameterStore& store, size_t i) {
  const ParameterLayout::Entry& entry = store.layout().entries[i];
  std::vector<float> values(static_cast<size_t>(entry.end - entry.begin));
  store.Read(i, 0, entry.end - entry.begin, values.data());
  return values;
}

// Adds the update to the weight of the merged model.
absl::Status AddUpdate(const AdapterStatement& update, const ParameterStore& from,
                       ParameterStore* merged) {
  if (update.weight.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the adapter does not only add scale * b(a(input)) to the result of a "
                     "projection, as wide as that, so that it cannot be merged: ",
                     update.text));
  }
  const std::vector<float> b = ReadAll(from, FindIndex(from, update.up));
  const std::vector<float> a = ReadAll(from, FindIndex(from, update.down));
  const size_t at = FindIndex(*merged, update.weight);
  const Shape& shape = merged->layout().entries[at].shape;
  const int64_t rank = static_cast<int64_t>(a.size()) / shape.last();
  LowRankUpdate{b.data(), a.data(), shape.rows(), rank, shape.last(), update.scale}.AddTo(
      merged->floats(at), /*transposed=*/false);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ModelState>> Merge(const ModelState& adapted) {
  PLUMB_RETURN_IF_ERROR(adapted.RequireWeights());
  const ResolvedModel& model = adapted.context->model;
  if (model.adapter == nullptr) return absl::InvalidArgumentError("the model has no adapter");
  PLUMB_ASSIGN_OR_RETURN(const StackDescription stack, DescribeStack(model));
  PLUMB_ASSIGN_OR_RETURN(ModelSpec spec, ModelSpec::FromText(model.self_contained_text, "model"));
  spec.ClearAdapter();
  PLUMB_ASSIGN_OR_RETURN(std::shared_ptr<ModelState> merged,
                         CreateModelState(adapted.runtime, spec));
  const ModelContext& context = *merged->context;
  PLUMB_RETURN_IF_ERROR(CheckMemoryBudget(
      "the merged weights", static_cast<double>(ParameterStore::Bytes(context.parameters))));
  merged->parameters = std::make_unique<ParameterStore>(context.parameters, context.states);
  ParameterStore& to = *merged->parameters;
  const ParameterStore& from = *adapted.parameters;
  for (size_t i = 0; i < context.parameters.size(); ++i) {
    const std::vector<float> values = ReadAll(from, FindIndex(from, context.parameters[i].name));
    to.Write(i, 0, static_cast<int64_t>(values.size()), values.data());
  }
  for (const AdapterStatement& update : stack.adapter) {
    PLUMB_RETURN_IF_ERROR(AddUpdate(update, from, &to));
  }
  if (from.layout().entries.size() != context.parameters.size() + 2 * stack.adapter.size() ||
      to.states().size != from.states().size) {
    return absl::InvalidArgumentError("the adapter has more than two tensors for an update");
  }
  std::copy_n(from.state_data(), to.states().size, to.state_data());
  merged->has_weights = true;
  return merged;
}

}  // namespace
}  // namespace plumb::capi

plumb_status plumb_model_merge(const plumb_model* model, plumb_model** merged,
                               plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    if (merged == nullptr) return plumb::capi::NullArgument("merged");
    PLUMB_ASSIGN_OR_RETURN(std::shared_ptr<plumb::capi::ModelState> made,
                           plumb::capi::Merge(*model->state));
    *merged = new plumb_model{std::move(made)};
    return absl::OkStatus();
  });
}
