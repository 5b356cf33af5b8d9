// SPDX-License-Identifier: Apache-2.0
// A host with its own protobuf. It describes a model by the classes that protoc generates from
// plumb's schema, passes the description to libplumb, reads libplumb's text of it, and trains a
// step.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "plumb.h"
#include "plumb/v1/model.pb.h"

namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

void Must(plumb_status status, plumb_error* error) {
  if (status != PLUMB_OK) Fail(plumb_error_message(error));
}

plumb::v1::Model Description() {
  plumb::v1::Model model;
  model.set_name("caf\u00e9 \"host\"");
  model.set_n_layer(2);
  model.set_n_head(2);
  model.set_d_model(16);
  model.set_vocab_size(7);
  model.set_context_length(8);
  model.mutable_positions()->set_kind(plumb::v1::Positions::ROPE);
  model.mutable_positions()->set_rope_theta(10000.1);
  plumb::v1::Norm* norm = model.add_norm();
  norm->set_name("small_eps");
  norm->set_plugin("rms_norm");
  plumb::v1::Attribute* eps = norm->add_attr();
  eps->set_name("eps");
  eps->set_number(1e-6);
  model.mutable_block()->set_placement("pre");
  model.mutable_block()->set_norm("small_eps");
  model.mutable_block()->add_sublayer()->mutable_attention();
  model.mutable_block()->add_sublayer()->mutable_mlp()->set_gated(true);
  return model;
}

}  // namespace

int main() {
  const plumb::v1::Model description = Description();
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(description, &text)) Fail("cannot print");

  plumb_error* error = nullptr;
  plumb_spec* spec = nullptr;
  Must(plumb_spec_from_text(text.c_str(), "host", &spec, &error), error);
  char* printed = nullptr;
  Must(plumb_spec_text(spec, &printed, &error), error);
  plumb::v1::Model read;
  if (!google::protobuf::TextFormat::ParseFromString(printed, &read)) Fail("cannot parse");
  if (!google::protobuf::util::MessageDifferencer::Equals(description, read)) {
    Fail(printed);
  }

  plumb_runtime* runtime = nullptr;
  plumb_model* model = nullptr;
  plumb_trainer* trainer = nullptr;
  Must(plumb_runtime_create(PLUMB_ABI_VERSION, nullptr, &runtime, &error), error);
  Must(plumb_model_create(runtime, spec, &model, &error), error);
  Must(plumb_model_init(model, 1, &error), error);
  const std::string recipe = "learning_rate: 0.01";
  plumb_trainer_options options = {};
  options.struct_size = sizeof(options);
  options.recipe = recipe.c_str();
  Must(plumb_trainer_create(model, &options, &trainer, &error), error);
  std::vector<int32_t> inputs(static_cast<size_t>(plumb_trainer_step_tokens(trainer))),
      targets(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<int32_t>(i % 7);
    targets[i] = static_cast<int32_t>((i + 1) % 7);
  }
  plumb_step_info info = {};
  info.struct_size = sizeof(info);
  Must(plumb_trainer_step(trainer, inputs.data(), targets.data(), inputs.size(), &info, &error),
       error);
  std::printf("loss %.3f\n", info.loss);
  if (!std::isfinite(info.loss)) Fail("the loss is not finite");
  plumb_trainer_free(trainer);
  plumb_model_free(model);
  plumb_spec_free(spec);
  plumb_runtime_free(runtime);
  google::protobuf::ShutdownProtobufLibrary();
  return 0;
}
