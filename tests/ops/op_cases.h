// SPDX-License-Identifier: Apache-2.0
// Cases for the tests of ops: what an op is called with. Every op of the registry needs at least
// one; each then gets its kernel held against its reference, and its VJP against differences of its
// reference, without a test of its own (ops_test.cc).
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
  // f32, bf16: the elements, or, when empty, uniform draws from [low, high).
  std::vector<double> values;
  double low = -2, high = 2;
  std::vector<int32_t> ints;  // i32, i8: the elements
  bool constant = false;      // the outputs do not depend on it: it has no gradient
};

CaseInput Random(Shape shape, double low = -2, double high = 2);
CaseInput RandomBf16(Shape shape, double low = -2, double high = 2);
CaseInput Values(Shape shape, std::vector<double> values);
CaseInput Ints(Shape shape, std::vector<int32_t> ints);
CaseInput Absent();

struct OpCase {
  std::string op;
  std::string name;  // what is special about it: "7x16x16 transpose_b"
  std::vector<CaseInput> inputs;
  Attrs attrs;
  // Largest error of an output's element in f32, relative to the output's largest element. A bf16
  // output may be rounded beyond that.
  double tolerance = 2e-6;
  // The outputs whose gradients the VJP is given (the others are by-products like a log-sum-exp);
  // none: the case is not differentiated.
  std::vector<int> differentiated_outputs = {0};
  // Elements whose derivative is checked, an input at most.
  int checked_elements = 24;
};

// Appends a case; of large inputs few elements are differentiated.
void AddCase(std::vector<OpCase>* cases, const std::string& op, std::string name,
             std::vector<CaseInput> inputs, Attrs attrs = {});

// The case with these inputs in bf16, but for those that are absent.
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
