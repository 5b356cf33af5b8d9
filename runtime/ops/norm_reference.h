// SPDX-License-Identifier: Apache-2.0
// NormReference: the operands of one call of a norm plugin in double, or in float if the plugin has
// no double arithmetic. Owns the buffers that it lends. Thread-compatible.
#ifndef PLUMB_RUNTIME_OPS_NORM_REFERENCE_H_
#define PLUMB_RUNTIME_OPS_NORM_REFERENCE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "plumb/norm_plugin.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/graph/op.h"
#include "runtime/ops/norm_rows.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

class NormReference {
 public:
  NormReference(const NormInstance& instance, int64_t rows)
      : is_f64_(instance.plugin().has_f64()), scratch_(instance.scratch_bytes(rows)) {
    const int64_t size = is_f64_ ? int64_t{sizeof(double)} : int64_t{sizeof(float)};
    error_[0] = '\0';
    call_.struct_size = sizeof(call_);
    call_.dtype = is_f64_ ? PLUMB_DTYPE_F64 : PLUMB_DTYPE_F32;
    call_.dim = static_cast<uint32_t>(instance.dim());
    call_.rows = rows;
    call_.x_pitch = call_.y_pitch = call_.dy_pitch = call_.dx_pitch = instance.dim() * size;
    if (instance.two_inputs()) call_.x2_pitch = call_.dx2_pitch = call_.x_pitch;
    call_.saved_pitch = instance.saved_per_row() * size;
    call_.scratch = scratch_.data();
    call_.err = error_;
    call_.err_cap = sizeof(error_);
  }
  NormReference(const NormReference&) = delete;
  NormReference& operator=(const NormReference&) = delete;

  plumb_norm_call& call() { return call_; }

  // Sets x2 and the context of the call's rows from the inputs of a node. Its first parameter is
  // input `first`, and its rows have type `x`.
  void LendExtras(const ReferenceArgs& args, size_t first, const TensorType& x,
                  const NormInstance& instance) {
    const NormExtras extras(instance, first);
    context_of_.emplace(x, instance, extras);
    if (extras.x2 != NormExtras::kNone && args.has(extras.x2)) call_.x2 = Lend(args.f(extras.x2));
    std::vector<const void*> in(args.inputs.size(), nullptr);
    if (extras.positions != NormExtras::kNone) {
      in[extras.positions] = args.i(extras.positions).data();
    }
    if (extras.step != NormExtras::kNone) {
      step_ = static_cast<float>(args.f(extras.step)[0]);
      in[extras.step] = &step_;
    }
    context_ = context_of_->At(in.data());
    call_.context = &context_;
  }

  // Returns a copy of `values` in the call's element type. It lives as long as this.
  void* Lend(const std::vector<double>& values) {
    const int64_t n = static_cast<int64_t>(values.size());
    if (is_f64_) {
      buffers_.emplace_back(n * static_cast<int64_t>(sizeof(double)));
      std::copy(values.begin(), values.end(), buffers_.back().as<double>());
    } else {
      buffers_.emplace_back(n * static_cast<int64_t>(sizeof(float)));
      std::transform(values.begin(), values.end(), buffers_.back().as<float>(),
                     [](double value) { return static_cast<float>(value); });
    }
    return buffers_.back().data();
  }

  // Copies a lent buffer, with what the plugin wrote, to `values`, which has its size.
  void Return(const void* lent, std::vector<double>* values) const {
    const size_t n = values->size();
    if (is_f64_) {
      std::copy_n(static_cast<const double*>(lent), n, values->begin());
    } else {
      std::copy_n(static_cast<const float*>(lent), n, values->begin());
    }
  }

 private:
  const bool is_f64_;
  AlignedBuffer scratch_;
  std::vector<AlignedBuffer> buffers_;
  plumb_norm_call call_{};
  std::optional<NormContext> context_of_;
  plumb_norm_context context_{};
  float step_ = 0;
  char error_[256];
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_NORM_REFERENCE_H_
