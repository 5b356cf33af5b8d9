// N2: backward against central differences of forward. Where the norm offers f64, with the
// tolerances that are usual for gradient checks in double (absolute 1e-5, relative 1e-3); else in
// f32, with a four-point stencil, long steps and wide tolerances.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

struct Tolerances {
  uint32_t dtype;
  double step;  // of x and of parameters that are about 1
  double absolute, relative;
};

Tolerances TolerancesOf(const plumb_norm_plugin& norm) {
  if (norm.dtypes & PLUMB_F64) return {PLUMB_F64, 1e-6, 1e-5, 1e-3};
  return {PLUMB_F32, 1e-2, 2e-3, 2e-2};
}

// A number that the norm's result depends on.
struct Coordinate {
  Rows* tensor;
  int64_t row, i;
  std::string name;  // "x[1][2]", "weight[3]"
};

// The worst of many comparisons.
struct Worst {
  double ratio = 0;  // of error and tolerance
  std::string text;
  void Compare(double got, double must, const Tolerances& t, double scale,
               const std::function<std::string()>& what) {
    const double allowed = t.absolute * scale + t.relative * std::abs(must);
    double r = std::abs(got - must) / allowed;
    if (!std::isfinite(r)) r = HUGE_VAL;
    if (!(r > ratio)) return;
    ratio = r;
    text = absl::StrFormat("%s is %.9g, finite differences give %.9g", what(), got, must);
  }
};

// d/dt of f at 0, f being evaluated at a few multiples of `step`.
std::vector<double> Derivative(const Tolerances& t, double step,
                               const std::function<std::vector<double>(double)>& f) {
  std::vector<double> d = f(step);
  const std::vector<double> minus = f(-step);
  for (size_t k = 0; k < d.size(); ++k) d[k] -= minus[k];
  if (t.dtype == PLUMB_F64) {
    for (double& v : d) v /= 2 * step;
    return d;
  }
  const std::vector<double> plus2 = f(2 * step), minus2 = f(-2 * step);
  for (size_t k = 0; k < d.size(); ++k) d[k] = (8 * d[k] - (plus2[k] - minus2[k])) / (12 * step);
  return d;
}

// y of a training call from fresh buffers.
std::vector<double> Outputs(NormRun* run) {
  run->Reset();
  run->Forward(true);
  return run->y.Values();
}

// Gradients for the present dy, from fresh buffers.
void Gradients(NormRun* run) {
  run->Reset();
  run->Forward(true);
  run->Backward();
}

std::vector<Coordinate> Coordinates(NormRun* run) {
  std::vector<Coordinate> all;
  for (int64_t r = 0; r < run->rows(); ++r) {
    for (int64_t i = 0; i < run->dim(); ++i) {
      all.push_back({&run->x, r, i, absl::StrCat("x[", r, "][", i, "]")});
    }
  }
  for (int64_t r = 0; r < run->x2.rows(); ++r) {
    for (int64_t i = 0; i < run->dim(); ++i) {
      all.push_back({&run->x2, r, i, absl::StrCat("x2[", r, "][", i, "]")});
    }
  }
  for (size_t p = 0; p < run->params.size(); ++p) {
    for (int64_t i = 0; i < run->params[p].width(); ++i) {
      const char* name = run->instance().param(static_cast<uint32_t>(p)).name;
      all.push_back({&run->params[p], 0, i, absl::StrCat(name, "[", i, "]")});
    }
  }
  return all;
}

