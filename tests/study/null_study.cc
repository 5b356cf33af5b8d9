// SPDX-License-Identifier: Apache-2.0
// Simulates families of models that do not differ, of whose runs some collapse or diverge, and
// counts the families with a false claim, by the statistics that studies use.
//
//   null_study FAMILIES
//
// Prints a table, of which docs/report.md has rows. Exits with 1 if more than 5 % of families have
// a false claim, by more than three standard errors of the simulation, or if none ever has one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "runtime/base/rng.h"
#include "runtime/study/comparison.h"

namespace plumb {
namespace {

struct Setting {
  size_t models, seeds;
  double collapsed, diverged;  // shares of runs
};

constexpr double kMargin = 0.01;

// Returns the results of a family. The losses of a seed have a part in common; a collapsed run has
// the loss of token frequencies.
RunValues DrawFamily(const Setting& setting, uint64_t family) {
  const RngStream stream(family, "null study");
  uint64_t draw = 0;
  RunValues values(setting.models);
  for (size_t seed = 0; seed < setting.seeds; ++seed) {
    const double shared = 0.03 * stream.Normal(draw++);
    for (auto& model : values) {
      const double fate = stream.Uniform(draw++), noise = 0.01 * stream.Normal(draw++);
      const bool collapses = fate < setting.collapsed;
      const bool diverges = !collapses && fate < setting.collapsed + setting.diverged;
      const double loss = collapses ? 2.8 : 2.5;
      model.push_back(RunValue{
          diverges ? std::numeric_limits<double>::infinity() : loss + shared + noise, collapses});
    }
  }
  return values;
}

struct Claims {
  bool baseline = false, others = false;  // a difference from the first model; among the others
  bool equal = false;                     // equality of models that differ by the margin
  bool student = false;                   // what Student's t would claim about all pairs
};

Claims FalseClaims(const Setting& setting, uint64_t family) {
  RunValues values = DrawFamily(setting, family);
  Claims claims;
  std::vector<double> p_student;
  for (const PairedDifference& pair : CompareModels(values).pairs) {
    (pair.a == 0 ? claims.baseline : claims.others) |= pair.is_significant();
    p_student.push_back(pair.p_student);
  }
  for (const double p : HolmAdjusted(p_student)) claims.student |= p < 0.05;
  for (size_t model = 1; model < values.size(); ++model) {
    for (auto& run : values[model]) run->loss += kMargin;
  }
  for (const PairedDifference& pair : CompareModels(values, kMargin).pairs) {
    claims.equal |= pair.a == 0 && pair.is_equal();
  }
  return claims;
}

int Run(int64_t families) {
  std::printf(
      "| models | seeds | collapsed | diverged | baseline | other pairs | equal | all by Student's "
      "t |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  const auto n = static_cast<double>(families);
  const double limit = 0.05 + 3 * std::sqrt(0.05 * 0.95 / n);
  bool is_valid = true, has_claims = false;
  for (const size_t models : {size_t{26}, size_t{82}}) {
    for (const size_t seeds : {size_t{5}, size_t{10}}) {
      for (const auto& [collapsed, diverged] :
           {std::pair(0.0, 0.0), {0.1, 0.0}, {0.3, 0.0}, {0.5, 0.0}, {0.0, 0.2}}) {
        const Setting setting{models, seeds, collapsed, diverged};
        double baseline = 0, others = 0, equal = 0, student = 0;
        for (int64_t family = 1; family <= families; ++family) {
          const Claims claims = FalseClaims(setting, static_cast<uint64_t>(family));
          baseline += claims.baseline ? 1 / n : 0;
          others += claims.others ? 1 / n : 0;
          equal += claims.equal ? 1 / n : 0;
          student += claims.student ? 1 / n : 0;
        }
        is_valid &= std::max({baseline, others, equal}) <= limit;
        has_claims |= baseline > 0;
        std::printf("| %zu | %zu | %.0f %% | %.0f %% | %.1f %% | %.1f %% | %.1f %% | ", models,
                    seeds, 100 * collapsed, 100 * diverged, 100 * baseline, 100 * others,
                    100 * equal);
        // Student's t has no value if a run diverged.
        std::printf(diverged > 0 ? "– |\n" : "%.1f %% |\n", 100 * student);
        std::fflush(stdout);
      }
    }
  }
  return is_valid && has_claims ? 0 : 1;
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  int64_t families = 0;
  if (argc != 2 || !absl::SimpleAtoi(argv[1], &families) || families < 1) {
    std::fprintf(stderr, "usage: null_study FAMILIES\n");
    return 2;
  }
  return plumb::Run(families);
}
