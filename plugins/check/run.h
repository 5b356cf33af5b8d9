// SPDX-License-Identifier: Apache-2.0
// A call of a norm at a point (points.h) as a host makes it: its operands, the memory of everything
// that it reads and writes, its ranges and statistics, and its results. Thread-compatible.
#ifndef PLUMB_PLUGINS_CHECK_RUN_H_
#define PLUMB_PLUGINS_CHECK_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/plugin.h"
#include "plugins/check/points.h"
#include "plugins/check/rows.h"

namespace plumb::check {

// -- Operands -------------------------------------------------------------------------------------

// Context of a call's rows.
class Context {
 public:
  // Makes one sequence for every three tokens, or a single one.
  Context(int64_t rows_per_token, std::vector<int32_t> positions, int64_t step,
          bool one_sequence = false);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  const plumb_norm_context* get() const { return &context_; }
  const std::vector<int32_t>& positions() const { return positions_; }
  int64_t rows_per_token() const { return context_.rows_per_token; }

 private:
  const std::vector<int32_t> positions_;
  std::vector<int64_t> offsets_;
  plumb_norm_context context_{};
};
inline constexpr int64_t kStepOfContexts = 12;

// Operands of a point, rounded to its element type so that every type can represent them.
struct Operands {
  Values x, dy;                            // [rows, dim]
  std::vector<Values> params;              // values of f32
  Values x2;                               // [rows, dim] for norms with two inputs, else empty
  std::shared_ptr<const Context> context;  // null: calls have no context
};
Operands OperandsAt(const Instance& instance, const Point& point);

// Creates the instance of a point. Returns null if create() refuses it or the norm lacks the
// element type.
std::unique_ptr<Instance> InstanceAt(const plumb_norm_plugin& norm, const Point& point);

uint32_t GetType(const Point& point);
// Return true if the squares of x, or of dy, overflow or underflow f32, or are of denormals.
bool IsExtremeX(const Point& point);
bool IsExtremeDy(const Point& point);
// Returns the point with x that has NaN or infinity in some rows.
Point WithOddX(Point point);
// Returns "f32 dim=17 rows=5: " and the text, or "" if that is empty.
std::string At(const Point& point, const std::string& text);

// -- Results --------------------------------------------------------------------------------------

// Result tensor [.., width].
struct Tensor {
  std::string name;  // "dparams[1]"
  const Values* values;
  int64_t width;
  bool is_kept;  // saved or call_saved, which are private to the norm
};

// Everything that a norm writes, as numbers, row by row.
struct Outcome {
  int64_t rows = 0;
  Values y, saved, dx, call_saved;
  std::vector<Values> dparams, buffers;
  Values dx2;           // only for norms with two inputs
  std::string problem;  // a result was not written, or something else was; if that was inspected

  std::vector<Tensor> Tensors() const;
};

// Keeps only the results that are the same for a row in every call.
Outcome RowsOutcome(Outcome outcome);

// Returns "" if all bits are equal, else the first difference: "dx[4][2] is 0.5, must be 0.25".
// Does not compare what is empty in `must`.
std::string FirstDifference(const Outcome& got, const Outcome& must);
// Does the same for two tensors [.., width] called `name`.
std::string FirstDifference(const std::string& name, const Values& got, const Values& must,
                            int64_t width);
// Returns the first place where two tensors differ by more than `relative` times the largest
// magnitude in the row of `must`, plus `absolute`: "y[4][2] is 0.5, must be 0.25 (+- 1e-6)"; "" if
// there is none. Skips elements of `must` that are not finite.
std::string FirstDeviation(const std::string& name, const Values& got, const Values& must,
                           int64_t width, double relative, double absolute);

// Returns the name of element i of a tensor [.., width] of `size` elements: "y[4][2]", or "y[2]"
// for a single row.
std::string PlaceInTensor(const std::string& name, size_t i, size_t size, int64_t width);

// Returns the index of the first number that is not finite; values.size() if there is none.
size_t FirstNotFinite(const Values& values);
double LargestMagnitude(const Values& values);

// -- Calls ----------------------------------------------------------------------------------------

// Memory of a call, and the functions of a host. Any status except PLUMB_OK ends the check.
class NormRun {
 public:
  // Requires: the operands outlive the run if they have a context.
  NormRun(const Instance& instance, const Point& point, const Operands& operands, uint32_t dtype);
  NormRun(const Instance& instance, const Point& point, const Operands& operands)
      : NormRun(instance, point, operands, GetType(point)) {}
  NormRun(const NormRun&) = delete;
  NormRun& operator=(const NormRun&) = delete;