// The gradients that backward() left, in the order of Coordinates.
std::vector<double> FlatGradients(const NormRun& run) {
  std::vector<double> flat = run.dx.Values();
  const std::vector<double> of_x2 = run.dx2.Values();
  flat.insert(flat.end(), of_x2.begin(), of_x2.end());
  for (const Rows& rows : run.dparams) {
    const std::vector<double> values = rows.Values();
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

// Every output by every input and parameter.
Worst FullJacobian(NormRun* run, const Tolerances& t) {
  const std::vector<Coordinate> coordinates = Coordinates(run);
  std::vector<std::vector<double>> differences;  // [coordinate][output]
  double scale = 1;
  for (const Coordinate& c : coordinates) {
    const double value = c.tensor->Get(c.row, c.i);
    differences.push_back(Derivative(t, t.step, [&](double by) {
      c.tensor->Set(c.row, c.i, value + by);
      return Outputs(run);
    }));
    c.tensor->Set(c.row, c.i, value);
    if (t.dtype == PLUMB_F32) scale = std::max(scale, LargestMagnitude(differences.back()));
  }
  Worst worst;
  for (int64_t k = 0; k < run->rows() * run->dim(); ++k) {
    const int64_t row = k / run->dim(), i = k % run->dim();
    run->dy.Fill(0);
    run->dy.Set(row, i, 1);
    Gradients(run);
    const std::vector<double> gradients = FlatGradients(*run);
    for (size_t c = 0; c < coordinates.size(); ++c) {
      worst.Compare(gradients[c], differences[c][static_cast<size_t>(k)], t, scale, [&] {
        return absl::StrCat("dy[", row, "][", i, "] / d", coordinates[c].name);
      });
    }
  }
  return worst;
}

// Eight random directions in x, in each parameter, and in all of them together.
Worst Directions(NormRun* run, const Tolerances& t, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const std::vector<Coordinate> coordinates = Coordinates(run);
  const std::vector<double> dy = run->dy.Values();
  Gradients(run);
  const std::vector<double> gradients = FlatGradients(*run);
  std::vector<double> start;
  for (const Coordinate& c : coordinates) start.push_back(c.tensor->Get(c.row, c.i));
  // All, x, x2 where there is one, and then the parameters.
  std::vector<const Rows*> groups_of = {nullptr, &run->x};
  if (run->x2.rows() > 0) groups_of.push_back(&run->x2);
  const size_t first_param = groups_of.size();
  for (const Rows& param : run->params) groups_of.push_back(&param);
  const size_t groups = groups_of.size();
  Worst worst;
  for (size_t k = 0; k < std::max<size_t>(8, groups); ++k) {
    const size_t group = k % groups;
    const Rows* only = groups_of[group];
    std::vector<double> v;
    double derivative = 0, size = 0;
    for (size_t c = 0; c < coordinates.size(); ++c) {
      v.push_back(only == nullptr || coordinates[c].tensor == only ? normal(random) : 0);
      derivative += v[c] * gradients[c];
      size += std::abs(v[c] * gradients[c]);
    }
    const double must = Derivative(t, t.step, [&](double by) {
      for (size_t c = 0; c < coordinates.size(); ++c) {
        const Coordinate& at = coordinates[c];
        if (v[c] != 0) at.tensor->Set(at.row, at.i, start[c] + by * v[c]);
      }
      const std::vector<double> y = Outputs(run);
      double loss = 0;
      for (size_t i = 0; i < y.size(); ++i) loss += dy[i] * y[i];
      return std::vector<double>{loss};
    })[0];
    for (size_t c = 0; c < coordinates.size(); ++c) {
      coordinates[c].tensor->Set(coordinates[c].row, coordinates[c].i, start[c]);
    }
    const double scale = t.dtype == PLUMB_F32 ? std::max(1.0, size) : 1;
    worst.Compare(derivative, must, t, scale, [&] {
      const std::string of =
          group == 0   ? "all inputs and parameters"
          : group == 1 ? "x"
          : group < first_param
              ? "x2"
              : std::string(run->instance().param(static_cast<uint32_t>(group - first_param)).name);
      return absl::StrCat("the derivative along a random direction of ", of);
    });
  }
  return worst;
}

void ReportWorst(const Worst& worst, const std::string& where, Report* report) {
  if (worst.ratio > 1) report->Fail(absl::StrCat(where, ": ", worst.text));
}

}  // namespace

void CheckGradient(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  if (norm.flags & PLUMB_NORM_APPROXIMATE_GRADIENT) {
    report->Skip("the norm says that its backward is not the derivative of forward");
    return;
  }
  const Tolerances t = TolerancesOf(norm);
  const bool cross_row = (norm.flags & PLUMB_NORM_CROSS_ROW) != 0;
  // Small enough that outputs by inputs is a small matrix.
  const std::vector<uint32_t> small = cross_row ? std::vector<uint32_t>{4, 3, 2, 1, 6, 8}
                                                : std::vector<uint32_t>{7, 8, 6, 5, 4, 3, 2, 1};
  const int64_t rows = cross_row ? 5 : 2;
  bool any = false;
  for (const AttributeCase& c : AttributeCases(norm)) {
    std::string refusal;
    for (const uint32_t dim : small) {
      const auto instance = TryInstance(norm, dim, c.values, &refusal);
      if (instance == nullptr) continue;
      NormRun run(*instance, t.dtype, rows, subject.seed);
      ReportWorst(FullJacobian(&run, t),
                  absl::StrCat(run.Name(), c.is_default() ? "" : " ", c.name), report);
      any = true;
      break;
    }
    if (report->failed()) return;  // one place is enough
  }
  // Longer rows, and for statistics several chunks of them.
  std::vector<std::unique_ptr<Instance>> instances = UsualInstances(norm);
  for (const auto& instance : instances) {
    NormRun run(*instance, t.dtype, cross_row ? 19 : 4, subject.seed + 1);
    ReportWorst(Directions(&run, t, subject.seed + 2), run.Name(), report);
    if (report->failed()) return;
  }
  if (!any) report->Note("no dim up to 8 is accepted: random directions only");
  if (t.dtype == PLUMB_F32) {
    report->Note("f64 is not offered: gradients were checked in f32, to 2 %");
  }
}

}  // namespace plumb::check
