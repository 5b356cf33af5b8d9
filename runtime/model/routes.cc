// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/routes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/spec/interpret.h"

namespace plumb {
namespace {

// Jacobian with respect to the layer's input: factors applied to the Jacobian of an earlier value,
// the base. Sums become bases, so that x + f(n(x)) after y is printed as (I + J_f J_n) <y's
// Jacobian>.
struct Jacobian {
  static constexpr int kZero = -1;  // does not depend on the layer's input
  int base = kZero;                 // index into sums_; 0 is the layer's input
  std::vector<std::string> factors;
};

struct SumNode {
  std::string text;  // "(I + J_f)"
  int parent = 0;    // base to which the sum is applied
};

struct Tracked {
  IdentityRoute route;
  Jacobian jacobian;
};

class RouteBackend : public FormulaBackend {
 public:
  TensorHandle Embed() override {
    Tracked tracked;
    tracked.route.exists = true;
    return Add(std::move(tracked));
  }

  TensorHandle Combine(absl::Span<const Term> terms, double) override {
    Tracked out;
    for (const Term& term : terms) {
      if (term.coefficient == 0) continue;
      IdentityRoute route = at(term.tensor).route;
      route.scale *= term.coefficient;
      if (Shorter(route, out.route)) out.route = route;
    }
    out.jacobian = SumOf(terms);
    return Add(std::move(out));
  }

  // A route may pass through either factor and is scaled by the other.
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override {
    if (Shorter(at(b).route, at(a).route)) std::swap(a, b);
    Tracked out = at(a);
    out.route.learned = true;
    if (at(b).jacobian.base == Jacobian::kZero) {
      const std::vector<std::string>& factors = at(b).jacobian.factors;
      Prepend(factors.empty() ? "D" : absl::StrJoin(factors, " "), &out.jacobian);
    } else {
      Prepend("J_product", &out.jacobian);
    }
    return Add(std::move(out));
  }

  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) override {
    if (operands.empty() || function.name == "stop") return Add(Tracked());
    Tracked out;
    for (const TensorHandle operand : operands) {  // the first that depends on the layer's input
      if (out.jacobian.base != Jacobian::kZero) break;
      out = at(operand);
    }
    out.route = IdentityRoute();
    std::vector<std::string>& factors = out.jacobian.factors;
    if (out.jacobian.base == Jacobian::kZero && !factors.empty()) {  // a learned value
      factors = {absl::StrCat(function.name, "(", absl::StrJoin(factors, " "), ")")};
    } else {
      Prepend(absl::StrCat("J_", function.name), &out.jacobian);
    }
    return Add(std::move(out));
  }

  TensorHandle Step() override { return Named("step"); }
  TensorHandle Drop(const DropSite&, TensorHandle a) override { return a; }

  TensorHandle Learned(const LearnedSite& site) override {
    return Named(site.place->name.substr(site.place->name.rfind('.') + 1));
  }

  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) override {
    Tracked out = at(a);
    out.route = IdentityRoute();
    Prepend(absl::StrCat("J_", site.spec->name), &out.jacobian);
    return Add(std::move(out));
  }

