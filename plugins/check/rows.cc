// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/rows.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plugins/check/state.h"
#include "plugins/check/trace.h"

namespace plumb::check {
namespace {

constexpr int64_t kAlignment = 64;
// NaN in every element type, so that a norm that reads padding is detected.
constexpr char kCanary = '\xff';
// Bytes of padding around all rows, on sides without a guard page.
constexpr int64_t kLead = 4 * kAlignment;
// An odd multiple of 64, so that no two rows are equal modulo 2^32.
constexpr int64_t kFarPitch = (int64_t{9} << 27) + 64;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

double ReadElement(uint32_t dtype, const char* from) {
  double wide;
  float narrow;
  plumb_bf16 half;
  if (dtype == PLUMB_DTYPE_F64) return std::memcpy(&wide, from, sizeof(wide)), wide;
  if (dtype == PLUMB_DTYPE_F32) return std::memcpy(&narrow, from, sizeof(narrow)), narrow;
  std::memcpy(&half, from, sizeof(half));
  return plumb_bf16_to_float(half);
}

void WriteElement(uint32_t dtype, double value, char* to) {
  if (dtype == PLUMB_DTYPE_F64) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const float narrow = static_cast<float>(value);
  if (dtype == PLUMB_DTYPE_F32) {
    std::memcpy(to, &narrow, sizeof(narrow));
    return;
  }
  const plumb_bf16 half = plumb_bf16_from_float(narrow);
  std::memcpy(to, &half, sizeof(half));
}

// Mappings of former rows, by size: mapping pages and faulting them in takes longer than what most
// checks do with them.
struct FreeMappings {
  std::mutex mutex;
  std::multimap<size_t, char*> maps;
  size_t bytes = 0;
};

FreeMappings& Free() {
  static auto* const free = new FreeMappings;  // never destroyed, because rows may outlive it
  return *free;
}

// Maps memory between two guard pages.
char* Map(size_t size, bool apart) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (apart) {  // the address space of this process is limited
    rlimit limit = {};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur =
        limit.rlim_max - limit.rlim_cur < size ? limit.rlim_max : limit.rlim_cur + size;
    setrlimit(RLIMIT_AS, &limit);
  } else {
    FreeMappings& free = Free();
    const std::lock_guard<std::mutex> lock(free.mutex);
    const auto found = free.maps.find(size);
    if (found != free.maps.end()) {
      char* const map = found->second;
      free.maps.erase(found);
      free.bytes -= size;
      return map;
    }
  }
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* map = mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
  char* const begin = static_cast<char*>(map);
  if (map == MAP_FAILED || mprotect(begin + page, size - 2 * page, PROT_READ | PROT_WRITE) != 0) {
    if (apart) throw NotTried{absl::StrCat("no ", size >> 30, " GiB of addresses")};
    throw CheckEnded{"the checker itself ran out of memory"};
  }
  // Huge pages would add megabytes of zeros per row. Systems without them answer EINVAL.
  if (apart) madvise(map, size, MADV_NOHUGEPAGE);
  return begin;
}

void Unmap(char* map, size_t size, bool apart) {
  constexpr size_t kMaxKept = size_t{64} << 20;
  FreeMappings& free = Free();
  const std::lock_guard<std::mutex> lock(free.mutex);
  if (apart || free.bytes + size > kMaxKept) {
    munmap(map, size);
    return;
  }
  free.maps.emplace(size, map);
  free.bytes += size;
}

}  // namespace

const char* TypeName(uint32_t dtype) {
  return dtype == PLUMB_DTYPE_F32    ? "f32"
         : dtype == PLUMB_DTYPE_BF16 ? "bf16"
         : dtype == PLUMB_DTYPE_F64  ? "f64"
                                     : "unknown type";
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
    : dtype_(dtype), rows_(rows), width_(width), apart_(place.apart && rows > 1 && width > 0) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t size = static_cast<int64_t>(TypeSize(dtype));
  // The pitch is never 0, so that empty rows differ from absent ones.
  pitch_ = std::max(width + place.gap, int64_t{1}) * size;
  if (place.aligned64) pitch_ = RoundUp(pitch_, kAlignment);
  if (apart_) pitch_ = kFarPitch;
  // The last row has no padding after it, so that rows can end at the guard page.
  const int64_t used = rows == 0 ? 0 : (rows - 1) * pitch_ + width * size;
  const bool flush = place.flush != Place::Flush::kNone;
  const int64_t lead = flush ? 0 : kLead + place.offset * size;
  const int64_t inner = RoundUp(lead + used + kLead, page);
  map_size_ = static_cast<size_t>(inner + 2 * page);
  map_ = Map(map_size_, apart_);
  const int64_t end = place.flush == Place::Flush::kEndAligned
                          ? (inner - used) / kAlignment * kAlignment
                          : inner - used;
  data_ = map_ + page + (flush && place.flush != Place::Flush::kStart ? end : lead);
  if (!apart_) std::memset(map_ + page, kCanary, static_cast<size_t>(inner));
}

Rows::~Rows() {
  if (map_ != nullptr) Unmap(map_, map_size_, apart_);
}

Rows::Rows(Rows&& other) noexcept
    : dtype_(other.dtype_),
      rows_(other.rows_),
      width_(other.width_),
      pitch_(other.pitch_),
      apart_(other.apart_),
      map_(std::exchange(other.map_, nullptr)),
      map_size_(other.map_size_),
      data_(other.data_) {}

bool Rows::aligned64() const {
  return reinterpret_cast<uintptr_t>(data_) % kAlignment == 0 && pitch_ % kAlignment == 0;
}

Values Rows::All() const {
  Values values;
  values.reserve(static_cast<size_t>(rows_ * width_));
  for (int64_t r = 0; r < rows_; ++r) {
    const char* from = Row(r);
    for (int64_t i = 0; i < width_; ++i, from += TypeSize(dtype_)) {
      values.push_back(ReadElement(dtype_, from));
    }
  }
  return values;
}

void Rows::Assign(const Values& values) {
  const ScopedFlushing exact(false);
  auto value = values.begin();
  for (int64_t r = 0; r < rows_; ++r) {
    char* to = Row(r);
    for (int64_t i = 0; i < width_; ++i, to += TypeSize(dtype_)) WriteElement(dtype_, *value++, to);
  }
}

void Rows::Fill(double value) {
  for (int64_t r = 0; r < rows_; ++r) {
    char* to = Row(r);
    for (int64_t i = 0; i < width_; ++i, to += TypeSize(dtype_)) WriteElement(dtype_, value, to);
  }
}

std::string Rows::PaddingDamage() const {
  if (apart_) return "";
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t row_bytes = width_ * static_cast<int64_t>(TypeSize(dtype_));
  const char* from = map_ + page;
  for (int64_t r = 0; r <= rows_; ++r) {
    const char* to = r < rows_ ? Row(r) : map_ + map_size_ - page;
    const char* damage = std::find_if(from, to, [](char c) { return c != kCanary; });
    if (damage != to) {
      const bool is_behind = r == rows_ || (r > 0 && damage - from <= to - damage);
      return is_behind ? absl::StrCat("byte ", damage - from, " behind row ", r - 1)
                       : absl::StrCat("byte -", to - damage, " before row ", r);
    }
    from = to + row_bytes;
  }
  return "";
}

}  // namespace plumb::check
