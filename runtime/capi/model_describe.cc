// plumb_model_describe: what a model's text comes to, as JSON. plumb.h lists the fields.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/model/describe.h"

namespace plumb::capi {
namespace {

using Json = nlohmann::ordered_json;

const char* RoleName(ParameterSpec::Role role) {
  switch (role) {
    case ParameterSpec::Role::kWeight:
      return "weight";
    case ParameterSpec::Role::kNorm:
      return "norm";
    case ParameterSpec::Role::kLearned:
      break;
  }
  return "learned";
}

std::string PositionsText(const ResolvedModel& model) {
  switch (model.positions) {
    case PositionKind::kLearned:
      return "learned";
    case PositionKind::kRope:
      return absl::StrCat("rope(theta=", model.rope_theta, ")");
    case PositionKind::kNone:
      break;
  }
  return "none";
}

// `tensor`: a ParameterSpec or a BufferSpec.
template <class Tensor>
Json ToJson(const Tensor& tensor, const char* role) {
  Json shape = Json::array();
  for (const int64_t dim : tensor.shape.dims()) shape.push_back(dim);
  return {{"name", tensor.name},
          {"shape", shape},
          {"dtype", DTypeName(DType::kF32)},
          {"init", tensor.init.ToString()},
          {"role", role},
          {"elements", tensor.shape.num_elements()}};
}

Json ToJson(const LayerGroup& group) {
  return {{"first", group.first}, {"last", group.last},           {"placement", group.placement},
          {"doc", group.doc},     {"equations", group.equations}, {"scalars", group.scalars},
          {"norms", group.norms}, {"jacobian", group.jacobian}};
}

Json ToJson(const ModelDims& dims) {
  return {{"n_layer", dims.n_layer},
          {"n_head", dims.n_head},
          {"n_kv_head", dims.n_kv_head},
          {"d_model", dims.d_model},
          {"d_ff", dims.d_ff},
          {"head_dim", dims.head_dim},
          {"vocab_size", dims.vocab_size},
          {"context_length", dims.context_length}};
}

absl::StatusOr<std::string> DescribeModel(const ModelContext& context) {
  const ResolvedModel& model = context.model;
  PLUMB_ASSIGN_OR_RETURN(const StackDescription stack, DescribeStack(model));
  Json layers = Json::array(), tensors = Json::array(), buffers = Json::array();
  for (const LayerGroup& group : stack.groups) layers.push_back(ToJson(group));
  int64_t parameters = 0, buffer_elements = 0;
  for (const ParameterSpec& parameter : context.parameters) {
    tensors.push_back(ToJson(parameter, RoleName(parameter.role)));
    parameters += parameter.shape.num_elements();
  }
  for (const NormStateSpec& state : context.states) {
    for (const BufferSpec& buffer : state.buffers) {
      buffers.push_back(ToJson(buffer, "buffer"));
      buffer_elements += buffer.shape.num_elements();
    }
  }
  const Json totals = {{"parameters", parameters},
                       {"tensors", tensors.size()},
                       {"buffer_elements", buffer_elements},
                       {"weight_bytes", parameters * static_cast<int64_t>(sizeof(float))}};
  const Json json = {{"name", model.name},
                     {"dims", ToJson(model.dims)},
                     {"positions", PositionsText(model)},
                     {"tied", model.tie_embeddings},
                     {"begin", stack.begin},
                     {"layers", layers},
                     {"end", stack.end},
                     {"norm_sites", stack.routes.norm_sites},
                     {"identity_route", stack.routes.identity.ToString()},
                     {"norms_before_head", stack.routes.identity.end_norms},
                     {"tensors", tensors},
                     {"buffers", buffers},
                     {"totals", totals}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace
}  // namespace plumb::capi

plumb_status plumb_model_describe(const plumb_model* model, char* buffer, size_t capacity,
                                  size_t* needed, plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const std::string text,
                           plumb::capi::DescribeModel(*model->state->context));
    plumb::capi::GiveText(text, buffer, capacity, needed);
    return absl::OkStatus();
  });
}
