// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/program.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/compile/differentiate.h"
#include "runtime/graph/program.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// More than a process can address, and small enough that sums of some thousands fit in 64 bits.
constexpr double kMaxBytes = 281474976710656;  // 2^48

absl::Status TooLarge(const std::string& what, double bytes, absl::string_view advice) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, " would take ", bytes, " bytes, more than a process can address; ", advice));
}

}  // namespace

absl::Status CheckSizes(const ModelContext& context, const BuildOptions& options) {
  double parameters = 0;
  for (const ParameterSpec& parameter : context.parameters) {
    double elements = 1;
    for (const int64_t dim : parameter.shape.dims()) elements *= static_cast<double>(dim);
    parameters += elements;
  }
  if (4 * parameters > kMaxBytes) {
    return TooLarge("the model's weights", 4 * parameters, "make the model smaller");
  }
  const ModelDims& d = context.model.dims;
  const auto product = [](std::initializer_list<int64_t> factors) {
    double bytes = 4;
    for (const int64_t factor : factors) bytes *= static_cast<double>(factor);
    return bytes;
  };
  const std::string batch = absl::StrCat("[batch ", options.batch, ", sequence ", options.seq);
  struct Tensor {
    const char* name;
    int64_t width;
  };
  PLUMB_ASSIGN_OR_RETURN(const int64_t hidden, WidestHidden(context.model));
  int64_t heads = d.n_head * d.head_dim;
  for (const auto& [sublayer, own] : context.model.own_heads) {
    heads = std::max(heads, own.n_head * own.head_dim);
  }
  // Tensors that grow with the batch; per layer, because training stores all of them.
  double kept = 0;
  for (const Tensor& tensor : {Tensor{"vocab_size", d.vocab_size}, Tensor{"hidden", hidden},
                               Tensor{"d_model", d.d_model}, Tensor{"n_head * head_dim", heads}}) {
    const double bytes = product({options.batch, options.seq, tensor.width});
    if (bytes > kMaxBytes) {
      return TooLarge(
          absl::StrCat("a tensor of ", batch, ", ", tensor.name, " ", tensor.width, "]"), bytes,
          "make batch_size, context_length or the model smaller");
    }
    kept += bytes;
  }
  kept *= static_cast<double>(d.n_layer);
  if (kept > kMaxBytes) {
    return TooLarge(absl::StrCat("the activations of ", d.n_layer, " layers for ", batch, "]"),
                    kept, "make batch_size, context_length or the model smaller");
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> AddBackwardPass(Graph forward, const OpRegistry& ops,
                                      const std::vector<std::string>& frozen) {
  const auto is_objective = [](const GraphOutput& output) { return output.name == "objective"; };
  const bool has_objective =
      std::any_of(forward.outputs.begin(), forward.outputs.end(), is_objective);
  PLUMB_ASSIGN_OR_RETURN(Graph graph, Differentiate(std::move(forward), ops,
                                                    has_objective ? "objective" : "loss", frozen));
  graph.outputs.erase(std::remove_if(graph.outputs.begin(), graph.outputs.end(), is_objective),
                      graph.outputs.end());
  return graph;
}

namespace {

// Returns a key of everything that a program depends on, besides the runtime.
std::string MakeKey(const ModelContext& context, const BuildOptions& options, bool gradients,
                    const OptimizeOptions& optimize) {
  return absl::StrCat(
      static_cast<int>(options.program), " ", static_cast<int>(options.weights), " ", options.batch,
      " ", options.seq, " ", options.output_logits, options.output_losses, options.drop, " ",
      absl::StrFormat("%a %a", options.label_smoothing, options.z_loss), " ", options.weighs_loss,
      options.counts_loads, options.host_loss_passes, " ", gradients, optimize.recompute_blocks,
      optimize.gradient_norms, " ", absl::StrJoin(optimize.disabled, ","), " ",
      absl::StrJoin(options.frozen, ","), "\n", context.model.self_contained_text);
}

absl::StatusOr<Graph> BuildOptimizedForward(const ModelContext& context,
                                            const BuildOptions& options,
                                            const OptimizeOptions& optimize) {
  PLUMB_ASSIGN_OR_RETURN(Graph graph,
                         BuildForward(context.model, context.parameters, *context.ops, options));
  return OptimizeForward(std::move(graph), *context.ops, optimize);
}

// Builds or finds the optimized forward pass. A length only determines the shape of the inputs
// [batch, seq], so one graph serves all lengths, and formulas are evaluated once.
absl::StatusOr<Graph> BuildForwardGraph(const ModelContext& context, const BuildOptions& options,
                                        const OptimizeOptions& optimize) {
  // A prompt selects its last token; a single token needs no selection and is a graph of its own.
  const bool takes_last = options.program == Program::kCached && options.seq > 1;
  if (context.cache == nullptr) return BuildOptimizedForward(context, options, optimize);
  BuildOptions any_length = options;
  any_length.seq = takes_last ? 2 : 1;
  any_length.frozen.clear();
  const auto build = [&]() -> absl::StatusOr<std::shared_ptr<const Graph>> {
    PLUMB_ASSIGN_OR_RETURN(Graph graph, BuildOptimizedForward(context, options, optimize));
    return std::make_shared<const Graph>(std::move(graph));
  };
  PLUMB_ASSIGN_OR_RETURN(
      const std::shared_ptr<const Graph> known,
      context.cache->forward.Get(MakeKey(context, any_length, false, optimize), build));
  return WithLength(*known, options.seq);
}

}  // namespace

absl::StatusOr<Graph> WithLength(Graph graph, int64_t seq) {
  for (Value& value : graph.values) {
    if (value.kind != ValueKind::kInput || value.type.shape.rank() != 2) continue;
    value.type.shape = value.type.shape.WithLast(seq);
  }
  std::map<const AttrObject*, std::shared_ptr<const AttrObject>> programs;
  for (Node& node : graph.nodes) {
    if (node.op->name == "program") {
      std::shared_ptr<const AttrObject>& program = programs[&GetProgram(node.attrs)];
      if (program == nullptr) {
        std::vector<const TensorType*> inputs;
        for (const ValueId id : node.inputs) inputs.push_back(&graph.value(id).type);
        PLUMB_ASSIGN_OR_RETURN(program, GetProgram(node.attrs).WithInputs(inputs));
      }
      node.attrs = Attrs({{"graph", program}});
    }
    PLUMB_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferTypes(graph, node));
    for (size_t i = 0; i < types.size(); ++i) {
      graph.values[Index(node.outputs[i])].type = std::move(types[i]);
    }
  }
  return graph;
}

absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients, const OptimizeOptions& optimize) {
  PLUMB_RETURN_IF_ERROR(CheckSizes(context, options));
  PLUMB_ASSIGN_OR_RETURN(Graph graph, BuildForwardGraph(context, options, optimize));
  if (gradients) {
    PLUMB_ASSIGN_OR_RETURN(graph, AddBackwardPass(std::move(graph), *context.ops, options.frozen));
  }
  return Optimize(std::move(graph), *context.ops, optimize);
}

