// SPDX-License-Identifier: Apache-2.0
// training.hpp: the part of plumb.hpp, which includes it, that is about probes and trainers.
#ifndef PLUMB_TRAINING_HPP_
#define PLUMB_TRAINING_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "plumb.h"
#include "plumb/base.hpp"
#include "plumb/models.hpp"

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {

// --- Probes -------------------------------------------------------------------------------------

using ProbeInfo = plumb_probe;

namespace internal {

using ProbeFunction = std::function<std::int32_t(const ProbeInfo&)>;

// `probe`, as plumb.h calls it by TellProbe.
template <class Probe>
std::unique_ptr<ProbeFunction> KeepProbe(Probe probe) {
  return std::make_unique<ProbeFunction>([probe](const ProbeInfo& info) mutable {
    return internal::Stops([&] { return probe(info); });
  });
}
inline std::int32_t TellProbe(void* user, const plumb_probe* info) {
  return (*static_cast<ProbeFunction*>(user))(*info);
}
inline std::vector<const char*> NamesOf(const std::vector<std::string>& points) {
  std::vector<const char*> names;
  for (const std::string& point : points) names.push_back(point.c_str());
  return names;
}

}  // namespace internal

// --- Training -----------------------------------------------------------------------------------

struct TrainerOptions {
  std::string recipe;         // plumb.v1.Train in protobuf text format; "": its defaults
  std::int64_t seq = 0;       // tokens of a sequence, at most; 0: the model's context_length
  bool draw_weights = false;  // from the recipe's seed, whatever the model has
  std::int64_t reserve = 0;   // bytes that memory must hold beside the trainer
  // Of several processes that train together, as plumb.h says; must outlive the trainer.
  const plumb_communicator* communicator = nullptr;
  std::int32_t ranks = 0;  // for Plan: of so many; 0: one, or the communicator's
};

using StepInfo = plumb_step_info;
using TrainerMemory = plumb_trainer_memory;
using ProfileRow = plumb_profile_row;

namespace internal {

// All that row_of(i, row), a status, gives.
template <class Function>
std::vector<ProfileRow> ProfileRowsOf(const Function& row_of) {
  std::vector<ProfileRow> rows;
  auto next = Sized<plumb_profile_row>();
  while (row_of(rows.size(), &next) == PLUMB_OK) rows.push_back(next);
  return rows;
}

}  // namespace internal

// Of what a trainer holds between steps.
enum class State : std::int32_t { kModel = PLUMB_STATE_MODEL, kOptimizer = PLUMB_STATE_OPTIMIZER };

// A recipe in full: `text`, then settings ("learning_rate", "0.01") in order.
inline Result<std::string> RecipeText(
    std::string_view text, const std::vector<std::pair<std::string, std::string>>& settings = {},
    const std::string& name = "recipe") {
  std::vector<const char*> pairs;
  for (const auto& [field, value] : settings) {
    pairs.push_back(field.c_str());
    pairs.push_back(value.c_str());
  }
  return internal::Text(
      [&](char* buffer, std::size_t capacity, std::size_t* needed, plumb_error** error) {
        return plumb_recipe_text(text.data(), text.size(), name.c_str(), pairs.data(),
                                 settings.size(), buffer, capacity, needed, error);
      });
}

class Trainer {
 public:
  static Result<Trainer> Create(Model& model, const TrainerOptions& options = {}) {
    const plumb_trainer_options given = ToOptions(options);
    auto made = internal::Make<Handle>(
        [&](plumb_trainer** trainer, plumb_error** error) {
          return plumb_trainer_create(model.get(), &given, trainer, error);
        },
        model.handle_.get_deleter().host);
    if (!made) return made.error();
    return Trainer(*std::move(made));
  }

  // What a trainer would take of memory; takes none of it.
  static Result<TrainerMemory> Plan(const Model& model, const TrainerOptions& options = {}) {
    const plumb_trainer_options given = ToOptions(options);
    auto memory = internal::Sized<plumb_trainer_memory>();
    const Result<void> planned = internal::Call([&](plumb_error** error) {
      return plumb_trainer_plan(model.get(), &given, &memory, error);
    });
    if (!planned) return planned.error();
    return memory;
  }
  TrainerMemory Memory() const noexcept {
    auto memory = internal::Sized<plumb_trainer_memory>();
    plumb_trainer_get_memory(handle_.get(), &memory);
    return memory;
  }

  std::size_t StepTokens() const noexcept { return plumb_trainer_step_tokens(handle_.get()); }
  std::int64_t Steps() const noexcept { return plumb_trainer_steps(handle_.get()); }

  // One optimizer step. The target of an input is the token after it, or -1.
  Result<StepInfo> Step(Span<const std::int32_t> inputs, Span<const std::int32_t> targets) {
    if (inputs.size() != targets.size()) return internal::TwoLengths(inputs, targets);
    auto info = internal::Sized<plumb_step_info>();
    const Result<void> done = internal::Call([&](plumb_error** error) {
      return plumb_trainer_step(handle_.get(), inputs.data(), targets.data(), inputs.size(), &info,
                                error);
    });
    if (!done) return done.error();
    return info;
  }

  // The same on micro-batches that fill(i, inputs, targets, seq) makes: std::int32_t* inputs and
  // targets, of [batch_size, seq], and std::int64_t& seq, which may be made smaller. Next::kStop:
  // there is none, and the step fails with Code::kCancelled.
  template <class Fill>
  Result<StepInfo> StepFilled(Fill&& fill) {
    struct User {
      std::remove_reference_t<Fill>& fill;
    } user = {fill};
    const plumb_micro_batch_fn call = [](void* self, std::int64_t i, std::int32_t* inputs,
                                         std::int32_t* targets, std::int64_t* seq) {
      return internal::Stops(
          [&] { return static_cast<User*>(self)->fill(i, inputs, targets, *seq); });
    };
    auto info = internal::Sized<plumb_step_info>();
    const Result<void> done = internal::Call([&](plumb_error** error) {
      return plumb_trainer_step_filled(handle_.get(), call, &user, &info, error);
    });
    if (!done) return done.error();
    return info;
  }

  // batch(step, inputs, targets): fills both, Span<std::int32_t> of StepTokens(); Next::kStop ends
  // the run. after(info), a const StepInfo&: Next::kStop ends it with Code::kCancelled.
  template <class Batch, class After>
  Result<void> Run(Batch&& batch, After&& after) {
    return Run(batch, &after);
  }
  template <class Batch>
  Result<void> Run(Batch&& batch) {
    return Run(batch, static_cast<void (*)(const StepInfo&)>(nullptr));
  }
  // Any thread, and signal handlers.
  void Cancel() const noexcept { plumb_trainer_cancel(handle_.get()); }

  // The gradient of the i-th parameter in the last step, before clipping.
  Result<TensorView<const float>> Gradient(std::size_t i) const {
    return internal::TensorOf<const float>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_trainer_gradient(handle_.get(), i, tensor, error);
    });
  }

  // Weights and the state of the optimizer, into a file and back.
  Result<void> Save(const std::string& path) const {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_save(handle_.get(), path.c_str(), error);
    });
  }
  Result<void> Load(const std::string& path) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_load(handle_.get(), path.c_str(), error);
    });
  }

  // All ranks call it; rank 0 calls use(), which may read and write all states, save and load. It
  // returns nothing or Next: Next::kStop is Code::kCancelled on all ranks.
  template <class Use>
  Result<void> ShareStates(Use&& use) {
    struct User {
      std::remove_reference_t<Use>& use;
    } user = {use};
    const auto call = [](void* self) -> std::int32_t {
      return internal::Stops([&] { return static_cast<User*>(self)->use(); });
    };
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_share_states(handle_.get(), call, &user, error);
    });
  }

  // From now on tells probe(info), a const ProbeInfo&, of step 1 and every `every`-th; 0: of none.
  // Next::kStop ends a run. `points`, none: streams, norms, logits and parameters.
  template <class Probe>
  Result<void> SetProbe(std::int64_t every, const std::vector<std::string>& points, Probe probe) {
    auto kept = internal::KeepProbe(std::move(probe));
    const std::vector<const char*> names = internal::NamesOf(points);
    const Result<void> set = internal::Call([&](plumb_error** error) {
      return plumb_trainer_probe(handle_.get(), every, names.data(), names.size(),
                                 internal::TellProbe, kept.get(), error);
    });
    if (set) probe_ = std::move(kept);
    return set;
  }

  // From now on probes the points without telling of tensors: Probed() has the figures.
  Result<void> SetProbe(std::int64_t every, const std::vector<std::string>& points = {}) {
    const std::vector<const char*> names = internal::NamesOf(points);
    const Result<void> set = internal::Call([&](plumb_error** error) {
      return plumb_trainer_probe(handle_.get(), every, names.data(), names.size(), nullptr, nullptr,
                                 error);
    });
    if (set) probe_ = nullptr;
    return set;
  }
  // The figures of the last step, point by point; none if it was not probed. Names live until
  // SetProbe().
  std::vector<ProbeInfo> Probed() const {
    std::vector<ProbeInfo> figures;
    auto next = internal::Sized<plumb_probe>();
    while (plumb_trainer_probed(handle_.get(), figures.size(), &next, nullptr) == PLUMB_OK) {
      figures.push_back(next);
    }
    return figures;
  }

  // From now on steps are timed, into a new profile; or no more.
  Result<void> Profile(bool on) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_profile(handle_.get(), on ? 1 : 0, error);
    });
  }
  // The first is of the steps as a whole. Names live until the next call.
  std::vector<ProfileRow> ProfileRows() {
    return internal::ProfileRowsOf([&](std::size_t i, plumb_profile_row* row) {
      return plumb_trainer_profile_row(handle_.get(), i, row, nullptr);
    });
  }

  double LearningRate() const noexcept { return plumb_trainer_learning_rate(handle_.get()); }
  // From now on it is the schedule's times `scale`.
  Result<void> ScaleLearningRate(double scale) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_scale_learning_rate(handle_.get(), scale, error);
    });
  }
  // Code::kAborted when a number is not finite.
  Result<void> Check() const {
    return internal::Call(
        [&](plumb_error** error) { return plumb_trainer_check(handle_.get(), error); });
  }

  // The i-th tensor of a state; without data where a matrix is trained in bf16.
  Result<TensorView<float>> StateTensor(State state, std::size_t i) {
    return internal::TensorOf<float>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_trainer_state(handle_.get(), static_cast<std::int32_t>(state), i, tensor, error);
    });
  }
  // Elements from `begin` on, of any tensor.
  Result<void> ReadState(State state, std::size_t i, std::int64_t begin, Span<float> to) const {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_read_state(handle_.get(), static_cast<std::int32_t>(state), i, begin,
                                      static_cast<std::int64_t>(to.size()), to.data(), error);
    });
  }
  Result<void> WriteState(State state, std::size_t i, std::int64_t begin, Span<const float> from) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_write_state(handle_.get(), static_cast<std::int32_t>(state), i, begin,
                                       static_cast<std::int64_t>(from.size()), from.data(), error);
    });
  }
  // The steps that count as done.
  Result<void> SetSteps(std::int64_t steps) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_trainer_set_steps(handle_.get(), steps, error); });
  }

  plumb_trainer* get() const noexcept { return handle_.get(); }

 private:
  // As long as `options` is.
  static plumb_trainer_options ToOptions(const TrainerOptions& options) {
    auto given = internal::Sized<plumb_trainer_options>();
    given.recipe = options.recipe.data();
    given.recipe_size = options.recipe.size();
    given.seq = options.seq;
    given.draw_weights = options.draw_weights ? 1 : 0;
    given.reserve = options.reserve;
    given.communicator = options.communicator;
    given.ranks = options.ranks;
    return given;
  }
  using Handle = internal::Handle<plumb_trainer, plumb_trainer_free>;
  explicit Trainer(Handle handle) : handle_(std::move(handle)) {}

  template <class Batch, class After>
  Result<void> Run(Batch& batch, After* after) {
    struct Callbacks {
      Batch& batch;
      After* after;
    } callbacks = {batch, after};
    const plumb_batch_fn fill = [](void* user, std::int64_t step, std::int32_t* inputs,
                                   std::int32_t* targets, std::size_t n) {
      return internal::Stops([&] {
        return static_cast<Callbacks*>(user)->batch(step, Span<std::int32_t>(inputs, n),
                                                    Span<std::int32_t>(targets, n));
      });
    };
    const plumb_step_fn tell = [](void* user, const plumb_step_info* info) {
      return internal::Stops([&] { return (*static_cast<Callbacks*>(user)->after)(*info); });
    };
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_run(handle_.get(), fill, after == nullptr ? nullptr : tell, &callbacks,
                               error);
    });
  }
  std::unique_ptr<internal::ProbeFunction> probe_;
  Handle handle_;
};

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_TRAINING_HPP_
