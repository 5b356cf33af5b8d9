// SPDX-License-Identifier: Apache-2.0
// Compares the descriptions of norms, models and their passes in plumb.h with the modules below.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/session/work.h"
#include "tests/app/evaluate.h"
#include "tests/capi/capi_fixture.h"
#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ReportTest : public CapiTest {
 protected:
  EvaluatorHandle Evaluator(const ModelHandle& model, int32_t gradients, int32_t logits = 1) {
    auto options = MakeStruct<plumb_evaluator_options>();
    options.rows = 2;
    options.logits = logits;
    options.gradients = gradients;
    EvaluatorHandle evaluator;
    EXPECT_PLUMB_OK(plumb_evaluator_create(model.get, &options, &evaluator.get, err));
    return evaluator;
  }

  // Returns the loss of kTokens, in which the last tokens have no target.
  static double Loss(plumb_evaluator* evaluator) {
    std::vector<int32_t> inputs, targets;
    for (const std::vector<int32_t>& row : kTokens) {
      inputs.insert(inputs.end(), row.begin(), row.end());
      targets.insert(targets.end(), row.begin() + 1, row.end());
      targets.push_back(-1);
    }
    double loss = 0;
    EXPECT_PLUMB_OK(
        plumb_evaluator_run(evaluator, inputs.data(), targets.data(), inputs.size(), &loss, err));
    return loss;
  }

  static inline const Tokens kTokens = RandomTokens(2, 6, 5);
};

TEST_F(ReportTest, ANormDescribesItself) {
  const Json norm = Json::parse(GetText(plumb_plugin_describe, runtime_.get, "layer_norm"));
  for (const char* const field : {"id", "version", "vendor", "license", "doc", "path", "attributes",
                                  "parameters", "buffers", "traits", "dtypes", "example"}) {
    EXPECT_TRUE(norm.contains(field)) << field;
  }
  EXPECT_EQ(norm["id"], "layer_norm");
  EXPECT_EQ(norm["parameters"][0]["shape"], "[dim]");
  EXPECT_THAT(norm["attributes"], Not(IsEmpty()));
  EXPECT_TRUE(norm["attributes"][0].contains("required"));
  const std::string unknown =
      Fails(PLUMB_STATUS_NOT_FOUND, plumb_plugin_describe, runtime_.get, "layer_nrm", nullptr);
  EXPECT_THAT(unknown, HasSubstr("did you mean \"layer_norm\""));
  // A plugin that another runtime loads from its file has the same description.
  const std::string path = norm["path"];
  RuntimeHandle other;
  EXPECT_PLUMB_OK(plumb_runtime_create(PLUMB_ABI_VERSION, nullptr, &other.get, err));
  EXPECT_PLUMB_OK(plumb_plugin_load(other.get, path.c_str(), err));
  EXPECT_EQ(Json::parse(GetText(plumb_plugin_describe, other.get, "layer_norm")), norm);
  EXPECT_THAT(Fails(PLUMB_STATUS_NOT_FOUND, plumb_plugin_load, other.get, "/not/there.so"),
              HasSubstr("/not/there.so"));
}

