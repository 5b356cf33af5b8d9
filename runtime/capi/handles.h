// SPDX-License-Identifier: Apache-2.0
// The objects behind the handles of plumb.h. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_HANDLES_H_
#define PLUMB_RUNTIME_CAPI_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/host.h"
#include "runtime/base/thread_pool.h"
#include "runtime/capi/error.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/onednn/gemm.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "runtime/spec/model_spec.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb::capi {

struct RuntimeState {
  const PoolUser pool;
  HostExecutor executor;
  HostAllocator allocator;
  Host host;  // points to the executor and allocator if the host passed them
  std::unique_ptr<Runtime> runtime;
  plumb_log_fn log = nullptr;
  void* log_user = nullptr;

  std::atomic<bool> told_gemm{false};     // logged gemm.Problem()
  std::atomic<bool> told_threads{false};  // logged ThreadsProblem()

  // Passes new warnings to the host's log.
  void LogWarnings() {
    for (const std::string& warning : runtime->TakeWarnings()) {
      if (warning == runtime->impl().gemm.Problem() && told_gemm.exchange(true)) continue;
      if (warning == runtime->impl().ThreadsProblem() && told_threads.exchange(true)) continue;
      Warn(warning);
    }
  }

  void Warn(const std::string& warning) const {
    if (log != nullptr) log(log_user, PLUMB_LOG_WARNING, warning.c_str());
  }

  // Logs problems of compiling or running a program, each once. Any thread.
  void LogProgramProblems() {
    const Runtime::Impl& impl = runtime->impl();
    if (!told_gemm.load(std::memory_order_relaxed)) {
      const std::string problem = impl.gemm.Problem();
      if (!problem.empty() && !told_gemm.exchange(true)) Warn(problem);
    }
    if (!told_threads.load(std::memory_order_relaxed) && ThreadsWereRefused() &&
        !told_threads.exchange(true)) {
      Warn(impl.ThreadsProblem());
    }
  }
};

// State of a model, shared by the handles of the model, its trainer, sessions and evaluators.
struct ModelState {
  std::shared_ptr<RuntimeState> runtime;
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<ParameterStore> parameters;
  bool has_weights = false;
  std::atomic<int64_t> version{0};  // version of the weights
  std::atomic<int> trainers{0};
  std::atomic<int> sessions{0};  // sessions and evaluators, which read the weights in place

  std::mutex mutex;  // guards `packed`
  struct Packed {
    std::unique_ptr<PackedWeights> weights;
    int64_t version = 0;
  };
  std::map<WeightFormat, Packed> packed;

  int threads() const { return runtime->runtime->threads(); }
  int64_t vocab_size() const { return context->model.dims.vocab_size; }
  absl::Status RequireWeights() const;
  // Returns the weights in the format that programs read, packed or refreshed.
  const PackedWeights* Pack(WeightFormat format);
  absl::Status CheckTokens(const int32_t* tokens, size_t count, int32_t min) const;
  // Checks the inputs of [count / seq] rows: ids, and -1 at the ends of rows if the model is
  // bidirectional.
  absl::Status CheckInputs(const int32_t* inputs, size_t count, size_t seq) const;
};

// Creates a model without weights.
absl::StatusOr<std::shared_ptr<ModelState>> CreateModelState(
    const std::shared_ptr<RuntimeState>& runtime, const ModelSpec& spec);

// Converts PLUMB_WEIGHTS_F32 and so on.
absl::StatusOr<WeightFormat> GetFormat(int32_t weights);

plumb_tensor TensorAt(const std::string& name, const Shape& shape, float* data);
// Sets *tensor to the tensor of entry `i`, whose elements begin at `data`, as in the parameters'
// layout.
absl::Status WriteTensor(const ModelState& model, int64_t i, float* data, plumb_tensor* tensor);
// Returns entry `i`, null if there is none.
inline const ParameterLayout::Entry* FindEntry(const std::vector<ParameterLayout::Entry>& entries,
                                               int64_t i) {
  const auto index = static_cast<size_t>(i);  // of a negative number: beyond every entry
  return index < entries.size() ? &entries[index] : nullptr;
}

// Returns the bytes of one sequence's KV cache with f32 weights; INT64_MAX if it is larger.
int64_t CacheBytes(const ResolvedModel& model);

// Fails with kResourceExhausted if `bytes` exceed the available memory; allocates nothing. `what`:
// "the KV caches".
absl::Status CheckMemoryBudget(absl::string_view what, double bytes);

// Measures the peak speed of the machine, the yardstick for passes of models, and owns the memory
// for that. Thread-compatible.
class MachineSpeed {
 public:
  // Measures floating-point operations or bytes per second. `what`: PLUMB_SPEED_READ and so on.
  absl::StatusOr<double> Measure(int32_t what, int threads);

 private:
  absl::StatusOr<double> MeasureRead(int threads);

  GemmSpeed gemm_;
  AlignedBuffer memory_;
};

// Marks a handle as busy during a call that invokes callbacks. `*busy` is a member of the handle.
class InCall {
 public:
  explicit InCall(bool* busy) : busy_(busy) { *busy_ = true; }
  ~InCall() { *busy_ = false; }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  bool* const busy_;
};
inline absl::Status CheckNotInCall(bool busy, absl::string_view handle) {
  if (!busy) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the ", handle, " is in a call, whose callback must not change it"));
}

// Runs a call on a handle with a runtime, GetRuntime(*handle): inside Guard, with the host's
// threads and memory, in the default floating-point mode. `name`: name of the handle's argument.
template <class Handle, class Body>
plumb_status Call(const Handle* handle, absl::string_view name, plumb_error** error,
                  const Body& body) {
  return Guard(error, [&]() -> absl::Status {
    if (handle == nullptr) return NullArgument(name);
    const RuntimeState& runtime = GetRuntime(*handle);
    if (runtime.pool.forked()) {
      return absl::FailedPreconditionError(
          "this process is a fork of the one that created the runtime: create a new one here, or "
          "fork before");
    }
    const ScopedHost host(runtime.host);
    const ScopedDefaultFloatMode float_mode;
    return body();
  });
}

}  // namespace plumb::capi

struct plumb_runtime {
  std::shared_ptr<plumb::capi::RuntimeState> state;
  plumb::capi::MachineSpeed speed;
};
struct plumb_spec {
  plumb::ModelSpec spec;
};
struct plumb_model {
  std::shared_ptr<plumb::capi::ModelState> state;
};
struct plumb_tokenizer {
  std::shared_ptr<const plumb::Tokenizer> tokenizer;  // shared with its decoders
  std::vector<int32_t> prefix;
};

inline const plumb::capi::RuntimeState& GetRuntime(const plumb_runtime& runtime) {
  return *runtime.state;
}
inline const plumb::capi::RuntimeState& GetRuntime(const plumb_model& model) {
  return *model.state->runtime;
}

#endif  // PLUMB_RUNTIME_CAPI_HANDLES_H_
