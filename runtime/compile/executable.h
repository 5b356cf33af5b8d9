// SPDX-License-Identifier: Apache-2.0
// CompiledProgram: a graph compiled for its shapes: kernels and a memory plan. Executable: a
// compiled program, possibly shared, with a table of operand pointers, which it owns. The caller
// owns the memory and binds it by name before the first run. Creation allocates and may fail; Run
// allocates nothing unless it fails. Nodes run with denormals flushed to zero
// (runtime/base/float_mode.h); the caller's mode is restored before a run returns or calls an
// observer. Thread-compatible.
#ifndef PLUMB_RUNTIME_COMPILE_EXECUTABLE_H_
#define PLUMB_RUNTIME_COMPILE_EXECUTABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/compile/memory_plan.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

// Immutable, thread-safe.
struct CompiledProgram {
  Graph graph;
  MemoryPlan plan;
  // Indexed by node. Equal nodes share a kernel, so that those of a deep model fit a cache.
  std::vector<std::shared_ptr<const Kernel>> kernels;
  std::vector<std::vector<int32_t>> uses;  // indexed by ValueId: indices among all operands
  std::vector<std::vector<ValueId>> values_of_slot;  // indexed like the plan's externals
  // Slots for the caller's memory: the plan's externals, then its copied outputs.
  std::map<std::string, size_t, std::less<>> bindings;  // name -> slot
  size_t slots = 0;
  size_t operands = 0;  // total of all nodes
  int64_t scratch_offset = 0;
  int64_t scratch_bytes = 0;

  // Plans memory and makes a kernel for every node.
  static absl::StatusOr<std::shared_ptr<const CompiledProgram>> Of(Graph graph);

  // Bytes of temporary memory, arena and scratch together.
  int64_t workspace_bytes() const { return scratch_offset + scratch_bytes; }

 private:
  absl::Status MakeKernels();
  void NameBindings();
};

class Executable {
 public:
  explicit Executable(std::shared_ptr<const CompiledProgram> program);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Compiles a graph for this executable only.
  static absl::StatusOr<std::unique_ptr<Executable>> Compile(Graph graph);

  const std::shared_ptr<const CompiledProgram>& program() const { return program_; }
  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }

  // Returns the bytes of temporary memory (arena and scratch together) that BindWorkspace requires,
  // 64-byte aligned. Executables that never run concurrently may share one workspace.
  int64_t workspace_bytes() const { return program_->workspace_bytes(); }
  void BindWorkspace(void* workspace);

  // Binds a parameter, input, state (by value name) or output (by output name). The memory must
  // hold the value's type, be 64-byte aligned (a state, or a parameter of rank 2 or more: aligned
  // to its element type), and not overlap other memory. An output that is a state, updated in
  // place, is in the state's memory and is not bound itself. Errors: kNotFound for a name that is
  // unknown or cannot be bound, kInvalidArgument for unaligned memory.
  absl::Status Bind(absl::string_view name, void* data);

  // Makes every run fail with kCancelled before its next node once `*cancelled` is true. The flag
  // must outlive the runs.
  void SetCancelFlag(const std::atomic<bool>* cancelled) { cancelled_ = cancelled; }

  // Runs all nodes in order on at most `threads` threads. Errors: kFailedPrecondition unless
  // everything is bound; else the error of a kernel (an id out of range), with the node's name.
  // Outputs are undefined after a kernel's error.
  absl::Status Run(int threads) const;

  // Runs like Run, with the same bits, and calls after(i) when node i has run, in the caller's
  // floating-point mode. Later nodes must not read or write memory that `after` changes.
  using AfterNode = absl::FunctionRef<void(size_t node)>;
  absl::Status Run(int threads, AfterNode after) const;

  // Returns the node after which an output has its value and no node reads it any more; the number
  // of nodes if it is only valid after the run. Requires: the program has the output.
  size_t NodeOfOutput(absl::string_view output) const;

  // Runs like Run, with the same bits, and calls observe(i, data) for every values[i] right after
  // the node that computes it, in the caller's floating-point mode; its memory may be reused later.
  // Requires: `values` are kComputed values of graph(), sorted by producer.
  using Observer = absl::FunctionRef<void(size_t i, const void* data)>;
  absl::Status RunAndObserve(int threads, absl::Span<const ValueId> values, Observer observe) const;
  // Returns the memory of a value. An observer may read the inputs of the node that has just run,
  // except those that its op may overwrite (OpDef::may_alias).
  void* GetData(ValueId id) const;

  // Runs like Run, with the same bits, and adds the time of node i to seconds_by_node[i]. Calls
  // (*after)(i) when node i has run, unless `after` is null, without adding its time. Requires: one
  // element per node.
  absl::Status RunAndTime(int threads, absl::Span<double> seconds_by_node,
                          const AfterNode* after = nullptr) const;

  // Runs like Run, checks every value once it is computed, and returns the first that contains a
  // NaN or an infinity (no name if none does). If a parameter, input or state contains one already,
  // returns that one and runs nothing. Slow; used to explain a divergence.
  struct NonFinite {
    std::string name;
    std::string op;  // its op, with a norm's configuration; "" for a leaf
  };
  absl::StatusOr<NonFinite> RunAndFindNonFinite(int threads) const;

  // Prints one line per node: op, operand shapes, kernel scratch, places of its outputs. Below it
  // is the kernel's choice of an algorithm, if there is one (Kernel::ToString).
  std::string ToString() const;

 private:
  // A node, ready to run. Its operands are contiguous in operands_.
  struct Step {
    const Kernel* kernel;
    const void* const* in;
    void* const* out;
  };

  // Returns the required alignment of the slot's memory.
  int64_t SlotAlignment(size_t slot) const;
  absl::Status CheckBound() const;
  absl::Status RunStep(const Step& step, int threads) const;
  absl::Status StepError(const Step& step, const absl::Status& status) const;
  void CopyOutputs() const;

  const std::shared_ptr<const CompiledProgram> program_;
  const Graph& graph_;      // the program's
  const MemoryPlan& plan_;  // the program's
  const int64_t scratch_offset_;
  std::vector<Step> steps_;  // indexed by node
  std::vector<void*> operands_;
  std::vector<void*> bound_;  // indexed by slot
  int32_t unbound_ = 0;       // slots without memory
  std::byte* workspace_ = nullptr;
  const std::atomic<bool>* cancelled_ = nullptr;  // null: runs are not cancelled
};

// Cost of a node, for the times of Executable::RunAndTime.
struct NodeTime {
  std::string op;
  std::string name;    // name of the first output: "layers.3.attention.q"
  double seconds = 0;  // filled in by the caller
  double flops = 0;    // OpDef::flops; 0: not counted
  int64_t bytes = 0;   // bytes of its operands; one read twice or written in place counts once
};

// Returns one per node, in the order of graph.nodes. Requires: the graph is verified.
std::vector<NodeTime> NodeCosts(const Graph& graph);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_EXECUTABLE_H_
