// N13 and N14: rows of numbers that are hard on a norm.
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kNumberRows = 9;

// "y[2][0] is nan", the first element of [.., width] that is not finite; "" when all are.
std::string FirstNotFinite(const char* name, const std::vector<double>& values, int64_t width) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const int64_t at = static_cast<int64_t>(i);
    return std::string(name) + "[" + std::to_string(at / width) + "][" +
           std::to_string(at % width) + "] is " + std::to_string(values[i]);
  }
  return "";
}

std::string Step(NormRun* run) {
  run->Forward(/*train=*/true);
  run->Backward();
  const std::string text = FirstNotFinite("y", run->y.Values(), run->dim());
  return text.empty() ? FirstNotFinite("dx", run->dx.Values(), run->dim()) : text;
}

// Rows for which any norm has an answer.
void CheckPlainRows(const Instance& instance, uint32_t dtype, uint64_t seed, Report* report) {
  struct Kind {
    const char* name;
    double by_row, by_element, constant;  // x[r][i] = by_row * r + by_element * i + constant
  };
  // Each row constant, each column constant (for statistics over rows), and all the same.
  for (const Kind& kind : {Kind{"zeros", 0, 0, 0}, Kind{"constant rows", 0.25, 0, 1},
                           Kind{"equal rows", 0, 0.25, 1}, Kind{"one number", 0, 0, 3}}) {
    NormRun run(instance, dtype, kNumberRows, seed);
    for (int64_t r = 0; r < kNumberRows; ++r) {
      for (int64_t i = 0; i < run.dim(); ++i) {
        run.x.Set(r, i,
                  kind.by_row * static_cast<double>(r) + kind.by_element * static_cast<double>(i) +
                      kind.constant);
      }
    }
    const std::string text = Step(&run);
    if (!text.empty()) report->Fail(run.Name() + ", " + kind.name + ": " + text);
  }
}

void ScaleRows(double scale, double shift, const Rows& from, Rows* to) {
  for (int64_t r = 0; r < from.rows(); ++r) {
    for (int64_t i = 0; i < from.width(); ++i) to->Set(r, i, from.Get(r, i) * scale + shift);
  }
}

// Overflow and underflow are up to the norm, but its users want to know.
void NoteScaledRows(const Instance& instance, uint32_t dtype, uint64_t seed, Report* report) {
  for (const double scale : {1e-20, 1e15}) {
    NormRun run(instance, dtype, kNumberRows, seed);
    ScaleRows(scale, 0, run.x, &run.x);
    const std::string text = Step(&run);
    if (text.empty()) continue;
    char name[32];
    std::snprintf(name, sizeof(name), "rows of size %g", scale);
    report->Note(run.Name() + ", " + name + ": " + text);
  }
}

// norm(scale x + shift) must be norm(x) where x is large against any eps.
void CheckClaim(const Instance& instance, const char* claim, double scale, double shift,
                uint64_t seed, Report* report) {
  const bool f64 = (instance.norm().dtypes & PLUMB_F64) != 0;
  const double tolerance = f64 ? 1e-6 : 1e-3;
  const uint32_t dtype = f64 ? PLUMB_F64 : PLUMB_F32;
  NormRun plain(instance, dtype, kNumberRows, seed), changed(instance, dtype, kNumberRows, seed);
  ScaleRows(1e3, 0, plain.x, &plain.x);
  ScaleRows(scale, shift, plain.x, &changed.x);
  plain.Forward(/*train=*/true);
  changed.Forward(/*train=*/true);
  const std::vector<double> must = plain.y.Values(), got = changed.y.Values();
  for (size_t i = 0; i < must.size(); ++i) {
    if (std::fabs(got[i] - must[i]) <= tolerance * std::max(1.0, std::fabs(must[i]))) continue;
    char text[200];
    std::snprintf(text, sizeof(text),
                  "%s claims %s, but norm(%g x + %g)[%zu] is %.9g and norm(x)[%zu] is %.9g",
                  plain.Name().c_str(), claim, scale, shift, i, got[i], i, must[i]);
    return report->Fail(text);
  }
}

// Spoils one row of x, or of dy, and expects the others not to notice.
void CheckSpoiltRow(const Instance& instance, uint32_t dtype, uint64_t seed, bool whole_row,
                    double value, bool in_dy, const NormRun& clean, Report* report) {
  const int64_t row = static_cast<int64_t>(seed % kNumberRows);
  NormRun run(instance, dtype, kNumberRows, seed);
  Rows& spoilt = in_dy ? run.dy : run.x;
  if (whole_row) {
    for (int64_t i = 0; i < run.dim(); ++i) spoilt.Set(row, i, value);
  } else {
    spoilt.Set(row, static_cast<int64_t>(seed / 7) % run.dim(), value);
  }
  run.Forward(/*train=*/true);
  run.Backward();
  if ((instance.norm().flags & PLUMB_NORM_NAN_ISOLATED) == 0) return;
  // The spoilt row may hold anything.
  const auto others = [&](const Rows& rows) {
    std::vector<double> values = rows.Values();
    for (int64_t i = 0; i < rows.width(); ++i) {
      values[static_cast<size_t>(row * rows.width() + i)] = 0;
    }
    return values;
  };
  std::string text = FirstDifference("y", others(run.y), others(clean.y), run.dim());
  if (text.empty()) text = FirstDifference("dx", others(run.dx), others(clean.dx), run.dim());
  if (text.empty()) return;
  report->Fail(run.Name() + ", " + std::to_string(value) + " in " + (in_dy ? "dy[" : "x[") +
               std::to_string(row) + "] (PLUMB_NORM_NAN_ISOLATED): " + text);
}

}  // namespace

void CheckHardRows(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  for (const uint32_t dim : {1, 7, 64, 1000}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(norm)) {
      CheckPlainRows(*instance, dtype, subject.seed, report);
      NoteScaledRows(*instance, dtype, subject.seed, report);
      if (report->failed()) return;
    }
  }
  const std::unique_ptr<Instance> instance = FirstInstance(norm, {64, 60, 100, 768, 3, 1});
  if ((norm.flags & PLUMB_NORM_SCALE_INVARIANT) != 0) {
    CheckClaim(*instance, "PLUMB_NORM_SCALE_INVARIANT", 2.5, 0, subject.seed, report);
  }
  if ((norm.flags & PLUMB_NORM_SHIFT_INVARIANT) != 0) {
    CheckClaim(*instance, "PLUMB_NORM_SHIFT_INVARIANT", 1, 2e3, subject.seed, report);
  }
}

void CheckNotANumber(const Subject& subject, Report* report) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const uint32_t dim : {2, 7, 64, 1000}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(*subject.norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      NormRun clean(*instance, dtype, kNumberRows, subject.seed);
      clean.Forward(/*train=*/true);
      clean.Backward();
      for (const double value : {nan, inf, -inf}) {
        for (const bool whole_row : {false, true}) {
          for (const bool in_dy : {false, true}) {
            CheckSpoiltRow(*instance, dtype, subject.seed, whole_row, value, in_dy, clean, report);
            if (report->failed()) return;
          }
        }
      }
    }
  }
}

}  // namespace plumb::check
