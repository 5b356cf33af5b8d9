// SPDX-License-Identifier: Apache-2.0
// runtime.hpp: the part of plumb.hpp, which includes it, for what models need: plugins, placements,
// threads, and facts about the machine.
#ifndef PLUMB_RUNTIME_HPP_
#define PLUMB_RUNTIME_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "plumb.h"
#include "plumb/base.hpp"

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {

// Returns the version of the library.
inline std::string Version() { return plumb_version(); }

// --- Runtime ------------------------------------------------------------------------------------

struct RuntimeOptions {
  bool use_environment = true;  // false: PLUMB_RUNTIME_NO_ENVIRONMENT
  std::int32_t threads = 0;     // max of a call; 0: one for each processor, or OMP_NUM_THREADS
  std::string gemm;             // "": "auto"
  // Absolute directories, separated by ':', that are searched first.
  std::string plugin_path, placement_path;
  // Directory below which plumb is installed, for a program that links it statically; "": found
  // from libplumb.so.
  std::string install_prefix;
  // Receives messages. This and the following callbacks are called until the last handle created
  // with the runtime is freed.
  std::function<void(LogLevel, std::string_view)> log;
  // The host's allocator; set both or neither. Returns `size` bytes, or nullptr.
  std::function<void*(std::size_t size, std::size_t alignment)> allocate;
  std::function<void(void* memory, std::size_t size)> release;  // must not throw
  // The host's thread pool: calls task(i) for each i in 0 .. n - 1, and returns when all are done.
  // Must not throw.
  std::function<void(std::int32_t n, const std::function<void(std::int32_t)>& task)> run;
};

// Speed to measure: floating-point operations of matrix products, or bytes read.
enum class Speed : std::int32_t {
  kGemmF32 = PLUMB_SPEED_GEMM_F32,
  kGemmBf16 = PLUMB_SPEED_GEMM_BF16,
  kRead = PLUMB_SPEED_READ
};

// Plugins, placements and threads of models (plumb_runtime). Thread-compatible.
class Runtime {
 public:
  // Creates a runtime.
  static Result<Runtime> Create(RuntimeOptions options = {}) {
    auto given = internal::Sized<plumb_runtime_options>();
    if (!options.use_environment) given.flags |= PLUMB_RUNTIME_NO_ENVIRONMENT;
    given.threads = options.threads;
    if (!options.gemm.empty()) given.gemm = options.gemm.c_str();
    given.plugin_path = options.plugin_path.c_str();
    given.placement_path = options.placement_path.c_str();
    if (!options.install_prefix.empty()) given.install_prefix = options.install_prefix.c_str();
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
          return plumb_runtime_create(PLUMB_ABI_VERSION, &given, runtime, error);
        },
        host);
    if (!made) return made.error();
    return Runtime(*std::move(made));
  }

  // Takes over a handle that a C function made; its callbacks must outlive it.
  static Runtime Adopt(plumb_runtime* runtime) { return Runtime(Handle(runtime)); }

  // Registers a norm (plumb/norm_plugin.h), which must outlive the runtime and everything created
  // with it.
  Result<void> RegisterPlugin(const ::plumb_norm_plugin* plugin) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_plugin_register(handle_.get(), plugin, error); });
  }

  // Registers the norms of a plugin file.
  Result<void> LoadPlugin(const std::string& path) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_plugin_load(handle_.get(), path.c_str(), error); });
  }
  // Describes a norm as JSON, with the fields in plumb.h.
  Result<std::string> DescribePlugin(const std::string& id) {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_plugin_describe(handle_.get(), id.c_str(), text, error);
    });
  }

  // Returns the max number of threads of a call.
  std::int32_t Threads() const noexcept { return plumb_runtime_threads(handle_.get()); }
  // Names the GEMM engines; runtimes with equal strings round equally.
  Result<std::string> Gemm() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_runtime_gemm(handle_.get(), text, error);
    });
  }
  // Measures the peak speed of the machine, per second.
  Result<double> MeasureSpeed(Speed speed) {
    double per_second = 0;
    const Result<void> measured = internal::Call([&](plumb_error** error) {
      return plumb_runtime_measure_speed(handle_.get(), static_cast<std::int32_t>(speed),
                                         &per_second, error);
    });
    if (!measured) return measured.error();
    return per_second;
  }
  // Reports the machine, the norms and placements that were found or refused, and problems, as
  // JSON.
  Result<std::string> Describe() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_runtime_describe(handle_.get(), text, error);
    });
  }

  plumb_runtime* get() const noexcept { return handle_.get(); }

 private:
  friend class Model;
  friend struct Run;
  using Handle = internal::Handle<plumb_runtime, plumb_runtime_free>;
  explicit Runtime(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

// Format of the weights that a session or evaluator computes with.
enum class Weights : std::int32_t {
  kF32 = PLUMB_WEIGHTS_F32,
  kBf16 = PLUMB_WEIGHTS_BF16,
  kInt8 = PLUMB_WEIGHTS_INT8
};

// --- Calls of norms -----------------------------------------------------------------------------

using PluginCall = plumb_plugin_call;

// Returns the norm call that this thread is in; nothing if it is in none. May be called by signal
// handlers.
inline std::optional<PluginCall> CurrentPluginCall() noexcept {
  PluginCall call = {};
  call.struct_size = sizeof(call);
  if (plumb_current_plugin_call(&call) == 0) return std::nullopt;
  return call;
}
// Fills `calls` with the norm calls of all threads, and returns their number. May be called by
// signal handlers.
inline std::size_t PluginCalls(Span<PluginCall> calls) noexcept {
  if (calls.empty()) return 0;
  calls[0].struct_size = sizeof(PluginCall);
  return static_cast<std::size_t>(
      plumb_plugin_calls(calls.data(), static_cast<std::int32_t>(calls.size())));
}

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_RUNTIME_HPP_
