// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "plugins/check/calls.h"

namespace plumb::check {
namespace {

constexpr int64_t kAlignment = 64;
// NaN in every element type, so that a norm that reads padding is detected.
constexpr unsigned char kCanary = 0xff;
// Bytes of padding around all rows, on sides without a guard page.
constexpr int64_t kLead = 4 * kAlignment;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Reads elements at any address.
template <class T>
void Load(const char* from, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    to[i] = static_cast<double>(value);
  }
}

template <class T>
void Store(const double* from, int64_t n, char* to) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = static_cast<T>(from[i]);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

// Free mappings of former rows, by size: mapping pages and faulting them in takes longer than what
// most checks do with them. They are inaccessible, as if they were unmapped.
class FreeMappings {
 public:
  // Returns null if there is none of this size.
  char* Take(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<char*>& free = by_size_[size];
    if (free.empty()) return nullptr;
    char* const map = free.back();
    free.pop_back();
    bytes_ -= size;
    return map;
  }
  // Returns false if enough is kept already, so that the caller has to unmap it.
  bool Keep(char* map, size_t size) {
    constexpr size_t kMax = size_t{64} << 20;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes_ + size > kMax || mprotect(map, size, PROT_NONE) != 0) return false;
    by_size_[size].push_back(map);
    bytes_ += size;
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<char*>> by_size_;
  size_t bytes_ = 0;
};

FreeMappings& Free() {
  static auto* const free = new FreeMappings;  // never destroyed, because rows may outlive it
  return *free;
}

}  // namespace

const char* TypeName(uint32_t dtype) {
  switch (dtype) {
    case PLUMB_DTYPE_F32:
      return "f32";
    case PLUMB_DTYPE_BF16:
      return "bf16";
    case PLUMB_DTYPE_F64:
      return "f64";
    default:
      return "unknown type";
  }
}

size_t TypeSize(uint32_t dtype) {
  return dtype == PLUMB_DTYPE_F64 ? 8 : dtype == PLUMB_DTYPE_BF16 ? 2 : 4;
}

uint32_t AccumulateType(uint32_t dtype) {
  return dtype == PLUMB_DTYPE_F64 ? PLUMB_DTYPE_F64 : PLUMB_DTYPE_F32;
}

double RoundTo(uint32_t dtype, double value) {
  if (dtype == PLUMB_DTYPE_F64) return value;
  const float narrow = static_cast<float>(value);
  return dtype == PLUMB_DTYPE_BF16 ? plumb_bf16_to_float(plumb_bf16_from_float(narrow)) : narrow;
}

double Epsilon(uint32_t dtype) {
  return std::ldexp(1.0, dtype == PLUMB_DTYPE_F64 ? -52 : dtype == PLUMB_DTYPE_BF16 ? -7 : -23);
}

double HalfUlp(uint32_t dtype, double value) {
  const double size = std::abs(value);
  if (!(size > 0) || !std::isfinite(size)) return 0;
  return std::ldexp(Epsilon(dtype) / 2, std::ilogb(size));
}

Rows::Rows(uint32_t dtype, int64_t rows, int64_t width, const Place& place)
    : dtype_(dtype), rows_(rows), width_(width) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t size = static_cast<int64_t>(TypeSize(dtype));
  // The pitch is never 0, so that empty rows differ from absent ones.
  pitch_ = std::max(width + place.gap, int64_t{1}) * size;
  if (place.aligned64) pitch_ = RoundUp(pitch_, kAlignment);
  // The last row has no padding after it, so that rows can end at the guard page.
  const int64_t used = rows == 0 ? 0 : (rows - 1) * pitch_ + width * size;
  const bool flush = place.flush != Place::Flush::kNone;
  const int64_t lead = flush ? 0 : kLead + place.offset * size;
  const int64_t inner = RoundUp(lead + used + kLead, page);
  inner_size_ = static_cast<size_t>(inner);
  map_size_ = static_cast<size_t>(inner + 2 * page);
  map_ = Free().Take(map_size_);
  if (map_ == nullptr) {
    void* map = mmap(nullptr, map_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw CheckEnded{"the checker itself ran out of memory"};
    map_ = static_cast<char*>(map);
  }
  inner_ = map_ + page;
  if (mprotect(inner_, inner_size_, PROT_READ | PROT_WRITE) != 0) {
    munmap(map_, map_size_);
    throw CheckEnded{"the checker itself ran out of memory"};
  }
  const int64_t end = place.flush == Place::Flush::kEndAligned
                          ? (inner - used) / kAlignment * kAlignment
                          : inner - used;
  data_ = inner_ + (flush && place.flush != Place::Flush::kStart ? end : lead);
  std::memset(inner_, kCanary, inner_size_);
}

Rows::~Rows() {
  if (map_ == nullptr) return;
  const bool has_guards = inner_ != map_;  // false after MoveApart()
  if (!has_guards || !Free().Keep(map_, map_size_)) munmap(map_, map_size_);
}

