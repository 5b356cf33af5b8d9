// plumb.hpp: plumb.h for C++17 and later. Header-only; what it needs is plumb.h, libplumb.so and
// the standard library. What functions do, and what may run beside what, plumb.h says: each is
// called here by the name that it has there.
//
// - A handle is a value that moves and frees itself, in any order. Calls on one that was moved from
//   return an error.
// - What can fail returns a Result<T>, which must be looked at: `if (result)` and *result, or
//   result.value(), which throws its Error. Without exceptions (-fno-exceptions) value() of an
//   error writes it to stderr and calls std::abort(): test first, and it never does.
// - A callback is anything that can be called. It returns nothing, or Next::kGoOn or Next::kStop.
//   An exception of its own ends the call that it is in, which throws it again. A callback may
//   call no function of the handle that calls it but Cancel(), and in the step callback Save(),
//   Steps() and Gradient().
// - Views (Span, TensorView) own nothing, and live as long as plumb.h says.
//
// The inline namespace keeps these classes apart from those of the same names inside of plumb, for
// a program that is linked with both, and apart from themselves as compiled without exceptions.
#ifndef PLUMB_HPP_
#define PLUMB_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "plumb.h"
#include "plumb/base.hpp"
#include "plumb/texts.hpp"

namespace plumb {
inline namespace PLUMB_HPP_NAMESPACE {

// Versions of the library, which may be newer than this header's.
inline std::uint32_t AbiVersion() noexcept { return plumb_abi_version(); }
inline std::string Version() { return plumb_version(); }

// --- Runtime ------------------------------------------------------------------------------------

struct RuntimeOptions {
  bool use_environment = true;  // false: PLUMB_NO_ENVIRONMENT
  std::int32_t threads = 0;     // 0: one for each processor
  std::string gemm;             // "": "auto"
  // Absolute directories, ':' between them, that are searched first.
  std::string plugin_path, placement_path;
  // What follows is called until the last handle that was made with the runtime is freed.
  std::function<void(LogLevel, std::string_view)> log;
  // The host's memory, both or neither: of `size` bytes, nullptr if there is none; and back.
  std::function<void*(std::size_t size, std::size_t alignment)> allocate;
  std::function<void(void* memory, std::size_t size)> release;  // must not throw
  // The host's threads: calls task(i) for each i in 0 .. n - 1, and returns when all are done. Must
  // not throw.
  std::function<void(std::int32_t n, const std::function<void(std::int32_t)>& task)> run;
};

class Runtime {
 public:
  static Result<Runtime> Create(RuntimeOptions options = {}) {
    auto given = internal::Sized<plumb_runtime_options>();
    if (!options.use_environment) given.flags |= PLUMB_NO_ENVIRONMENT;
    given.threads = options.threads;
    if (!options.gemm.empty()) given.gemm = options.gemm.c_str();
    given.plugin_path = options.plugin_path.c_str();
    given.placement_path = options.placement_path.c_str();
    auto host = std::make_shared<internal::Host>();
    *host = {std::move(options.log), std::move(options.allocate), std::move(options.release),
             std::move(options.run)};
    if (host->log) given.log = internal::Log;
    given.log_user = host.get();
    auto allocator = internal::Sized<plumb_allocator>();
    allocator.context = host.get();
    if (host->allocate) allocator.allocate = internal::Allocate;
    if (host->release) allocator.release = internal::Release;
    if (host->allocate || host->release) given.allocator = &allocator;
    auto executor = internal::Sized<plumb_executor>();
    executor.context = host.get();
    executor.run = internal::RunTasks;
    if (host->run) given.executor = &executor;
    auto made = internal::Make<Handle>(
        [&](plumb_runtime** runtime, plumb_error** error) {
          return plumb_runtime_create(&given, runtime, error);
        },
        host);
    if (!made) return made.error();
    return Runtime(*std::move(made));
  }

  // A const plumb_norm_plugin* of plumb/norm_plugin.h, which outlives all that is made with this.
  Result<void> RegisterPlugin(const void* norm_plugin) {
    return internal::Call([&](plumb_error** error) {
      return plumb_plugin_register(handle_.get(), norm_plugin, error);
    });
  }

  // What it runs on, what it found and refused, as JSON.
  Result<std::string> Describe() const {
    return internal::Text(
        [&](char* buffer, std::size_t capacity, std::size_t* needed, plumb_error** error) {
          return plumb_runtime_describe(handle_.get(), buffer, capacity, needed, error);
        });
  }

  plumb_runtime* get() const noexcept { return handle_.get(); }

 private:
  friend class Model;
  using Handle = internal::Handle<plumb_runtime, plumb_runtime_free>;
  explicit Runtime(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

// --- Models -------------------------------------------------------------------------------------

using ModelInfo = plumb_model_info;

class Model {
 public:
  static Result<Model> Create(Runtime& runtime, const Spec& spec) {
    auto made = internal::Make<Handle>(
        [&](plumb_model** model, plumb_error** error) {
          return plumb_model_create(runtime.get(), spec.get(), model, error);
        },
        runtime.handle_.get_deleter().host);
    if (!made) return made.error();
    return Model(*std::move(made));
  }

  ModelInfo Info() const {
    auto info = internal::Sized<plumb_model_info>();
    plumb_model_get_info(handle_.get(), &info);
    return info;
  }

  // The names that Trainer::SetProbe takes, one a line.
  Result<std::string> ProbePoints() const {
    return internal::Text(
        [&](char* buffer, std::size_t capacity, std::size_t* needed, plumb_error** error) {
          return plumb_model_probe_points(handle_.get(), buffer, capacity, needed, error);
        });
  }

  // One of the four gives a model its weights.
  Result<void> Init(std::uint64_t seed) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_model_init(handle_.get(), seed, error); });
  }
  Result<void> Load(const std::string& path) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_model_load(handle_.get(), path.c_str(), error); });
  }
  // From the content of a safetensors file, of which nothing is kept.
  Result<void> LoadMemory(const void* data, std::size_t size) {
    return internal::Call([&](plumb_error** error) {
      return plumb_model_load_memory(handle_.get(), data, size, error);
    });
  }
  // The weights stay in the file, which is read where it is used.
  Result<void> Map(const std::string& path) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_model_map(handle_.get(), path.c_str(), error); });
  }
  Result<void> Save(const std::string& path) const {
    return internal::Call(
        [&](plumb_error** error) { return plumb_model_save(handle_.get(), path.c_str(), error); });
  }

  std::size_t TensorCount() const noexcept { return plumb_model_tensor_count(handle_.get()); }
  // A parameter, which may be written to while nothing else uses the model.
  Result<TensorView<float>> Tensor(std::size_t i) { return View<float>(i); }
  Result<TensorView<const float>> Tensor(std::size_t i) const { return View<const float>(i); }
  // After tensors were written to.
  void Changed() noexcept { plumb_model_changed(handle_.get()); }

  plumb_model* get() const noexcept { return handle_.get(); }

 private:
  friend class Trainer;
  friend class Session;
  friend class Evaluator;
  using Handle = internal::Handle<plumb_model, plumb_model_free>;
  explicit Model(Handle handle) : handle_(std::move(handle)) {}
  template <class T>
  Result<TensorView<T>> View(std::size_t i) const {
    return internal::TensorOf<T>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_model_tensor(handle_.get(), i, tensor, error);
    });
  }
  Handle handle_;
};

