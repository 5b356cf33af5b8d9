// SPDX-License-Identifier: Apache-2.0
// Comparison: models that were trained with the same seeds, pair by pair, and what may be claimed
// about them. The first model is the baseline. Values and pure functions.
#ifndef PLUMB_RUNTIME_STUDY_COMPARISON_H_
#define PLUMB_RUNTIME_STUDY_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/study/statistics.h"

namespace plumb {

// Result of a run in a comparison.
struct RunValue {
  double loss = 0;            // infinite if the run diverged, which is worse than any number
  bool is_collapsed = false;  // the model has learned no more than token frequencies

  bool is_diverged() const { return loss == std::numeric_limits<double>::infinity(); }
};
// Results by model and seed; nullopt for a run that did not end. Every model has as many seeds.
using RunValues = std::vector<std::vector<std::optional<RunValue>>>;

// Outcome of the runs of a model that ended.
struct ModelOutcome {
  MeanAndSd loss;  // of the finished runs
  int64_t diverged = 0, collapsed = 0;

  int64_t runs() const { return loss.n + diverged; }
  // Returns true if nothing good may be said of the model: fewer than two of its runs finished.
  bool is_unproven() const { return loss.n < 2; }
};

// Test that decides whether two models differ.
enum class PairTest {
  kStudent,   // paired t
  kSignFlip,  // if a run collapsed: losses are not normal
  kSign,      // if a run diverged: losses are only ordered
};

// Returns "t", "sign flips" or "signs".
const char* PairTestName(PairTest test);

// Differences between two models over the seeds with which the runs of both ended.
struct PairedDifference {
  size_t a = 0, b = 0;  // models; a < b
  Interval interval;    // of the mean of b - a; only its n if a run diverged
  double sd = 0;        // sample standard deviation of the differences; NaN if there is none
  int64_t lower = 0, higher = 0;  // numbers of seeds with which b is lower and higher than a
  PairTest test = PairTest::kStudent;
  // p-values of Student's t and of the sign-flip test; NaN if there are too few seeds or a run
  // diverged. Student's is also NaN if all differences are equal.
  double p_student = kNaN, p_sign_flip = kNaN;
  double p = kNaN, p_holm = kNaN;  // of `test`, alone and adjusted in its family
  // p-values of equivalence within the margin, alone and adjusted in its family; NaN without a
  // margin, if a run of the pair failed, and where Student's is NaN.
  double p_equivalence = kNaN, p_equal = kNaN;

  bool is_significant() const { return p_holm < 0.05; }  // false for NaN
  bool is_equal() const { return p_equal < 0.05; }
  // Returns true if b is lower than a, as far as the test sees.
  bool is_lower() const { return test == PairTest::kSign ? lower > higher : interval.mean < 0; }
};

struct Comparison {
  std::vector<ModelOutcome> models;
  std::vector<PairedDifference> pairs;  // all with a < b: (0, 1), (0, 2), ..
  double margin = 0;                    // of equivalence, in nats; 0 = none
  // Number of p-values of pairs with the baseline, which are one family: Holm's method adjusts them
  // together. Other pairs are adjusted in the family of all pairs. Both may include those of other
  // comparisons (AdjustTogether).
  size_t family = 0;

  // Returns the pair of two different models, in either order.
  const PairedDifference& Pair(size_t a, size_t b) const;
  // Returns the models with runs that ended, the best first: those with two finished runs, by the
  // share of diverged runs and then by the mean loss.
  std::vector<size_t> Ranked() const;
};

// Compares models. With a margin, models may also be found equal. Requires: margin >= 0.
Comparison CompareModels(const RunValues& values, double margin = 0);

// Adjusts the p-values of several comparisons together, in the two families of Comparison::family.
void AdjustTogether(std::vector<Comparison>* comparisons);

// Returns the mean of each model's rank over the seeds with which the runs of all ended, 1 for the
// lowest loss. A diverged run has the last rank, equal losses their mean rank. NaN without seeds.
std::vector<double> MeanRanks(const std::vector<RunValues>& cells);

// Places of a model among all, 1 for the best, in 95 % of the bootstrap's samples of seeds.
struct Places {
  int64_t low = 0, high = 0;
};
// Returns the places of the models in the order of Comparison::Ranked; nullopt for models with
// fewer than two finished runs, and for all with fewer than five seeds. The same in every call.
std::vector<std::optional<Places>> BootstrapPlaces(const RunValues& values);

// Claims about the models against the baseline, each class in the order of Comparison::Ranked.
struct Verdict {
  std::vector<size_t> better, equal, worse, undecided;
};
Verdict Classify(const Comparison& comparison);

// Mark around each name in VerdictText: a character that no name has (U+E000, private use).
inline constexpr char kNameMark[] = "\xee\x80\x80";

// Returns "diverged in 2 of 8", "collapsed in 1 of 8", both with a comma, or "".
std::string FailureText(const ModelOutcome& outcome);

// Returns the number of seeds of a study that compares with as many as the argument.
using TotalSeeds = std::function<int64_t(int64_t)>;

// Describes the verdict: "Better than pre: A (−0.022); worse: D (+0.031, diverged in 1 of 8)."
// `names` are those of the models. Without `total_seeds` the study compares with all seeds.
std::string VerdictText(const Comparison& comparison, const std::vector<std::string>& names,
                        const TotalSeeds& total_seeds = nullptr);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_COMPARISON_H_
