// SPDX-License-Identifier: Apache-2.0
// plumb_model_describe: the resolved model as JSON. Fields:
// runtime/include/schemas/model.schema.json.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/formats/strict_json.h"
#include "runtime/model/describe.h"

namespace plumb::capi {
namespace {

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

// Writes a tensor, a ParameterSpec or a BufferSpec.
template <class Tensor>
void Write(const Tensor& tensor, const char* role, JsonWriter* json) {
  json->BeginObject();
  json->Text("name", tensor.name);
  json->NumberList("shape", tensor.shape.dims());
  json->Text("dtype", DTypeName(DType::kF32));
  json->Text("init", tensor.init.ToString());
  json->Text("role", role);
  json->Number("elements", tensor.shape.num_elements());
  json->EndObject();
}

void Write(const LayerGroup& group, JsonWriter* json) {
  json->BeginObject();
  json->Number("first", group.first);
  json->Number("last", group.last);
  json->Text("placement", group.placement);
  json->Text("doc", group.doc);
  json->TextList("equations", group.equations);
  json->TextList("scalars", group.scalars);
  json->TextList("norms", group.norms);
  json->Text("jacobian", group.jacobians.front().text);
  json->Name("jacobians");
  json->BeginArray();
  for (const LayerJacobian& jacobian : group.jacobians) {
    json->BeginObject();
    json->NumberList("layers", jacobian.layers);
    json->Text("jacobian", jacobian.text);
    json->EndObject();
  }
  json->EndArray();
  json->EndObject();
}

void Write(const ModelDims& dims, JsonWriter* json) {
  json->Name("dims");
  json->BeginObject();
  json->Number("n_layer", dims.n_layer);
  json->Number("n_head", dims.n_head);
  json->Number("n_kv_head", dims.n_kv_head);
  json->Number("d_model", dims.d_model);
  json->Number("d_ff", dims.d_ff);
  json->Number("head_dim", dims.head_dim);
  json->Number("vocab_size", dims.vocab_size);
  json->Number("context_length", dims.context_length);
  json->EndObject();
}

// Writes the tensors, the buffers, and their totals.
void WriteTensors(const ModelContext& context, JsonWriter* json) {
  int64_t parameters = 0, active = 0, buffer_elements = 0;
  json->Name("tensors");
  json->BeginArray();
  for (const ParameterSpec& parameter : context.parameters) {
    Write(parameter, RoleName(parameter.role), json);
    parameters += parameter.shape.num_elements();
    active += parameter.active_elements();
  }
  json->EndArray();
  json->Name("buffers");
  json->BeginArray();
  for (const NormStateSpec& state : context.states) {
    for (const BufferSpec& buffer : state.buffers) {
      Write(buffer, "buffer", json);
      buffer_elements += buffer.shape.num_elements();
    }
  }
  json->EndArray();
  json->Name("totals");
  json->BeginObject();
  json->Number("parameters", parameters);
  json->Number("active_parameters", active);
  json->Number("tensors", static_cast<int64_t>(context.parameters.size()));
  json->Number("buffer_elements", buffer_elements);
  json->Number("weight_bytes", parameters * static_cast<int64_t>(sizeof(float)));
  json->Number("cache_bytes", CacheBytes(context.model));
  json->EndObject();
}

absl::StatusOr<std::string> DescribeModel(const ModelContext& context) {
  const ResolvedModel& model = context.model;
  PLUMB_ASSIGN_OR_RETURN(const StackDescription stack, DescribeStack(model));
  JsonWriter json;
  json.BeginObject();
  json.Text("name", model.name);
  Write(model.dims, &json);
  json.Text("positions", DescribePositions(model.positions));
  json.Flag("tied", model.tie_embeddings);
  json.Flag("bidirectional", model.bidirectional);
  json.Number("token_types", model.token_types);
  json.Number("init_rules", static_cast<int64_t>(model.init.size()));
  json.TextList("begin", stack.begin);
  json.Name("layers");
  json.BeginArray();
  for (const LayerGroup& group : stack.groups) Write(group, &json);
  json.EndArray();
  json.TextList("end", stack.end);
  std::vector<std::string> adapter;
  for (const AdapterStatement& statement : stack.adapter) adapter.push_back(statement.text);
  json.TextList("adapter", adapter);
  json.Number("norm_sites", stack.routes.norm_sites);
  json.Text("identity_route", stack.routes.identity.ToString());
  json.Number("norms_before_head", stack.routes.identity.end_norms);
  WriteTensors(context, &json);
  json.EndObject();
  return json.Take();
}

}  // namespace
}  // namespace plumb::capi

plumb_status plumb_model_describe(const plumb_model* model, char** text, plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const std::string json,
                           plumb::capi::DescribeModel(*model->state->context));
    return plumb::capi::WriteText(json, text);
  });
}
