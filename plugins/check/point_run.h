// SPDX-License-Identifier: Apache-2.0
// One call of a norm at a point (points.h): its operands, their placement, the ranges and the
// results. Thread-compatible.
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

// First kind of x beyond those of points: some rows have a NaN (kNanX) or an infinity (kNanX + 1).
inline constexpr int64_t kNanX = kKindsOfX;

// Context of a call's rows, in memory that ends right after its numbers.
class Context {
 public:
  // Makes one sequence for every three tokens, or a single one.
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

// Returns f64, or f32 if the norm does not offer f64.
uint32_t WidestType(const plumb_norm_plugin& norm);

// Creates the instance of a point. Returns null if create() refuses it or the norm lacks the
// element type.
std::unique_ptr<Instance> InstanceAt(const plumb_norm_plugin& norm, const Point& point);

// Returns the placement of an operand at a point. `gap`: elements that make the operand's pitch
// unique, used if the point wants different pitches.
Place PlaceOf(const Point& point, int64_t gap = 0);

// Operands of a point, rounded to its element type so that every type can represent them.
struct Operands {
  std::vector<double> x, dy;                // [rows, dim]
  std::vector<std::vector<double>> params;  // values of f32
  std::vector<double> x2;                   // [rows, dim] for norms with two inputs, else empty
  std::shared_ptr<const Context> context;   // null: calls have no context
};
Operands OperandsAt(const Instance& instance, const Point& point);

// Copies the operands into a run with the same number of rows. The run keeps a pointer to their
// context. Requires: the operands outlive the run's calls.
void AssignTo(const Operands& operands, NormRun* run);
void AssignTo(Operands&&, NormRun*) = delete;

// Returns true if the squares of x overflow or underflow f32, or x is denormal.
bool IsExtremeX(const Point& point);
// Returns true if dy has such magnitudes.
bool IsExtremeDy(const Point& point);

struct PointResult {
  Outcome outcome;      // dx includes the numbers that it was added to
  std::string problem;  // memory outside the range or rows was written, or a result was not
};
// Value of dx before a gradient is added to it.
inline constexpr double kAddedTo = 0.75;

// Calls forward, and in training backward, at the point in `dtype`: first the range, then the rows
// before and after it, or the host's chunks, and finally an empty range. `dparams`: their value
// before.
PointResult RunAt(const Instance& instance, const Point& point, uint32_t dtype,
                  const Operands& operands, double dparams = 0);
// Returns the numbers alone, in the type of the point; N7 reports problems of the call.
Outcome OutcomeAt(const Instance& instance, const Point& point, const Operands& operands);

// Does the same with one plain range and returns the numbers only, without further checks. If `y`
// is not null, backward reads it in place of the computed y (for results of another element type).
Outcome PlainRun(const Instance& instance, const Point& point, uint32_t dtype,
                 const Operands& operands, const std::vector<double>* y = nullptr);

// Keeps only the results that are the same for a row in every call.
Outcome OfRows(Outcome outcome);
// Returns "f32 dim=17 rows=5: " and the text, or "" if that is empty.
std::string At(const Point& point, const std::string& text);

// Returns y of a plain call on all rows.
std::vector<double> PlainY(const Instance& instance, const Point& point, uint32_t dtype,
                           const Operands& operands);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_POINT_RUN_H_
