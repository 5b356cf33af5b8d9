// SPDX-License-Identifier: Apache-2.0
// Memory for operands of a norm: rows of elements of a type that is chosen at run time, at any
// offset and pitch, between unreadable guard pages, with a known pattern between elements.
// Thread-compatible.
#ifndef PLUMB_PLUGINS_CHECK_ROWS_H_
#define PLUMB_PLUGINS_CHECK_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plumb/norm_plugin.h"

namespace plumb::check {

using Values = std::vector<double>;  // row by row; conversions are exact

// Functions of element types, which are the bits PLUMB_DTYPE_F32, PLUMB_DTYPE_BF16 and
// PLUMB_DTYPE_F64.
const char* TypeName(uint32_t dtype);          // "f32"
size_t TypeSize(uint32_t dtype);               // bytes
uint32_t AccumulateType(uint32_t dtype);       // type of parameters, saved values, statistics
double RoundTo(uint32_t dtype, double value);  // nearest number of the type
// Returns the spacing of the type's numbers at 1: 2^-23, 2^-7, 2^-52.
double Epsilon(uint32_t dtype);
// Returns the largest relative error of one rounding in the accumulate type.
inline double UnitRoundoff(uint32_t dtype) { return Epsilon(AccumulateType(dtype)) / 2; }
// Returns half the distance between numbers of the type at `value`.
double HalfUlp(uint32_t dtype, double value);

// Placement of rows in memory.
struct Place {
  // Guard page that rows touch; kEndAligned: as closely as a 64-byte aligned base allows.
  enum class Flush { kNone, kStart, kEnd, kEndAligned };
  int64_t gap = 0;     // elements between the end of a row and the start of the next
  int64_t offset = 0;  // elements by which the first row is misaligned; only with kNone
  Flush flush = Flush::kNone;
  bool aligned64 = false;  // pitch is rounded up so that every row starts at a multiple of 64 bytes
  bool apart = false;      // rows are more than a gigabyte apart, with nothing between them
};

// Rows [rows, width]. New memory has the padding pattern everywhere, including the elements.
class Rows {
 public:
  // Throws NotTried if the system has no addresses for rows that are `apart`.
  Rows(uint32_t dtype, int64_t rows, int64_t width, const Place& place = {});
  ~Rows();
  Rows(Rows&& other) noexcept;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  uint32_t dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  void* data() const { return data_; }
  int64_t pitch() const { return pitch_; }  // bytes
  bool aligned64() const;                   // base and pitch are multiples of 64

  Values All() const;
  // Rounds to the element type; denormals stay denormal.
  void Assign(const Values& values);
  void Fill(double value);

  // Returns "" if nothing was written around the elements, else the place: "byte 3 behind row 4".
  std::string PaddingDamage() const;

 private:
  char* Row(int64_t row) const { return data_ + row * pitch_; }

  uint32_t dtype_;
  int64_t rows_, width_, pitch_;
  bool apart_;
  char* map_ = nullptr;  // start of the mapping: the guard page before the rows
  size_t map_size_ = 0;
  char* data_ = nullptr;
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_ROWS_H_
