// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/uniform_draws.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/uniform_draws.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Words = hn::RebindToUnsigned<Doubles>;  // 64 bits, of which Philox uses the lower half
using WordVector = hn::Vec<Words>;

// Multiplies the lower halves.
HWY_INLINE WordVector Multiply(uint32_t factor, WordVector x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Words(), uint64_t{factor} * static_cast<uint32_t>(hn::GetLane(x)));
#else
  const hn::Repartition<uint32_t, Words> halves;
  return hn::MulEven(hn::Set(halves, factor), hn::BitCast(halves, x));
#endif
}

// Computes the draws of RngStream::Uniform, a vector of counters at a time: Philox 4x32-10 with a
// word in each lane. Upper halves are never read, so they need not be cleared.
void Draw(uint64_t key, uint64_t step, uint64_t begin, int64_t n, double* out) {
  const Doubles doubles;
  const Words words;
  const hn::RebindToSigned<Doubles> integers;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(doubles));
  for (int64_t i = 0; i < n; i += lanes) {
    WordVector c0 = hn::Iota(words, begin + static_cast<uint64_t>(i)), c1 = hn::ShiftRight<32>(c0);
    WordVector c2 = hn::Set(words, step), c3 = hn::Set(words, step >> 32);
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const WordVector p0 = Multiply(0xD2511F53u, c0), p1 = Multiply(0xCD9E8D57u, c2);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(words, k0));
      c1 = p1;
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(words, k1));
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const WordVector low = hn::And(c1, hn::Set(words, 0xFFFFFFFFu));
    const WordVector bits = hn::ShiftRight<11>(hn::Or(hn::ShiftLeft<32>(c0), low));
    const auto values =
        hn::Mul(hn::ConvertTo(doubles, hn::BitCast(integers, bits)), hn::Set(doubles, 0x1.0p-53));
    if (i + lanes <= n) {
      hn::StoreU(values, doubles, out + i);
    } else {
      HWY_ALIGN double last[hn::MaxLanes(doubles)];
      hn::Store(values, doubles, last);
      std::copy_n(last, n - i, out + i);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Draw);

void DrawUniforms(const RngStream& stream, uint64_t begin, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(Draw)(stream.key(), stream.step(), begin, n, out);
}

}  // namespace plumb
#endif  // HWY_ONCE
