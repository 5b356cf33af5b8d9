// SPDX-License-Identifier: Apache-2.0
// plumb.hpp: plumb.h for C++17 and later. Header-only; needs plumb.h, libplumb.so and the standard
// library. plumb.h documents the functions and their thread-safety; each is called here under its
// name there.
//
// - A handle is a movable value that frees itself, in any order. Calls on one that was moved from
//   return an error.
// - A function that can fail returns a Result<T>, which must be checked: `if (result)` and *result,
//   or result.value(), which throws its Error. Without exceptions (-fno-exceptions), value() of an
//   error writes it to stderr and calls std::abort(); check first to avoid it.
// - A callback is any callable that returns void, or Next::kGoOn or Next::kStop, which ends the
// call
//   it runs in with Code::kCancelled. An exception that it throws ends the call, too, which throws
//   it again. A callback may call no function of the handle that calls it but Cancel() and, in the
//   step callback, the const ones.
// - Views (Span, TensorView) own nothing, and live as long as plumb.h says.
//
// The inline namespace keeps these classes apart from classes with the same names inside plumb, for
// a program that links both, and apart from those compiled without exceptions. A program with its
// own names in namespace plumb can define PLUMB_HPP_INLINE as nothing before it includes this file;
// then the classes are only plumb::hpp1::Model and so on.
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
#include "plumb/models.hpp"
#include "plumb/runs.hpp"
#include "plumb/runtime.hpp"
#include "plumb/texts.hpp"
#include "plumb/training.hpp"

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {

// --- Sampling -----------------------------------------------------------------------------------

struct SessionOptions {
  std::int32_t sequences = 1;  // max 16
  Weights weights = Weights::kF32;
};

struct SampleOptions {
  std::int64_t max_tokens = 0;  // max to draw, also beyond the context; 0: until it is full
  // Divides the logits. 0: takes the most likely token, and ignores top_k and top_p.
  double temperature = 1;
  std::int64_t top_k = 0;       // sample from the k most likely tokens; 0: from all
  double top_p = 1;             // sample from the fewest tokens with this probability, > 0
  std::uint64_t seed = 0;       // selects the random stream
  std::uint64_t index = 0;      // distinguishes samples of one seed
  std::int64_t drawn = 0;       // number of tokens already drawn from the stream
  std::int64_t vocabulary = 0;  // only ids below this are drawn; 0: all
  std::vector<std::int32_t> end_tokens = {};  // end the text; not passed to the callback
};

// Reasons why Session::Generate ended.
enum class FinishReason : std::int32_t {
  kStop = PLUMB_FINISH_STOP,       // an end token was drawn
  kLength = PLUMB_FINISH_LENGTH,   // max_tokens were drawn
  kContext = PLUMB_FINISH_CONTEXT  // the context is full, and max_tokens is 0
};

// Sequences that grow token by token, with a KV cache (plumb_session). Thread-compatible, except
// for Cancel.
class Session {
 public:
  // Creates a session on a model with weights.
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

  // Appends tokens to a sequence (from 0).
  Result<void> Feed(std::int32_t sequence, Span<const std::int32_t> tokens) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_feed(handle_.get(), sequence, tokens.data(), internal::Count(tokens),
                                error);
    });
  }
  // Appends one token; a full sequence restarts with the newer half of its tokens.
  Result<void> Append(std::int32_t sequence, std::int32_t token) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_append(handle_.get(), sequence, token, error);
    });
  }
  // Appends tokens[s] to each sequence s, in one pass over the weights; -1 appends nothing.
  Result<void> FeedBatch(Span<const std::int32_t> tokens) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_feed_batch(handle_.get(), tokens.data(), internal::Count(tokens), error);
    });
  }
  // Returns the logits [vocab_size] of the token after the last one, valid until the next call;
  // empty before a token was fed.
  Span<const float> Logits(std::int32_t sequence) const noexcept {
    const float* const logits = plumb_session_logits(handle_.get(), sequence);
    return {logits, logits == nullptr ? 0 : vocab_size_};
  }
  // Returns the number of tokens in a sequence; -1 if the sequence does not exist.
  std::int64_t Length(std::int32_t sequence) const noexcept {
    return plumb_session_length(handle_.get(), sequence);
  }
  // Removes all but the first `length` tokens.
  Result<void> Truncate(std::int32_t sequence, std::int64_t length) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_truncate(handle_.get(), sequence, length, error);
    });
  }

  // Makes the sequence `to` a copy of `from`.
  Result<void> Copy(std::int32_t from, std::int32_t to) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_session_copy(handle_.get(), from, to, error); });
  }

  // Draws tokens, passes each to token(std::int32_t), and appends all but the last. A Decoder
  // converts them to text.
  template <class Token>
  Result<FinishReason> Generate(std::int32_t sequence, const SampleOptions& options,
                                Token&& token) {
    // In C, 0 means the default, which nobody means who writes a 0 here.
    if (options.top_p == 0) {
      return Error(Code::kInvalidArgument,
                   "top_p must be above 0 and at most 1 (1 keeps all tokens), is 0");
    }
    auto given = internal::Sized<plumb_sample_options>();
    given.max_tokens = options.max_tokens;
    given.top_k = options.top_k;
    given.temperature = options.temperature;
    given.top_p = options.top_p;
    given.seed = options.seed;
    given.index = options.index;
    given.drawn = options.drawn;
    given.vocabulary = options.vocabulary;
    given.end_tokens = options.end_tokens.data();
    given.end_token_count = internal::Count(options.end_tokens);
    using Callback = std::remove_reference_t<Token>;
    struct User {
      Callback& token;
    } user = {token};
    const plumb_token_fn tell = [](void* callback, std::int32_t drawn) {
      return internal::Stops([&] { return static_cast<User*>(callback)->token(drawn); });
    };
    const Result<void> generated = internal::Call([&](plumb_error** error) {
      return plumb_session_generate(handle_.get(), sequence, &given, tell, &user, error);
    });
    if (!generated) return generated.error();
    return static_cast<FinishReason>(plumb_session_finish_reason(handle_.get()));
  }
  // Ends Generate before its next token, and Feed before its next 512 tokens. Any thread, and
  // signal handlers.
  void Cancel() const noexcept { plumb_session_cancel(handle_.get()); }

  // Starts a new profile of the following passes, or ends it.
  Result<void> Profile(bool on) {
    return internal::Call([&](plumb_error** error) {
      return plumb_session_profile(handle_.get(), on ? 1 : 0, error);
    });
  }
  // Returns the profile, like Trainer::ProfileRows.
  std::vector<ProfileRow> ProfileRows() {
    return internal::GetList<ProfileRow>([&](plumb_profile_row* rows, std::int64_t capacity) {
      return plumb_session_profile_rows(handle_.get(), rows, capacity);
    });
  }

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
  std::int64_t rows = 1;  // sequences in a batch
  std::int64_t seq = 0;   // max tokens of a sequence; 0: the model's context_length
  Weights weights = Weights::kF32;
  bool logits = false;     // compute them
  bool gradients = false;  // compute them; requires Weights::kF32
};