// --- Training -----------------------------------------------------------------------------------

struct TrainerOptions {
  std::string recipe;    // plumb.v1.Train in protobuf text format; "": its defaults
  std::int64_t seq = 0;  // tokens of a sequence; 0: the model's context_length
};

using StepInfo = plumb_step_info;
using ProbeInfo = plumb_probe;

class Trainer {
 public:
  static Result<Trainer> Create(Model& model, const TrainerOptions& options = {}) {
    auto given = internal::Sized<plumb_trainer_options>();
    given.recipe = options.recipe.data();
    given.recipe_size = options.recipe.size();
    given.seq = options.seq;
    auto made = internal::Make<Handle>(
        [&](plumb_trainer** trainer, plumb_error** error) {
          return plumb_trainer_create(model.get(), &given, trainer, error);
        },
        model.handle_.get_deleter().host);
    if (!made) return made.error();
    return Trainer(*std::move(made));
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

  // From now on tells probe(info), a const ProbeInfo&, of step 1 and every `every`-th; 0: of none.
  // Next::kStop ends a run. `points`, none: streams, norms, logits and parameters.
  template <class Probe>
  Result<void> SetProbe(std::int64_t every, const std::vector<std::string>& points, Probe probe) {
    auto kept = std::make_unique<ProbeFunction>([probe](const ProbeInfo& info) mutable {
      return internal::Stops([&] { return probe(info); });
    });
    std::vector<const char*> names;
    for (const std::string& point : points) names.push_back(point.c_str());
    const plumb_probe_fn tell = [](void* user, const plumb_probe* info) {
      return (*static_cast<ProbeFunction*>(user))(*info);
    };
    const Result<void> set = internal::Call([&](plumb_error** error) {
      return plumb_trainer_probe(handle_.get(), every, names.data(), names.size(), tell, kept.get(),
                                 error);
    });
    if (set) probe_ = std::move(kept);
    return set;
  }

  plumb_trainer* get() const noexcept { return handle_.get(); }

 private:
  using Handle = internal::Handle<plumb_trainer, plumb_trainer_free>;
  using ProbeFunction = std::function<std::int32_t(const ProbeInfo&)>;
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
  std::unique_ptr<ProbeFunction> probe_;
  Handle handle_;
};

// --- Sampling -----------------------------------------------------------------------------------

// What is computed with.
enum class Weights : std::int32_t {
  kF32 = PLUMB_WEIGHTS_F32,
  kBf16 = PLUMB_WEIGHTS_BF16,
  kInt8 = PLUMB_WEIGHTS_INT8
};

struct SessionOptions {
  std::int32_t sequences = 1;  // to 16
  Weights weights = Weights::kF32;
};

struct SampleOptions {
  std::int64_t max_tokens = 0;  // 0: until the context is full
  double temperature = 1;       // 0: always the most likely token
  std::int32_t top_k = 0;       // of the k most likely tokens; 0: of all
  double top_p = 1;             // of the fewest likeliest tokens with this share
  std::uint64_t seed = 0;       // of the random stream
  std::uint64_t index = 0;      // by which samples of one seed differ
  std::int64_t drawn = 0;       // tokens that were drawn from the stream before
  std::int32_t vocabulary = 0;  // ids below this may be drawn; 0: all
};

class Session {
 public:
  static Result<Session> Create(Model& model, const SessionOptions& options = {}) {
    auto given = internal::Sized<plumb_session_options>();
    given.sequences = options.sequences;
    given.weights = static_cast<std::int32_t>(options.weights);
    auto made = internal::Make<Handle>(
        [&](plumb_session** session, plumb_error** error) {
          return plumb_session_create(model.get(), &given, session, error);
        },
        model.handle_.get_deleter().host);
    if (!made) return made.error();
    return Session(*std::move(made), model.Info().vocab_size);
  }