  TensorHandle TokenEmbedding(const TokenEmbeddingSite&) override { return Add(Tracked()); }

  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override {
    if (site.norm->plugin->identity()) return inputs[0];
    ++routes_.norm_sites;
    Tracked out = at(inputs[0]);
    // A route may pass through either input.
    if (inputs.size() == 2 && Shorter(at(inputs[1]).route, out.route)) out = at(inputs[1]);
    ++(after_layers_ ? out.route.end_norms : out.route.norms);
    Prepend(absl::StrCat("J_", site.slot), &out.jacobian);
    return Add(std::move(out));
  }

  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    // Nothing inside a sublayer leads back to the stream, but its norms are counted.
    for (const char* point : PointsOf(*site.spec)) {
      PLUMB_RETURN_IF_ERROR(at_point(point, inputs[0]).status());
    }
    Tracked out = at(inputs[0]);
    out.route = IdentityRoute();
    Prepend(absl::StrCat("J_", site.spec->name), &out.jacobian);
    return Add(std::move(out));
  }

  absl::Status Head(TensorHandle x, AtPoint at_point) override {
    routes_.identity = at(x).route;
    return at_point(kHeadPoint, x).status();
  }

  void BeginLayer(int64_t, TensorHandle x) override {
    after_layers_ = false;
    sums_ = {SumNode{"I", 0}};
    // Jacobians of tensors before the last layer, except its input, have been reset already.
    for (size_t i = layer_begin_; i < tensors_.size(); ++i) tensors_[i].jacobian = Jacobian();
    tensors_[layer_input_].jacobian = Jacobian();
    layer_begin_ = tensors_.size();
    layer_input_ = static_cast<size_t>(x);
    tensors_[layer_input_].jacobian.base = 0;
  }
  void EndLayer(int64_t, TensorHandle x) override {
    routes_.jacobians.push_back(Print(at(x).jacobian));
    after_layers_ = true;
  }

  const Routes& routes() const { return routes_; }

 private:
  TensorHandle Named(std::string name) {
    Tracked out;
    out.jacobian.factors = {std::move(name)};
    return Add(std::move(out));
  }
  const Tracked& at(TensorHandle handle) const { return tensors_[static_cast<size_t>(handle)]; }
  TensorHandle Add(Tracked tracked) {
    tensors_.push_back(std::move(tracked));
    return static_cast<TensorHandle>(tensors_.size() - 1);
  }
  static void Prepend(std::string factor, Jacobian* jacobian) {
    if (jacobian->base == Jacobian::kZero && jacobian->factors.empty()) return;
    jacobian->factors.insert(jacobian->factors.begin(), std::move(factor));
  }

  std::string Print(const Jacobian& jacobian) const {
    if (jacobian.base == Jacobian::kZero) return "0";
    std::vector<std::string> parts = jacobian.factors;
    for (int base = jacobian.base; base != 0; base = sums_[static_cast<size_t>(base)].parent) {
      parts.push_back(sums_[static_cast<size_t>(base)].text);
    }
    return parts.empty() ? "I" : absl::StrJoin(parts, " ");
  }

  // Returns the same Jacobian relative to `ancestor`, with the sums in between as factors.
  Jacobian RelativeTo(Jacobian jacobian, int ancestor) const {
    while (jacobian.base != ancestor) {
      const SumNode& sum = sums_[static_cast<size_t>(jacobian.base)];
      jacobian.factors.push_back(sum.text);
      jacobian.base = sum.parent;
    }
    return jacobian;
  }

  Jacobian SumOf(absl::Span<const Term> terms) {
    int ancestor = static_cast<int>(sums_.size());  // bases only grow: the smallest is common
    std::vector<Term> live;
    for (const Term& term : terms) {
      if (at(term.tensor).jacobian.base == Jacobian::kZero) continue;
      live.push_back(term);
    }
    if (live.empty()) return Jacobian();
    for (const Term& term : live) ancestor = std::min(ancestor, at(term.tensor).jacobian.base);
    // Moves the ancestor down until the chain of sums of every term passes through it.
    const auto passes = [this](int base, int wanted) {
      while (base > wanted) base = sums_[static_cast<size_t>(base)].parent;
      return base == wanted;
    };
    while (!std::all_of(live.begin(), live.end(), [&](const Term& term) {
      return passes(at(term.tensor).jacobian.base, ancestor);
    })) {
      ancestor = sums_[static_cast<size_t>(ancestor)].parent;
    }
    std::vector<std::vector<std::string>> factors;
    for (const Term& term : live) {
      factors.push_back(RelativeTo(at(term.tensor).jacobian, ancestor).factors);
    }
    if (live.size() == 1) {
      Jacobian only;
      only.base = ancestor;
      only.factors = WithCoefficient(live[0].coefficient, std::move(factors[0]));
      return only;
    }
    std::vector<std::string> shared = TakeCommonTail(&factors);
    std::vector<std::string> parts;
    for (size_t i = 0; i < live.size(); ++i) {
      std::vector<std::string> part = std::move(factors[i]);
      if (part.empty()) part = {"I"};
      parts.push_back(absl::StrJoin(WithCoefficient(live[i].coefficient, std::move(part)), " "));
    }
    shared.insert(shared.begin(), absl::StrCat("(", absl::StrJoin(parts, " + "), ")"));
    sums_.push_back({absl::StrJoin(shared, " "), ancestor});
    Jacobian jacobian;
    jacobian.base = static_cast<int>(sums_.size() - 1);
    return jacobian;
  }

  static std::vector<std::string> WithCoefficient(double c, std::vector<std::string> factors) {
    if (c != 1) factors.insert(factors.begin(), absl::StrCat(c));
    return factors;
  }

  // Removes the common suffix of all products, so that n(x) + f(n(x)) is printed as (I + J_f) J_n.
  static std::vector<std::string> TakeCommonTail(std::vector<std::vector<std::string>>* products) {
    std::vector<std::string> tail;
    const auto ends_alike = [products] {
      for (const std::vector<std::string>& product : *products) {
        if (product.empty() || product.back() != products->front().back()) return false;
      }
      return true;
    };
    while (ends_alike()) {
      tail.insert(tail.begin(), products->front().back());
      for (std::vector<std::string>& product : *products) product.pop_back();
    }
    return tail;
  }

  static bool Shorter(const IdentityRoute& a, const IdentityRoute& b) {
    if (a.exists != b.exists) return a.exists;
    return a.exists && a.norms + a.end_norms < b.norms + b.end_norms;
  }

  size_t layer_begin_ = 0;     // number of tensors when the layer began
  size_t layer_input_ = 0;     // handle of the layer's input
  bool after_layers_ = false;  // may be reset by a further layer
  std::vector<Tracked> tensors_;
  std::vector<SumNode> sums_ = {SumNode{"I", 0}};
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
