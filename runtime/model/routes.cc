// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/routes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/spec/interpret.h"

namespace plumb {
namespace {

constexpr size_t kMaxSum = 300;  // longer sums are printed as J_sum

// Factor of a product. Equal names may be different matrices, so factors have the same id only if
// they come from the same application.
struct Factor {
  std::string text;  // "J_norm", "2", "(I + J_f)"
  int64_t id;        // < 0: number
};

// Jacobian with respect to the layer's input: a product, without factors I.
struct Jacobian {
  bool zero = true;             // does not depend on the layer's input
  std::vector<Factor> factors;  // if zero: the name of a learned value, or nothing
};

struct Tracked {
  IdentityRoute route;
  Jacobian jacobian;
  bool signal = false;        // depends on the embedding, with a gradient
  size_t made = 0, read = 0;  // number of boundaries before it was made and last read
};

std::string Join(const std::vector<Factor>& factors) {
  return absl::StrJoin(factors, " ", [](std::string* out, const Factor& factor) {
    absl::StrAppend(out, factor.text);
  });
}

class RouteBackend : public FormulaBackend {
 public:
  TensorHandle Embed() override {
    Tracked tracked;
    tracked.route.exists = tracked.signal = true;
    return Add(std::move(tracked));
  }

  TensorHandle Combine(absl::Span<const Term> terms, double) override {
    Tracked out;
    std::vector<Jacobian> jacobians;
    for (const Term& term : terms) {
      if (term.coefficient == 0) continue;
      const Tracked& operand = Read(term.tensor);
      IdentityRoute route = operand.route;
      route.scale *= term.coefficient;
      if (Shorter(route, out.route)) out.route = route;
      out.signal = out.signal || operand.signal;
      jacobians.push_back(operand.jacobian);
      if (term.coefficient == 1) continue;
      Prepend(absl::StrCat(term.coefficient), &jacobians.back());
      jacobians.back().factors[0].id *= -1;
    }
    out.jacobian = MakeSum(std::move(jacobians));
    return Add(std::move(out));
  }

  // A route may pass through either factor and is scaled by the other.
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override {
    Tracked out = Differentiate("D", {a, b});
    out.route = Shorter(at(b).route, at(a).route) ? at(b).route : at(a).route;
    out.route.learned = true;
    if (DependsOnInput(b)) std::swap(a, b);
    if (!DependsOnInput(b)) {
      const std::vector<Factor>& learned = at(b).jacobian.factors;
      out.jacobian = at(a).jacobian;
      if (DependsOnInput(a) || (!out.jacobian.factors.empty() && !learned.empty())) {
        Prepend(learned.empty() ? "D" : Join(learned), &out.jacobian);
      }
    }
    return Add(std::move(out));
  }

  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) override {
    if (function.name == "stop") return Add(Tracked());
    Tracked out = Differentiate(absl::StrCat("J_", function.name), operands);
    for (const TensorHandle operand : operands) {  // the first learned value
      const std::vector<Factor>& factors = at(operand).jacobian.factors;
      if (!out.jacobian.zero || !out.jacobian.factors.empty()) break;
      if (!factors.empty()) {
        Prepend(absl::StrCat(function.name, "(", Join(factors), ")"), &out.jacobian);
      }
    }
    return Add(std::move(out));
  }

  TensorHandle Step() override { return Named("step"); }
  TensorHandle Drop(const DropSite&, TensorHandle a) override { return a; }

  TensorHandle Learned(const LearnedSite& site) override {
    return Named(site.place->name.substr(site.place->name.rfind('.') + 1));
  }

  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) override {
    return Add(Differentiate(absl::StrCat("J_", site.spec->name), {a}));
  }

