// SPDX-License-Identifier: Apache-2.0
// Cases of the op program: formulas as in placements, and the programs of their gradients.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/program.h"
#include "runtime/ops/ops.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

// Returns the ops of the programs' nodes, which live as long as the cases.
const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* made = new OpRegistry();
    RegisterOps(made);
    return made;
  }();
  return *ops;
}

Attrs Kind(const char* kind, double number = 0) {
  return Attrs({{"kind", std::string(kind)}, {"number", number}});
}
Attrs Coefs(std::vector<double> coefs, double constant = 0) {
  return Attrs({{"coefs", std::move(coefs)}, {"constant", constant}});
}
Attrs SizeOfSums(int64_t size) { return Attrs({{"size", size}}); }
Attrs Parts(std::vector<double> widths, bool flat) {
  return Attrs({{"widths", std::move(widths)}, {"flat", flat}});
}

using Formula = std::function<std::vector<ValueId>(GraphBuilder&, const std::vector<ValueId>&)>;

std::shared_ptr<const ProgramAttr> Make(const std::vector<CaseInput>& inputs,
                                        const Formula& formula) {
  GraphBuilder b(&Ops());
  std::vector<ValueId> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(b.Input(absl::StrCat("in", i), inputs[i].type));
  }
  for (const ValueId output : formula(b, leaves)) b.Output(absl::StrCat("out", output), output);
  const absl::StatusOr<Graph> graph = std::move(b).Finish();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return std::make_shared<const ProgramAttr>(*graph);
}

Attrs GraphAttr(const std::shared_ptr<const ProgramAttr>& program) {
  return Attrs({{"graph", std::shared_ptr<const AttrObject>(program)}});
}

// Adds the program of a formula, and the program of its gradients with respect to all inputs, given
// the gradients of all outputs.
void AddFormula(std::vector<OpCase>* cases, const std::string& name,
                const std::vector<CaseInput>& inputs, const Formula& formula) {
  const auto program = Make(inputs, formula);
  AddCase(cases, "program", name, inputs, GraphAttr(program));
  cases->back().tolerance = 1e-5;
  const std::vector<bool> wanted(inputs.size(), true);
  const std::vector<bool> given(program->graph().outputs.size(), true);
  const auto gradient = program->BuildGradient(Ops(), wanted, given);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  std::vector<CaseInput> operands = inputs;
  for (const GraphOutput& output : program->graph().outputs) {
    operands.push_back(Random(program->graph().value(output.value).type.shape));
  }
  std::vector<CaseInput> kept;
  for (const size_t i : gradient->inputs) kept.push_back(operands[i]);
  AddCase(cases, "program", absl::StrCat("gradient of ", name), std::move(kept),
          GraphAttr(gradient->program));
  cases->back().tolerance = 2e-5;
  cases->back().differentiated_outputs = {};
}

// Adds h_i + sum_j (r_ji + part(a, i)) h_j over streams, as in hyper-connections: scalars per
// token, of the model, and of a learned table.
void AddStreams(std::vector<OpCase>* cases, const std::string& name, Shape rows, int64_t width) {
  const Shape scalars = rows.WithLast(2);
  AddFormula(
      cases, name,
      {Random(rows.WithLast(width)), Random(rows.WithLast(width)), Random(scalars), Random({2, 2}),
       Random({1}), Random({width})},
      [](GraphBuilder& b, const std::vector<ValueId>& in) {
        const std::vector<ValueId> r = b.ApplyAll("split", {in[3]}, Parts({1, 1, 1, 1}, true));
        const std::vector<ValueId> a = b.ApplyAll("split", {in[2]}, Parts({1, 1}, false));
        std::vector<ValueId> streams;
        for (size_t i = 0; i < 2; ++i) {
          const ValueId t = b.Apply("act", {a[i]}, Kind("tanh"));
          const ValueId s = b.Apply("mul", {t, in[4]});
          const ValueId w = b.Apply("weighted_sum", {r[i], kNoValue, s, kNoValue}, Coefs({1, 1}));
          const ValueId v = b.Apply("weighted_sum", {r[2 + i], kNoValue, s}, Coefs({0.5, 2}, 0.25));
          const ValueId x = b.Apply("mul", {in[0], w}), y = b.Apply("mul", {in[1], v});
          const ValueId sum = b.Apply("combine", {x, y, in[i]}, Coefs({1, -1, 1}));
          streams.push_back(b.Apply("mul", {sum, in[5]}));
        }
        streams.push_back(b.Apply("row_dot", {streams[0], in[5]}, SizeOfSums(1)));
        return streams;
      });
}

