// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/comparison.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace plumb {
namespace {

constexpr double kLevel = 0.05;

std::string Named(const std::string& name) { return absl::StrCat(kNameMark, name, kNameMark); }

// Returns "A", "A and B" or "A, B and C"; more than eight names are cut.
std::string NameList(const std::vector<size_t>& models, const std::vector<std::string>& names) {
  constexpr size_t kMaxNames = 8;
  const size_t shown = models.size() > kMaxNames ? kMaxNames - 1 : models.size();
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == models.size();
    absl::StrAppend(&text, i == 0 ? "" : is_last ? " and " : ", ", Named(names[models[i]]));
  }
  if (shown < models.size()) absl::StrAppend(&text, " and ", models.size() - shown, " others");
  return text;
}

// Returns true if `a` is significantly lower than `b`.
bool IsLower(const Comparison& comparison, size_t a, size_t b) {
  const PairedDifference& pair = comparison.Pair(a, b);
  return pair.is_significant() && (pair.a == a ? pair.interval.mean > 0 : pair.interval.mean < 0);
}

bool Differ(const Comparison& comparison, size_t a, size_t b) {
  return comparison.Pair(a, b).is_significant();
}

// Returns a caution if a difference that is claimed involves collapsed runs; "" otherwise.
std::string CollapseText(const Comparison& comparison) {
  const bool is_doubtful =
      std::any_of(comparison.pairs.begin(), comparison.pairs.end(),
                  [](const auto& pair) { return pair.has_collapsed && pair.is_significant(); });
  return is_doubtful ? " Runs have collapsed, so losses are not normal: p (signs) does not assume "
                       "that they are."
                     : "";
}

// Formats a difference of losses with two significant digits.
std::string DifferenceText(double difference) { return absl::StrFormat("%.2g", difference); }

// Describes how much lower `best` is than `next`.
std::string GapText(const Comparison& comparison, size_t best, size_t next,
                    const std::vector<std::string>& names) {
  const PairedDifference& pair = comparison.Pair(best, next);
  const Interval& interval = pair.interval;
  if (std::isnan(interval.low)) return "";
  const bool is_forward = pair.a == best;
  const double low = is_forward ? interval.low : -interval.high;
  const double high = is_forward ? interval.high : -interval.low;
  return absl::StrFormat(" %s − %s is %.3f (95 %% interval %.3f to %.3f, %d seeds).",
                         Named(names[next]), Named(names[best]),
                         is_forward ? interval.mean : -interval.mean, low, high, interval.n);
}

}  // namespace

const PairedDifference& Comparison::Pair(size_t a, size_t b) const {
  if (a > b) std::swap(a, b);
  // Row a of the upper triangle begins after those of 0 .. a - 1.
  return pairs[a * models.size() - a * (a + 1) / 2 + (b - a - 1)];
}

Comparison CompareModels(const std::vector<std::vector<std::optional<RunValue>>>& values) {
  Comparison comparison;
  for (const auto& model : values) {
    std::vector<double> present;
    for (const std::optional<RunValue>& value : model) {
      if (value) present.push_back(value->loss);
    }
    comparison.models.push_back(Summarize(present));
  }
  for (size_t a = 0; a < values.size(); ++a) {
    for (size_t b = a + 1; b < values.size(); ++b) {
      PairedDifference pair;
      std::vector<double> differences;
      for (size_t seed = 0; seed < values[a].size(); ++seed) {
        const std::optional<RunValue>&x = values[a][seed], &y = values[b][seed];
        if (!x || !y) continue;
        differences.push_back(y->loss - x->loss);
        if (x->is_collapsed || y->is_collapsed) pair.has_collapsed = true;
      }
      pair.a = a;
      pair.b = b;
      pair.interval = ConfidenceInterval95(Summarize(differences));
      pair.sd = Summarize(differences).sd;
      pair.p_student = StudentPValue(differences);
      pair.p_sign_flip = SignFlipPValue(differences);
      comparison.pairs.push_back(pair);
    }
  }
  std::vector<Comparison> alone = {std::move(comparison)};
  AdjustTogether(&alone);
  return std::move(alone.front());
}

void AdjustTogether(std::vector<Comparison>* comparisons) {
  std::vector<double> p;
  for (const Comparison& comparison : *comparisons) {
    for (const PairedDifference& pair : comparison.pairs) p.push_back(pair.p_student);
  }
  const std::vector<double> adjusted = HolmAdjusted(p);
  const auto family = static_cast<size_t>(
      std::count_if(p.begin(), p.end(), [](double value) { return !std::isnan(value); }));
  size_t i = 0;
  for (Comparison& comparison : *comparisons) {
    comparison.family = family;
    for (PairedDifference& pair : comparison.pairs) pair.p_holm = adjusted[i++];
  }
}

