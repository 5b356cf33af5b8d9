#include "plugins/check/equations.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace plumb::check {
namespace {

double Attribute(const ReferenceCall& call, const char* name, double otherwise) {
  const auto it = call.attributes.find(name);
  return it == call.attributes.end() ? otherwise : it->second;
}

// Element i of a parameter; `otherwise` where the norm has none of that name.
double Parameter(const ReferenceCall& call, const char* name, int64_t i, double otherwise) {
  const auto it = call.parameters.find(name);
  return it == call.parameters.end() ? otherwise : it->second[static_cast<size_t>(i)];
}

// y = gain(i) h + bias(i) with h from `row(x, h)`, for each row on its own.
ReferenceResult EachRow(const ReferenceCall& call,
                        const std::function<void(const double* x, double* h)>& row) {
  ReferenceResult result;
  result.y.resize(call.x.size());
  for (int64_t r = 0; r < call.rows; ++r) {
    double* y = result.y.data() + r * call.dim;
    row(call.x.data() + r * call.dim, y);
    for (int64_t i = 0; i < call.dim; ++i) {
      y[i] = Parameter(call, "weight", i, 1) * y[i] + Parameter(call, "bias", i, 0);
    }
  }
  return result;
}

double Mean(int64_t n, const std::function<double(int64_t)>& term) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += term(i);
  return sum / static_cast<double>(n);
}

