// SPDX-License-Identifier: Apache-2.0
// Tests of trainers that are saved and loaded, of probes, evaluators and mapped weights: all equal
// what they represent, bit for bit.
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/capi/host_life.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocabulary = 40;

int32_t FillStep(void*, int64_t step, int32_t* inputs, int32_t* targets, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    inputs[i] = static_cast<int32_t>((i * 11 + step * 3) % kVocabulary);
    targets[i] = i % 5 == 0 ? -1 : static_cast<int32_t>((i * 7 + 1) % kVocabulary);
  }
  return 0;
}

class TrainerTest : public ::testing::Test {
 protected:
  ModelHandle Create(const std::string& text) {
    SpecHandle spec;
    ModelHandle model;
    EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "test", &spec.get, err));
    EXPECT_PLUMB_OK(plumb_model_create(runtime_.get, spec.get, &model.get, err));
    return model;
  }
  ModelHandle CreateWithWeights(const std::string& text, uint64_t seed) {
    ModelHandle model = Create(text);
    EXPECT_PLUMB_OK(plumb_model_init(model.get, seed, err));
    return model;
  }
  static TrainerHandle Train(plumb_model* model, const std::string& recipe) {
    TrainerHandle trainer;
    const plumb_trainer_options options = Recipe(recipe.c_str());
    EXPECT_PLUMB_OK(plumb_trainer_create(model, &options, &trainer.get, err));
    return trainer;
  }
  std::string Save(const plumb_model* model, const std::string& name) {
    const std::string path = absl::StrCat(scratch_.path(), "/", name);
    EXPECT_PLUMB_OK(plumb_model_save(model, path.c_str(), nullptr, err));
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<float> Logits(plumb_model* model, int32_t weights = PLUMB_WEIGHTS_F32) {
    auto options = MakeStruct<plumb_session_options>();
    options.weights = weights;
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model, &options, &session.get, err));
    const int32_t prompt[] = {1, 2, 3};
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, prompt, 3, err));
    const float* const logits = plumb_session_logits(session.get, 0);
    auto info = MakeStruct<plumb_model_info>();
    EXPECT_PLUMB_OK(plumb_model_get_info(model, &info, err));
    return {logits, logits + info.vocab_size};
  }

  RuntimeHandle runtime_ = MakeHostRuntime(nullptr, nullptr);
  ScratchDir scratch_;
};

TEST_F(TrainerTest, ContinuesFromItsFile) {
  for (const char* const dtype : {"F32", "BF16"}) {
    SCOPED_TRACE(dtype);
    const auto recipe = [&](int steps) {
      return absl::StrCat("max_steps: ", steps,
                          " decay_steps: 6 batch_size: 2 gradient_accumulation_steps: 2 schedule: "
                          "COSINE learning_rate: 0.01 dtype: ",
                          dtype);
    };
    const std::string path = absl::StrCat(scratch_.path(), "/trainer.safetensors");
    const ModelHandle whole = CreateWithWeights(WideModel(), 3);
    const TrainerHandle whole_trainer = Train(whole.get, recipe(6));
    EXPECT_PLUMB_OK(plumb_trainer_run(whole_trainer.get, FillStep, nullptr, nullptr, err));
    {
      const ModelHandle half = CreateWithWeights(WideModel(), 3);
      const TrainerHandle trainer = Train(half.get, recipe(3));
      EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, FillStep, nullptr, nullptr, err));
      EXPECT_PLUMB_OK(plumb_trainer_save(trainer.get, path.c_str(), err));
    }
    const ModelHandle rest = CreateWithWeights(WideModel(), 77);
    const TrainerHandle trainer = Train(rest.get, recipe(6));
    EXPECT_PLUMB_OK(plumb_trainer_load(trainer.get, path.c_str(), err));
    EXPECT_EQ(plumb_trainer_steps(trainer.get), 3);
    auto tensor = MakeStruct<plumb_tensor>();
    EXPECT_EQ(plumb_trainer_gradient(trainer.get, 0, &tensor, nullptr),
              PLUMB_STATUS_FAILED_PRECONDITION);
    EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, FillStep, nullptr, nullptr, err));
    EXPECT_EQ(plumb_trainer_steps(trainer.get), 6);
    EXPECT_EQ(Save(rest.get, "rest"), Save(whole.get, "whole"));
  }
}

