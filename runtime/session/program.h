// SPDX-License-Identifier: Apache-2.0
// From a resolved model to executables: the stages of the compiler in order, one a line.
#ifndef PLUMB_RUNTIME_SESSION_PROGRAM_H_
#define PLUMB_RUNTIME_SESSION_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
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
  ProgramCache* cache = nullptr;  // null: every session compiles its own; must outlive them
};

// kInvalidArgument when the tensors of a program could not be addressed, whatever the memory: their
// sizes are computed in 64 bits from here on.
absl::Status CheckSizes(const ModelContext& context, const BuildOptions& options);

// A program of BuildForward with its backward pass: outputs "grad.<parameter>" of its objective,
// where it has one, which is no output any longer, else of its loss.
absl::StatusOr<Graph> AddBackwardPass(Graph forward, const OpRegistry& ops);

// Returns the forward pass for sequences of `seq` tokens, given that of the same model and options
// for other ones, of more than one token if seq > 1.
absl::StatusOr<Graph> WithLength(Graph graph, int64_t seq);

// The optimized graph of a program; with `gradients` the backward pass too, as outputs
// "grad.<parameter>". Errors: as CheckSizes.
absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients, const OptimizeOptions& optimize);
// With the passes of the context.
absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients);

// Identity of a pass for dropout (kRandomInput): with it a draw is a function of the run's seed,
// the step and the row of the step, so that neither resuming nor the division of a step changes it.
struct RandomKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_row = 0;      // row of the step that is the first of the pass
  int64_t max_positions = 0;  // positions of the longest pass of the run
};
void SetRandom(const RandomKey& key, AlignedBuffer* random);
// Binds it to an executable whose formulas drop something. `random`: of kAlignment bytes.
absl::Status BindRandom(const AlignedBuffer& random, Executable* executable);

// The executables of one program by sequence length, compiled on demand. They never run at once,
// so they share one workspace. Thread-compatible.
class ExecutableCache {
 public:
  // Binds everything but the workspace of a new executable.
  using Binder = absl::FunctionRef<absl::Status(Executable* executable)>;

  // `options.seq` is set by Get. `context` must outlive the cache.
  ExecutableCache(const ModelContext* context, const BuildOptions& options, bool gradients,
                  const OptimizeOptions& optimize)
      : context_(context), options_(options), gradients_(gradients), optimize_(optimize) {}
  ExecutableCache(const ModelContext* context, const BuildOptions& options, bool gradients)
      : ExecutableCache(context, options, gradients, context->optimize) {}

  // When it fails, by std::bad_alloc too, all is as before, and a later call may succeed.
  absl::StatusOr<const Executable*> Get(int64_t seq, Binder bind);

  // Compiles for `seq` ahead of Get, allocates nothing, and returns the workspace that it will
  // allocate, in bytes.
  absl::StatusOr<int64_t> Prepare(int64_t seq);

  // What Prepare compiled. REQUIRES: there was no Get of it yet.
  const Executable& prepared(int64_t seq) const { return *prepared_.at(seq); }

  int64_t workspace_bytes() const { return workspace_.size(); }

 private:
  absl::StatusOr<std::unique_ptr<Executable>> Compile(int64_t seq) const;

  // A workspace of at least `bytes`, bound to all executables; throws std::bad_alloc.
  void Reserve(int64_t bytes);

  const ModelContext* context_;
  BuildOptions options_;
  bool gradients_;
  OptimizeOptions optimize_;
  std::map<int64_t, std::unique_ptr<Executable>> executables_;  // by seq
  std::map<int64_t, std::unique_ptr<Executable>> prepared_;     // not bound yet
  AlignedBuffer workspace_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PROGRAM_H_