  // Appends tokens to a sequence.
  Result<void> Feed(std::int32_t sequence, Span<const std::int32_t> tokens) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_feed(handle_.get(), sequence, tokens.data(), tokens.size(), error);
    });
  }
  // Appends tokens[s] to every sequence s, in one pass over the weights.
  Result<void> FeedEach(Span<const std::int32_t> tokens) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_feed_each(handle_.get(), tokens.data(), tokens.size(), error);
    });
  }
  // [vocab_size], of the token after the last; empty before one was fed. Until the next call.
  Span<const float> Logits(std::int32_t sequence) const noexcept {
    const float* const logits = plumb_session_logits(handle_.get(), sequence);
    return {logits, logits == nullptr ? 0 : vocab_size_};
  }
  // Tokens in a sequence; -1 for one that there is not.
  std::int64_t Length(std::int32_t sequence) const noexcept {
    return plumb_session_length(handle_.get(), sequence);
  }
  // Takes all but the first `length` tokens back.
  Result<void> Truncate(std::int32_t sequence, std::int64_t length) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_truncate(handle_.get(), sequence, length, error);
    });
  }

  // Draws tokens, appends all but the last, and tells each: token(std::int32_t).
  template <class Token>
  Result<void> Generate(std::int32_t sequence, const SampleOptions& options, Token&& token) {
    auto given = internal::Sized<plumb_sample_options>();
    given.max_tokens = options.max_tokens;
    given.greedy = options.temperature == 0 ? 1 : 0;
    given.top_k = options.top_k;
    given.temperature = options.temperature;
    given.top_p = options.top_p;
    given.seed = options.seed;
    given.index = options.index;
    given.drawn = options.drawn;
    given.vocabulary = options.vocabulary;
    using Callback = std::remove_reference_t<Token>;
    struct User {
      Callback& token;
    } user = {token};
    const plumb_token_fn tell = [](void* callback, std::int32_t drawn) {
      return internal::Stops([&] { return static_cast<User*>(callback)->token(drawn); });
    };
    return internal::Call([&](plumb_error** error) {
      return plumb_session_generate(handle_.get(), sequence, &given, tell, &user, error);
    });
  }
  // Any thread, and signal handlers.
  void Cancel() const noexcept { plumb_session_cancel(handle_.get()); }

  plumb_session* get() const noexcept { return handle_.get(); }

 private:
  using Handle = internal::Handle<plumb_session, plumb_session_free>;
  Session(Handle handle, std::int64_t vocab_size)
      : handle_(std::move(handle)), vocab_size_(static_cast<std::size_t>(vocab_size)) {}
  Handle handle_;
  std::size_t vocab_size_;
};