  const Instance& instance() const { return instance_; }
  uint32_t dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  std::string Name() const;  // "f32 dim=17 rows=5", for messages

  // Operands of the element type; the others have the accumulate type. Checks may change all of
  // them.
  Rows x, y, dy, dx;
  Rows x2, dx2;                                // empty unless the norm has two inputs
  Rows saved;                                  // [rows, saved_per_row]
  Rows call_saved;                             // [1, saved_per_call]
  std::vector<Rows> params, dparams, buffers;  // [1, size] each

  void Assign(const Operands& operands);
  // Sets results to numbers that no norm writes, dparams to 0, and buffers to their initial values.
  void Reset();

  // Runs all rows in one range. For a cross-row norm, computes statistics first, in the host's
  // chunks, if `train` is true (always with PLUMB_NORM_CROSS_ROW_EVAL).
  void Forward(bool train);
  // Runs backward on all rows; adds to dparams. Requires: Forward(true) on the same rows.
  void Backward();

  // Run one range, without statistics.
  void ForwardRange(bool train, int64_t r0, int64_t r1);
  void BackwardRange(int64_t r0, int64_t r1);
  // Computes statistics of all rows in chunks of `chunk` rows: partials, combined in order, then
  // finalized. With `by_extension` combines with plumb.norm.combine if the norm offers it.
  void Statistics(uint32_t phase, bool train, int64_t chunk, bool by_extension = false);
  // Returns true if forward needs statistics of this call.
  bool TakesStatistics(bool train) const;
  // Returns the rows per chunk of a host: max(8, ceil(rows / 64)).
  int64_t ChunkRows() const;

  // Return a call for all rows. `scratch`, also for all rows, and `err` belong to this object.
  // Valid until the next of these functions is called.
  plumb_norm_call ForwardCall(bool train);
  plumb_norm_call BackwardCall(bool accumulate);
  // Makes the call for a range; its scratch ends where that of all rows ends.
  void Call(Hot function, plumb_norm_call call, int64_t r0, int64_t r1,
            const HotArguments& more = {});

  Outcome Results() const;
  // Returns "" if nothing was written around any operand, else the place: "y: byte 4 behind row 2".
  std::string PaddingDamage() const;

 private:
  plumb_norm_call CommonCall();

  const Instance& instance_;
  const uint32_t dtype_;
  const int64_t rows_;
  const plumb_norm_context* context_ = nullptr;
  Rows scratch_;  // NaNs, because its content is undefined
  std::vector<const void*> param_pointers_;
  std::vector<void*> dparam_pointers_, buffer_pointers_;
  char err_[256] = {};
};

// Value of dx before a gradient is added to it.
inline constexpr double kAddedTo = 0.75;

struct RunOptions {
  uint32_t dtype = 0;         // 0: that of the point
  const Values* y = nullptr;  // numbers that backward reads in place of the y of forward
  double dparams = 0;         // value of dparams before backward adds to them
  bool only_forward = false;
  bool inspect = false;  // sets Outcome::problem
};
// Calls forward, and in training backward, at the point: the other rows and then the range, or
// pieces as long as the range. dx includes the numbers that it was added to.
Outcome RunAt(const Instance& instance, const Point& point, const Operands& operands,
              const RunOptions& options = {});
// Returns y of a plain call on all rows.
Values PlainY(const Instance& instance, const Point& point, uint32_t dtype,
              const Operands& operands);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RUN_H_