// Loss, logits and gradients of whole sequences, without a change of the model (plumb_evaluator).
// Thread-compatible.
class Evaluator {
 public:
  // Creates an evaluator of a model with weights.
  static Result<Evaluator> Create(Model& model, const EvaluatorOptions& options = {}) {
    const plumb_evaluator_options given = ToOptions(options);
    auto made = internal::Make<Handle>(
        [&](plumb_evaluator** evaluator, plumb_error** error) {
          return plumb_evaluator_create(model.get(), &given, evaluator, error);
        },
        model.handle_.get_deleter().host);
    if (!made) return made.error();
    return Evaluator(*std::move(made), model.Info().vocab_size);
  }

  // Computes the memory of an evaluator next to the weights, in bytes, without allocating it.
  static Result<std::int64_t> Plan(const Model& model, const EvaluatorOptions& options = {}) {
    const plumb_evaluator_options given = ToOptions(options);
    std::int64_t bytes = 0;
    const Result<void> planned = internal::Call([&](plumb_error** error) {
      return plumb_evaluator_plan(model.get(), &given, &bytes, error);
    });
    if (!planned) return planned.error();
    return bytes;
  }

  // Returns the mean loss over the targets of inputs [rows, n / rows], in nats.
  Result<double> Loss(Span<const std::int32_t> inputs, Span<const std::int32_t> targets) {
    if (inputs.size() != targets.size()) return internal::TwoLengths(inputs, targets);
    double loss = 0;
    const Result<void> run = Run(inputs, targets, inputs.size(), &loss);
    if (!run) return run.error();
    return loss;
  }
  // Returns logits [rows, n / rows, vocab_size], valid until the next run. Requires:
  // options.logits.
  Result<Span<const float>> Logits(Span<const std::int32_t> inputs) {
    const Result<void> run = Run(inputs, {}, inputs.size(), nullptr);
    if (!run) return run.error();
    return Logits();
  }
  // Sets the token types of the inputs of all further runs; an empty span sets all to 0.
  Result<void> SetTypes(Span<const std::int32_t> types) {
    return internal::Call([&](plumb_error** error) {
      return plumb_evaluator_set_types(handle_.get(), types.data(), internal::Count(types), error);
    });
  }
  // Returns the logits of the last run; empty without a run or options.logits.
  Span<const float> Logits() const noexcept {
    const float* const logits = plumb_evaluator_logits(handle_.get());
    return {logits, logits == nullptr ? 0 : size_ * vocab_size_};
  }