TEST_F(TrainerTest, TrainerFileHasTheWeights) {
  const ModelHandle trained = CreateWithWeights(WideModel(), 3);
  const TrainerHandle trainer = Train(trained.get, "max_steps: 2 batch_size: 2");
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, FillStep, nullptr, nullptr, err));
  const std::string path = absl::StrCat(scratch_.path(), "/trainer");
  EXPECT_PLUMB_OK(plumb_trainer_save(trainer.get, path.c_str(), err));
  const ModelHandle loaded = Create(WideModel()), mapped = Create(WideModel());
  EXPECT_PLUMB_OK(plumb_model_load(loaded.get, path.c_str(), nullptr, err));
  EXPECT_PLUMB_OK(plumb_model_map(mapped.get, path.c_str(), err));
  EXPECT_EQ(Logits(loaded.get), Logits(trained.get));
  EXPECT_EQ(Logits(mapped.get), Logits(trained.get));
}

TEST_F(TrainerTest, WarnsOfATrainerOfAnotherModel) {
  std::string log;
  auto options = MakeStruct<plumb_runtime_options>();
  options.log = [](void* user, int32_t, const char* message) {
    static_cast<std::string*>(user)->append(message);
  };
  options.log_user = &log;
  plumb_runtime_free(std::exchange(runtime_.get, nullptr));
  EXPECT_PLUMB_OK(plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime_.get, err));
  const std::string path = absl::StrCat(scratch_.path(), "/trainer");
  const auto train = [&](const std::string& text, bool saves) {
    const ModelHandle model = CreateWithWeights(text, 3);
    const TrainerHandle trainer = Train(model.get, "max_steps: 2 batch_size: 2");
    EXPECT_PLUMB_OK(saves ? plumb_trainer_save(trainer.get, path.c_str(), err)
                          : plumb_trainer_load(trainer.get, path.c_str(), err));
  };
  TinyModel model;
  train(model.Text(), true);
  train(model.Text(), false);
  EXPECT_EQ(log, "");
  model.n_head = 1;  // tensors of the same shapes
  model.n_kv_head = 1;
  train(model.Text(), false);
  EXPECT_THAT(log, HasSubstr("another model: \"n_head: 2\" there and \"n_head: 1\" here"));
}

TEST_F(TrainerTest, RefusesInvalidSavedNumbers) {
  const ModelHandle model = CreateWithWeights(WideModel(), 3);
  const TrainerHandle trainer = Train(model.get, "max_steps: 4 batch_size: 2");
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, FillStep, nullptr, nullptr, err));
  const std::string path = absl::StrCat(scratch_.path(), "/trainer");
  EXPECT_PLUMB_OK(plumb_trainer_save(trainer.get, path.c_str(), err));
  std::ifstream in(path, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(in), {});
  const std::string before = Save(model.get, "weights");
  const auto refused = [&](std::string changed) {
    std::ofstream(path, std::ios::binary) << changed;
    Fails(PLUMB_STATUS_DATA_LOSS, plumb_trainer_load, trainer.get, path.c_str());
    EXPECT_EQ(Save(model.get, "weights"), before);
  };
  // The last number in the file is a second moment.
  for (const float wrong : {-1.0f, std::nanf(""), HUGE_VALF}) {
    std::string changed = content;
    std::memcpy(&changed[changed.size() - sizeof(wrong)], &wrong, sizeof(wrong));
    refused(changed);
  }
}

TEST_F(TrainerTest, RefusedFileChangesNothing) {
  const ModelHandle model = CreateWithWeights(WideModel(), 3);
  const TrainerHandle trainer = Train(model.get, "batch_size: 2");
  const std::string before = Save(model.get, "weights");
  const auto load = [&](const std::string& name) {
    return [&, name](plumb_error** e) {
      return plumb_trainer_load(trainer.get, absl::StrCat(scratch_.path(), "/", name).c_str(), e);
    };
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, load("weights")),
              HasSubstr("not a trainer's file"));
  EXPECT_THAT(Fails(PLUMB_STATUS_NOT_FOUND, load("nothing")), HasSubstr("nothing"));
  {
    const ModelHandle tiny = CreateWithWeights(TinyModel().Text(), 1);
    const TrainerHandle other = Train(tiny.get, "batch_size: 2");
    EXPECT_PLUMB_OK(
        plumb_trainer_save(other.get, absl::StrCat(scratch_.path(), "/other").c_str(), err));
  }
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, load("other")), HasSubstr("misshapen: weight."));
  EXPECT_EQ(Save(model.get, "weights"), before);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 0);
}

