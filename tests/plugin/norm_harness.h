// SPDX-License-Identifier: Apache-2.0
// Harness that runs one norm instance on memory that reveals errors: rows have a pitch and any
// offset, with canaries between them and inaccessible pages around them.
#ifndef PLUMB_TESTS_PLUGIN_NORM_HARNESS_H_
#define PLUMB_TESTS_PLUGIN_NORM_HARNESS_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Placement of an operand's rows in memory.
struct Placing {
  int64_t extra = 0;   // elements between the end of a row and the next row
  int64_t offset = 0;  // elements by which the first row is misaligned
  bool at_end = true;  // false: rows start at the first page's end; true: end at the last page
};

// Matrix [rows, dim] of T between two inaccessible pages. The gaps between rows are canaries.
template <class T>
class GuardedRows {
 public:
  GuardedRows(int64_t rows, int64_t dim, Placing placing)
      : rows_(rows), dim_(dim), pitch_(dim + placing.extra) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // No padding follows the last row, so that the rows can end at the page.
    const size_t used =
        sizeof(T) * static_cast<size_t>(rows == 0 ? 0 : (rows - 1) * pitch_ + dim + placing.offset);
    const size_t inner = (used + page) / page * page;
    size_ = inner + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + page, inner, PROT_READ | PROT_WRITE), 0);
    std::memset(base_ + page, kCanary, inner);
    inner_ = base_ + page;
    inner_size_ = inner;
    data_ = placing.at_end ? reinterpret_cast<T*>(inner_ + inner - used) + placing.offset
                           : reinterpret_cast<T*>(inner_) + placing.offset;
  }
  ~GuardedRows() { munmap(base_, size_); }
  GuardedRows(const GuardedRows&) = delete;
  GuardedRows& operator=(const GuardedRows&) = delete;

  T* data() const { return data_; }
  int64_t pitch_bytes() const { return pitch_ * static_cast<int64_t>(sizeof(T)); }

  void Set(const std::vector<T>& values) {
    for (int64_t r = 0; r < rows_; ++r) {
      std::copy_n(values.begin() + r * dim_, dim_, data_ + r * pitch_);
    }
  }
  std::vector<T> Get() const {
    std::vector<T> values;
    for (int64_t r = 0; r < rows_; ++r) {
      values.insert(values.end(), data_ + r * pitch_, data_ + r * pitch_ + dim_);
    }
    return values;
  }
  bool CanariesLive() const {
    const char* from = inner_;
    for (int64_t r = 0; r < rows_; ++r) {
      const char* row = reinterpret_cast<const char*>(data_ + r * pitch_);
      if (!AllCanary(from, row)) return false;
      from = row + static_cast<size_t>(dim_) * sizeof(T);
    }
    return AllCanary(from, inner_ + inner_size_);
  }

 private:
  static constexpr char kCanary = 0x7b;
  static bool AllCanary(const char* from, const char* to) {
    return std::all_of(from, to, [](char c) { return c == kCanary; });
  }
  int64_t rows_, dim_, pitch_;
  char* base_ = nullptr;
  char* inner_ = nullptr;
  size_t size_ = 0, inner_size_ = 0;
  T* data_ = nullptr;
};

// Dense operands and results of a norm. `dx` and `dparams` are also inputs, which backward() may
// add to.
template <class T>
struct NormValues {
  std::vector<T> x, y, dy, dx, saved;
  std::vector<std::vector<T>> params, dparams;
};

template <class T>
class NormHarness {
 public:
  NormHarness(const NormInstance& instance, int64_t rows, Placing placing = {})
      : instance_(instance),
        rows_(rows),
        x_(rows, instance.dim(), placing),
        y_(rows, instance.dim(), placing),
        dy_(rows, instance.dim(), placing),
        dx_(rows, instance.dim(), placing),
        saved_(rows, std::max<int64_t>(1, instance.saved_per_row()), {}),
        scratch_(instance.scratch_bytes(rows)) {
    for (const NormParam& param : instance.params()) {
      int64_t size = 1;
      for (const int64_t d : param.dims) size *= d;
      sizes_.push_back(size);
      param_buffers_.emplace_back(size * static_cast<int64_t>(sizeof(T)));
      dparam_buffers_.emplace_back(size * static_cast<int64_t>(sizeof(T)));
    }
  }