  // Returns the loss of each target of the last run, [rows, n / rows], 0 where there is none.
  Span<const float> Losses() const noexcept {
    const float* const losses = plumb_evaluator_losses(handle_.get());
    return {losses, losses == nullptr ? 0 : size_};
  }
  // Ends a run before its next op: Code::kCancelled. Any thread, and signal handlers.
  void Cancel() const noexcept { plumb_evaluator_cancel(handle_.get()); }

  // Returns the gradient of the last run's loss for the i-th parameter, valid until the next run.
  Result<TensorView<const float>> Gradient(std::size_t i) const {
    return internal::GetTensor<const float>([&](plumb_tensor* tensor, plumb_error** error) {
      return plumb_evaluator_gradient(handle_.get(), static_cast<std::int64_t>(i), tensor, error);
    });
  }
  // Calls probe(info), with a const ProbeInfo&, in each further run, like Trainer::SetProbe.
  // Without options.gradients there are points of activations only.
  template <class Probe>
  Result<void> SetProbe(const std::vector<std::string>& points, Probe probe) {
    auto kept = internal::KeepProbe(std::move(probe));
    const std::vector<const char*> names = internal::GetNames(points);
    const Result<void> set = internal::Call([&](plumb_error** error) {
      return plumb_evaluator_probe(handle_.get(), names.data(), internal::Count(names),
                                   internal::ForwardProbe, kept.get(), error);
    });
    if (set) probe_ = std::move(kept);
    return set;
  }

  plumb_evaluator* get() const noexcept { return handle_.get(); }

 private:
  static plumb_evaluator_options ToOptions(const EvaluatorOptions& options) {
    auto given = internal::Sized<plumb_evaluator_options>();
    given.rows = options.rows;
    given.seq = options.seq;
    given.weights = static_cast<std::int32_t>(options.weights);
    given.logits = options.logits ? 1 : 0;
    given.gradients = options.gradients ? 1 : 0;
    return given;
  }
  using Handle = internal::Handle<plumb_evaluator, plumb_evaluator_free>;
  Evaluator(Handle handle, std::int64_t vocab_size)
      : handle_(std::move(handle)), vocab_size_(static_cast<std::size_t>(vocab_size)) {}
  Result<void> Run(Span<const std::int32_t> inputs, Span<const std::int32_t> targets, std::size_t n,
                   double* loss) {
    Result<void> run = internal::Call([&](plumb_error** error) {
      return plumb_evaluator_run(handle_.get(), inputs.data(), targets.data(),
                                 static_cast<std::int64_t>(n), loss, error);
    });
    if (run) size_ = n;
    return run;
  }
  std::unique_ptr<internal::ProbeFunction> probe_;
  Handle handle_;
  std::size_t vocab_size_, size_ = 0;
};

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_HPP_
