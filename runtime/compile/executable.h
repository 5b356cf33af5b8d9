// SPDX-License-Identifier: Apache-2.0
// Executable: a graph compiled for its shapes: kernels, and the plan of its memory.
//
// It owns its kernels and a table of operand pointers; memory is the caller's and is bound by name
// before the first run. Creation allocates and may fail; Run allocates nothing unless it fails.
// Nodes run with denormals flushed to zero (runtime/base/float_mode.h), whatever the caller's mode,
// which is restored before a run returns or calls an observer. Thread-compatible.
#ifndef PLUMB_RUNTIME_COMPILE_EXECUTABLE_H_
#define PLUMB_RUNTIME_COMPILE_EXECUTABLE_H_

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

class Executable {
 public:
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Plans memory and makes a kernel for every node.
  static absl::StatusOr<std::unique_ptr<Executable>> Compile(Graph graph);

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }

  // Bytes of temporary memory (arena and scratch together) that BindWorkspace wants, 64-byte
  // aligned. Executables that never run at once may share one workspace.
  int64_t workspace_bytes() const { return scratch_offset_ + scratch_bytes_; }
  void BindWorkspace(void* workspace);

  // Binds a parameter, input, state (by value name) or output (by output name). The memory must
  // hold the value's type, 64-byte aligned (a matrix that is a parameter: as its elements are), and
  // overlap no other. An output that is a state,
  // updated in place, is found where the state is and is not bound itself. kNotFound for a name
  // that is unknown or not to be bound, kInvalidArgument for memory that is not aligned.
  absl::Status Bind(absl::string_view name, void* data);

  // From now on nodes run in the caller's floating-point mode: to measure the cost of denormals.
  void KeepDenormals() { keeps_denormals_ = true; }

  // Runs all nodes in order on at most `threads` threads. kFailedPrecondition unless everything is
  // bound; else the error of a kernel (an id out of range), which names the node; outputs are then
  // undefined.
  absl::Status Run(int threads) const;

  // Runs like Run, to the same bits, and calls after(i) when node i has run, in the caller's
  // floating-point mode. What it changes must not be read or written by the nodes after it.
  using AfterNode = absl::FunctionRef<void(size_t node)>;
  absl::Status Run(int threads, AfterNode after) const;

  // The node after which an output has its value and no node reads it any more; the number of
  // nodes: it has only when the run is over. REQUIRES: the program has the output.
  size_t NodeOfOutput(absl::string_view output) const;

  // Runs like Run, to the same bits, and calls observe(i, data) for every values[i] right after the
  // node that makes it, in the caller's floating-point mode: its memory may be reused later.
  // REQUIRES: kComputed values of graph(), sorted by producer.
  using Observer = absl::FunctionRef<void(size_t i, const void* data)>;
  absl::Status RunAndObserve(int threads, absl::Span<const ValueId> values, Observer observe) const;

  // Runs like Run, to the same bits, and adds to seconds_by_node[i] how long node i took.
  // REQUIRES: one element a node.
  absl::Status RunAndTime(int threads, absl::Span<double> seconds_by_node) const;
  // The same, and calls after(i) as Run does; what that takes is not added.
  absl::Status RunAndTime(int threads, absl::Span<double> seconds_by_node, AfterNode after) const;

  // Runs like Run, looks at every value as it is made, and returns the first that holds a NaN or an
  // infinity (no name if none does). When a parameter, input or state holds one already, it returns
  // that one and runs nothing. Slow; for explaining a divergence.
  struct NonFinite {
    std::string name;
    std::string op;  // what made it, with a norm's configuration; "" of what was there before
  };
  absl::StatusOr<NonFinite> RunAndFindNonFinite(int threads) const;

  // One line a node: op, operand shapes, kernel scratch, places of its outputs; below it how its
  // kernel computes, where there is a choice (Kernel::ToString).
  std::string ToString() const;

 private:
  // A node, ready to run: its operands are contiguous in operands_.
  struct Step {
    const Kernel* kernel;
    const void* const* in;
    void* const* out;
  };

  Executable() = default;
  absl::Status MakeSteps();
  void NameBindings();
  // Of the memory that the slot takes.
  int64_t AlignmentOf(size_t slot) const;
  absl::Status CheckBound() const;
  absl::Status RunStep(const Step& step, int threads) const;
  absl::Status StepError(const Step& step, const absl::Status& status) const;
  void CopyOutputs() const;
  void* DataOf(ValueId id) const;

  Graph graph_;
  MemoryPlan plan_;
  std::vector<std::unique_ptr<Kernel>> kernels_;  // by node
  std::vector<Step> steps_;                       // by node
  std::vector<void*> operands_;
  std::vector<std::vector<int32_t>> uses_;  // by ValueId: indices into operands_

  std::vector<std::vector<ValueId>> values_of_slot_;  // of the plan's externals

  // Slots for the caller's memory: the plan's externals, then its copied outputs.
  std::vector<void*> bound_;
  std::map<std::string, size_t, std::less<>> bindings_;  // name -> slot
  int32_t unbound_ = 0;                                  // slots without memory
  bool keeps_denormals_ = false;

  std::byte* workspace_ = nullptr;
  int64_t scratch_offset_ = 0;
  int64_t scratch_bytes_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_EXECUTABLE_H_
