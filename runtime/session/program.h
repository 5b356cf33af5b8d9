// SPDX-License-Identifier: Apache-2.0
// Compiles a resolved model to executables: the stages of the compiler in order, one per line.
#ifndef PLUMB_RUNTIME_SESSION_PROGRAM_H_
#define PLUMB_RUNTIME_SESSION_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/op.h"
#include "runtime/model/build.h"
#include "runtime/model/parameters.h"
#include "runtime/session/program_cache.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// A model without its weights, shared by sessions. Immutable, thread-safe.
struct ModelContext {
  ResolvedModel model;
  std::vector<ParameterSpec> parameters;
  std::vector<NormStateSpec> states;
  const OpRegistry* ops;
  OptimizeOptions optimize;
  ProgramCache* cache = nullptr;  // null: sessions compile their own; must outlive them
};

// Fails with kInvalidArgument if the sizes of a program's tensors exceed the address space,
// whatever the memory: all later computations of sizes use 64 bits.
absl::Status CheckSizes(const ModelContext& context, const BuildOptions& options);

// Appends the backward pass to a program of BuildForward, with outputs "grad.<parameter>". It is
// that of the program's objective, which is no output any longer, or, without one, of its loss.
// `frozen`: names of parameters without gradient.
absl::StatusOr<Graph> AddBackwardPass(Graph forward, const OpRegistry& ops,
                                      const std::vector<std::string>& frozen = {});

// Returns the forward pass for sequences of `seq` tokens, given that of the same model and options
// for another length, which must be more than one token if seq > 1.
absl::StatusOr<Graph> WithLength(Graph graph, int64_t seq);

// Returns the optimized graph of a program; with `gradients` also the backward pass, with outputs
// "grad.<parameter>". Errors: as CheckSizes.
absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients, const OptimizeOptions& optimize);
// Builds with the optimizations of the context.
absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients);

// Identity of a pass for dropout (kRandomInput). A draw is a function of the run's seed, the step
// and the row within the step, so resuming, or dividing a step differently, does not change it.
struct RandomKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_row = 0;      // index in the step of the pass's first row
  int64_t max_positions = 0;  // max positions of any pass of the run
};
void SetRandom(const RandomKey& key, AlignedBuffer* random);
// Binds `random`, of kAlignment bytes, to an executable if it has drop ops.
absl::Status BindRandom(const AlignedBuffer& random, Executable* executable);

// The executables of one program by sequence length, compiled on demand. They never run
// concurrently, so they share one workspace. Thread-compatible.
class ExecutableCache {
 public:
  // Binds everything except the workspace of a new executable.
  using Binder = absl::FunctionRef<absl::Status(Executable* executable)>;

  // Creates a cache; Get sets `options.seq`. `context` must outlive the cache.
  ExecutableCache(const ModelContext* context, const BuildOptions& options, bool gradients,
                  const OptimizeOptions& optimize)
      : context_(context), options_(options), gradients_(gradients), optimize_(optimize) {}
  ExecutableCache(const ModelContext* context, const BuildOptions& options, bool gradients)
      : ExecutableCache(context, options, gradients, context->optimize) {}

  // Returns the executable for `seq`, compiled and bound at its first use. If it fails, also by
  // std::bad_alloc, nothing has changed, and a later call may succeed.
  absl::StatusOr<Executable*> Get(int64_t seq, Binder bind);

  // Compiles for `seq` ahead of Get without allocating the workspace. Returns the workspace's size
  // in bytes.
  absl::StatusOr<int64_t> Prepare(int64_t seq);

  // Returns the executable that Prepare compiled. Requires: Get was not called with `seq` yet.
  const Executable& prepared(int64_t seq) const { return *prepared_.at(seq); }

  int64_t workspace_bytes() const { return workspace_.size(); }

 private:
  absl::StatusOr<std::unique_ptr<Executable>> Compile(int64_t seq) const;

  // Allocates a workspace of at least `bytes` and binds it to all executables; throws
  // std::bad_alloc.
  void Reserve(int64_t bytes);

  const ModelContext* context_;
  BuildOptions options_;
  bool gradients_;
  OptimizeOptions optimize_;
  std::map<int64_t, std::unique_ptr<Executable>> executables_;  // keyed by seq
  std::map<int64_t, std::unique_ptr<Executable>> prepared_;     // not bound yet
  AlignedBuffer workspace_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PROGRAM_H_
