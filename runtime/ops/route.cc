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

Router MakeRouter(const Shape& logits, const Attrs& attrs) {
  Router router;
  ParseRouterKind(attrs.GetString("router"), &router.kind);
  router.rows = logits.rows();
  router.experts = logits.last();
  router.top_k = attrs.GetInt("top_k");
  if (attrs.Has("n_group")) router.groups = attrs.GetInt("n_group");
  if (attrs.Has("top_group")) router.top_groups = attrs.GetInt("top_group");
  router.renormalize = attrs.GetBool("renormalize", false);
  router.scale = attrs.GetDouble("scale", 1);
  return router;
}

// `correction` is the index of the optional operand.
absl::Status CheckRouter(const OpTypes& types, size_t correction) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "logits"));
  RouterKind kind;
  if (!ParseRouterKind(types.attrs.GetString("router"), &kind)) {
    return absl::InvalidArgumentError("router must be softmax_of_top_k, softmax or sigmoid");
  }
  const Router r = MakeRouter(types.in(0).shape, types.attrs);
  if (r.top_k < 1 || r.top_k > r.experts) {
    return absl::InvalidArgumentError(absl::StrCat("top_k ", r.top_k, " is not in 1..", r.experts));
  }
  if (r.renormalize && kind != RouterKind::kSigmoid) {
    return absl::InvalidArgumentError("renormalize is for sigmoid");
  }
  if (r.groups < 1 || r.experts % r.groups != 0 || r.top_groups < 1 || r.top_groups > r.groups ||
      r.top_k > r.top_groups * (r.experts / r.groups)) {
    return absl::InvalidArgumentError(absl::StrCat("n_group ", r.groups, " and top_group ",
                                                   r.top_groups, " do not fit top_k ", r.top_k,
                                                   " of ", r.experts, " experts"));
  }
  if (types.has(correction) && types.in(correction) != F32({r.experts})) {
    return absl::InvalidArgumentError(
        absl::StrCat("correction must be ", F32({r.experts}).ToString()));
  }
  // Places are 32 bits wide.
  if (r.rows <= std::numeric_limits<int32_t>::max() / r.top_k) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(r.rows, " tokens of ", r.top_k, " experts each are too many at once"));
}

absl::StatusOr<std::vector<TensorType>> InferRoute(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckRouter(types, 1));
  const Shape& logits = types.in(0).shape;
  const TensorType weights = {DType::kF32, logits.WithLast(types.attrs.GetInt("top_k"))};
  return std::vector<TensorType>{weights, {DType::kI32, weights.shape}, I32({logits.last() + 1})};
}

absl::StatusOr<std::vector<TensorType>> InferRouteGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckRouter(types, 2));
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
//   u_j = p_{c_j} = sigmoid(l_{c_j}): s u_j (1 - u_j) g_j for l_{c_j}, 0 for the others
//   u_j = p_{c_j} / sum_i p_{c_i}:    s u_j (1 - p_{c_j}) (g_j - sum_i u_i g_i), 0 for the others.
// The correction decides about the choice only, so it has no gradient.
std::vector<ValueId> VjpRoute(GraphBuilder& b, const Node& node,
                              absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  std::vector<ValueId> inputs = {node.inputs[0], d_outputs[0]};
  if (node.inputs.size() > 1) inputs.push_back(node.inputs[1]);
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  d_inputs[0] = b.Apply("route_grad", std::move(inputs), node.attrs);
  return d_inputs;
}

// Computes the gradient of a row of logits. `g` has k elements; `row` is that of ChooseExperts.
template <class T, class G>
void RouteGradient(const Router& r, const RouterRow<T>& row, const G* g, T* dlogits) {
  const T scale = static_cast<T>(r.scale);
  T dot = 0;
  for (int64_t j = 0; j < r.top_k; ++j) dot += row.weights[j] * static_cast<T>(g[j]);
  for (int64_t e = 0; e < r.experts; ++e) {
    dlogits[e] = r.kind == RouterKind::kSoftmax ? -scale * row.p[e] * dot : T{0};
  }
  for (int64_t j = 0; j < r.top_k; ++j) {
    const int32_t e = row.chosen[j];
    const T u = row.weights[j], du = static_cast<T>(g[j]);
    const bool is_sum_constant = r.kind == RouterKind::kSoftmaxOfTopK || r.renormalize;
    T slope = scale * u * (is_sum_constant ? du - dot : du);
    if (r.kind == RouterKind::kSigmoid) slope *= 1 - row.p[e];
    dlogits[e] += slope;
  }
}

// Scratch of a task: a row of logits, and what ChooseExperts needs.
class RouterScratch {
 public:
  explicit RouterScratch(const Router& router) : n_(router.experts) {}
  int64_t bytes() const { return AlignUp(n_ * (5 * static_cast<int64_t>(sizeof(float)) + 1)); }

  float* Logits(void* scratch, int64_t task) const {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + task * bytes());
  }
  RouterRow<float> Row(void* scratch, int64_t task) const {
    float* const floats = Logits(scratch, task) + n_;
    int32_t* const chosen = reinterpret_cast<int32_t*>(floats + 3 * n_);
    return {floats, floats + n_, floats + 2 * n_, chosen, reinterpret_cast<uint8_t*>(chosen + n_)};
  }

 private:
  int64_t n_;
};