TEST_F(ReportTest, ANormsExampleNamesAllAttributesExactly) {
  plumb_attr_def attributes[] = {
      {"slope", "", PLUMB_ATTR_F64, 0, NAN, NAN, {0.79788456080286541, 0, nullptr}, nullptr},
      {"seed", "", PLUMB_ATTR_I64, 0, NAN, NAN, {0, 9007199254740993, nullptr}, nullptr},
      {"label", "", PLUMB_ATTR_STRING, 0, 0, 0, {0, 0, "a \"b\"\n"}, nullptr},
      {"eps", "", PLUMB_ATTR_F64, PLUMB_ATTR_FLAG_REQUIRED, NAN, 0.5, {}, nullptr},
      {"axis", "", PLUMB_ATTR_ENUM, PLUMB_ATTR_FLAG_REQUIRED, 0, 0, {}, test_norm::kChoices}};
  plumb_norm_plugin table = test_norm::Table();
  table.n_attrs = 5;
  table.attrs = attributes;
  test_norm::layout_answer.tensor_stride = sizeof(plumb_tensor_def);
  RuntimeHandle runtime;
  EXPECT_PLUMB_OK(plumb_runtime_create(PLUMB_ABI_VERSION, nullptr, &runtime.get, err));
  EXPECT_PLUMB_OK(plumb_plugin_register(runtime.get, &table, err));
  const std::string example =
      Json::parse(GetText(plumb_plugin_describe, runtime.get, table.id))["example"];
  EXPECT_EQ(example,
            "norm { name: \"my_norm\" plugin: \"org.example.test\" "
            "attr { name: \"slope\" number: 0.79788456080286541 } "
            "attr { name: \"seed\" text: \"9007199254740993\" } "
            "attr { name: \"label\" text: \"a \\\"b\\\"\\n\" } "
            "attr { name: \"eps\" number: 0.5 } "
            "attr { name: \"axis\" text: \"row\" } }  # choose eps, axis\n"
            "block { placement: \"pre\" norm: \"my_norm\" }\n");
  const std::string text =
      "n_layer: 1 n_head: 1 d_model: 8 context_length: 4 vocab_size: 5\n" + example;
  SpecHandle spec;
  EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "m.pbtxt", &spec.get, err));
  ModelHandle model;
  EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
  EXPECT_EQ(test_norm::last_values[0].f, attributes[0].def.f);
  EXPECT_EQ(test_norm::last_values[1].i, 9007199254740993);
}

TEST_F(ReportTest, ARuntimeHasThreadsAndEngines) {
  EXPECT_EQ(plumb_runtime_threads(runtime_.get), 2);
  EXPECT_EQ(plumb_runtime_threads(nullptr), 0);
  EXPECT_THAT(GetText(plumb_runtime_gemm, runtime_.get), HasSubstr("kernels"));
}

TEST_F(ReportTest, ARuntimeMeasuresItsSpeed) {
  double speed = 0;
  const plumb_status status =
      plumb_runtime_measure_speed(runtime_.get, PLUMB_SPEED_GEMM_F32, &speed, nullptr);
  if (status != PLUMB_STATUS_UNIMPLEMENTED) {  // oneDNN is available
    EXPECT_EQ(status, PLUMB_OK);
    EXPECT_GT(speed, 0);
  }
  speed = 0;
  EXPECT_PLUMB_OK(plumb_runtime_measure_speed(runtime_.get, PLUMB_SPEED_READ, &speed, err));
  EXPECT_GT(speed, 0);
  EXPECT_THAT(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_runtime_measure_speed, runtime_.get, 7, &speed),
      HasSubstr("speed 7"));
}

TEST_F(ReportTest, AModelDescribesItself) {
  const ModelHandle model = Create(TinyModel().Text());  // without weights
  const Json json = Json::parse(GetText(plumb_model_describe, model.get));
  for (const char* const field :
       {"name", "dims", "positions", "tied", "bidirectional", "token_types", "init_rules", "begin",
        "layers", "end", "norm_sites", "identity_route", "norms_before_head", "tensors", "buffers",
        "totals"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  auto info = MakeStruct<plumb_model_info>();
  EXPECT_PLUMB_OK(plumb_model_get_info(model.get, &info, err));
  EXPECT_EQ(json["totals"]["parameters"], info.parameters);
  EXPECT_EQ(json["totals"]["weight_bytes"], info.weight_bytes);
  EXPECT_EQ(json["totals"]["cache_bytes"], info.cache_bytes);
  EXPECT_EQ(json["dims"]["n_layer"], 2);
  EXPECT_EQ(json["dims"]["context_length"], 8);
  EXPECT_EQ(json["layers"][0]["last"], 1);
  EXPECT_EQ(json["layers"][0]["jacobian"], "(I + J_mlp J_norm) (I + J_attention J_norm)");
  ASSERT_EQ(json["layers"][0]["jacobians"].size(), 1u);
  EXPECT_EQ(json["layers"][0]["jacobians"][0]["layers"], Json::parse("[0, 1]"));
  EXPECT_EQ(json["end"][0], "end: x = norm(x)");
  ASSERT_EQ(json["tensors"].size(), static_cast<size_t>(plumb_model_tensor_count(model.get)));
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 1, err));
  for (size_t i = 0; i < json["tensors"].size(); ++i) {
    auto tensor = MakeStruct<plumb_tensor>();
    EXPECT_PLUMB_OK(plumb_model_tensor(model.get, i, &tensor, err));
    EXPECT_EQ(json["tensors"][i]["name"], tensor.name);
    EXPECT_EQ(json["tensors"][i]["shape"][0], tensor.shape[0]);
  }
}

