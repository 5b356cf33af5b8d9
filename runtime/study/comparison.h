// SPDX-License-Identifier: Apache-2.0
// Comparison: models that were trained with the same seeds, pair by pair, and what may be claimed
// about them. Values and pure functions.
#ifndef PLUMB_RUNTIME_STUDY_COMPARISON_H_
#define PLUMB_RUNTIME_STUDY_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/study/statistics.h"

namespace plumb {

// Result of a run in a comparison.
struct RunValue {
  double loss = 0;
  bool is_collapsed = false;  // the model has learned no more than token frequencies
};

// Differences between two models over the seeds with which both have a value.
struct PairedDifference {
  size_t a = 0, b = 0;  // models; a < b
  Interval interval;    // of the mean of b - a
  double sd = 0;        // sample standard deviation of the differences; NaN for fewer than two
  bool has_collapsed = false;  // true if a run of the pair has collapsed
  // p-values of Student's t, alone and adjusted by Holm's method, and of the sign-flip test, which
  // does not assume normal losses; NaN if there are too few seeds. Student's is also NaN if all
  // differences are equal.
  double p_student = kNaN, p_holm = kNaN, p_sign_flip = kNaN;

  bool is_significant() const { return p_holm < 0.05; }  // false for NaN
};

struct Comparison {
  std::vector<MeanAndSd> models;
  std::vector<PairedDifference> pairs;  // all with a < b: (0, 1), (0, 2), ..
  // Number of pairs with p-values among which Holm's method adjusts; those of other comparisons may
  // be included (AdjustTogether).
  size_t family = 0;

  // Returns the pair of two different models, in either order.
  const PairedDifference& Pair(size_t a, size_t b) const;
};

// Compares models by values[model][seed]; nullopt where a run has none, because it diverged. Every
// model has the same number of seeds.
Comparison CompareModels(const std::vector<std::vector<std::optional<RunValue>>>& values);

// Adjusts the p-values of several comparisons as one family.
void AdjustTogether(std::vector<Comparison>* comparisons);

// Claim about the models with the lowest means. Only models with at least one value take part.
struct Verdict {
  std::vector<size_t> ranked;  // by mean, lowest first
  // The first ones of `ranked`, which differ significantly neither from the lowest nor from each
  // other.
  std::vector<size_t> best;
  // Others that every one of `best` is significantly lower than.
  std::vector<size_t> worse;
  // The remaining ones, which differ significantly from some of `best` but not from all.
  std::vector<size_t> unclear;
};
Verdict RankModels(const Comparison& comparison);

// Mark around each name in VerdictText: a character that no name has (U+E000, private use).
inline constexpr char kNameMark[] = "\xee\x80\x80";

// Describes the verdict in one or two sentences: "A, B and C cannot be distinguished; all are
// better than D." `names` are those of the models.
std::string VerdictText(const Comparison& comparison, const std::vector<std::string>& names);

// Describes what the number of seeds permits, about the lowest model and the next: the difference
// that would have been detected with a probability of 0.8, and the number of seeds that the
// observed one needs. "" if they have no interval.
std::string PowerText(const Comparison& comparison, const std::vector<std::string>& names);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_COMPARISON_H_