int64_t RouterTasks(const Router& r) {
  constexpr int64_t kCost = 16;  // scalar operations of an exponential
  return TaskCount(r.rows, r.rows * r.experts * (r.top_k + kCost));
}

class RouterKernel : public Kernel {
 public:
  // `correction` is the index of the optional operand.
  RouterKernel(const OpTypes& types, size_t correction)
      : router_(MakeRouter(types.in(0).shape, types.attrs)),
        tasks_(RouterTasks(router_)),
        bf16_(types.in(0).dtype == DType::kBF16),
        correction_(types.has(correction) ? correction : 0),
        scratch_(router_) {}

  int64_t scratch_bytes() const override { return tasks_ * scratch_.bytes(); }

 protected:
  // Calls use(row, choice) for each row of the task, after choosing its experts.
  template <class Use>
  void ForRows(const KernelArgs& args, int64_t task, const Use& use) const {
    const int64_t n = router_.experts;
    float* const logits = scratch_.Logits(args.scratch, task);
    const RouterRow<float> choice = scratch_.Row(args.scratch, task);
    const Range rows = TaskRange(router_.rows, tasks_, task);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      if (bf16_) {
        std::transform(args.bf16(0) + row * n, args.bf16(0) + (row + 1) * n, logits, FloatFromBf16);
      } else {
        std::copy_n(args.f32(0) + row * n, n, logits);
      }
      ChooseExperts(router_, logits, correction_ > 0 ? args.f32(correction_) : nullptr, choice);
      use(row, choice);
    }
  }

  const Router router_;
  const int64_t tasks_;
  const bool bf16_;
  const size_t correction_;  // 0: none
  const RouterScratch scratch_;
};

class RouteKernel : public RouterKernel {
 public:
  explicit RouteKernel(const OpTypes& types) : RouterKernel(types, 1) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int64_t k = router_.top_k;
    const float scale = static_cast<float>(router_.scale);
    int32_t* const places = static_cast<int32_t*>(args.out[1]);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      ForRows(args, task, [&](int64_t row, const RouterRow<float>& choice) {
        for (int64_t j = 0; j < k; ++j) args.out_f32(0)[row * k + j] = scale * choice.weights[j];
        std::copy_n(choice.chosen, k, places + row * k);
      });
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
  explicit RouteGradKernel(const OpTypes& types) : RouterKernel(types, 2) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int64_t n = router_.experts, k = router_.top_k;
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      ForRows(args, task, [&](int64_t row, const RouterRow<float>& choice) {
        float* const dlogits =
            bf16_ ? scratch_.Logits(args.scratch, task) : args.out_f32(0) + row * n;
        RouteGradient(router_, choice, args.f32(1) + row * k, dlogits);
        if (bf16_) std::transform(dlogits, dlogits + n, args.out_bf16(0) + row * n, Bf16FromFloat);
      });
    });
    return absl::OkStatus();
  }
};

// The choice for one row in double.
class ReferenceChoice {
 public:
  ReferenceChoice(const ReferenceArgs& args, const Router& r, int64_t row, size_t correction)
      : reals_(static_cast<size_t>(3 * r.experts)),
        chosen_(static_cast<size_t>(r.experts)),
        taken_(static_cast<size_t>(r.experts)) {
    ChooseExperts(r, args.f(0).data() + row * r.experts,
                  args.has(correction) ? args.f(correction).data() : nullptr, this->row());
  }
  RouterRow<double> row() {
    const size_t n = chosen_.size();
    return {&reals_[0], &reals_[n], &reals_[2 * n], chosen_.data(), taken_.data()};
  }

 private:
  std::vector<double> reals_;
  std::vector<int32_t> chosen_;
  std::vector<uint8_t> taken_;
};

absl::Status ReferenceRoute(const ReferenceArgs& args) {
  const Router r = MakeRouter(args.shape(0), args.attrs);
  std::vector<int32_t> experts;  // indexed by assignment
  for (int64_t row = 0; row < r.rows; ++row) {
    ReferenceChoice choice(args, r, row, 1);
    for (int64_t j = 0; j < r.top_k; ++j) {
      args.out(0)[experts.size()] = r.scale * choice.row().weights[j];
      experts.push_back(choice.row().chosen[j]);
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
  const Router r = MakeRouter(args.shape(0), args.attrs);
  for (int64_t row = 0; row < r.rows; ++row) {
    ReferenceChoice choice(args, r, row, 2);
    RouteGradient(r, choice.row(), args.f(1).data() + row * r.top_k,
                  args.out(0).data() + row * r.experts);
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
  op.min_inputs = 1;
  op.max_inputs = 2;
  op.infer = InferRoute;
  op.vjp = VjpRoute;
  op.make_kernel = MakeKernel<RouteKernel>;
  op.reference = ReferenceRoute;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "route_grad";
  grad.min_inputs = 2;
  grad.max_inputs = 3;
  grad.infer = InferRouteGrad;
  grad.make_kernel = MakeKernel<RouteGradKernel>;
  grad.reference = ReferenceRouteGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
