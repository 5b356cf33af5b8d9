// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/rng.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace plumb {
namespace {

struct Block {
  uint32_t word[4];
};

Block Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low);
  uint32_t c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high);
  uint32_t c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

double ToUnit(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace

uint64_t Fnv1a64(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

RngStream::RngStream(uint64_t seed, absl::string_view purpose, uint64_t step)
    : key_(MixBits(MixBits(seed) ^ Fnv1a64(purpose))), step_(step) {}

uint64_t RngStream::Bits(uint64_t i) const {
  const Block block = Philox(key_, i, step_);
  return uint64_t{block.word[0]} << 32 | block.word[1];
}

double RngStream::Uniform(uint64_t i) const {
  const Block block = Philox(key_, i, step_);
  return ToUnit(block.word[0], block.word[1]);
}

double RngStream::Normal(uint64_t i) const {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const Block block = Philox(key_, i, step_);
  const double u = 1.0 - ToUnit(block.word[0], block.word[1]);  // (0, 1]: the logarithm is finite
  const double v = ToUnit(block.word[2], block.word[3]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(kTwoPi * v);
}

uint64_t RngStream::Below(uint64_t i, uint64_t n) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Bits(i)) * n) >> 64);
}

std::vector<int64_t> Permutation(const RngStream& stream, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i > 0; --i) {
    const uint64_t j = stream.Below(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1);
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

}  // namespace plumb
