// SPDX-License-Identifier: Apache-2.0
// Cases for the tests of ops: operands and attributes of a call. Every op of the registry needs at
// least one. ops_test.cc compares its kernel with its reference, and its VJP with differences of
// its reference, so an op needs no test of its own.
#ifndef PLUMB_TESTS_OPS_OP_CASES_H_
#define PLUMB_TESTS_OPS_OP_CASES_H_

#include <ostream>
#include <string>
#include <vector>

#include "runtime/graph/attrs.h"
#include "runtime/graph/op.h"

namespace plumb {

// One operand of a case.
struct CaseInput {
  TensorType type;
  bool absent = false;
  // Elements for f32 and bf16; if empty, uniform draws from [low, high).
  std::vector<double> values;
  double low = -2, high = 2;
  std::vector<int32_t> ints;  // elements for i32 and i8
  bool constant = false;      // the outputs do not depend on its values: it has no gradient
};

CaseInput Random(Shape shape, double low = -2, double high = 2);
CaseInput RandomBf16(Shape shape, double low = -2, double high = 2);
CaseInput Values(Shape shape, std::vector<double> values);
CaseInput Ints(Shape shape, std::vector<int32_t> ints);
CaseInput Absent();

struct OpCase {
  std::string op;
  std::string name;  // distinguishing properties: "7x16x16 transpose_b"
  std::vector<CaseInput> inputs;
  Attrs attrs;
  // Max error of an f32 output's element, relative to the output's largest element. A bf16 output
  // may have a rounding error in addition.
  double tolerance = 2e-6;
  // The outputs whose gradients the VJP gets (the others are by-products like a log-sum-exp);
  // empty: the case is not differentiated.
  std::vector<int> differentiated_outputs = {0};
  // Max number of elements whose derivative is checked, per input.
  int checked_elements = 24;
};

// Appends a case; only few elements of large inputs are differentiated.
void AddCase(std::vector<OpCase>* cases, const std::string& op, std::string name,
             std::vector<CaseInput> inputs, Attrs attrs = {});

// Returns the case with these inputs in bf16, except absent ones.
OpCase InBf16(OpCase c, const std::vector<size_t>& inputs);

inline void PrintTo(const OpCase& c, std::ostream* os) { *os << c.op << ": " << c.name; }

// op_cases_matmul.cc: matmul and its fused forms.
std::vector<OpCase> MatmulOpCases();
// op_cases_dense.cc: embedding, sums, elementwise ops.
std::vector<OpCase> DenseOpCases();
// op_cases_broadcast.cc: products and sums of different widths, functions, parts, dropout.
std::vector<OpCase> BroadcastOpCases();
// op_cases_program.cc: formulas as one node.
std::vector<OpCase> ProgramOpCases();
// op_cases_sequence.cc: rotary embedding, attention, convolution, cross entropy.
std::vector<OpCase> SequenceOpCases();
// op_cases_int8.cc: products and embeddings with int8 weights.
std::vector<OpCase> Int8OpCases();
// op_cases_experts.cc: routers, rows grouped by expert, their products, the balance loss.
std::vector<OpCase> ExpertOpCases();

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_OP_CASES_H_
