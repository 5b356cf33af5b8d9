// Rows that the cores of attention will read or write soon, asked for while they compute. A head's
// rows are a line or two each and far apart, which no processor foresees, and at short contexts
// waiting for them takes as long as all arithmetic. A value that lives as long as a block of keys.
#ifndef PLUMB_RUNTIME_KERNELS_ATTENTION_PREFETCH_H_
#define PLUMB_RUNTIME_KERNELS_ATTENTION_PREFETCH_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/base/read_ahead.h"
#include "runtime/kernels/attention/attention.h"

namespace plumb {

class RowsAhead {
 public:
  // `rows` rows of n elements, `stride` elements apart. At most kMost such parts; they may hold
  // nothing.
  template <class T>
  void Add(const T* at, int64_t stride, int64_t rows, int64_t n) {
    constexpr int64_t kSize = sizeof(T);
    // Lines from that of a first element to that of a last one, wherever in lines rows begin.
    const bool on_lines = (reinterpret_cast<uintptr_t>(at) | (stride * kSize)) % kCacheLine == 0;
    const int64_t lines = CeilDiv(n * kSize, kCacheLine) + (on_lines ? 0 : 1);
    part_[parts_++] = {reinterpret_cast<const char*>(at), stride * kSize, rows, lines};
    rows_ += rows;
  }

  // Then this many calls of Step, if there are any, ask for all of them.
  void SpreadOver(int64_t steps) {
    steps = std::max<int64_t>(1, steps);
    step_ = CeilDiv(rows_, steps);
  }

  void Step() {
    for (int64_t left = step_; left > 0 && next_ < parts_;) {
      Part& part = part_[next_];
      const int64_t rows = std::min(left, part.rows);
      const char* at = part.at;
      switch (part.lines) {
        case 1:
          at = Ask<1>(at, part.stride, rows);
          break;
        case 2:
          at = Ask<2>(at, part.stride, rows);
          break;
        case 4:
          at = Ask<4>(at, part.stride, rows);
          break;
        default:
          for (int64_t i = 0; i < rows; ++i, at += part.stride) {
            for (int64_t line = 0; line < part.lines; ++line) Ask<1>(at + line * kCacheLine, 0, 1);
          }
      }
      part.at = at;
      part.rows -= rows;
      left -= rows;
      if (part.rows == 0) ++next_;
    }
  }

 private:
  static constexpr int kMost = 8;

  // Asks for the lines of some rows and returns where the next one stands. They come to the second
  // level: the first one is full of what is at hand.
  template <int kLines>
  static const char* Ask(const char* at, int64_t stride, int64_t rows) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < rows; ++i, at += stride) {
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) __builtin_prefetch(at + line * kCacheLine, 0, 2);
    }
    return at;
  }

  struct Part {
    const char* at;
    int64_t stride;
    int64_t rows;
    int64_t lines;  // of a row
  };
  Part part_[kMost];
  int parts_ = 0;
  int next_ = 0;
  int64_t rows_ = 0;
  int64_t step_ = 0;
};

// What is needed after the block of keys at j0, asked for in `steps` steps: the next block, or what
// the next call begins with.
template <class T>
RowsAhead After(const AttendArgs<T>& args, int64_t j0, int64_t steps) {
  RowsAhead ahead;
  const auto keys = [&ahead](const AttendArgs<T>& call, int64_t j) {
    const int64_t rows = std::min(kKeyBlock, call.offset + call.queries - j);
    ahead.Add(call.k + j * call.kv_stride, call.kv_stride, rows, call.head_dim);
    ahead.Add(call.v + j * call.kv_stride, call.kv_stride, rows, call.head_dim);
  };
  if (j0 + kKeyBlock < args.offset + args.queries) {
    keys(args, j0 + kKeyBlock);
  } else if (args.next != nullptr) {
    const AttendArgs<T>& next = *args.next;
    ahead.Add(next.q, next.q_stride, next.queries, next.head_dim);
    keys(next, 0);
    ahead.Add(next.context, next.context_stride, next.queries, next.head_dim);
  }
  ahead.SpreadOver(steps);
  return ahead;
}

// The same for queries from s0 on of query head `head`.
template <class T>
RowsAhead After(const AttendGradArgs<T>& args, int64_t head, int64_t s0, int64_t j0,
                int64_t steps) {
  RowsAhead ahead;
  const auto queries = [&ahead](const AttendGradArgs<T>& call, int64_t h, int64_t s) {
    const int64_t rows = std::min(kQueryRows, call.tokens - s);
    const int64_t at = s * call.q_stride + h * call.head_dim;
    ahead.Add(call.q + at, call.q_stride, rows, call.head_dim);
    ahead.Add(call.dcontext + at, call.q_stride, rows, call.head_dim);
    ahead.Add(call.context + at, call.q_stride, rows, call.head_dim);
    ahead.Add(call.dq + at, call.q_stride, rows, call.head_dim);
  };
  const auto keys = [&ahead](const AttendGradArgs<T>& call, int64_t j) {
    const int64_t rows = std::min(kKeyBlock, call.tokens - j), at = j * call.kv_stride;
    ahead.Add(call.k + at, call.kv_stride, rows, call.head_dim);
    ahead.Add(call.v + at, call.kv_stride, rows, call.head_dim);
    ahead.Add(call.dk + at, call.kv_stride, rows, call.head_dim);
    ahead.Add(call.dv + at, call.kv_stride, rows, call.head_dim);
  };
  const int64_t s1 = s0 + kQueryRows;
  if (j0 + kKeyBlock < std::min(s1, args.tokens)) {
    keys(args, j0 + kKeyBlock);
  } else if (s1 < args.tokens) {
    queries(args, head, s1);
  } else if (head + 1 < args.group) {
    queries(args, head + 1, 0);
  } else if (args.next != nullptr) {
    queries(*args.next, 0, 0);
    keys(*args.next, 0);
  }
  ahead.SpreadOver(steps);
  return ahead;
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_ATTENTION_PREFETCH_H_