  TensorHandle TokenEmbedding(const TokenEmbeddingSite&) override { return Add(Tracked()); }

  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override {
    if (site.norm->plugin->identity()) return inputs[0];
    ++routes_.norm_sites;
    Tracked out = Differentiate(absl::StrCat("J_", site.slot), inputs);
    out.route = at(inputs[0]).route;
    // A route may pass through either input.
    if (inputs.size() == 2 && Shorter(at(inputs[1]).route, out.route)) {
      out.route = at(inputs[1]).route;
    }
    ++(after_layers_ ? out.route.end_norms : out.route.norms);
    return Add(std::move(out));
  }

  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    const TensorHandle out = Add(Differentiate(absl::StrCat("J_", site.spec->name), inputs));
    // Nothing inside a sublayer leads back to the stream, but its norms are counted.
    for (const char* point : ListPoints(*site.spec)) {
      PLUMB_RETURN_IF_ERROR(at_point(point, out).status());
    }
    return out;
  }

  absl::Status Head(TensorHandle x, AtPoint at_point) override {
    routes_.identity = Read(x).route;
    PLUMB_RETURN_IF_ERROR(at_point(kHeadPoint, x).status());
    MarkStreams();
    return absl::OkStatus();
  }

  void BeginLayer(int64_t, TensorHandle x) override {
    after_layers_ = false;
    if (boundaries_.empty()) boundaries_.push_back(x);
    // Jacobians of tensors before the last layer, except its input, have been reset already.
    for (size_t i = layer_begin_; i < tensors_.size(); ++i) tensors_[i].jacobian = Jacobian();
    tensors_[layer_input_].jacobian = Jacobian();
    layer_begin_ = tensors_.size();
    layer_input_ = static_cast<size_t>(x);
    tensors_[layer_input_].jacobian.zero = false;
  }
  void EndLayer(int64_t, TensorHandle x) override {
    routes_.jacobians.push_back(Print(at(x).jacobian));
    boundaries_.push_back(x);
    after_layers_ = true;
  }

  const Routes& routes() const { return routes_; }

 private:
  TensorHandle Named(std::string name) {
    Tracked out;
    Prepend(std::move(name), &out.jacobian);
    return Add(std::move(out));
  }
  const Tracked& at(TensorHandle handle) const { return tensors_[static_cast<size_t>(handle)]; }
  bool DependsOnInput(TensorHandle handle) const { return !at(handle).jacobian.zero; }
  // Returns an operand of an operation of this section.
  const Tracked& Read(TensorHandle handle) {
    Tracked& tensor = tensors_[static_cast<size_t>(handle)];
    tensor.read = boundaries_.size();
    return tensor;
  }
  TensorHandle Add(Tracked tracked) {
    tracked.made = boundaries_.size();
    tensors_.push_back(std::move(tracked));
    return static_cast<TensorHandle>(tensors_.size() - 1);
  }
  void Prepend(std::string text, Jacobian* jacobian) {
    jacobian->factors.insert(jacobian->factors.begin(), Factor{std::move(text), ++applications_});
  }

  // Returns a function of `operands` without an identity route. Its Jacobian is the sum over its
  // operands of `partial` times that of the operand.
  Tracked Differentiate(const std::string& partial, absl::Span<const TensorHandle> operands) {
    Tracked out;
    std::vector<Jacobian> terms;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Tracked& operand = Read(operands[i]);
      out.signal = out.signal || operand.signal;
      if (std::count(operands.begin(), operands.begin() + i, operands[i]) > 0) continue;
      terms.push_back(operand.jacobian);
      Prepend(partial, &terms.back());
    }
    out.jacobian = MakeSum(std::move(terms));
    return out;
  }

  // Qualifies the Jacobians of layers where tensors other than x also carry the signal over a
  // boundary. There is no formula if the layer does not update x, or nothing reads what it makes.
  void MarkStreams() {
    std::vector<bool> others(boundaries_.size()), by_x(boundaries_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].signal) continue;
      for (size_t b = tensors_[i].made; b < tensors_[i].read; ++b) {
        (static_cast<TensorHandle>(i) == boundaries_[b] ? by_x : others)[b] = true;
      }
    }
    for (size_t layer = 0; layer + 1 < boundaries_.size(); ++layer) {
      if (!others[layer] && !others[layer + 1]) continue;
      std::string& text = routes_.jacobians[layer];
      if (text == "0" || !by_x[layer + 1] || boundaries_[layer] == boundaries_[layer + 1]) {
        text = "several streams carry the signal; no formula for x alone";
      } else {
        absl::StrAppend(&text, "; other streams carry the signal too");
      }
    }
  }

  static std::string Print(const Jacobian& jacobian) {
    if (jacobian.zero) return "0";
    if (jacobian.factors.empty()) return "I";
    const bool is_number = jacobian.factors.size() == 1 && jacobian.factors[0].id < 0;
    return absl::StrCat(Join(jacobian.factors), is_number ? " I" : "");
  }

  // Returns the sum, with the common end of all products as factors behind it, so that n(x) +
  // f(n(x)) is printed as (I + J_f) J_n.
  Jacobian MakeSum(std::vector<Jacobian> terms) {
    terms.erase(std::remove_if(terms.begin(), terms.end(), [](const auto& t) { return t.zero; }),
                terms.end());
    if (terms.size() < 2) return terms.empty() ? Jacobian() : terms[0];
    const auto end_alike = [&terms] {
      return std::all_of(terms.begin(), terms.end(), [&](const Jacobian& term) {
        return !term.factors.empty() && !terms[0].factors.empty() &&
               term.factors.back().id == terms[0].factors.back().id;
      });
    };
    Jacobian sum;
    sum.zero = false;
    while (end_alike()) {
      sum.factors.insert(sum.factors.begin(), terms[0].factors.back());
      for (Jacobian& term : terms) term.factors.pop_back();
    }
    const auto print = [](std::string* out, const Jacobian& t) { absl::StrAppend(out, Print(t)); };
    std::string text = absl::StrCat("(", absl::StrJoin(terms, " + ", print), ")");
    Prepend(text.size() > kMaxSum ? "J_sum" : std::move(text), &sum);
    return sum;
  }

  // Returns true if `a` passes fewer norms than `b`, or as many with fewer scales.
  static bool Shorter(const IdentityRoute& a, const IdentityRoute& b) {
    if (!a.exists || !b.exists) return a.exists;
    return std::make_tuple(a.norms + a.end_norms, a.learned, a.scale != 1) <
           std::make_tuple(b.norms + b.end_norms, b.learned, b.scale != 1);
  }

  size_t layer_begin_ = 0;                // number of tensors when the layer began
  size_t layer_input_ = 0;                // handle of the layer's input
  bool after_layers_ = false;             // may be reset by a further layer
  int64_t applications_ = 0;              // ids of factors
  std::vector<TensorHandle> boundaries_;  // x before the first layer and after each
  std::vector<Tracked> tensors_;
  Routes routes_;
};

}  // namespace

std::string IdentityRoute::ToString() const {
  if (!exists) return "none";
  std::vector<std::string> parts;
  if (norms > 0) parts.push_back(absl::StrCat("through ", norms, norms == 1 ? " norm" : " norms"));
  if (scale != 1) parts.push_back(absl::StrCat("scaled by ", scale));
  if (learned) parts.push_back("scaled by learned values");
  return parts.empty() ? "clean (I)" : absl::StrJoin(parts, ", ");
}

absl::StatusOr<Routes> AnalyzeRoutes(const ResolvedModel& model) {
  RouteBackend backend;
  PLUMB_RETURN_IF_ERROR(RunStack(model, &backend));
  return backend.routes();
}

}  // namespace plumb