  // Returns normally distributed operands, with nontrivial parameters and zero dx and dparams.
  NormValues<T> Random(uint32_t seed) const {
    std::mt19937 random(seed);
    const auto draw = [&random](int64_t n) {
      std::normal_distribution<float> normal;  // float, so that both types get the same operands
      std::vector<T> values(static_cast<size_t>(n));
      for (T& value : values) value = static_cast<T>(normal(random));
      return values;
    };
    NormValues<T> v;
    const int64_t n = rows_ * instance_.dim();
    v.x = draw(n);
    v.dy = draw(n);
    v.y.assign(static_cast<size_t>(n), 0);
    v.dx.assign(static_cast<size_t>(n), 0);
    for (const int64_t size : sizes_) {
      v.params.push_back(draw(size));
      v.dparams.emplace_back(static_cast<size_t>(size), T{0});
    }
    return v;
  }

  // Runs forward() on rows [r0, r1). Fills in y and, when training, saved.
  void Forward(NormValues<T>* v, bool train, int64_t r0, int64_t r1, bool in_place = false) {
    Prepare(*v);
    plumb_norm_call call = Call();
    call.flags = train ? uint32_t{PLUMB_CALL_TRAIN} : 0;
    call.x = x_.data();
    call.x_pitch = x_.pitch_bytes();
    call.y = in_place ? x_.data() : y_.data();
    call.y_pitch = y_.pitch_bytes();
    if (train) SetSaved(&call);
    Expect(instance_.Forward(call, r0, r1));
    v->y = in_place ? x_.Get() : y_.Get();
    v->saved = saved_.Get();
  }

  void Backward(NormValues<T>* v, bool accumulate, int64_t r0, int64_t r1, bool in_place = false) {
    Prepare(*v);
    plumb_norm_call call = Call();
    call.flags = PLUMB_CALL_TRAIN | (accumulate ? uint32_t{PLUMB_CALL_DX_ACCUMULATE} : 0);
    if (instance_.backward_needs_x()) call.x = x_.data(), call.x_pitch = x_.pitch_bytes();
    if (instance_.backward_needs_y()) call.y = y_.data(), call.y_pitch = y_.pitch_bytes();
    call.dy = dy_.data();
    call.dy_pitch = dy_.pitch_bytes();
    call.dx = in_place ? dy_.data() : dx_.data();
    call.dx_pitch = dx_.pitch_bytes();
    SetSaved(&call);
    Expect(instance_.Backward(call, r0, r1));
    v->dx = in_place ? dy_.Get() : dx_.Get();
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const T* from = dparam_buffers_[i].template as<T>();
      v->dparams[i].assign(from, from + sizes_[i]);
    }
  }

  // Runs forward() and backward() over all rows. Overwrites dx.
  void Run(NormValues<T>* v) {
    Forward(v, true, 0, rows_);
    Backward(v, false, 0, rows_);
  }

 private:
  void Prepare(const NormValues<T>& v) {
    x_.Set(v.x);
    y_.Set(v.y);
    dy_.Set(v.dy);
    dx_.Set(v.dx);
    if (!v.saved.empty()) saved_.Set(v.saved);
    param_pointers_.clear();
    dparam_pointers_.clear();
    for (size_t i = 0; i < sizes_.size(); ++i) {
      std::copy(v.params[i].begin(), v.params[i].end(), param_buffers_[i].template as<T>());
      std::copy(v.dparams[i].begin(), v.dparams[i].end(), dparam_buffers_[i].template as<T>());
      param_pointers_.push_back(param_buffers_[i].data());
      dparam_pointers_.push_back(dparam_buffers_[i].data());
    }
  }
  plumb_norm_call Call() {
    plumb_norm_call call{};
    call.struct_size = sizeof(call);
    call.dtype = std::is_same_v<T, float> ? PLUMB_DTYPE_F32 : PLUMB_DTYPE_F64;
    call.dim = static_cast<uint32_t>(instance_.dim());
    call.rows = rows_;
    call.params = param_pointers_.data();
    call.dparams = dparam_pointers_.data();
    call.scratch = scratch_.data();
    return call;
  }
  void SetSaved(plumb_norm_call* call) {
    if (instance_.saved_per_row() == 0) return;
    call->saved = saved_.data();
    call->saved_pitch = saved_.pitch_bytes();
  }
  void Expect(const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(x_.CanariesLive() && y_.CanariesLive() && dy_.CanariesLive() &&
                dx_.CanariesLive() && saved_.CanariesLive())
        << "wrote between the rows";
  }

  const NormInstance& instance_;
  int64_t rows_;
  GuardedRows<T> x_, y_, dy_, dx_, saved_;
  AlignedBuffer scratch_;
  std::vector<int64_t> sizes_;
  std::vector<AlignedBuffer> param_buffers_, dparam_buffers_;
  std::vector<const void*> param_pointers_;
  std::vector<void*> dparam_pointers_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_PLUGIN_NORM_HARNESS_H_
