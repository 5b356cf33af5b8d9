// SPDX-License-Identifier: Apache-2.0
// training.hpp: the part of plumb.hpp, which includes it, for probes and trainers.
#ifndef PLUMB_TRAINING_HPP_
#define PLUMB_TRAINING_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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

// Wraps `probe` for ForwardProbe, which plumb.h calls.
template <class Probe>
std::unique_ptr<ProbeFunction> KeepProbe(Probe probe) {
  return std::make_unique<ProbeFunction>([probe](const ProbeInfo& info) mutable {
    return internal::Stops([&] { return probe(info); });
  });
}
inline std::int32_t ForwardProbe(void* user, const plumb_probe* info) {
  return (*static_cast<ProbeFunction*>(user))(*info);
}
inline std::vector<const char*> GetNames(const std::vector<std::string>& points) {
  std::vector<const char*> names;
  for (const std::string& point : points) names.push_back(point.c_str());
  return names;
}

}  // namespace internal

// --- Training -----------------------------------------------------------------------------------

using LossInfo = plumb_loss;

struct TrainerOptions {
  std::string recipe;         // plumb.v1.Train in protobuf text format; "": its defaults
  std::int64_t seq = 0;       // max tokens of a sequence; 0: the model's context_length
  bool draw_weights = false;  // from the recipe's seed, whatever weights the model has
  std::int64_t reserve = 0;   // bytes that must fit into memory next to the trainer
  // Ranks that train together (plumb.h); the object of its context outlives the trainer.
  const plumb_communicator* communicator = nullptr;
  std::int32_t ranks = 0;  // for Plan: number of ranks; 0: the communicator's, or 1
  // Sets the loss of rows and its gradient (plumb_loss_fn); null: the mean cross-entropy.
  std::function<Next(LossInfo& loss)> loss = nullptr;
};

using StepInfo = plumb_step_info;
using TrainerMemory = plumb_trainer_memory;
using ProfileRow = plumb_profile_row;

namespace internal {

// Returns a list of structs: write(array, capacity) writes it, and returns its length.
template <class Element, class Function>
std::vector<Element> GetList(const Function& write) {
  std::vector<Element> list(static_cast<std::size_t>(write(nullptr, 0)), Sized<Element>());
  write(list.data(), static_cast<std::int64_t>(list.size()));
  return list;
}

}  // namespace internal

// Kind of state that a trainer holds between steps.
enum class State : std::int32_t { kModel = PLUMB_STATE_MODEL, kOptimizer = PLUMB_STATE_OPTIMIZER };

// Returns a complete recipe: `recipe`, with settings ("learning_rate", "0.01") applied in order.
inline Result<std::string> RecipeText(
    const std::string& recipe,
    const std::vector<std::pair<std::string, std::string>>& settings = {},
    const std::string& name = "recipe") {
  if (const auto checked = internal::CheckText(recipe); !checked) return checked.error();
  std::vector<const char*> pairs;
  for (const auto& [field, value] : settings) {
    pairs.push_back(field.c_str());
    pairs.push_back(value.c_str());
  }
  return internal::Text([&](char** text, plumb_error** error) {
    return plumb_recipe_text(recipe.c_str(), name.c_str(), pairs.data(), internal::Count(settings),
                             text, error);
  });
}

// Trains a model's weights (plumb_trainer). Thread-compatible, except for Cancel.
class Trainer {
 public:
  // Creates a trainer. A model may have only one at a time.
  static Result<Trainer> Create(Model& model, const TrainerOptions& options = {}) {
    auto loss = std::make_unique<LossFunction>(options.loss);
    plumb_trainer_options given = ToOptions(options);
    given.loss_user = loss.get();
    auto made = internal::Make<Handle>(
        [&](plumb_trainer** trainer, plumb_error** error) {
          return plumb_trainer_create(model.get(), &given, trainer, error);
        },
        model.handle_.get_deleter().host);
    if (!made) return made.error();
    Trainer trainer(*std::move(made));
    trainer.loss_ = std::move(loss);
    return trainer;
  }

  // Computes the memory of a trainer, without allocating it.
  static Result<TrainerMemory> Plan(const Model& model, const TrainerOptions& options = {}) {
    const plumb_trainer_options given = ToOptions(options);
    auto memory = internal::Sized<plumb_trainer_memory>();
    const Result<void> planned = internal::Call([&](plumb_error** error) {
      return plumb_trainer_plan(model.get(), &given, &memory, error);
    });
    if (!planned) return planned.error();
    return memory;
  }
  // Returns the memory of this trainer.
  TrainerMemory Memory() const {
    auto memory = internal::Sized<plumb_trainer_memory>();
    static_cast<void>(internal::Call([&](plumb_error** error) {
      return plumb_trainer_get_memory(handle_.get(), &memory, error);
    }));
    return memory;
  }

