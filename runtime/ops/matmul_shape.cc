// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/matmul_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"

namespace plumb {

absl::Status CheckProduct(const OpTypes& types, size_t a, size_t b) {
  const std::string name_a = a == 0 ? "a" : absl::StrCat("input ", a);
  const std::string name_b = b == 1 ? "b" : absl::StrCat("input ", b);
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, a, name_a));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, b, name_b));
  if (types.in(a).dtype != types.in(b).dtype) {
    return absl::InvalidArgumentError(absl::StrCat(name_a, " is ", DTypeName(types.in(a).dtype),
                                                   " and ", name_b, " ",
                                                   DTypeName(types.in(b).dtype)));
  }
  const ProductShape p(types.in(a).shape, types.in(b).shape, types.attrs);
  const int64_t k_of_b = p.transpose_b ? types.in(b).shape.last() : types.in(b).shape.rows();
  if (p.k == k_of_b) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the inner sizes differ: ", p.k, " of ", name_a,
                                                 " and ", k_of_b, " of ", name_b));
}

absl::Status CheckBias(const OpTypes& types, size_t i, int64_t n) {
  if (!types.has(i)) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(CheckF32(types, i, "bias"));
  if (types.in(i).shape == Shape({n})) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bias must be [", n, "]"));
}

std::vector<size_t> LeftTokenWise(const OpTypes& types) {
  if (types.attrs.GetBool("transpose_a", false)) return {};
  return {0};
}

GemmTerm MakeTerm(const OpTypes& types, size_t a, size_t b) {
  const ProductShape p(types.in(a).shape, types.in(b).shape, types.attrs);
  return {static_cast<int>(a), static_cast<int>(b), p.k, p.lda, p.ldb};
}

GemmSpec MakeSpec(const OpTypes& types, size_t a, size_t b) {
  const ProductShape p(types.in(a).shape, types.in(b).shape, types.attrs);
  GemmSpec spec{};
  spec.operands = types.in(a).dtype;
  spec.out = types.out(0).dtype;
  spec.transpose_a = p.transpose_a;
  spec.transpose_b = p.transpose_b;
  spec.m = p.m;
  return spec;
}

GemmSpec OneProduct(const OpTypes& types, bool may_have_bias) {
  GemmSpec spec = MakeSpec(types, 0, 1);
  spec.results.resize(1);
  spec.results[0].n = types.out(0).shape.last();
  spec.results[0].terms = {MakeTerm(types, 0, 1)};
  if (may_have_bias && types.has(2)) spec.results[0].bias = 2;
  return spec;
}

void AddReferenceProduct(const ReferenceArgs& args, size_t a, size_t b, std::vector<double>* sums) {
  const ProductShape p(args.shape(a), args.shape(b), args.attrs);
  const std::vector<double>& x = args.f(a);
  std::vector<double> y(p.k * p.n);  // rows of k, so that the innermost loop reads neighbours
  for (int64_t l = 0; l < p.k; ++l) {
    for (int64_t j = 0; j < p.n; ++j) {
      y[l * p.n + j] = args.f(b)[p.transpose_b ? j * p.ldb + l : l * p.ldb + j];
    }
  }
  std::vector<double> row(p.n);
  for (int64_t i = 0; i < p.m; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t l = 0; l < p.k; ++l) {
      const double factor = x[p.transpose_a ? l * p.lda + i : i * p.lda + l];
      for (int64_t j = 0; j < p.n; ++j) row[j] += factor * y[l * p.n + j];
    }
    for (int64_t j = 0; j < p.n; ++j) (*sums)[i * p.n + j] += row[j];
  }
}

void AddReferenceBias(const ReferenceArgs& args, size_t i, std::vector<double>* sums) {
  if (!args.has(i)) return;
  const std::vector<double>& bias = args.f(i);
  for (size_t e = 0; e < sums->size(); ++e) (*sums)[e] += bias[e % bias.size()];
}

absl::Status CheckExpertRows(const OpTypes& types, size_t i, absl::string_view name) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, name));
  if (types.in(i).shape.rank() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must be [rows, width]"));
}

absl::Status CheckExpertStarts(const OpTypes& types, size_t i, int64_t groups) {
  PLUMB_RETURN_IF_ERROR(CheckI32(types, i, "starts"));
  if (groups >= 1 && types.in(i).shape == Shape({groups + 1})) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("starts must be [", groups + 1, "], one more than there are experts"));
}

absl::Status CheckExpertBias(const OpTypes& types, size_t i, int64_t groups, int64_t n) {
  if (!types.has(i)) return absl::OkStatus();
  if (types.in(i) == F32({groups, n})) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bias must be f32[", groups, ", ", n, "]"));
}

int64_t ExpertOfRow(const std::vector<int32_t>& starts, int64_t row) {
  return std::upper_bound(starts.begin(), starts.end(), row) - starts.begin() - 1;
}

}  // namespace plumb