TEST_F(ReportTest, PrintsEachCompilerStage) {
  const ModelHandle model = Create(TinyModel().Text());
  auto options = MakeStruct<plumb_explain_options>();
  for (const int32_t stage :
       {PLUMB_EXPLAIN_GRAPH, PLUMB_EXPLAIN_GRADIENTS, PLUMB_EXPLAIN_OPTIMIZED,
        PLUMB_EXPLAIN_MEMORY_PLAN, PLUMB_EXPLAIN_EXECUTABLE, PLUMB_EXPLAIN_PROMPT}) {
    options.stage = stage;
    EXPECT_THAT(GetText(plumb_model_explain, model.get, &options), HasSubstr("layers.1.mlp.up"));
  }
  options.stage = PLUMB_EXPLAIN_GRADIENTS;
  EXPECT_THAT(GetText(plumb_model_explain, model.get, &options),
              HasSubstr("output grad.head.weight"));
  options.stage = PLUMB_EXPLAIN_PROMPT;
  EXPECT_THAT(GetText(plumb_model_explain, model.get, &options),
              HasSubstr("f32[1, 1, 12] layers.1.mlp.hidden"));
  options.stage = PLUMB_EXPLAIN_SVG;
  EXPECT_THAT(GetText(plumb_model_explain, model.get, &options),
              HasSubstr(">layers 0..1: pre</text>"));
  options.stage = PLUMB_EXPLAIN_LAYER_SVG;
  options.layer = 1;
  EXPECT_THAT(GetText(plumb_model_explain, model.get, &options), HasSubstr(">layer 1: pre</text>"));
  EXPECT_THAT(GetText(plumb_model_explain, model.get, nullptr), HasSubstr("i32[1, 8] tokens"));
  options = PLUMB_EXPLAIN_OPTIONS_INIT;
  options.batch = 3;
  options.seq = 4;
  EXPECT_THAT(GetText(plumb_model_explain, model.get, &options), HasSubstr("i32[3, 4] tokens"));
  options.stage = PLUMB_EXPLAIN_OPTIMIZED;
  options.recipe = "dtype: BF16";
  EXPECT_THAT(GetText(plumb_model_explain, model.get, &options), HasSubstr("bf16["));
  const auto fails = [&] {
    return Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_explain, model.get, &options, nullptr);
  };
  options.recipe = "dtype: BF17";
  EXPECT_THAT(fails(), HasSubstr("recipe:1:"));
  options.recipe = nullptr;
  options.stage = PLUMB_EXPLAIN_LAYER_SVG;
  options.layer = 2;
  EXPECT_THAT(fails(), HasSubstr("there is no layer 2; layers are 0..1"));
  options.stage = PLUMB_EXPLAIN_GRAPH;
  EXPECT_THAT(fails(), HasSubstr("layer is only for PLUMB_EXPLAIN_LAYER_SVG"));
  options.layer = 0;
  options.seq = 9;
  EXPECT_THAT(fails(), HasSubstr("seq must be in 1..context_length (8), is 9"));
  options.seq = 0;
  options.stage = 99;
  EXPECT_THAT(fails(), HasSubstr("there is no stage 99"));
}