struct Seen {
  std::map<std::string, int> times;
  std::string wrong;
  int64_t step = 0;
  int stop_after = -1;
};

int32_t Look(void* user, const plumb_probe* probe) {
  auto* const seen = static_cast<Seen*>(user);
  seen->step = probe->step;
  ++seen->times[absl::StrCat(probe->kind, " ", probe->name)];
  int64_t n = 1;
  for (const int64_t size : probe->shape) n *= size;
  double squares = 0, largest = 0;
  const auto* const x = static_cast<const float*>(probe->data);
  for (int64_t i = 0; i < n; ++i) {
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    largest = std::max(largest, static_cast<double>(std::fabs(x[i])));
  }
  const double rms = std::sqrt(squares / static_cast<double>(n));
  if (n != probe->elements || probe->dtype != PLUMB_DTYPE_F32 || largest != probe->max ||
      std::fabs(rms - probe->rms) > 1e-6 * (1 + rms)) {
    absl::StrAppend(&seen->wrong, probe->name, " rms ", probe->rms, " is ", rms, "; ");
  }
  return seen->stop_after >= 0 && seen->stop_after-- == 0 ? 1 : 0;
}

TEST_F(TrainerTest, ProbesSeeTheTensorsOfAStep) {
  const std::string recipe =
      "max_steps: 4 batch_size: 2 gradient_accumulation_steps: 2 learning_rate: 0.01";
  const ModelHandle plain = CreateWithWeights(WideModel(), 3);
  const TrainerHandle plain_trainer = Train(plain.get, recipe);
  EXPECT_PLUMB_OK(plumb_trainer_run(plain_trainer.get, FillStep, nullptr, nullptr, err));

  const ModelHandle model = CreateWithWeights(WideModel(), 3);
  const TrainerHandle trainer = Train(model.get, recipe);
  Seen seen;
  const char* const points[] = {"layers.*.residual", "grad.logits", "param.layers.0.mlp.*"};
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 3, points, 3, Look, &seen, err));
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, FillStep, nullptr, nullptr, err));
  EXPECT_EQ(seen.wrong, "");
  EXPECT_EQ(seen.step, 3);
  EXPECT_EQ(seen.times["0 layers.0.residual"], 4);  // steps 1 and 3, two micro-batches each
  EXPECT_EQ(seen.times["1 logits"], 4);
  EXPECT_EQ(seen.times["2 layers.0.mlp.up.weight"], 2);
  EXPECT_EQ(seen.times["3 layers.0.mlp.up.weight"], 2);
  EXPECT_EQ(seen.times.count("0 logits"), 0u);
  EXPECT_EQ(Save(model.get, "probed"), Save(plain.get, "plain"));

  // Every point that the model lists can be probed, and all are listed.
  const std::string names = GetText(plumb_model_probe_points, model.get);
  std::vector<std::string> listed = absl::StrSplit(names, '\n', absl::SkipEmpty());
  EXPECT_THAT(listed, testing::Contains("layers.0.residual"));
  EXPECT_THAT(listed, testing::Contains("param.layers.0.mlp.up.weight"));
  std::vector<const char*> all;
  for (const std::string& name : listed) all.push_back(name.c_str());
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 1, all.data(), all.size(), Look, &seen, err));

  const char* const wrong[] = {"layers.*.residul"};
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_probe, trainer.get, 1, wrong, 1,
                    Look, &seen),
              HasSubstr("layers.*.residul"));
}

TEST_F(TrainerTest, AProbeMayEndTheRun) {
  const ModelHandle model = CreateWithWeights(WideModel(), 3);
  const TrainerHandle trainer = Train(model.get, "max_steps: 9 batch_size: 2");
  Seen seen;
  seen.stop_after = 2;
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 1, nullptr, 0, Look, &seen, err));
  EXPECT_EQ(plumb_trainer_run(trainer.get, FillStep, nullptr, nullptr, nullptr),
            PLUMB_STATUS_CANCELLED);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 1);
}

