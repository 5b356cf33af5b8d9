// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/comparison.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

constexpr double kLevel = 0.05;

// Returns the key by which models are ranked, which is lowest for the best.
std::tuple<bool, double, double> RankKey(const ModelOutcome& outcome) {
  const auto runs = static_cast<double>(outcome.runs());
  return {outcome.is_unproven(), static_cast<double>(outcome.diverged) / runs, outcome.loss.mean};
}

// Counts the outcomes of a model's runs, and summarizes the losses of those that finished.
ModelOutcome SummarizeRuns(const std::vector<std::optional<RunValue>>& runs) {
  ModelOutcome outcome;
  std::vector<double> losses;
  for (const std::optional<RunValue>& run : runs) {
    if (!run) continue;
    outcome.diverged += run->is_diverged() ? 1 : 0;
    outcome.collapsed += run->is_collapsed ? 1 : 0;
    if (!run->is_diverged()) losses.push_back(run->loss);
  }
  outcome.loss = Summarize(losses);
  return outcome;
}

// Compares two models by the test that their runs permit, without adjusted p-values.
PairedDifference ComparePair(const RunValues& values, size_t a, size_t b, double margin) {
  PairedDifference pair;
  pair.a = a;
  pair.b = b;
  std::vector<double> differences;
  for (size_t seed = 0; seed < values[a].size(); ++seed) {
    const std::optional<RunValue>&x = values[a][seed], &y = values[b][seed];
    if (!x || !y) continue;
    ++pair.interval.n;
    pair.lower += y->loss < x->loss ? 1 : 0;
    pair.higher += y->loss > x->loss ? 1 : 0;
    if (x->is_diverged() || y->is_diverged()) {
      pair.test = PairTest::kSign;
    } else if (pair.test == PairTest::kStudent && (x->is_collapsed || y->is_collapsed)) {
      pair.test = PairTest::kSignFlip;
    }
    differences.push_back(y->loss - x->loss);
  }
  if (pair.test == PairTest::kSign) {
    pair.interval = {pair.interval.n, kNaN, kNaN, kNaN};
    pair.sd = kNaN;
    pair.p = SignPValue(pair.lower, pair.higher);
    return pair;
  }
  const MeanAndSd summary = Summarize(differences);
  pair.interval = ConfidenceInterval95(summary);
  pair.sd = summary.sd;
  pair.p_student = StudentPValue(differences);
  pair.p_sign_flip = SignFlipPValue(differences);
  const bool is_student = pair.test == PairTest::kStudent;
  pair.p = is_student ? pair.p_student : pair.p_sign_flip;
  if (is_student && margin > 0) pair.p_equivalence = EquivalencePValue(differences, margin);
  return pair;
}

// Adjusts p-values in their two families, those of pairs with the baseline and those of all pairs.
// Returns the size of the first.
size_t AdjustFamilies(double PairedDifference::*from, double PairedDifference::*to,
                      std::vector<Comparison>* comparisons) {
  std::vector<double> p, p_baseline;
  for (const Comparison& comparison : *comparisons) {
    for (const PairedDifference& pair : comparison.pairs) {
      p.push_back(pair.*from);
      if (pair.a == 0) p_baseline.push_back(pair.*from);
    }
  }
  const std::vector<double> adjusted = HolmAdjusted(p), primary = HolmAdjusted(p_baseline);
  size_t i = 0, k = 0;
  for (Comparison& comparison : *comparisons) {
    for (PairedDifference& pair : comparison.pairs) {
      pair.*to = pair.a == 0 ? primary[k++] : adjusted[i];
      ++i;
    }
  }
  return static_cast<size_t>(std::count_if(p_baseline.begin(), p_baseline.end(),
                                           [](double value) { return !std::isnan(value); }));
}

std::string Named(const std::string& name) { return absl::StrCat(kNameMark, name, kNameMark); }