TEST_F(ReportTest, WorkEqualsTheModulesBelow) {
  const auto internal = MakeRuntime(1);
  const auto context = MakeContext(internal.get(), TinyModel().Text());
  const ModelHandle model = Create(TinyModel().Text());
  auto work = MakeStruct<plumb_work>();
  BuildOptions program;
  program.seq = 5;
  EXPECT_PLUMB_OK(
      plumb_model_work(model.get, PLUMB_PASS_TRAINING, 5, PLUMB_WEIGHTS_F32, nullptr, &work, err));
  EXPECT_EQ(work.flops, 3 * CountWork(*context, program)->forward_flops);
  const double all = work.flops;
  const std::string frozen = "rule { match: 'head.*' } rule { match: '*' freeze: true }";
  EXPECT_PLUMB_OK(plumb_model_work(model.get, PLUMB_PASS_TRAINING, 5, PLUMB_WEIGHTS_F32,
                                   frozen.c_str(), &work, err));
  EXPECT_GT(work.flops, all / 3);
  EXPECT_LT(work.flops, all / 2);  // the backward pass is that of the head alone
  const int64_t f32 = work.weight_bytes;
  program.program = Program::kCached;
  EXPECT_PLUMB_OK(
      plumb_model_work(model.get, PLUMB_PASS_FEED, 5, PLUMB_WEIGHTS_BF16, nullptr, &work, err));
  EXPECT_EQ(work.flops, CountWork(*context, program)->forward_flops);
  program.seq = 1;
  EXPECT_EQ(f32, CountWork(*context, program)->weight_bytes);
  program.weights = WeightFormat::kBf16;
  EXPECT_EQ(work.weight_bytes, CountWork(*context, program)->weight_bytes);
  EXPECT_LT(work.weight_bytes, f32);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_work, model.get, PLUMB_PASS_FEED, 9,
                    0, nullptr, &work),
              HasSubstr("tokens must be in 1..context_length (8), is 9"));
  EXPECT_THAT(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_work, model.get, 2, 1, 0, nullptr, &work),
      HasSubstr("pass 2"));
}

TEST_F(ReportTest, GradientsEqualAStep) {
  const auto internal = MakeRuntime(1);
  const auto context = MakeContext(internal.get(), TinyModel().Text());
  ParameterStore store(context->parameters, context->states);
  ASSERT_TRUE(DrawParameters(context->parameters, context->states, 3, 1, store).ok());
  const BatchOutputs expected =
      RunBatch(*context, store, kTokens, /*with_gradients=*/true, 1).value();
  const ModelHandle model = CreateWithWeights();
  const std::vector<float> before = Weights(model.get);
  const EvaluatorHandle evaluator = Evaluator(model, 1);
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION,
                    [&](plumb_error** error) {
                      auto none = MakeStruct<plumb_tensor>();
                      return plumb_evaluator_gradient(evaluator.get, 0, &none, error);
                    }),
              HasSubstr("no run was done"));
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(Loss(evaluator.get), expected.loss);
    const float* const logits = plumb_evaluator_logits(evaluator.get);
    EXPECT_EQ(std::vector<float>(logits, logits + expected.logits.size()), expected.logits);
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      auto gradient = MakeStruct<plumb_tensor>();
      EXPECT_PLUMB_OK(plumb_evaluator_gradient(evaluator.get, i, &gradient, err));
      const ParameterLayout::Entry& entry = store.layout().entries[i];
      EXPECT_EQ(gradient.name, entry.name);
      EXPECT_EQ(0, std::memcmp(gradient.data, expected.gradients.data() + entry.begin,
                               sizeof(float) * static_cast<size_t>(entry.end - entry.begin)))
          << entry.name;
    }
  }
  EXPECT_EQ(Weights(model.get), before);
  EXPECT_NEAR(Loss(Evaluator(model, 0).get), expected.loss, 1e-5);
}

