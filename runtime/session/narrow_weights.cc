// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/narrow_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/bf16.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/simd/split_f32.h"

namespace plumb {
namespace {

constexpr int64_t kFloatsOfLine = kAlignment / static_cast<int64_t>(sizeof(float));

// Converts IEEE 754 binary16 to f32, exactly.
float FloatFromF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  uint32_t bits = sign;
  if (exponent == 0x1fu) {
    bits |= 0x7f800000u | (fraction << 13);
  } else if (exponent != 0) {
    bits |= ((exponent + 112) << 23) | (fraction << 13);
  } else if (fraction != 0) {  // a denormal, which is a normal number in f32
    exponent = 113;
    while ((fraction & 0x400u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    bits |= (exponent << 23) | ((fraction & 0x3ffu) << 13);
  }
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <class Widen>
void WidenEach(const char* from, int64_t n, float* to, const Widen& widen) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, from + 2 * i, sizeof(half));
    to[i] = widen(half);
  }
}

}  // namespace

void WidenFloats(FloatFormat format, const char* from, int64_t n, int threads, float* to) {
  const int64_t tasks = TaskCount(n, n);
  ParallelFor(tasks, threads, [&](int64_t i) {
    const Range range = TaskRange(n, tasks, i);
    const char* const begin = from + range.begin * SizeOf(format);
    const int64_t count = range.end - range.begin;
    switch (format) {
      case FloatFormat::kF32:
        std::memcpy(to + range.begin, begin, static_cast<size_t>(count) * sizeof(float));
        break;
      case FloatFormat::kBf16:
        WidenEach(begin, count, to + range.begin, FloatFromBf16);
        break;
      case FloatFormat::kF16:
        WidenEach(begin, count, to + range.begin, FloatFromF16);
        break;
    }
  });
}

NarrowWeights::NarrowWeights(std::vector<Entry> entries, int threads)
    : entries_(std::move(entries)), threads_(threads) {}

uint16_t* NarrowWeights::bf16(size_t entry) const {
  const Entry& at = entries_[entry];
  if (at.format != FloatFormat::kBf16) return nullptr;
  if (reinterpret_cast<uintptr_t>(at.data) % sizeof(uint16_t) != 0) return nullptr;
  return reinterpret_cast<uint16_t*>(at.data);
}

float* NarrowWeights::floats(size_t entry) const {
  std::call_once(once_, [this] {
    int64_t all = 0;
    for (const Entry& each : entries_) {
      if (each.data != nullptr) all += RoundUp(each.elements, kFloatsOfLine);
    }
    wide_ = AlignedBuffer(all * static_cast<int64_t>(sizeof(float)));
    float* next = wide_.as<float>();
    at_.assign(entries_.size(), nullptr);
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& each = entries_[i];
      if (each.data == nullptr) continue;
      at_[i] = next;
      WidenFloats(each.format, each.data, each.elements, threads_, next);
      next += RoundUp(each.elements, kFloatsOfLine);
    }
    is_wide_.store(true, std::memory_order_release);
  });
  return at_[entry];
}

void NarrowWeights::Read(size_t entry, int64_t begin, int64_t n, float* to) const {
  if (widened()) {
    std::copy_n(at_[entry] + begin, n, to);
    return;
  }
  const Entry& at = entries_[entry];
  WidenFloats(at.format, at.data + begin * SizeOf(at.format), n, 1, to);
}

void NarrowWeights::Renew(size_t entry) const {
  if (!widened() || bf16(entry) == nullptr) return;
  HighBf16(at_[entry], entries_[entry].elements, threads_, bf16(entry));
}

}  // namespace plumb