// (x - mean) / sqrt(var + eps), mean and biased variance of the n numbers.
void Standardize(const double* x, int64_t n, double eps, double* h) {
  const double mean = Mean(n, [&](int64_t i) { return x[i]; });
  const double var = Mean(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  for (int64_t i = 0; i < n; ++i) h[i] = (x[i] - mean) / std::sqrt(var + eps);
}

// Ba, Kiros & Hinton 2016, arXiv:1607.06450.
ReferenceResult LayerNorm(const ReferenceCall& call) {
  return EachRow(call, [&](const double* x, double* h) {
    Standardize(x, call.dim, Attribute(call, "eps", 1e-5), h);
  });
}

// Wu & He 2018, arXiv:1803.08494, for one token.
ReferenceResult GroupNorm(const ReferenceCall& call) {
  const int64_t n = call.dim / static_cast<int64_t>(Attribute(call, "groups", 1));
  return EachRow(call, [&](const double* x, double* h) {
    for (int64_t start = 0; start < call.dim; start += n) {
      Standardize(x + start, n, Attribute(call, "eps", 1e-5), h + start);
    }
  });
}

// x / sqrt(mean of the first k squares + eps).
ReferenceResult RootMeanSquare(const ReferenceCall& call, int64_t k) {
  const double offset = Attribute(call, "unit_offset", 0);
  ReferenceCall shifted = call;  // the gain is offset + weight
  for (auto& [name, values] : shifted.parameters) {
    if (name == "weight") {
      for (double& value : values) value += offset;
    }
  }
  return EachRow(shifted, [&](const double* x, double* h) {
    const double square = Mean(k, [&](int64_t i) { return x[i] * x[i]; });
    for (int64_t i = 0; i < call.dim; ++i) {
      h[i] = x[i] / std::sqrt(square + Attribute(call, "eps", 1e-5));
    }
  });
}

// Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
ReferenceResult RmsNorm(const ReferenceCall& call) { return RootMeanSquare(call, call.dim); }

// The same, section 4: k = the first part p of the row, rounded up.
ReferenceResult PRmsNorm(const ReferenceCall& call) {
  const double k = Attribute(call, "p", 1) * static_cast<double>(call.dim);
  const bool whole = std::abs(k - std::round(k)) < 1e-6;
  return RootMeanSquare(call, static_cast<int64_t>(whole ? std::round(k) : std::ceil(k)));
}

ReferenceResult None(const ReferenceCall& call) { return {call.x, {}}; }

double Length(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

// Nguyen & Salazar 2019, arXiv:1910.05895: g x / max(|x|, eps).
ReferenceResult ScaleNorm(const ReferenceCall& call) {
  return EachRow(call, [&](const double* x, double* h) {
    const double length = std::max(Length(x, call.dim), Attribute(call, "eps", 1e-5));
    for (int64_t i = 0; i < call.dim; ++i) h[i] = Parameter(call, "scale", 0, 1) * x[i] / length;
  });
}

// nGPT, arXiv:2410.01131: rows on a sphere, of radius `scale`; a row of zeros stays one.
ReferenceResult L2Norm(const ReferenceCall& call) {
  return EachRow(call, [&](const double* x, double* h) {
    const double length = std::max(Length(x, call.dim), Attribute(call, "eps", 0));
    const double scale = length == 0 ? 0 : Attribute(call, "scale", 1) / length;
    for (int64_t i = 0; i < call.dim; ++i) h[i] = scale * x[i];
  });
}

// The Annotated Transformer: (x - mean) / (standard deviation + eps).
ReferenceResult StdNorm(const ReferenceCall& call) {
  const double n = static_cast<double>(call.dim) - Attribute(call, "unbiased", 1);
  return EachRow(call, [&](const double* x, double* h) {
    const double mean = Mean(call.dim, [&](int64_t i) { return x[i]; });
    double sum = 0;
    for (int64_t i = 0; i < call.dim; ++i) sum += (x[i] - mean) * (x[i] - mean);
    const double sigma = std::sqrt(sum / n);
    for (int64_t i = 0; i < call.dim; ++i) {
      h[i] = (x[i] - mean) / (sigma + Attribute(call, "eps", 1e-6));
    }
  });
}

// Zhu et al. 2025, arXiv:2503.10622.
ReferenceResult Dyt(const ReferenceCall& call) {
  return EachRow(call, [&](const double* x, double* h) {
    for (int64_t i = 0; i < call.dim; ++i) {
      h[i] = std::tanh(Parameter(call, "alpha", 0, 1) * x[i]);
    }
  });
}

// Chen et al. 2025, "Stronger Normalization-Free Transformers", arXiv:2512.10938.
ReferenceResult Derf(const ReferenceCall& call) {
  return EachRow(call, [&](const double* x, double* h) {
    for (int64_t i = 0; i < call.dim; ++i) {
      h[i] = std::erf(Parameter(call, "alpha", 0, 1) * x[i] + Parameter(call, "shift", 0, 0));
    }
  });
}

// Ioffe & Szegedy 2015, arXiv:1502.03167: columns instead of rows; running statistics, the variance
// unbiased, in evaluation.
ReferenceResult BatchNorm(const ReferenceCall& call) {
  const double eps = Attribute(call, "eps", 1e-5), momentum = Attribute(call, "momentum", 0.1);
  const double n = static_cast<double>(call.rows);
  ReferenceResult result;
  if (call.train) result.buffers = call.buffers;
  result.y.resize(call.x.size());
  for (int64_t i = 0; i < call.dim; ++i) {
    const size_t c = static_cast<size_t>(i);
    double mean = call.buffers.at("running_mean")[c], var = call.buffers.at("running_var")[c];
    if (call.train) {
      const double old_mean = mean, old_var = var;
      const auto x = [&](int64_t r) { return call.x[static_cast<size_t>(r * call.dim + i)]; };
      mean = Mean(call.rows, x);
      var = Mean(call.rows, [&](int64_t r) { return (x(r) - mean) * (x(r) - mean); });
      result.buffers["running_mean"][c] = (1 - momentum) * old_mean + momentum * mean;
      result.buffers["running_var"][c] =
          n > 1 ? (1 - momentum) * old_var + momentum * var * n / (n - 1) : old_var;
    }
    for (int64_t r = 0; r < call.rows; ++r) {
      const size_t at = static_cast<size_t>(r * call.dim + i);
      result.y[at] = Parameter(call, "weight", i, 1) * (call.x[at] - mean) / std::sqrt(var + eps) +
                     Parameter(call, "bias", i, 0);
    }
  }
  if (call.train) result.buffers["num_batches"][0] += 1;
  return result;
}

// Shen et al. 2020, arXiv:2003.07845, algorithm 1, with the scaling of rows in groups, the warm-up
// and the average over it that the authors' code has.
ReferenceResult PowerNorm(const ReferenceCall& call) {
  const double eps = Attribute(call, "eps", 1e-5), alpha = Attribute(call, "alpha_forward", 0.9);
  const double warmup = Attribute(call, "warmup", 10000);
  const int64_t groups = static_cast<int64_t>(Attribute(call, "groups", 1));
  std::vector<double> s = call.x;
  if (groups > 0) {
    const int64_t n = call.dim / groups;
    for (int64_t start = 0; start < call.rows * call.dim; start += n) {
      double* part = s.data() + start;
      const double square = Mean(n, [&](int64_t i) { return part[i] * part[i]; });
      for (int64_t i = 0; i < n; ++i) part[i] /= std::sqrt(square + eps);
    }
  }
  ReferenceResult result;
  if (call.train) result.buffers = {{"phi", call.buffers.at("phi")}};
  result.y.resize(s.size());
  const double k = call.buffers.at("iterations")[0] + 1;  // this call's number
  for (int64_t i = 0; i < call.dim; ++i) {
    const auto at = [&](int64_t r) { return static_cast<size_t>(r * call.dim + i); };
    double phi = call.buffers.at("phi")[static_cast<size_t>(i)], divisor = phi;
    if (call.train) {
      const double psi = Mean(call.rows, [&](int64_t r) { return s[at(r)] * s[at(r)]; });
      if (k <= warmup) divisor = psi;
      if (k < warmup) phi = phi * (k - 1) / k + psi / k;
      result.buffers["phi"][static_cast<size_t>(i)] = alpha * phi + (1 - alpha) * psi;
    }
    for (int64_t r = 0; r < call.rows; ++r) {
      result.y[at(r)] = Parameter(call, "weight", i, 1) * s[at(r)] / std::sqrt(divisor + eps) +
                        Parameter(call, "bias", i, 0);
    }
  }
  if (call.train) result.buffers["iterations"] = {k};
  return result;
}

struct Entry {
  const char* id;
  Reference reference;
  ReferenceNames names;
};

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
      {"layer_norm", LayerNorm, {{"eps", "affine", "bias"}, {"weight", "bias"}}},
      {"rms_norm", RmsNorm, {{"eps", "affine", "unit_offset"}, {"weight"}}},
      {"none", None, {{}, {}}},
      {"scale_norm", ScaleNorm, {{"eps"}, {"scale"}}},
      {"l2_norm", L2Norm, {{"eps", "scale"}, {}}},
      {"p_rms_norm", PRmsNorm, {{"eps", "p"}, {"weight"}}},
      {"dyt", Dyt, {{"alpha_init", "affine", "bias"}, {"alpha", "weight", "bias"}}},
      {"derf",
       Derf,
       {{"alpha_init", "shift_init", "affine", "bias"}, {"alpha", "shift", "weight", "bias"}}},
      {"group_norm", GroupNorm, {{"eps", "groups", "affine"}, {"weight", "bias"}}},
      {"std_norm", StdNorm, {{"eps", "unbiased"}, {"weight", "bias"}}},
      {"batch_norm", BatchNorm, {{"eps", "momentum", "affine"}, {"weight", "bias"}}},
      {"power_norm",
       PowerNorm,
       {{"eps", "alpha_forward", "alpha_backward", "warmup", "groups", "affine"},
        {"weight", "bias"}}},
  };
  return entries;
}

const Entry* Find(const std::string& id) {
  const std::vector<Entry>& entries = Entries();
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return id == entry.id; });
  return it == entries.end() ? nullptr : &*it;
}

}  // namespace

Reference ReferenceOf(const std::string& id) {
  const Entry* entry = Find(id);
  return entry == nullptr ? nullptr : entry->reference;
}

ReferenceNames NamesOf(const std::string& id) {
  const Entry* entry = Find(id);
  return entry == nullptr ? ReferenceNames{} : entry->names;
}

}  // namespace plumb::check