// Formats a difference of losses with its sign.
std::string SignedText(double difference) {
  const std::string text = std::abs(difference) < 0.0005 ? absl::StrFormat("%+.1g", difference)
                                                         : absl::StrFormat("%+.3f", difference);
  return absl::StrReplaceAll(text, {{"-", "−"}});
}

// Describes how a model differs from the baseline.
std::string DifferenceText(const Comparison& comparison, size_t model) {
  const PairedDifference& pair = comparison.Pair(0, model);
  if (pair.test == PairTest::kSign) {
    return absl::StrCat(pair.is_lower() ? "lower" : "higher", " in ",
                        std::max(pair.lower, pair.higher), " of ", pair.interval.n, " seeds");
  }
  return absl::StrCat(SignedText(pair.interval.mean),
                      pair.is_equal() ? absl::StrCat(", within ", comparison.margin) : "");
}

// Returns "A (−0.02), B (+0.01, diverged in 1 of 8) and 3 others". `with_differences`: also the
// differences from the baseline.
std::string ModelList(const Comparison& comparison, const std::vector<size_t>& models,
                      const std::vector<std::string>& names, bool with_differences) {
  constexpr size_t kMaxNames = 5;
  const size_t shown = models.size() > kMaxNames ? kMaxNames - 1 : models.size();
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == models.size();
    std::vector<std::string> notes;
    if (with_differences) notes.push_back(DifferenceText(comparison, models[i]));
    if (std::string failures = FailureText(comparison.models[models[i]]); !failures.empty()) {
      notes.push_back(std::move(failures));
    }
    absl::StrAppend(&text, i == 0 ? "" : is_last ? " and " : ", ", Named(names[models[i]]));
    if (!notes.empty()) absl::StrAppend(&text, " (", absl::StrJoin(notes, ", "), ")");
  }
  if (shown < models.size()) absl::StrAppend(&text, " and ", models.size() - shown, " others");
  return text;
}

// Returns the number of seeds with which an undecided pair would probably be decided; 0 if unknown.
// `level` is Bonferroni's, with which Holm's method begins: a lower bound of the power.
int64_t SeedsToDecide(const PairedDifference& pair, double level) {
  if (pair.test == PairTest::kStudent) {
    return std::isnan(pair.interval.low) ? 0 : SeedsToDetect(pair.interval.mean / pair.sd, level);
  }
  // If all seeds agree, p of the tests for failed runs is 2^(1 - n), whatever the losses are.
  const auto seeds = 1 + static_cast<int64_t>(std::floor(1 - std::log2(level)));
  const bool all_agree = std::max(pair.lower, pair.higher) == pair.interval.n;
  return all_agree && pair.interval.n < seeds ? seeds : 0;
}

// Returns with how many seeds the first of the undecided models would be decided; "" if unknown.
std::string SeedsText(const Comparison& comparison, const std::vector<size_t>& undecided,
                      const std::vector<std::string>& names, const TotalSeeds& total_seeds) {
  int64_t fewest = 0;
  size_t first = 0;
  for (const size_t model : undecided) {
    const int64_t seeds =
        SeedsToDecide(comparison.Pair(0, model), kLevel / static_cast<double>(comparison.family));
    if (seeds == 0 || (fewest > 0 && seeds >= fewest)) continue;
    fewest = seeds;
    first = model;
  }
  if (fewest == 0) return "";
  return absl::StrCat("about ", total_seeds ? total_seeds(fewest) : fewest, " seeds would decide ",
                      Named(names[first]));
}

}  // namespace

const char* PairTestName(PairTest test) {
  return test == PairTest::kStudent ? "t" : test == PairTest::kSignFlip ? "sign flips" : "signs";
}

const PairedDifference& Comparison::Pair(size_t a, size_t b) const {
  if (a > b) std::swap(a, b);
  // Row a of the upper triangle begins after those of 0 .. a - 1.
  return pairs[a * models.size() - a * (a + 1) / 2 + (b - a - 1)];
}

std::vector<size_t> Comparison::Ranked() const {
  std::vector<size_t> ranked;
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].runs() > 0) ranked.push_back(i);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](size_t a, size_t b) { return RankKey(models[a]) < RankKey(models[b]); });
  return ranked;
}