TEST_F(TrainerTest, EvaluatorReturnsLossAndLogits) {
  const ModelHandle model = CreateWithWeights(WideModel(), 3);
  auto options = MakeStruct<plumb_evaluator_options>();
  options.rows = 2;
  options.logits = 1;
  EvaluatorHandle evaluator;
  EXPECT_PLUMB_OK(plumb_evaluator_create(model.get, &options, &evaluator.get, err));
  EXPECT_EQ(plumb_evaluator_logits(evaluator.get), nullptr);
  for (const size_t seq : {size_t{64}, size_t{3}, size_t{64}}) {
    std::vector<int32_t> inputs(2 * seq), targets(2 * seq);
    FillStep(nullptr, 1, inputs.data(), targets.data(), inputs.size());
    double loss = 0;
    EXPECT_PLUMB_OK(plumb_evaluator_run(evaluator.get, inputs.data(), targets.data(), inputs.size(),
                                        &loss, err));
    const float* const logits = plumb_evaluator_logits(evaluator.get);
    ASSERT_NE(logits, nullptr);
    double sum = 0;
    int count = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (targets[i] < 0) continue;
      double total = 0;
      const float* const row = logits + i * kVocabulary;
      for (int64_t v = 0; v < kVocabulary; ++v) total += std::exp(static_cast<double>(row[v]));
      sum += std::log(total) - static_cast<double>(row[targets[i]]);
      ++count;
    }
    EXPECT_NEAR(loss, sum / count, 1e-5);
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, inputs.data() + seq, seq, err));
    const float* const last = plumb_session_logits(session.get, 0);
    for (int64_t v = 0; v < kVocabulary; ++v) {
      const float whole = logits[static_cast<int64_t>(2 * seq - 1) * kVocabulary + v];
      EXPECT_NEAR(last[v], whole, 1e-4f);
    }
  }
  const std::vector<int32_t> ids(6, 1), none(6, -1);
  double loss = 0;
  const auto run = [&](const int32_t* targets, size_t n, double* to) {
    return [&, targets, n, to](plumb_error** e) {
      return plumb_evaluator_run(evaluator.get, ids.data(), targets, n, to, e);
    };
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, run(ids.data(), 5, &loss)), HasSubstr("2 rows"));
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, run(none.data(), 6, &loss)),
              HasSubstr("all are -1"));
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, run(nullptr, 6, &loss)), HasSubstr("NULL"));
  EXPECT_PLUMB_OK(plumb_evaluator_run(evaluator.get, ids.data(), nullptr, 6, nullptr, err));
}

TEST_F(TrainerTest, MappedWeightsEqualTheFile) {
  TinyModel odd;  // tensors of 8, 12 and 5 floats: most are not at multiples of 64 bytes
  for (const std::string& text : {WideModel(), odd.Text()}) {
    const ModelHandle model = CreateWithWeights(text, 3);
    const std::string content = Save(model.get, "weights");
    const std::string path = absl::StrCat(scratch_.path(), "/weights");
    const ModelHandle mapped = Create(text);
    EXPECT_PLUMB_OK(plumb_model_map(mapped.get, path.c_str(), err));
    for (const int32_t weights : {PLUMB_WEIGHTS_F32, PLUMB_WEIGHTS_BF16, PLUMB_WEIGHTS_INT8}) {
      EXPECT_EQ(Logits(mapped.get, weights), Logits(model.get, weights));
    }
    EXPECT_EQ(Save(mapped.get, "again"), content);
  }
  const ModelHandle model = CreateWithWeights(WideModel(), 3);
  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
  const auto map = [&](const std::string& name) {
    return [&, name](plumb_error** e) {
      return plumb_model_map(model.get, absl::StrCat(scratch_.path(), "/", name).c_str(), e);
    };
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION, map("weights")), HasSubstr("sessions"));
  plumb_session_free(std::exchange(session.get, nullptr));
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, map("weights")), HasSubstr("misshapen"));
  EXPECT_THAT(Fails(PLUMB_STATUS_NOT_FOUND, map("nothing")), HasSubstr("nothing"));
  EXPECT_EQ(Logits(model.get).size(), static_cast<size_t>(kVocabulary));
}

}  // namespace
}  // namespace plumb