Verdict RankModels(const Comparison& comparison) {
  Verdict verdict;
  for (size_t i = 0; i < comparison.models.size(); ++i) {
    if (comparison.models[i].n > 0) verdict.ranked.push_back(i);
  }
  std::stable_sort(verdict.ranked.begin(), verdict.ranked.end(), [&](size_t a, size_t b) {
    return comparison.models[a].mean < comparison.models[b].mean;
  });
  std::vector<size_t> others;
  for (size_t model : verdict.ranked) {
    const bool differs = std::any_of(verdict.best.begin(), verdict.best.end(),
                                     [&](size_t b) { return Differ(comparison, model, b); });
    // A model after one that differs may still tie with the best: ranks are by mean, and the seeds
    // of a pair are those that both have.
    (differs ? others : verdict.best).push_back(model);
  }
  for (size_t model : others) {
    const bool is_worse = std::all_of(verdict.best.begin(), verdict.best.end(),
                                      [&](size_t b) { return IsLower(comparison, b, model); });
    (is_worse ? verdict.worse : verdict.unclear).push_back(model);
  }
  return verdict;
}

std::string VerdictText(const Comparison& comparison, const std::vector<std::string>& names) {
  const Verdict verdict = RankModels(comparison);
  if (verdict.ranked.empty()) return "No run has a loss to compare.";
  if (verdict.ranked.size() == 1) {
    return absl::StrCat("Only ", Named(names[verdict.ranked[0]]), " has a loss to compare.");
  }
  if (comparison.family == 0) {
    return absl::StrCat(Named(names[verdict.ranked[0]]), " has the lowest loss, and ",
                        Named(names[verdict.ranked[1]]),
                        " the next. With fewer than two seeds for each, or the same difference in "
                        "every seed, nobody can say whether that is chance.");
  }
  std::string text;
  const std::string gap = GapText(comparison, verdict.ranked[0], verdict.ranked[1], names);
  if (verdict.best.size() == verdict.ranked.size()) {
    return absl::StrCat(NameList(verdict.best, names), " cannot be distinguished.", gap);
  }
  const bool is_alone = verdict.best.size() == 1;
  if (is_alone) {
    text = absl::StrCat(Named(names[verdict.best[0]]), " is ");
  } else {
    text = absl::StrCat(NameList(verdict.best, names), " cannot be distinguished");
  }
  if (!verdict.worse.empty()) {
    absl::StrAppend(&text, is_alone ? "better than " : "; all are better than ",
                    NameList(verdict.worse, names), ".");
  } else {
    absl::StrAppend(&text, ".");
  }
  if (!verdict.unclear.empty()) {
    absl::StrAppend(&text, " ", NameList(verdict.unclear, names),
                    verdict.unclear.size() == 1 ? " is" : " are",
                    " worse than some of these, but not than all.");
  }
  return absl::StrCat(text, gap, CollapseText(comparison));
}

std::string PowerText(const Comparison& comparison, const std::vector<std::string>& names) {
  const Verdict verdict = RankModels(comparison);
  if (verdict.ranked.size() < 2) return "";
  const PairedDifference& pair = comparison.Pair(verdict.ranked[0], verdict.ranked[1]);
  const int64_t n = pair.interval.n;
  if (std::isnan(pair.interval.low)) return "";
  // Bonferroni's level, with which Holm's method begins: a lower bound of the power.
  const double level = kLevel / static_cast<double>(comparison.family);
  std::string text = absl::StrCat(
      "With ", n, " seeds, a difference of ", DifferenceText(DetectableEffect(n, level) * pair.sd),
      " between ", Named(names[verdict.ranked[0]]), " and ", Named(names[verdict.ranked[1]]),
      " would be detected with a probability of 80 %");
  if (pair.is_significant()) return text + ".";
  const int64_t needed = SeedsToDetect(pair.interval.mean / pair.sd, level);
  absl::StrAppend(&text, "; the observed one, ", DifferenceText(std::abs(pair.interval.mean)),
                  needed == 0 ? ", needs more than 10,000 seeds."
                              : absl::StrCat(", needs ", needed, " seeds."));
  return text;
}

}  // namespace plumb
