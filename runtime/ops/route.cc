// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/route.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

// Routers of mixtures of experts. They process few numbers per token, so the code is plain.

namespace plumb {
namespace {

struct Router {
  RouterKind kind;
  int64_t rows, experts, top_k;
  double scale;

  explicit Router(const OpTypes& types) : Router(types.in(0).shape, types.attrs) {}
  Router(const Shape& logits, const Attrs& attrs)
      : kind(RouterKind::kSoftmaxOfTopK),
        rows(logits.rows()),
        experts(logits.last()),
        top_k(attrs.GetInt("top_k")),
        scale(attrs.GetDouble("scale", 1)) {
    ParseRouterKind(attrs.GetString("router"), &kind);
  }

  int64_t tasks() const {
    constexpr int64_t kCost = 16;  // scalar operations of an exponential
    return TaskCount(rows, rows * experts * (top_k + kCost));
  }
};

absl::Status CheckRouter(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "logits"));
  RouterKind kind;
  if (!ParseRouterKind(types.attrs.GetString("router"), &kind)) {
    return absl::InvalidArgumentError("router must be softmax_of_top_k, softmax or sigmoid");
  }
  const int64_t top_k = types.attrs.GetInt("top_k"), experts = types.in(0).shape.last();
  if (top_k < 1 || top_k > experts) {
    return absl::InvalidArgumentError(absl::StrCat("top_k ", top_k, " is not in 1..", experts));
  }
  // Places are 32 bits wide.
  const int64_t rows = types.in(0).shape.rows();
  if (rows <= std::numeric_limits<int32_t>::max() / top_k) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(rows, " tokens of ", top_k, " experts each are too many at once"));
}

absl::StatusOr<std::vector<TensorType>> InferRoute(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckRouter(types));
  const Shape& logits = types.in(0).shape;
  const TensorType weights = {DType::kF32, logits.WithLast(types.attrs.GetInt("top_k"))};
  return std::vector<TensorType>{weights, {DType::kI32, weights.shape}, I32({logits.last() + 1})};
}

absl::StatusOr<std::vector<TensorType>> InferRouteGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckRouter(types));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 1, "dweights"));
  const Shape chosen = types.in(0).shape.WithLast(types.attrs.GetInt("top_k"));
  if (types.in(1).shape != chosen) {
    return absl::InvalidArgumentError(absl::StrCat("dweights must be ", chosen.ToString()));
  }
  return std::vector<TensorType>{types.in(0)};
}

// The choice is constant except at equal logits. With chosen c_1 .. c_k, w_j = s u_j and g = dL/dw,
// the gradients of the logits l are
//   u = softmax of the chosen:  s u_j (g_j - sum_i u_i g_i) for l_{c_j}, 0 for the others
//   u_j = p_{c_j}, p a softmax: s p_e ([e = c_j] g_j - sum_i p_{c_i} g_i) for l_e
//   u_j = sigmoid(l_{c_j}):     s u_j (1 - u_j) g_j for l_{c_j}, 0 for the others.
std::vector<ValueId> VjpRoute(GraphBuilder& b, const Node& node,
                              absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  return {b.Apply("route_grad", {node.inputs[0], d_outputs[0]}, node.attrs)};
}

// Computes the gradient of n logits. `weights`, `g` and `chosen` have k elements; `p` is the result
// of RouterWeights.
template <class T, class G>
void RouteGradient(const Router& r, const int32_t* chosen, const T* weights, const G* g, const T* p,
                   T* dlogits) {
  const T scale = static_cast<T>(r.scale);
  T dot = 0;
  for (int64_t j = 0; j < r.top_k; ++j) dot += weights[j] * static_cast<T>(g[j]);
  for (int64_t e = 0; e < r.experts; ++e) {
    dlogits[e] = r.kind == RouterKind::kSoftmax ? -scale * p[e] * dot : T{0};
  }
  for (int64_t j = 0; j < r.top_k; ++j) {
    const T u = weights[j], du = static_cast<T>(g[j]);
    dlogits[chosen[j]] += r.kind == RouterKind::kSigmoid   ? scale * u * (1 - u) * du
                          : r.kind == RouterKind::kSoftmax ? scale * u * du
                                                           : scale * u * (du - dot);
  }
}

