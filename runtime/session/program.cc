#include "runtime/session/program.h"

#include <utility>

#include "runtime/base/status.h"
#include "runtime/compile/differentiate.h"

namespace plumb {

absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients) {
  PLUMB_ASSIGN_OR_RETURN(Graph graph,
                         BuildForward(context.model, context.parameters, *context.ops, options));
  if (gradients) {
    PLUMB_ASSIGN_OR_RETURN(graph, Differentiate(std::move(graph), *context.ops, "loss"));
  }
  return Optimize(std::move(graph), *context.ops, context.optimize);
}

absl::StatusOr<const Executable*> ProgramSet::Get(int64_t seq, Binder bind) {
  if (const auto it = executables_.find(seq); it != executables_.end()) return it->second.get();
  BuildOptions options = options_;
  options.seq = seq;
  PLUMB_ASSIGN_OR_RETURN(Graph graph, BuildProgram(*context_, options, gradients_));
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                         Executable::Compile(std::move(graph)));
  PLUMB_RETURN_IF_ERROR(bind(executable.get()));
  Executable* added = (executables_[seq] = std::move(executable)).get();
  if (added->workspace_bytes() > workspace_.size()) {
    workspace_ = AlignedBuffer(added->workspace_bytes());
    for (auto& [length, each] : executables_) each->BindWorkspace(workspace_.data());
  } else {
    added->BindWorkspace(workspace_.data());
  }
  return added;
}

}  // namespace plumb