Rows::Rows(Rows&& other) noexcept
    : dtype_(other.dtype_),
      rows_(other.rows_),
      width_(other.width_),
      pitch_(other.pitch_),
      map_(std::exchange(other.map_, nullptr)),
      map_size_(other.map_size_),
      inner_(other.inner_),
      inner_size_(other.inner_size_),
      data_(other.data_) {}

std::string Rows::MoveApart(int64_t pitch, int64_t room) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t before = RoundUp(room, page);
  const size_t size = static_cast<size_t>(before + RoundUp(rows_ * pitch, page));
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return std::to_string(size >> 30) + " GiB of addresses: " + std::strerror(errno);
  }
  // Huge pages would add megabytes of zeros per row. Systems without them answer EINVAL.
  madvise(map, size, MADV_NOHUGEPAGE);
  char* const data = static_cast<char*>(map) + before;
  const size_t row_bytes = static_cast<size_t>(width_) * TypeSize(dtype_);
  for (int64_t r = 0; r < rows_; ++r) std::memcpy(data + r * pitch, Row(r), row_bytes);
  munmap(map_, map_size_);
  map_ = inner_ = static_cast<char*>(map);
  map_size_ = inner_size_ = size;
  data_ = data;
  pitch_ = pitch;
  return "";
}

bool Rows::aligned64() const {
  return reinterpret_cast<uintptr_t>(data_) % kAlignment == 0 && pitch_ % kAlignment == 0;
}

void Rows::Read(int64_t row, int64_t i, int64_t n, double* to) const {
  const char* from = Row(row) + i * static_cast<int64_t>(TypeSize(dtype_));
  if (dtype_ == PLUMB_DTYPE_F32) return Load<float>(from, n, to);
  if (dtype_ == PLUMB_DTYPE_F64) return Load<double>(from, n, to);
  for (int64_t k = 0; k < n; ++k) {
    plumb_bf16 value;
    std::memcpy(&value, from + 2 * k, sizeof(value));
    to[k] = plumb_bf16_to_float(value);
  }
}

void Rows::Write(int64_t row, int64_t i, int64_t n, const double* from) {
  char* to = Row(row) + i * static_cast<int64_t>(TypeSize(dtype_));
  if (dtype_ == PLUMB_DTYPE_F32) return Store<float>(from, n, to);
  if (dtype_ == PLUMB_DTYPE_F64) return Store<double>(from, n, to);
  for (int64_t k = 0; k < n; ++k) {
    const plumb_bf16 narrow = plumb_bf16_from_float(static_cast<float>(from[k]));
    std::memcpy(to + 2 * k, &narrow, sizeof(narrow));
  }
}

std::vector<double> Rows::Values() const {
  std::vector<double> values(static_cast<size_t>(rows_ * width_));
  for (int64_t r = 0; r < rows_; ++r) Read(r, 0, width_, values.data() + r * width_);
  return values;
}

void Rows::Assign(const std::vector<double>& values) {
  for (int64_t r = 0; r < rows_; ++r) Write(r, 0, width_, values.data() + r * width_);
}

void Rows::Fill(double value) {
  if (rows_ == 0 || width_ == 0) return;
  for (int64_t i = 0; i < width_; ++i) Set(0, i, value);
  const size_t bytes = static_cast<size_t>(width_) * TypeSize(dtype_);
  for (int64_t r = 1; r < rows_; ++r) std::memcpy(Row(r), Row(0), bytes);
}

void Rows::FillNormal(std::mt19937_64* random, double mean, double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  for (int64_t r = 0; r < rows_; ++r) {
    // Values pass through float, so that f32 and f64 get the same numbers.
    for (int64_t i = 0; i < width_; ++i) Set(r, i, static_cast<float>(normal(*random)));
  }
}

bool Rows::IsPadding(const char* from, const char* to, const char** damage) const {
  *damage = std::find_if(from, to, [](char c) { return c != static_cast<char>(kCanary); });
  return *damage == to;
}

std::string Rows::PaddingDamage() const {
  const int64_t row_bytes = width_ * static_cast<int64_t>(TypeSize(dtype_));
  const char* damage = nullptr;
  const char* from = inner_;
  for (int64_t r = 0; r < rows_; ++r) {
    if (!IsPadding(from, Row(r), &damage)) {
      if (r > 0 && (damage - from) * 2 <= Row(r) - from) {
        return "byte " + std::to_string(damage - from) + " behind row " + std::to_string(r - 1);
      }
      return "byte -" + std::to_string(Row(r) - damage) + " before row " + std::to_string(r);
    }
    from = Row(r) + row_bytes;
  }
  if (!IsPadding(from, inner_ + inner_size_, &damage)) {
    return "byte " + std::to_string(damage - from) + " behind row " + std::to_string(rows_ - 1);
  }
  return "";
}

}  // namespace plumb::check