Comparison CompareModels(const RunValues& values, double margin) {
  Comparison comparison;
  comparison.margin = margin;
  for (const auto& model : values) comparison.models.push_back(SummarizeRuns(model));
  for (size_t a = 0; a < values.size(); ++a) {
    for (size_t b = a + 1; b < values.size(); ++b) {
      comparison.pairs.push_back(ComparePair(values, a, b, margin));
    }
  }
  std::vector<Comparison> alone = {std::move(comparison)};
  AdjustTogether(&alone);
  return std::move(alone.front());
}

void AdjustTogether(std::vector<Comparison>* comparisons) {
  const size_t family =
      AdjustFamilies(&PairedDifference::p, &PairedDifference::p_holm, comparisons);
  AdjustFamilies(&PairedDifference::p_equivalence, &PairedDifference::p_equal, comparisons);
  for (Comparison& comparison : *comparisons) comparison.family = family;
}

std::vector<double> MeanRanks(const std::vector<RunValues>& cells) {
  const size_t models = cells.empty() ? 0 : cells.front().size();
  std::vector<double> sums(models, 0);
  int64_t seeds = 0;
  for (const RunValues& values : cells) {
    for (size_t seed = 0; seed < values.front().size(); ++seed) {
      const auto has_run = [seed](const auto& model) { return model[seed].has_value(); };
      if (!std::all_of(values.begin(), values.end(), has_run)) continue;
      ++seeds;
      for (size_t model = 0; model < models; ++model) {
        const RunValue& own = *values[model][seed];
        double rank = 0.5;
        for (const auto& other : values) {
          rank += other[seed]->loss < own.loss ? 1 : other[seed]->loss == own.loss ? 0.5 : 0;
        }
        sums[model] += own.is_diverged() ? static_cast<double>(models) : rank;
      }
    }
  }
  for (double& sum : sums) sum = seeds == 0 ? kNaN : sum / static_cast<double>(seeds);
  return sums;
}

std::vector<std::optional<Places>> BootstrapPlaces(const RunValues& values) {
  constexpr size_t kMinSeeds = 5;                           // fewer cannot show how much means vary
  constexpr size_t kSamples = 2000, kTail = kSamples / 40;  // 2.5 % on each side
  std::vector<std::optional<Places>> places(values.size());
  std::vector<size_t> models;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!SummarizeRuns(values[i]).is_unproven()) models.push_back(i);
  }
  const size_t seeds = models.empty() ? 0 : values.front().size();
  if (seeds < kMinSeeds) return places;
  // Means of this many seeds vary as much as Student's t says that means of all seeds may differ
  // from the true ones. A sample of all seeds varies too little if they are few.
  const double ratio =
      StudentQuantile(0.975, 1000000) / StudentQuantile(0.975, static_cast<int64_t>(seeds) - 1);
  const auto size =
      static_cast<size_t>(std::lround(static_cast<double>(seeds - 1) * ratio * ratio));
  const RngStream stream(1, "bootstrap of places");
  std::vector<std::vector<int64_t>> sampled(models.size());
  for (size_t sample = 0; sample < kSamples; ++sample) {
    std::vector<size_t> drawn;
    for (size_t k = 0; k < size; ++k) {
      drawn.push_back(stream.Below(sample * seeds + k, seeds));
    }
    // A model without a run in the sample comes last, as one whose runs all diverged.
    std::vector<std::pair<double, double>> keys;  // share of diverged runs, mean loss
    for (const size_t model : models) {
      double runs = 0, diverged = 0, sum = 0;
      for (const size_t seed : drawn) {
        const std::optional<RunValue>& run = values[model][seed];
        if (!run) continue;
        ++runs;
        run->is_diverged() ? ++diverged : sum += run->loss;
      }
      keys.emplace_back(runs == 0 ? 1 : diverged / runs,
                        runs == diverged ? 0 : sum / (runs - diverged));
    }
    std::vector<std::pair<double, double>> sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < models.size(); ++i) {
      const auto better = std::lower_bound(sorted.begin(), sorted.end(), keys[i]);
      sampled[i].push_back(1 + (better - sorted.begin()));
    }
  }
  for (size_t i = 0; i < models.size(); ++i) {
    std::sort(sampled[i].begin(), sampled[i].end());
    places[models[i]] = Places{sampled[i][kTail], sampled[i][kSamples - 1 - kTail]};
  }
  return places;
}

