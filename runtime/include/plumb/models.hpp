// SPDX-License-Identifier: Apache-2.0
// models.hpp: the part of plumb.hpp, which includes it, for models and their weights.
#ifndef PLUMB_MODELS_HPP_
#define PLUMB_MODELS_HPP_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plumb.h"
#include "plumb/base.hpp"
#include "plumb/runtime.hpp"
#include "plumb/texts.hpp"

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {

// --- Models -------------------------------------------------------------------------------------

using ModelInfo = plumb_model_info;
using Work = plumb_work;

// Pass whose work is counted: forward and backward, or feeding a session.
enum class Pass : std::int32_t { kTraining = PLUMB_PASS_TRAINING, kFeed = PLUMB_PASS_FEED };

// Stage that Model::Explain prints.
enum class Stage : std::int32_t {
  kGraph = PLUMB_EXPLAIN_GRAPH,
  kGradients = PLUMB_EXPLAIN_GRADIENTS,
  kOptimized = PLUMB_EXPLAIN_OPTIMIZED,
  kMemoryPlan = PLUMB_EXPLAIN_MEMORY_PLAN,
  kExecutable = PLUMB_EXPLAIN_EXECUTABLE,
  kPrompt = PLUMB_EXPLAIN_PROMPT,
  kProbes = PLUMB_EXPLAIN_PROBES,
  kUpdates = PLUMB_EXPLAIN_UPDATES,
  kSvg = PLUMB_EXPLAIN_SVG,
  kLayerSvg = PLUMB_EXPLAIN_LAYER_SVG,
  kPyTorch = PLUMB_EXPLAIN_PYTORCH
};

struct ExplainOptions {
  Stage stage = Stage::kGraph;
  std::int64_t layer = 0;  // from 0; Stage::kLayerSvg only
  std::int64_t batch = 1;  // sequences
  std::int64_t seq = 0;    // tokens of each; 0: the model's context_length
  std::string recipe;      // dtype and recompute matter; for "updates" all of it
};

// A model and its weights (plumb_model). Const functions may run on several threads at once; others
// need exclusive access.
class Model {
 public:
  // Creates a model without weights from a description.
  static Result<Model> Create(Runtime& runtime, const Spec& spec) {
    auto made = internal::Make<Handle>(
        [&](plumb_model** model, plumb_error** error) {
          return plumb_model_create(runtime.get(), spec.get(), model, error);
        },
        runtime.handle_.get_deleter().host);
    if (!made) return made.error();
    return Model(*std::move(made));
  }

  // Returns the dimensions and sizes of the model; zeros for a model that was moved from.
  ModelInfo Info() const {
    auto info = internal::Sized<plumb_model_info>();
    static_cast<void>(internal::Call(
        [&](plumb_error** error) { return plumb_model_get_info(handle_.get(), &info, error); }));
    return info;
  }

  // Describes the resolved model as JSON.
  Result<std::string> Describe() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_model_describe(handle_.get(), text, error);
    });
  }
  // Prints a stage of the compiler, for people.
  Result<std::string> Explain(const ExplainOptions& options) const {
    auto given = internal::Sized<plumb_explain_options>();
    given.stage = static_cast<std::int32_t>(options.stage);
    given.layer = options.layer;
    given.batch = options.batch;
    given.seq = options.seq;
    given.recipe = options.recipe.c_str();
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_model_explain(handle_.get(), &given, text, error);
    });
  }
  // Counts the min work of a pass over one sequence of `tokens` tokens. A training pass has no
  // part for the tensors that `recipe` freezes.
  Result<PLUMB_HPP_NAMESPACE::Work> Work(Pass pass, std::int64_t tokens,
                                         Weights weights = Weights::kF32,
                                         const std::string& recipe = {}) const {
    auto work = internal::Sized<plumb_work>();
    const Result<void> counted = internal::Call([&](plumb_error** error) {
      return plumb_model_work(handle_.get(), static_cast<std::int32_t>(pass), tokens,
                              static_cast<std::int32_t>(weights), recipe.c_str(), &work, error);
    });
    if (!counted) return counted.error();
    return work;
  }

  // Lists the names that Trainer::SetProbe takes, one per line.
  Result<std::string> ProbePoints() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_model_probe_points(handle_.get(), text, error);
    });
  }

  // Draws the weights from a seed. Init, Load, LoadMemory, Map or MapTensors gives a model its
  // weights.
  Result<void> Init(std::uint64_t seed) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_model_init(handle_.get(), seed, error); });
  }
  // Reads the weights from a safetensors file.
  Result<void> Load(const std::string& path) {
    return internal::Call([&](plumb_error** error) {
      return plumb_model_load(handle_.get(), path.c_str(), nullptr, error);
    });
  }
  // Reads the weights from the content of a safetensors file, which is not kept.
  Result<void> LoadMemory(const void* data, std::size_t size) {
    return internal::Call([&](plumb_error** error) {
      return plumb_model_load_memory(handle_.get(), data, size, error);
    });
  }
  // Reads those weights of a file that the model has. Returns the tensors that only one of them
  // has, one per line: "missing: NAME", "surplus: NAME".
  Result<std::string> LoadPartial(const std::string& path) {
    return internal::Text([&](char** left, plumb_error** error) {
      return plumb_model_load(handle_.get(), path.c_str(), left, error);
    });
  }
  // Maps the weights: they stay in the file and are read on demand.
  Result<void> Map(const std::string& path) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_model_map(handle_.get(), path.c_str(), error); });
  }
  // Maps tensors that are stored anywhere in files. Sets their struct_size.
  Result<void> MapTensors(std::vector<plumb_tensor_in_file> tensors) {
    for (plumb_tensor_in_file& tensor : tensors) tensor.struct_size = sizeof(tensor);
    return internal::Call([&](plumb_error** error) {
      return plumb_model_map_tensors(handle_.get(), tensors.data(), internal::Count(tensors),
                                     error);
    });
  }
  // Saves the weights as safetensors, replacing the file atomically. `tensors`: only those whose
  // name matches, in which * is any text: "*.lora_*".
  Result<void> Save(const std::string& path, const std::string& tensors = "*") const {
    return internal::Call([&](plumb_error** error) {
      return plumb_model_save(handle_.get(), path.c_str(), tensors.c_str(), error);
    });
  }
  // Creates a model without this one's adapter, whose updates are added to the weights.
  Result<Model> Merge() const {
    auto made = internal::Make<Handle>(
        [&](plumb_model** merged, plumb_error** error) {
          return plumb_model_merge(handle_.get(), merged, error);
        },
        handle_.get_deleter().host);
    if (!made) return made.error();
    return Model(*std::move(made));
  }

  // Returns the number of parameters.
  std::size_t TensorCount() const noexcept {
    return static_cast<std::size_t>(plumb_model_tensor_count(handle_.get()));
  }
  // Returns the index of a parameter, also for its gradients; nothing if there is none.
  std::optional<std::size_t> FindTensor(const std::string& name) const noexcept {
    const std::int64_t i = plumb_model_find_tensor(handle_.get(), name.c_str());
    if (i < 0) return std::nullopt;
    return static_cast<std::size_t>(i);
  }
  // Copies elements of the i-th parameter from `begin` on, also of one that was trained in bf16.
  Result<void> ReadTensor(std::size_t i, std::int64_t begin, Span<float> to) const {
    return internal::Call([&](plumb_error** error) {
      return plumb_model_read_tensor(handle_.get(), static_cast<std::int64_t>(i), begin,
                                     internal::Count(to), to.data(), error);
    });
  }
  // Returns a parameter, which may be written to while nothing else uses the model.
  Result<TensorView<float>> Tensor(std::size_t i) { return View<float>(i); }
  Result<TensorView<const float>> Tensor(std::size_t i) const { return View<const float>(i); }
  // Makes sessions and evaluators use new weights, after tensors were written to.
  void Changed() noexcept { plumb_model_changed(handle_.get()); }

  // Returns a self-contained description, which includes placements and imports.
  Result<std::string> Text() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_model_text(handle_.get(), text, error);
    });
  }
  // Lists the norms of the layers: JSON, {ID: version}.
  Result<std::string> Norms() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_model_norms(handle_.get(), text, error);
    });
  }

  plumb_model* get() const noexcept { return handle_.get(); }

 private:
  friend class Trainer;
  friend struct Run;
  friend class Session;
  friend class Evaluator;
  using Handle = internal::Handle<plumb_model, plumb_model_free>;
  explicit Model(Handle handle) : handle_(std::move(handle)) {}
  template <class T>
  Result<TensorView<T>> View(std::size_t i) const {
    return internal::GetTensor<T>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_model_tensor(handle_.get(), static_cast<std::int64_t>(i), tensor, error);
    });
  }
  Handle handle_;
};

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_MODELS_HPP_