absl::StatusOr<Graph> BuildProgram(const ModelContext& context, const BuildOptions& options,
                                   bool gradients) {
  return BuildProgram(context, options, gradients, context.optimize);
}

absl::StatusOr<std::unique_ptr<Executable>> ExecutableCache::Compile(int64_t seq) const {
  BuildOptions options = options_;
  options.seq = seq;
  using Compiled = std::shared_ptr<const CompiledProgram>;
  const auto compile = [&]() -> absl::StatusOr<Compiled> {
    PLUMB_ASSIGN_OR_RETURN(Graph graph, BuildProgram(*context_, options, gradients_, optimize_));
    return CompiledProgram::Of(std::move(graph));
  };
  if (context_->cache == nullptr) {
    PLUMB_ASSIGN_OR_RETURN(Compiled program, compile());
    return std::make_unique<Executable>(std::move(program));
  }
  PLUMB_ASSIGN_OR_RETURN(
      Compiled program,
      context_->cache->programs.Get(MakeKey(*context_, options, gradients_, optimize_), compile));
  return std::make_unique<Executable>(std::move(program));
}

absl::StatusOr<int64_t> ExecutableCache::Prepare(int64_t seq) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, Compile(seq));
  const int64_t bytes = executable->workspace_bytes();
  prepared_[seq] = std::move(executable);
  return bytes;
}

void ExecutableCache::Reserve(int64_t bytes) {
  if (bytes <= workspace_.size()) return;
  for (const auto& [length, each] : executables_) bytes = std::max(bytes, each->workspace_bytes());
  const int64_t before = workspace_.size();
  // Frees the old workspace first, so that the two are never allocated at once.
  for (auto& [length, each] : executables_) each->BindWorkspace(nullptr);
  workspace_ = AlignedBuffer();
  try {
    workspace_ = AlignedBuffer(bytes);
  } catch (const std::bad_alloc&) {
    // Restores the old size; if that fails too, the next Get allocates the workspace for all.
    workspace_ = AlignedBuffer(before);
    for (auto& [length, each] : executables_) each->BindWorkspace(workspace_.data());
    throw;
  }
  for (auto& [length, each] : executables_) each->BindWorkspace(workspace_.data());
}

absl::StatusOr<Executable*> ExecutableCache::Get(int64_t seq, Binder bind) {
  if (const auto it = executables_.find(seq); it != executables_.end()) {
    Reserve(it->second->workspace_bytes());  // it is missing if memory ran out before
    return it->second.get();
  }
  if (prepared_.count(seq) == 0) PLUMB_RETURN_IF_ERROR(Prepare(seq).status());
  Executable* const added = prepared_.find(seq)->second.get();
  PLUMB_RETURN_IF_ERROR(bind(added));
  Reserve(added->workspace_bytes());
  // Nothing fails from here on.
  added->BindWorkspace(workspace_.data());
  executables_.insert(prepared_.extract(seq));
  return added;
}

void SetRandom(const RandomKey& key, AlignedBuffer* random) {
  uint32_t* words = random->as<uint32_t>();
  const auto step = static_cast<uint64_t>(key.step);
  words[0] = static_cast<uint32_t>(key.seed);
  words[1] = static_cast<uint32_t>(key.seed >> 32);
  words[2] = static_cast<uint32_t>(step);
  words[3] = static_cast<uint32_t>(step >> 32);
  words[4] = static_cast<uint32_t>(key.first_row);
  words[5] = static_cast<uint32_t>(key.max_positions);
}

absl::Status BindRandom(const AlignedBuffer& random, Executable* executable) {
  for (const Value& value : executable->graph().values) {
    if (value.kind != ValueKind::kInput || value.name != kRandomInput) continue;
    return executable->Bind(kRandomInput, random.data());
  }
  return absl::OkStatus();
}

}  // namespace plumb
