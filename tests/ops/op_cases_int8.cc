// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/gemv/quantize.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

CaseInput RandomInt8(int64_t rows, int64_t width) {
  const RngStream draws(3, "int8", static_cast<uint64_t>(rows * width));
  CaseInput input;
  input.type = Int8Elements({rows, width});
  for (int64_t i = 0; i < input.type.num_elements(); ++i) {
    input.ints.push_back(static_cast<int32_t>(draws.Below(static_cast<uint64_t>(i), 255)) - 127);
  }
  return input;
}

CaseInput Scales(int64_t rows, int64_t width) {
  return Random(Int8Scales({rows, width}).shape, 0.001, 0.02);
}

// x is rounded to 16 bits, with an error of 1/65534 of the largest element; results
// may be small compared with it. gemv_int8_test checks that there is no other error.
constexpr double kRounded = 4.0 / 65534;

OpCase Undifferentiated(OpCase c) {
  c.differentiated_outputs = {};
  return c;
}

Attrs GetRows(std::vector<double> rows) { return {{"rows", std::move(rows)}}; }

}  // namespace

std::vector<OpCase> Int8OpCases() {
  std::vector<OpCase> cases;
  // m, n, k: one group per row, several, rows that do not divide into groups; few rows and many;
  // remaining rows of w; several tasks.
  const std::vector<std::array<int64_t, 3>> shapes = {
      {1, 1, 1},    {1, 16, 16},  {2, 5, 64},     {3, 7, 65},    {4, 33, 192},   {5, 6, 40},
      {6, 27, 128}, {7, 9, 100},  {8, 70, 256},   {9, 13, 64},   {12, 3, 320},   {16, 31, 64},
      {17, 65, 64}, {33, 40, 70}, {40, 300, 192}, {3, 700, 640}, {16, 403, 200}, {64, 129, 1088}};
  for (const auto& [m, n, k] : shapes) {
    OpCase c;
    c.op = "matmul_int8";
    c.name = absl::StrCat(m, "x", n, "x", k);
    c.inputs = {Random({m, k}), RandomInt8(n, k), Scales(n, k)};
    if ((m + n) % 2 == 0) c.inputs.push_back(Random({n}));
    c.attrs = GetRows({static_cast<double>(n)});
    c.tolerance = kRounded;
    cases.push_back(Undifferentiated(std::move(c)));
  }
  OpCase batched;
  batched.op = "matmul_int8";
  batched.name = "batched rows and bias";
  batched.inputs = {Random({2, 3, 64}), RandomInt8(10, 64), Scales(10, 64), Random({10})};
  batched.attrs = GetRows({10});
  batched.tolerance = kRounded;
  cases.push_back(Undifferentiated(std::move(batched)));

  // Several products of one operand, of different heights; with no bias, one, all.
  for (const int64_t m : {1, 5, 40}) {
    for (const int biases : {0, 1, 3}) {
      OpCase c;
      c.op = "matmul_int8";
      c.name = absl::StrCat("three of ", m, " rows, biases ", biases);
      c.inputs = {Random({m, 192}), RandomInt8(70, 192),  Scales(70, 192), RandomInt8(9, 192),
                  Scales(9, 192),   RandomInt8(300, 192), Scales(300, 192)};
      if (biases == 1) c.inputs.insert(c.inputs.end(), {Random({70})});
      if (biases == 3) c.inputs.insert(c.inputs.end(), {Random({70}), Random({9}), Random({300})});
      c.attrs = GetRows({70, 9, 300});
      c.tolerance = kRounded;
      cases.push_back(Undifferentiated(std::move(c)));
    }
  }

  for (const int64_t width : {1, 16, 65, 128}) {
    OpCase c;
    c.op = "embedding_int8";
    c.name = absl::StrCat("width ", width);
    c.inputs = {RandomInt8(27, width), Scales(27, width), Ints({2, 3}, {3, 0, 26, 3, 3, 7})};
    c.attrs = Attrs({{"rows", int64_t{27}}, {"width", width}});
    OpCase offset = c;
    offset.name += " from a row on";
    offset.inputs[0] = RandomInt8(29, width);
    offset.inputs[1] = Scales(29, width);
    offset.attrs = Attrs({{"rows", int64_t{29}}, {"width", width}, {"offset", int64_t{2}}});
    cases.push_back(Undifferentiated(std::move(c)));
    cases.push_back(Undifferentiated(std::move(offset)));
  }
  return cases;
}

}  // namespace plumb