// Scratch of a task: floats for a row of logits and two more rows, marks and indices of experts.
class RouterScratch {
 public:
  explicit RouterScratch(const Router& router) : n_(router.experts) {}
  int64_t bytes() const { return AlignUp(n_ * (4 * static_cast<int64_t>(sizeof(float)) + 1)); }

  struct Row {
    float *logits, *p, *weights;
    int32_t* chosen;
    uint8_t* taken;
  };
  Row Of(void* scratch, int64_t task) const {
    float* const floats = reinterpret_cast<float*>(static_cast<char*>(scratch) + task * bytes());
    int32_t* const chosen = reinterpret_cast<int32_t*>(floats + 3 * n_);
    return {floats, floats + n_, floats + 2 * n_, chosen, reinterpret_cast<uint8_t*>(chosen + n_)};
  }

 private:
  int64_t n_;
};

class RouterKernel : public Kernel {
 public:
  explicit RouterKernel(const OpTypes& types)
      : router_(types),
        tasks_(router_.tasks()),
        bf16_(types.in(0).dtype == DType::kBF16),
        scratch_(router_) {}

 protected:
  // Reads a row of logits, chooses experts, and computes their weights before the scale.
  void Choose(const KernelArgs& args, int64_t row, const RouterScratch::Row& at) const {
    const int64_t n = router_.experts;
    if (bf16_) {
      std::transform(args.bf16(0) + row * n, args.bf16(0) + (row + 1) * n, at.logits,
                     FloatFromBf16);
    } else {
      std::copy_n(args.f32(0) + row * n, n, at.logits);
    }
    TopK(at.logits, n, router_.top_k, at.taken, at.chosen);
    RouterWeights(router_.kind, at.logits, n, at.chosen, router_.top_k, at.p, at.weights);
  }

  const Router router_;
  const int64_t tasks_;
  const bool bf16_;
  const RouterScratch scratch_;
};

class RouteKernel : public RouterKernel {
 public:
  using RouterKernel::RouterKernel;

  int64_t scratch_bytes() const override { return tasks_ * scratch_.bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const int64_t k = router_.top_k;
    const float scale = static_cast<float>(router_.scale);
    int32_t* const places = static_cast<int32_t*>(args.out[1]);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const RouterScratch::Row at = scratch_.Of(args.scratch, task);
      const Range rows = TaskRange(router_.rows, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        Choose(args, row, at);
        for (int64_t j = 0; j < k; ++j) args.out_f32(0)[row * k + j] = scale * at.weights[j];
        std::copy_n(at.chosen, k, places + row * k);
      }
    });
    GroupByExpert(static_cast<int32_t*>(args.scratch), places, static_cast<int32_t*>(args.out[2]));
    return absl::OkStatus();
  }

 private:
  // Sorts by counting: replaces the experts in `places` by row indices, ordered by expert and then
  // by token. `next` is scratch with one element per expert.
  void GroupByExpert(int32_t* next, int32_t* places, int32_t* starts) const {
    const int64_t n = router_.experts, assignments = router_.rows * router_.top_k;
    std::fill_n(starts, n + 1, 0);
    for (int64_t i = 0; i < assignments; ++i) ++starts[places[i] + 1];
    for (int64_t e = 0; e < n; ++e) starts[e + 1] += starts[e];
    std::copy_n(starts, n, next);
    for (int64_t i = 0; i < assignments; ++i) places[i] = next[places[i]]++;
  }
};

class RouteGradKernel : public RouterKernel {
 public:
  using RouterKernel::RouterKernel;

