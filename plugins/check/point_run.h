// SPDX-License-Identifier: Apache-2.0
// One call of a norm at a point of the space (points.h): operands, placement, ranges, results.
// Thread-compatible.
#ifndef PLUMB_PLUGINS_CHECK_POINT_RUN_H_
#define PLUMB_PLUGINS_CHECK_POINT_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/norm_run.h"
#include "plugins/check/points.h"
#include "plugins/check/rows.h"

namespace plumb::check {

// The kinds of x beyond those that points have: some rows have a NaN, or an infinity.
inline constexpr int64_t kNanX = kKindsOfX;

// What a call tells of its rows, in memory that ends where its numbers end.
class Context {
 public:
  // One sequence for each three tokens, or one for all.
  Context(int64_t rows_per_token, const std::vector<int32_t>& positions, int64_t step,
          bool one_sequence = false);
  const plumb_norm_context* get() const { return &context_; }
  std::vector<int32_t> positions() const;
  int64_t rows_per_token() const { return context_.rows_per_token; }

 private:
  Rows positions_;
  std::vector<int64_t> offsets_;
  plumb_norm_context context_{};
};
inline constexpr int64_t kStepOfContexts = 12;

uint32_t TypeOf(const Point& point);

// f64, or f32 where the norm does not offer it.
uint32_t WidestType(const plumb_norm_plugin& norm);

// The instance of a point; null where create() refuses it or the norm lacks the element type.
std::unique_ptr<Instance> InstanceAt(const plumb_norm_plugin& norm, const Point& point);

// Where an operand of a point lies. `gap`: elements that make its pitch its own, where every
// operand has its own.
Place PlaceOf(const Point& point, int64_t gap = 0);

// The operands of a point, rounded to its element type, so that every type can hold them.
struct Operands {
  std::vector<double> x, dy;                // [rows, dim]
  std::vector<std::vector<double>> params;  // of f32
  std::vector<double> x2;                   // [rows, dim] of a norm of two inputs, else empty
  std::shared_ptr<const Context> context;   // null: calls tell nothing
};
Operands OperandsAt(const Instance& instance, const Point& point);

// Copies the operands into a run of as many rows. The run keeps a pointer to their context, so that
// they have to live as long as it makes calls.
void AssignTo(const Operands& operands, NormRun* run);
void AssignTo(Operands&&, NormRun*) = delete;

// Whether x has squares that f32 has not, or is a denormal.
bool IsExtremeX(const Point& point);
// Whether dy is of such a size.
bool IsExtremeDy(const Point& point);

// The point made simple: aligned operands with one pitch, nothing aliased or added, one range.
Point Plain(Point point);

struct PointResult {
  Outcome outcome;      // dx as it is, with what it was added to
  std::string problem;  // something outside the range or the rows was touched, or was not written
};
// What dx is before a gradient is added to it.
inline constexpr double kAddedTo = 0.75;

// Calls forward, and in training backward, at the point in `dtype`: the range first, then the rows
// before and behind it, or the host's chunks, and an empty range.
PointResult RunAt(const Instance& instance, const Point& point, uint32_t dtype,
                  const Operands& operands);

// The same of one plain range, for its numbers alone: nothing else is looked at. Where it is given,
// backward reads `y`, as another element type has it.
Outcome PlainRun(const Instance& instance, const Point& point, uint32_t dtype,
                 const Operands& operands, const std::vector<double>* y = nullptr);

// y alone, of a plain call of all rows.
std::vector<double> PlainY(const Instance& instance, const Point& point, uint32_t dtype,
                           const Operands& operands);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_POINT_RUN_H_
