// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/sublayers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/kernels/simd/activation_kind.h"

namespace plumb {
namespace {

using Operands = absl::Span<const TensorHandle>;

bool HasRows(const GraphBuilder& b, ValueId id) { return b.type(id).shape.rank() > 1; }

// Returns the operands with the rows of the first that has rows, if any, and with width `width`
// unless that is 0.
std::vector<ValueId> Expanded(GraphBuilder* b, Operands operands, int64_t width) {
  const auto rows =
      std::find_if(operands.begin(), operands.end(), [b](ValueId id) { return HasRows(*b, id); });
  std::vector<ValueId> expanded;
  for (const ValueId id : operands) {
    const bool lacks_rows = rows != operands.end() && !HasRows(*b, id);
    const int64_t own = b->type(id).shape.last(), wanted = width == 0 ? own : width;
    const ValueId like = rows == operands.end() ? id : *rows;
    expanded.push_back(
        lacks_rows || own != wanted ? b->Apply("expand", {id, like}, {{"width", wanted}}) : id);
  }
  return expanded;
}

int64_t MaxWidth(const GraphBuilder& b, Operands operands) {
  int64_t widest = 0;
  for (const ValueId id : operands) widest = std::max(widest, b.type(id).shape.last());
  return widest;
}

// Emits a softmax over the operands and concatenates the results. Subtracting the largest operand
// keeps exponentials from overflowing; it does not change the result and has no gradient.
ValueId EmitSoftmax(GraphBuilder* b, Operands operands, const std::string& name) {
  std::vector<ValueId> parts = Expanded(b, operands, MaxWidth(*b, operands));
  ValueId largest = parts[0];
  for (size_t k = 1; k < parts.size(); ++k) {
    largest = b->Apply("extremum", {largest, parts[k]}, {{"max", true}});
  }
  largest = b->Apply("stop", {largest});
  const Attrs difference = {{"coefs", std::vector<double>{1, -1}}, {"constant", 0.0}};
  for (ValueId& part : parts) {
    part = b->Apply("map", {b->Apply("combine", {part, largest}, difference)},
                    {{"kind", std::string("exp")}});
  }
  const std::vector<double> ones(parts.size(), 1.0);
  const ValueId total = b->Apply("combine", parts, {{"coefs", ones}, {"constant", 0.0}});
  const ValueId inverse = b->Apply("map", {total}, {{"kind", std::string("reciprocal")}});
  for (ValueId& part : parts) part = b->Apply("mul", {part, inverse});
  return parts.size() == 1 ? parts[0] : b->Apply("concat", std::move(parts), {}, name);
}

ValueId EmitDot(GraphBuilder* b, Operands operands, const std::vector<double>& groups,
                const std::string& name) {
  const char* op = HasRows(*b, operands[0]) ? "row_dot" : "mul_reduce";
  const int64_t size = groups.empty() ? 1 : static_cast<int64_t>(groups[0]);
  return b->Apply(op, {operands[0], operands[1]}, {{"size", size}}, name);
}

// Emits the channels `numbers` = {first, count} of a tensor.
ValueId EmitSlice(GraphBuilder* b, ValueId whole, const std::vector<double>& numbers,
                  const std::string& name) {
  const double first = numbers[0], count = numbers[1];
  const double after = static_cast<double>(b->type(whole).shape.last()) - first - count;
  std::vector<double> widths;
  if (first > 0) widths.push_back(first);
  widths.push_back(count);
  if (after > 0) widths.push_back(after);
  const std::vector<ValueId> parts =
      b->ApplyAll("split", {whole}, {{"widths", widths}, {"flat", false}}, name);
  return b->ok() ? parts[first > 0 ? 1 : 0] : kNoValue;
}

}  // namespace

ValueId EmitSum(GraphBuilder* b, absl::Span<const Term> terms, double constant,
                const std::string& name) {
  std::vector<ValueId> parts;
  std::vector<double> coefs;
  bool alike = true;
  for (const Term& term : terms) {
    alike = alike && b->type(term.tensor) == b->type(terms[0].tensor);
    parts.push_back(term.tensor);
    coefs.push_back(term.coefficient);
  }
  Attrs attrs = {{"coefs", std::move(coefs)}, {"constant", constant}};
  if (alike) return b->Apply("combine", std::move(parts), std::move(attrs), name);
  std::vector<ValueId> pairs;
  for (const ValueId part : parts) pairs.insert(pairs.end(), {part, kNoValue});
  return b->Apply("weighted_sum", std::move(pairs), std::move(attrs), name);
}

ValueId EmitFunction(GraphBuilder* b, const Function& function, Operands operands,
                     const std::string& scope) {
  const std::string& f = function.name;
  const std::string name = absl::StrCat(scope, f);
  if (IsActivation(f)) return b->Apply("act", {operands[0]}, {{"kind", f}}, name);
  if (f == "dot") return EmitDot(b, operands, function.numbers, name);
  if (f == "stop") return b->Apply("stop", {operands[0]}, {}, name);
  if (f == "slice") return EmitSlice(b, operands[0], function.numbers, name);
  if (f == "concat") return b->Apply("concat", Expanded(b, operands, 0), {}, name);
  if (f == "softmax") return EmitSoftmax(b, operands, name);
  if (f == "constant") {
    return b->Apply("fill", {}, {{"dims", std::vector<double>{1}}, {"value", function.numbers[0]}},
                    name);
  }
  if ((f == "max" || f == "min") && operands.size() == 2) {
    return b->Apply("extremum", Expanded(b, operands, MaxWidth(*b, operands)),
                    {{"max", f == "max"}}, name);
  }
  Attrs attrs = {{"kind", f}};
  if (!function.numbers.empty()) attrs.Set("number", function.numbers[0]);
  const bool is_word = f[0] >= 'a' && f[0] <= 'z';
  return b->Apply("map", {operands[0]}, std::move(attrs),
                  is_word ? name : absl::StrCat(scope, "comparison"));
}

}  // namespace plumb