  int64_t scratch_bytes() const override { return tasks_ * scratch_.bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const int64_t n = router_.experts, k = router_.top_k;
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const RouterScratch::Row at = scratch_.Of(args.scratch, task);
      const Range rows = TaskRange(router_.rows, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        Choose(args, row, at);
        float* const dlogits = bf16_ ? at.logits : args.out_f32(0) + row * n;
        RouteGradient(router_, at.chosen, at.weights, args.f32(1) + row * k, at.p, dlogits);
        if (bf16_) std::transform(dlogits, dlogits + n, args.out_bf16(0) + row * n, Bf16FromFloat);
      }
    });
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeRouteKernel(const OpTypes& types) {
  return std::make_unique<RouteKernel>(types);
}
absl::StatusOr<std::unique_ptr<Kernel>> MakeRouteGradKernel(const OpTypes& types) {
  return std::make_unique<RouteGradKernel>(types);
}

// The choice for one row in double.
struct ReferenceChoice {
  std::vector<int32_t> chosen;
  std::vector<double> p, weights;

  ReferenceChoice(const Router& r, const double* logits)
      : chosen(static_cast<size_t>(r.top_k)),
        p(static_cast<size_t>(r.experts)),
        weights(static_cast<size_t>(r.top_k)) {
    std::vector<uint8_t> taken(static_cast<size_t>(r.experts));
    TopK(logits, r.experts, r.top_k, taken.data(), chosen.data());
    RouterWeights(r.kind, logits, r.experts, chosen.data(), r.top_k, p.data(), weights.data());
  }
};

absl::Status ReferenceRoute(const ReferenceArgs& args) {
  const Router r(args.shape(0), args.attrs);
  std::vector<int32_t> experts;  // indexed by assignment
  for (int64_t row = 0; row < r.rows; ++row) {
    const ReferenceChoice choice(r, args.f(0).data() + row * r.experts);
    for (size_t j = 0; j < choice.chosen.size(); ++j) {
      args.out(0)[experts.size()] = r.scale * choice.weights[j];
      experts.push_back(choice.chosen[j]);
    }
  }
  std::vector<int32_t>& places = args.outputs[1]->i;
  int32_t place = 0;
  for (int32_t e = 0; e < r.experts; ++e) {
    args.outputs[2]->i[static_cast<size_t>(e)] = place;
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] == e) places[i] = place++;
    }
  }
  args.outputs[2]->i.back() = place;
  return absl::OkStatus();
}

absl::Status ReferenceRouteGrad(const ReferenceArgs& args) {
  const Router r(args.shape(0), args.attrs);
  for (int64_t row = 0; row < r.rows; ++row) {
    const ReferenceChoice choice(r, args.f(0).data() + row * r.experts);
    RouteGradient(r, choice.chosen.data(), choice.weights.data(), args.f(1).data() + row * r.top_k,
                  choice.p.data(), args.out(0).data() + row * r.experts);
  }
  return absl::OkStatus();
}

}  // namespace

bool ParseRouterKind(absl::string_view name, RouterKind* kind) {
  if (name == "softmax_of_top_k") {
    *kind = RouterKind::kSoftmaxOfTopK;
  } else if (name == "softmax") {
    *kind = RouterKind::kSoftmax;
  } else if (name == "sigmoid") {
    *kind = RouterKind::kSigmoid;
  } else {
    return false;
  }
  return true;
}

absl::Status CheckStarts(const int32_t* starts, int64_t groups, int64_t rows) {
  bool fits = starts[0] == 0 && starts[groups] == rows;
  for (int64_t g = 0; g < groups; ++g) fits = fits && starts[g] <= starts[g + 1];
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("starts do not ascend from 0 to the ", rows, " rows there are"));
}

void RegisterRoute(OpRegistry* registry) {
  OpDef op;
  op.name = "route";
  op.min_inputs = op.max_inputs = 1;
  op.infer = InferRoute;
  op.vjp = VjpRoute;
  op.make_kernel = MakeRouteKernel;
  op.reference = ReferenceRoute;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "route_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.infer = InferRouteGrad;
  grad.make_kernel = MakeRouteGradKernel;
  grad.reference = ReferenceRouteGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