// --- Evaluation ---------------------------------------------------------------------------------

struct EvaluatorOptions {
  std::int64_t rows = 1;  // sequences of a batch
  std::int64_t seq = 0;   // the most tokens of one; 0: the model's context_length
  Weights weights = Weights::kF32;
  bool logits = false;  // whether they are wanted
};

class Evaluator {
 public:
  static Result<Evaluator> Create(Model& model, const EvaluatorOptions& options = {}) {
    auto given = internal::Sized<plumb_evaluator_options>();
    given.rows = options.rows;
    given.seq = options.seq;
    given.weights = static_cast<std::int32_t>(options.weights);
    given.logits = options.logits ? 1 : 0;
    auto made = internal::Make<Handle>(
        [&](plumb_evaluator** evaluator, plumb_error** error) {
          return plumb_evaluator_create(model.get(), &given, evaluator, error);
        },
        model.handle_.get_deleter().host);
    if (!made) return made.error();
    return Evaluator(*std::move(made), model.Info().vocab_size);
  }

  // The mean loss over the targets of inputs [rows, n / rows], in nats.
  Result<double> Loss(Span<const std::int32_t> inputs, Span<const std::int32_t> targets) {
    if (inputs.size() != targets.size()) return internal::TwoLengths(inputs, targets);
    double loss = 0;
    const Result<void> run = Run(inputs, targets, inputs.size(), &loss);
    if (!run) return run.error();
    return loss;
  }
  // [rows, n / rows, vocab_size], until the next run.
  Result<Span<const float>> Logits(Span<const std::int32_t> inputs) {
    const Result<void> run = Run(inputs, {}, inputs.size(), nullptr);
    if (!run) return run.error();
    return Logits();
  }
  // Of the last run; empty without one, or if they were not wanted.
  Span<const float> Logits() const noexcept {
    const float* const logits = plumb_evaluator_logits(handle_.get());
    return {logits, logits == nullptr ? 0 : size_ * vocab_size_};
  }

  plumb_evaluator* get() const noexcept { return handle_.get(); }

 private:
  using Handle = internal::Handle<plumb_evaluator, plumb_evaluator_free>;
  Evaluator(Handle handle, std::int64_t vocab_size)
      : handle_(std::move(handle)), vocab_size_(static_cast<std::size_t>(vocab_size)) {}
  Result<void> Run(Span<const std::int32_t> inputs, Span<const std::int32_t> targets, std::size_t n,
                   double* loss) {
    Result<void> run = internal::Call([&](plumb_error** error) {
      return plumb_evaluator_run(handle_.get(), inputs.data(), targets.data(), n, loss, error);
    });
    if (run) size_ = n;
    return run;
  }
  Handle handle_;
  std::size_t vocab_size_, size_ = 0;
};

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_HPP_