  // Returns the number of ids in a step, and the number of completed steps.
  std::size_t StepTokens() const noexcept {
    return static_cast<std::size_t>(plumb_trainer_step_tokens(handle_.get()));
  }
  std::int64_t Steps() const noexcept { return plumb_trainer_steps(handle_.get()); }

  // Does one optimizer step. The target of an input is the id of the next token, or -1 for none.
  Result<StepInfo> Step(Span<const std::int32_t> inputs, Span<const std::int32_t> targets) {
    if (inputs.size() != targets.size()) return internal::TwoLengths(inputs, targets);
    auto info = internal::Sized<plumb_step_info>();
    const Result<void> done = internal::Call([&](plumb_error** error) {
      return plumb_trainer_step(handle_.get(), inputs.data(), targets.data(),
                                internal::Count(inputs), &info, error);
    });
    if (!done) return done.error();
    return info;
  }

  // Does one step on micro-batches that fill(i, inputs, targets, seq) makes: std::int32_t* inputs
  // and targets, [batch_size, seq], and std::int64_t& seq, which may be made smaller.
  template <class Fill>
  Result<StepInfo> StepWithCallback(Fill&& fill) {
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
      return plumb_trainer_step_with_callback(handle_.get(), call, &user, &info, error);
    });
    if (!done) return done.error();
    return info;
  }

  // Does steps until the recipe's max_steps. batch(step, inputs, targets) fills both, each a
  // Span<std::int32_t> of StepTokens(). after(info), with a const StepInfo&, is called after each
  // step.
  template <class Batch, class After>
  Result<void> Run(Batch&& batch, After&& after) {
    return Run(batch, &after);
  }
  template <class Batch>
  Result<void> Run(Batch&& batch) {
    return Run(batch, static_cast<void (*)(const StepInfo&)>(nullptr));
  }
  // Ends Run before its next step. Any thread, and signal handlers.
  void Cancel() const noexcept { plumb_trainer_cancel(handle_.get()); }

  // Returns the gradient of the last step for the i-th parameter, before clipping. A frozen one has
  // none: Code::kFailedPrecondition.
  Result<TensorView<const float>> Gradient(std::size_t i) const {
    return internal::GetTensor<const float>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_trainer_gradient(handle_.get(), static_cast<std::int64_t>(i), tensor, error);
    });
  }

  // Saves weights, optimizer state and the number of steps as one file.
  Result<void> Save(const std::string& path) const {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_save(handle_.get(), path.c_str(), error);
    });
  }
  // Loads such a file, and continues from it to the same bits.
  Result<void> Load(const std::string& path) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_load(handle_.get(), path.c_str(), error);
    });
  }

  // Lets rank 0 write the state of all ranks. All ranks call it; rank 0 calls use(), which may
  // write states and load; its Next::kStop ends the call on all ranks.
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

  // Calls probe(info), with a const ProbeInfo&, in step 1 and every `every`-th step from now on; 0:
  // never. Next::kStop ends the call after the step. Without `points`: streams, norms, logits and
  // parameters.
  template <class Probe>
  Result<void> SetProbe(std::int64_t every, const std::vector<std::string>& points, Probe probe) {
    auto kept = internal::KeepProbe(std::move(probe));
    const std::vector<const char*> names = internal::GetNames(points);
    const Result<void> set = internal::Call([&](plumb_error** error) {
      return plumb_trainer_probe(handle_.get(), every, names.data(), internal::Count(names),
                                 internal::ForwardProbe, kept.get(), error);
    });
    if (set) probe_ = std::move(kept);
    return set;
  }

  // Probes the points without a callback: GetProbes() returns the statistics.
  Result<void> SetProbe(std::int64_t every, const std::vector<std::string>& points = {}) {
    const std::vector<const char*> names = internal::GetNames(points);
    const Result<void> set = internal::Call([&](plumb_error** error) {
      return plumb_trainer_probe(handle_.get(), every, names.data(), internal::Count(names),
                                 nullptr, nullptr, error);
    });
    if (set) probe_ = nullptr;
    return set;
  }
  // Returns the statistics of the last step for each point; empty if it was not probed. Names live
  // until SetProbe().
  std::vector<ProbeInfo> GetProbes() const {
    return internal::GetList<ProbeInfo>([&](plumb_probe* probes, std::int64_t capacity) {
      return plumb_trainer_probes(handle_.get(), probes, capacity);
    });
  }

  // Starts a new profile of the following steps, or ends it.
  Result<void> Profile(bool on) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_profile(handle_.get(), on ? 1 : 0, error);
    });
  }
  // Returns the profile. The first row is the total. Names live until the next call.
  std::vector<ProfileRow> ProfileRows() {
    return internal::GetList<ProfileRow>([&](plumb_profile_row* rows, std::int64_t capacity) {
      return plumb_trainer_profile_rows(handle_.get(), rows, capacity);
    });
  }

  // Returns the learning rate of the next step.
  double LearningRate() const noexcept { return plumb_trainer_learning_rate(handle_.get()); }
  // Multiplies the scheduled learning rate by `scale` from now on.
  Result<void> ScaleLearningRate(double scale) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_scale_learning_rate(handle_.get(), scale, error);
    });
  }
  // Fails with Code::kAborted if a weight, a moment or a norm state is not finite.
  Result<void> Check() const {
    return internal::Call(
        [&](plumb_error** error) { return plumb_trainer_check(handle_.get(), error); });
  }

  // Returns the number of tensors of a state.
  std::size_t StateCount(State state) const noexcept {
    return static_cast<std::size_t>(
        plumb_trainer_state_count(handle_.get(), static_cast<std::int32_t>(state)));
  }
  // Returns the i-th tensor of a state; without data for a matrix that is trained in bf16.
  Result<TensorView<float>> StateTensor(State state, std::size_t i) {
    return internal::GetTensor<float>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_trainer_state(handle_.get(), static_cast<std::int32_t>(state),
                                 static_cast<std::int64_t>(i), tensor, error);
    });
  }
  // Copies elements from `begin` on to or from any state tensor.
  Result<void> ReadState(State state, std::size_t i, std::int64_t begin, Span<float> to) const {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_read_state(handle_.get(), static_cast<std::int32_t>(state),
                                      static_cast<std::int64_t>(i), begin, internal::Count(to),
                                      to.data(), error);
    });
  }
  Result<void> WriteState(State state, std::size_t i, std::int64_t begin, Span<const float> from) {
    return internal::Call([&](plumb_error** error) {
      return plumb_trainer_write_state(handle_.get(), static_cast<std::int32_t>(state),
                                       static_cast<std::int64_t>(i), begin, internal::Count(from),
                                       from.data(), error);
    });
  }
  // Sets the number of completed steps.
  Result<void> SetSteps(std::int64_t steps) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_trainer_set_steps(handle_.get(), steps, error); });
  }

  plumb_trainer* get() const noexcept { return handle_.get(); }

 private:
  // Returns options that point into `options`.
  static plumb_trainer_options ToOptions(const TrainerOptions& options) {
    auto given = internal::Sized<plumb_trainer_options>();
    given.recipe = options.recipe.c_str();
    given.seq = options.seq;
    given.draw_weights = options.draw_weights ? 1 : 0;
    given.reserve = options.reserve;
    given.communicator = options.communicator;
    given.ranks = options.ranks;
    if (options.loss != nullptr) {
      given.loss = [](void* user, plumb_loss* loss) {
        return internal::Stops([&] { return (*static_cast<LossFunction*>(user))(*loss); });
      };
    }
    return given;
  }
  using LossFunction = std::function<Next(LossInfo&)>;
  using Handle = internal::Handle<plumb_trainer, plumb_trainer_free>;
  explicit Trainer(Handle handle) : handle_(std::move(handle)) {}

  template <class Batch, class After>
  Result<void> Run(Batch& batch, After* after) {
    struct Callbacks {
      Batch& batch;
      After* after;
    } callbacks = {batch, after};
    const plumb_batch_fn fill = [](void* user, std::int64_t step, std::int32_t* inputs,
                                   std::int32_t* targets, std::int64_t n) {
      const auto size = static_cast<std::size_t>(n);
      return internal::Stops([&] {
        return static_cast<Callbacks*>(user)->batch(step, Span<std::int32_t>(inputs, size),
                                                    Span<std::int32_t>(targets, size));
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
  std::unique_ptr<LossFunction> loss_;
  Handle handle_;
};

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_TRAINING_HPP_