// Adds e_k / sum_m e_m over the channels of one operand, one by one.
void AddShares(std::vector<OpCase>* cases, Shape rows) {
  AddFormula(
      cases, "shares", {Random(rows.WithLast(4)), Random({4})},
      [](GraphBuilder& b, const std::vector<ValueId>& in) {
        const ValueId x = b.Apply("weighted_sum", {in[0], kNoValue, in[1]}, Coefs({1, 1}));
        const std::vector<ValueId> parts = b.ApplyAll("split", {x}, Parts({1, 1, 1, 1}, false));
        std::vector<ValueId> e;
        for (const ValueId part : parts) e.push_back(b.Apply("map", {part}, Kind("exp")));
        const ValueId sum = b.Apply("combine", e, Coefs({1, 1, 1, 1}));
        const ValueId over = b.Apply("map", {sum}, Kind("reciprocal"));
        for (ValueId& each : e) each = b.Apply("mul", {each, over});
        return std::vector<ValueId>{b.Apply("concat", e)};
      });
}

void AddHeads(std::vector<OpCase>* cases) {
  AddFormula(
      cases, "heads, a stopped value and the larger of two",
      {Random({2, 5, 36}), Random({4}), Random({2, 5, 4}), Random({2, 5, 36})},
      [](GraphBuilder& b, const std::vector<ValueId>& in) {
        const ValueId scaled = b.Apply("mul", {in[0], in[1]});
        const ValueId wide = b.Apply("expand", {in[2], in[0]});
        const ValueId larger = b.Apply("extremum", {scaled, wide}, {{"max", true}});
        const ValueId stopped = b.Apply("stop", {in[3]});
        const ValueId one = b.Apply("fill", {}, {{"dims", std::vector<double>{1}}, {"value", 1.5}});
        const ValueId product = b.Apply("mul", {larger, stopped});
        const ValueId sums = b.Apply("row_dot", {product}, SizeOfSums(4));
        return std::vector<ValueId>{b.Apply("mul", {product, one}), sums};
      });
  cases->back().checked_elements = 0;
  (*cases)[cases->size() - 2].inputs[3].constant = true;
}

void AddVectors(std::vector<OpCase>* cases) {
  AddFormula(
      cases, "vectors alone", {Random({3}), Random({1}), Random({2, 3})},
      [](GraphBuilder& b, const std::vector<ValueId>& in) {
        const std::vector<ValueId> rows = b.ApplyAll("split", {in[2]}, Parts({3, 3}, true));
        const ValueId s = b.Apply("act", {in[0]}, Kind("sigmoid"));
        const ValueId product = b.Apply("mul", {s, rows[0]});
        const ValueId dot = b.Apply("mul_reduce", {product, rows[1]}, SizeOfSums(1));
        const ValueId sum = b.Apply("weighted_sum", {product, in[1], dot, kNoValue}, Coefs({2, 1}));
        return std::vector<ValueId>{sum, dot};
      });
}

}  // namespace

std::vector<OpCase> ProgramOpCases() {
  std::vector<OpCase> cases;
  AddStreams(&cases, "streams", {2, 5, 1}, 17);
  AddStreams(&cases, "streams of one channel", {1, 7, 1}, 1);
  AddStreams(&cases, "many rows of streams", {3, 201, 1}, 72);
  AddShares(&cases, {2, 5, 1});
  AddShares(&cases, {3, 401, 1});
  AddHeads(&cases);
  AddVectors(&cases);
  return cases;
}

}  // namespace plumb
