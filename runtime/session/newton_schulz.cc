// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/optimizer.h"

namespace plumb {
namespace {

// Builds the iteration for an [out, in] matrix. If it has more rows than columns, uses the Gram
// matrix of the columns as the right factor: this equals transposing the matrix, without a copy.
absl::StatusOr<Graph> BuildIteration(const OpRegistry& ops, const Shape& shape, int steps) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool is_tall = shape[0] > shape[1];
  const auto sum = [](double first, double second) {
    return Attrs({{"coefs", std::vector<double>{first, second}}});
  };
  GraphBuilder b(&ops);
  ValueId x = b.Input("x", F32(shape));
  for (int i = 0; i < steps; ++i) {
    const ValueId gram =
        b.Apply("matmul", {x, x}, Attrs({{is_tall ? "transpose_a" : "transpose_b", true}}));
    const ValueId square = b.Apply("matmul", {gram, gram});
    const ValueId factor = b.Apply("combine", {gram, square}, sum(kB, kC));
    const ValueId product =
        is_tall ? b.Apply("matmul", {x, factor}) : b.Apply("matmul", {factor, x});
    x = b.Apply("combine", {x, product}, sum(kA, 1));
  }
  b.Output("y", x);
  return std::move(b).Finish();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NewtonSchulz>> NewtonSchulz::Create(const OpRegistry& ops,
                                                                   const std::vector<Shape>& shapes,
                                                                   int steps) {
  auto made = std::unique_ptr<NewtonSchulz>(new NewtonSchulz);
  for (const Shape& shape : shapes) {
    const auto same = [&shape](const auto& program) { return program.first == shape; };
    if (std::any_of(made->programs_.begin(), made->programs_.end(), same)) continue;
    PLUMB_ASSIGN_OR_RETURN(Graph graph, BuildIteration(ops, shape, steps));
    PLUMB_ASSIGN_OR_RETURN(auto executable, Executable::Compile(std::move(graph)));
    made->matrix_bytes_ = std::max(made->matrix_bytes_, F32(shape).bytes());
    made->workspace_bytes_ = std::max(made->workspace_bytes_, executable->workspace_bytes());
    made->programs_.emplace_back(shape, std::move(executable));
  }
  made->matrix_bytes_ = AlignUp(made->matrix_bytes_);
  made->workspace_bytes_ = AlignUp(made->workspace_bytes_);
  return made;
}

void NewtonSchulz::Allocate() {
  input_ = AlignedBuffer(matrix_bytes_);
  output_ = AlignedBuffer(matrix_bytes_);
  workspace_ = AlignedBuffer(workspace_bytes_);
  for (const auto& [shape, executable] : programs_) {
    PLUMB_CHECK(
        executable->Bind("x", input_.data()).ok() && executable->Bind("y", output_.data()).ok(),
        "the program was built with these names");
    executable->BindWorkspace(workspace_.data());
  }
}

absl::Status NewtonSchulz::Run(const Shape& shape, int threads) const {
  const auto program =
      std::find_if(programs_.begin(), programs_.end(),
                   [&shape](const auto& candidate) { return candidate.first == shape; });
  PLUMB_CHECK(program != programs_.end(), "every shape was given to Create");
  const int64_t n = shape.num_elements();
  const double norm = std::sqrt(SumOfSquares(input(), n, threads));
  Scale(static_cast<float>(1 / (norm + 1e-7)), n, threads, input());
  return program->second->Run(threads);
}

}  // namespace plumb