Verdict Classify(const Comparison& comparison) {
  Verdict verdict;
  for (const size_t model : comparison.Ranked()) {
    if (model == 0) continue;
    const PairedDifference& pair = comparison.Pair(0, model);
    if (!pair.is_significant()) {
      (pair.is_equal() ? verdict.equal : verdict.undecided).push_back(model);
    } else if (!pair.is_lower()) {
      verdict.worse.push_back(model);
    } else {
      (comparison.models[model].is_unproven() ? verdict.undecided : verdict.better)
          .push_back(model);
    }
  }
  return verdict;
}

std::string FailureText(const ModelOutcome& outcome) {
  std::vector<std::string> parts;
  for (const auto& [word, count] :
       {std::pair("diverged", outcome.diverged), std::pair("collapsed", outcome.collapsed)}) {
    if (count > 0) parts.push_back(absl::StrCat(word, " in ", count, " of ", outcome.runs()));
  }
  return absl::StrJoin(parts, ", ");
}

std::string VerdictText(const Comparison& comparison, const std::vector<std::string>& names,
                        const TotalSeeds& total_seeds) {
  const std::vector<size_t> ranked = comparison.Ranked();
  if (ranked.empty()) return "No run has a loss to compare.";
  if (ranked.size() == 1) {
    return absl::StrCat("Only ", Named(names[ranked[0]]), " has runs to compare.");
  }
  const std::string baseline = Named(names[0]);
  if (comparison.models[0].runs() == 0) {
    return absl::StrCat("There is no run of ", baseline, ", the baseline, to compare.");
  }
  const Verdict verdict = Classify(comparison);
  const std::string within = absl::StrCat(" within ", comparison.margin);
  std::string text;
  if (verdict.worse.size() + 1 == ranked.size() && !comparison.models[0].is_unproven()) {
    text = absl::StrCat(baseline, " is better than ",
                        ModelList(comparison, verdict.worse, names, /*with_differences=*/true));
  } else {
    const auto add = [&](const std::vector<size_t>& models, const std::string& first,
                         const std::string& next, bool with_differences) {
      if (models.empty()) return;
      absl::StrAppend(&text, text.empty() ? first : "; " + next, ": ",
                      ModelList(comparison, models, names, with_differences));
    };
    add(verdict.better, "Better than " + baseline, "better", /*with_differences=*/true);
    add(verdict.equal, absl::StrCat("Equal to ", baseline, within), "equal" + within,
        /*with_differences=*/false);
    add(verdict.worse, "Worse than " + baseline, "worse", /*with_differences=*/true);
    add(verdict.undecided, "Undecided against " + baseline, "undecided",
        /*with_differences=*/false);
    const std::string seeds =
        comparison.family > 0 ? SeedsText(comparison, verdict.undecided, names, total_seeds) : "";
    if (!seeds.empty() && text.back() == ')') {
      text.back() = ';';  // after how many runs failed
      absl::StrAppend(&text, " ", seeds, ")");
    } else if (!seeds.empty()) {
      absl::StrAppend(&text, " (", seeds, ")");
    }
  }
  text += ".";
  if (const std::string failures = FailureText(comparison.models[0]); !failures.empty()) {
    absl::StrAppend(&text, " ", baseline, " ", failures, ".");
  }
  if (comparison.family == 0) {
    text +=
        " With fewer than two seeds for each, or the same difference in every seed, nobody can say "
        "whether a difference is chance.";
  }
  return text;
}

}  // namespace plumb
