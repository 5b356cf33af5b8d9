// NormReference: the operands of one call into a norm plugin in double, or in float where the
// plugin has no double arithmetic. Owns what it lends. Thread-compatible.
#ifndef PLUMB_RUNTIME_OPS_NORM_REFERENCE_H_
#define PLUMB_RUNTIME_OPS_NORM_REFERENCE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plumb/norm_plugin.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

class NormReference {
 public:
  NormReference(const NormInstance& instance, int64_t rows)
      : is_f64_(instance.plugin().has_f64()), scratch_(instance.scratch_bytes(rows)) {
    const int64_t size = is_f64_ ? int64_t{sizeof(double)} : int64_t{sizeof(float)};
    error_[0] = '\0';
    call_.struct_size = sizeof(call_);
    call_.dtype = is_f64_ ? PLUMB_F64 : PLUMB_F32;
    call_.dim = static_cast<uint32_t>(instance.dim());
    call_.rows = rows;
    call_.x_pitch = call_.y_pitch = call_.dy_pitch = call_.dx_pitch = instance.dim() * size;
    call_.saved_pitch = instance.saved_per_row() * size;
    call_.scratch = scratch_.data();
    call_.err = error_;
    call_.err_cap = sizeof(error_);
  }
  NormReference(const NormReference&) = delete;
  NormReference& operator=(const NormReference&) = delete;

  plumb_norm_call& call() { return call_; }

  // A copy of `values` in the call's element type, alive as long as this.
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

  // What the plugin made of a lent buffer of values->size() elements.
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
  char error_[256];
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_NORM_REFERENCE_H_