TEST_F(ReportTest, AnEvaluatorIsProbed) {
  const ModelHandle model = CreateWithWeights();
  const EvaluatorHandle evaluator = Evaluator(model, 1, 0);
  struct Seen {
    std::vector<std::string> names;
    int32_t answer = 0;
  } seen;
  const plumb_probe_fn note = [](void* user, const plumb_probe* probe) -> int32_t {
    EXPECT_EQ(probe->step, 0);
    EXPECT_GT(probe->elements, 0);
    EXPECT_NE(probe->data, nullptr);
    static_cast<Seen*>(user)->names.push_back(absl::StrCat(probe->kind, " ", probe->name));
    return static_cast<Seen*>(user)->answer;
  };
  const char* const points[] = {"logits", "grad.logits", "param.head.weight"};
  EXPECT_PLUMB_OK(plumb_evaluator_probe(evaluator.get, points, 3, note, &seen, err));
  const double loss = Loss(evaluator.get);
  EXPECT_THAT(seen.names,
              testing::ElementsAre("0 logits", "1 logits", "2 head.weight", "3 head.weight"));
  // The callback's result can stop the run. Without a probe it is not called.
  seen.answer = 1;
  std::vector<int32_t> ids(16, 1);
  EXPECT_THAT(Fails(PLUMB_STATUS_CANCELLED, plumb_evaluator_run, evaluator.get, ids.data(),
                    ids.data(), 16, nullptr),
              HasSubstr("asked to stop"));
  EXPECT_PLUMB_OK(plumb_evaluator_probe(evaluator.get, nullptr, 0, nullptr, nullptr, err));
  seen.names.clear();
  EXPECT_EQ(Loss(evaluator.get), loss);
  EXPECT_THAT(seen.names, IsEmpty());
  const char* const unknown[] = {"logit"};
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_evaluator_probe, evaluator.get, unknown, 1,
                    note, &seen),
              HasSubstr("no probe point matches \"logit\""));
}

TEST_F(ReportTest, EvaluatorsReturnTheLossOfEachTarget) {
  const ModelHandle model = CreateWithWeights();
  const std::vector<int32_t> inputs = {1, 4, 2, 0, 3, 3, 1, 0},
                             targets = {4, -1, 0, 3, 3, 1, -1, 2};
  for (const int32_t gradients : {0, 1}) {
    const EvaluatorHandle evaluator = Evaluator(model, gradients);
    EXPECT_EQ(plumb_evaluator_losses(evaluator.get), nullptr);
    double mean = 0, sum = 0;
    EXPECT_PLUMB_OK(
        plumb_evaluator_run(evaluator.get, inputs.data(), targets.data(), 8, &mean, err));
    const float* const losses = plumb_evaluator_losses(evaluator.get);
    const float* const logits = plumb_evaluator_logits(evaluator.get);
    ASSERT_NE(losses, nullptr);
    for (size_t at = 0; at < 8; ++at) {
      sum += static_cast<double>(losses[at]);
      double total = 0;
      for (size_t j = 0; j < 5; ++j) total += std::exp(static_cast<double>(logits[5 * at + j]));
      const double expected =
          targets[at] < 0
              ? 0
              : std::log(total) -
                    static_cast<double>(logits[5 * at + static_cast<size_t>(targets[at])]);
      EXPECT_NEAR(static_cast<double>(losses[at]), expected, 1e-6) << at;
    }
    EXPECT_NEAR(sum / 6, mean, 1e-6);
    if (gradients != 0) continue;
    EXPECT_PLUMB_OK(plumb_evaluator_run(evaluator.get, inputs.data(), nullptr, 8, nullptr, err));
    EXPECT_EQ(plumb_evaluator_losses(evaluator.get), nullptr) << "there were no targets";
  }
}

