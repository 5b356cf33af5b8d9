#include "runtime/tools/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plumb.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/textproto/reader.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/model_description.h"
#include "runtime/tools/norm_files.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/recipe.h"
#include "runtime/tools/run_room.h"
#include "runtime/tools/run_trainer.h"

namespace plumb {

absl::StatusOr<Spec> Spec::FromFile(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
  return FromText(text, path);
}

absl::StatusOr<Spec> Spec::FromText(const std::string& text, const std::string& name) {
  Spec spec(text, name);
  PLUMB_RETURN_IF_ERROR(spec.Make());
  return spec;
}

absl::Status Spec::Make() {
  PLUMB_ASSIGN_OR_RETURN(SpecHandle made, MakeHandle<SpecHandle>(plumb_spec_from_text, text_.data(),
                                                                 text_.size(), name_.c_str()));
  for (const auto& [field, value] : settings_) {
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_spec_set, made.get(), field.c_str(), value.c_str()));
  }
  handle_ = std::move(made);
  return absl::OkStatus();
}

absl::Status Spec::Set(const std::string& field, const std::string& value) {
  Spec changed = *this;
  changed.settings_.emplace_back(field, value);
  PLUMB_RETURN_IF_ERROR(changed.Make());
  *this = std::move(changed);
  return absl::OkStatus();
}

// It cannot fail but for want of memory.
std::string Spec::ToText() const { return *TextOf(plumb_spec_text, handle()); }

int64_t Spec::vocab_size() const {
  v1::Model message;
  textproto::Locations locations;
  const absl::Status read = textproto::ReadText(ToText(), name_, &message, &locations);
  return read.ok() ? message.vocab_size() : 0;
}

struct Model::Impl {
  ModelHandle handle;
};

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

plumb_model* Model::handle() const { return impl_->handle.get(); }

absl::StatusOr<std::unique_ptr<Model>> Model::Create(HostRuntime* runtime, const Spec& spec) {
  auto model = std::unique_ptr<Model>(new Model);
  PLUMB_ASSIGN_OR_RETURN(model->impl_->handle, OrOutOfMemory("the model's description", [&] {
                           return MakeHandle<ModelHandle>(plumb_model_create, runtime->handle(),
                                                          spec.handle());
                         }));
  return model;
}

absl::StatusOr<ModelDescription> Model::Describe() const {
  return OrOutOfMemory("the model's description", [this]() -> absl::StatusOr<ModelDescription> {
    PLUMB_ASSIGN_OR_RETURN(const std::string text, TextOf(plumb_model_describe, handle()));
    return ReadDescription(text);
  });
}

absl::StatusOr<std::string> Model::NormFiles(HostRuntime* runtime) const {
  return NormFilesText(runtime, handle());
}

absl::StatusOr<TrainingMemory> Model::PlanTraining(
    const std::string& train_path,
    const std::vector<std::pair<std::string, std::string>>& train_overrides, int32_t ranks) const {
  return OrOutOfMemory("the training program", [&]() -> absl::StatusOr<TrainingMemory> {
    PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides, ranks));
    plumb_trainer_options options = ToTrainerOptions(recipe);
    options.ranks = ranks;
    auto planned = Sized<plumb_trainer_memory>();
    PLUMB_RETURN_IF_ERROR(
        recipe.InFile(CallPlumb(plumb_trainer_plan, handle(), &options, &planned)));
    auto info = Sized<plumb_model_info>();
    plumb_model_get_info(handle(), &info);
    return ToPublic(planned, recipe, info.context_length);
  });
}

absl::StatusOr<std::string> Model::ExplainUpdates(
    const std::string& train_path,
    const std::vector<std::pair<std::string, std::string>>& train_overrides) const {
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides));
  auto options = Sized<plumb_explain_options>();
  options.stage = "updates";
  options.recipe = recipe.text.data();
  options.recipe_size = recipe.text.size();
  return OrOutOfMemory("the recipe", [&]() -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> text = TextOf(plumb_model_explain, handle(), &options);
    if (!text.ok()) return recipe.InFile(text.status());
    return text;
  });
}

absl::StatusOr<std::string> Model::Explain(
    const std::string& stage, int64_t batch, int64_t seq,
    const std::vector<std::pair<std::string, std::string>>& train_overrides) const {
  auto info = Sized<plumb_model_info>();
  plumb_model_get_info(handle(), &info);
  if (batch < 0) return absl::InvalidArgumentError("batch must be at least 1");
  if (seq < 0 || seq > info.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("seq must be in 1..context_length, which is ", info.context_length));
  }
  v1::Train recipe;
  for (const auto& [field, value] : train_overrides) {
    PLUMB_RETURN_IF_ERROR(Annotate(textproto::SetField(&recipe, field, value), "train."));
  }
  const std::string recipe_text = textproto::PrintText(recipe);
  auto options = Sized<plumb_explain_options>();
  options.stage = stage.c_str();
  options.batch = batch;
  options.seq = seq;
  options.recipe = recipe_text.data();
  options.recipe_size = recipe_text.size();
  return OrOutOfMemory("the model's graph",
                       [&] { return TextOf(plumb_model_explain, handle(), &options); });
}

absl::StatusOr<std::string> Model::Draw(std::optional<int64_t> layer) const {
  return Explain(layer.has_value() ? absl::StrCat("svg:", *layer) : "svg", 0, 0);
}

absl::Status Model::Init(uint64_t seed) {
  return OrOutOfMemory("the parameters",
                       [&] { return CallPlumb(plumb_model_init, handle(), seed); });
}

absl::Status Model::LoadWeights(const std::string& path) {
  return OrOutOfMemory("the weights",
                       [&] { return CallPlumb(plumb_model_load, handle(), path.c_str()); });
}

absl::Status Model::SaveWeights(const std::string& path) const {
  return CallPlumb(plumb_model_save, handle(), path.c_str());
}

absl::StatusOr<std::vector<std::string>> Model::ProbePoints() const {
  PLUMB_ASSIGN_OR_RETURN(const std::string names, TextOf(plumb_model_probe_points, handle()));
  return absl::StrSplit(names, '\n', absl::SkipEmpty());
}

absl::StatusOr<std::vector<std::string>> Model::DefaultProbePoints() const {
  PLUMB_ASSIGN_OR_RETURN(const std::string points, Explain("probes", 0, 0));
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(points, '\n')) {
    if (absl::ConsumePrefix(&line, "* ")) names.emplace_back(line);
  }
  return names;
}

}  // namespace plumb