TEST_F(ReportTest, HiddenStatesNeedNoGradients) {
  const ModelHandle model = CreateWithWeights();
  const EvaluatorHandle without = Evaluator(model, 0), with = Evaluator(model, 1);
  const plumb_probe_fn keep = [](void* user, const plumb_probe* probe) -> int32_t {
    EXPECT_EQ(probe->kind, PLUMB_PROBE_ACTIVATION);
    const auto* const data = static_cast<const float*>(probe->data);
    (*static_cast<std::map<std::string, std::vector<float>>*>(user))[probe->name] = {
        data, data + probe->elements};
    return 0;
  };
  const char* const points[] = {"layers.*.residual", "end.residual", "logits"};
  std::map<std::string, std::vector<float>> seen[2];
  for (const bool gradients : {false, true}) {
    plumb_evaluator* const evaluator = gradients ? with.get : without.get;
    EXPECT_PLUMB_OK(plumb_evaluator_probe(evaluator, points, 3, keep, &seen[gradients], err));
    Loss(evaluator);
  }
  EXPECT_EQ(seen[0].count("layers.1.residual"), 1u);
  EXPECT_EQ(seen[0].count("logits"), 1u);
  for (const auto& [name, values] : seen[0]) {
    EXPECT_LE(RelativeError(values, seen[1][name]), 1e-6) << name;
  }
  for (const char* const point : {"grad.logits", "param.head.weight"}) {
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_evaluator_probe, without.get, &point, 1,
                      keep, nullptr),
                HasSubstr("options.gradients"));
  }
}

TEST_F(ReportTest, RunsOfEvaluatorsAreCancelled) {
  const ModelHandle model = CreateWithWeights();
  for (const int32_t gradients : {0, 1}) {
    const EvaluatorHandle evaluator = Evaluator(model, gradients);
    const double loss = Loss(evaluator.get);
    const std::vector<int32_t> ids(16, 1);
    const auto run = [&](plumb_error** error) {
      return plumb_evaluator_run(evaluator.get, ids.data(), ids.data(), 16, nullptr, error);
    };
    plumb_evaluator_cancel(evaluator.get);
    EXPECT_EQ(run(nullptr), PLUMB_STATUS_CANCELLED);
    EXPECT_PLUMB_OK(run(err));
    // During a run, from a callback.
    const plumb_probe_fn cancel = [](void* user, const plumb_probe*) -> int32_t {
      plumb_evaluator_cancel(static_cast<plumb_evaluator*>(user));
      return 0;
    };
    const char* const first[] = {"embedding.residual"};
    EXPECT_PLUMB_OK(plumb_evaluator_probe(evaluator.get, first, 1, cancel, evaluator.get, err));
    EXPECT_THAT(Fails(PLUMB_STATUS_CANCELLED, run), HasSubstr("the run was cancelled"));
    EXPECT_PLUMB_OK(plumb_evaluator_probe(evaluator.get, nullptr, 0, nullptr, nullptr, err));
    EXPECT_EQ(Loss(evaluator.get), loss);
  }
}

TEST_F(ReportTest, RefusesGradientsThatWereNotRequested) {
  const ModelHandle model = CreateWithWeights();
  const EvaluatorHandle evaluator = Evaluator(model, 0);
  Loss(evaluator.get);
  auto tensor = MakeStruct<plumb_tensor>();
  EXPECT_THAT(
      Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_evaluator_gradient, evaluator.get, 0, &tensor),
      HasSubstr("options.gradients"));
  auto options = MakeStruct<plumb_evaluator_options>();
  options.gradients = 1;
  options.weights = PLUMB_WEIGHTS_INT8;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT,
                    [&](plumb_error** error) {
                      plumb_evaluator* none = nullptr;
                      return plumb_evaluator_create(model.get, &options, &none, error);
                    }),
              HasSubstr("PLUMB_WEIGHTS_F32"));
  const EvaluatorHandle with = Evaluator(model, 1);
  const std::vector<int32_t> ids(16, 1);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_evaluator_run, with.get, ids.data(),
                    nullptr, 16, nullptr),
              HasSubstr("targets is NULL"));
}

}  // namespace
}  // namespace plumb
