// SPDX-License-Identifier: Apache-2.0
// Runs an instance of a norm on rows of random numbers, like a host: owns everything that a call
// points to, computes statistics for cross-row norms, and compares results. Thread-compatible.
#ifndef PLUMB_PLUGINS_CHECK_NORM_RUN_H_
#define PLUMB_PLUGINS_CHECK_NORM_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/calls.h"
#include "plugins/check/rows.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

// Result tensor [.., width].
struct Tensor {
  std::string name;  // "dparams[1]"
  const std::vector<double>* values;
  int64_t width;
};

// Everything that a norm writes, as numbers, row by row.
struct Outcome {
  int64_t rows = 0;
  std::vector<double> y, saved, dx, call_saved;
  std::vector<std::vector<double>> dparams, buffers;
  std::vector<double> dx2;  // only for norms with two inputs

  std::vector<Tensor> Tensors() const;
};

// Returns "" if all bits are equal, else the first difference: "dx[4][2] is 0.5, must be 0.25".
std::string FirstDifference(const Outcome& got, const Outcome& must);
// Does the same for two tensors [.., width] called `name`.
std::string FirstDifference(const std::string& name, const std::vector<double>& got,
                            const std::vector<double>& must, int64_t width);
// Returns the first place where two tensors differ by more than `relative` times the largest
// magnitude in the row of `must`, plus `absolute`: "y[4][2] is 0.5, must be 0.25 (+- 1e-6)"; "" if
// there is none. Skips elements of `must` that are not finite.
std::string FirstDeviation(const std::string& name, const std::vector<double>& got,
                           const std::vector<double>& must, int64_t width, double relative,
                           double absolute);

// Returns the name of element i of a tensor [.., width] of `size` elements: "y[4][2]", or "y[2]"
// for a single row.
std::string PlaceInTensor(const std::string& name, size_t i, size_t size, int64_t width);

// Returns true if every number is finite. If not, sets *at to the first that is not.
bool AllFinite(const std::vector<double>& values, size_t* at);
double LargestMagnitude(const std::vector<double>& values);

// Returns the value that outputs hold before a call: a NaN with distinctive bits, in every element
// type.
double Poison();
bool IsPoison(double value);

class NormRun {
 public:
  // Draws operands and parameters that depend only on the seed: not on `place`, in the case of
  // parameters not on `rows`, and before rounding not on `dtype`. x and dy are standard normal.
  // Parameters follow their descriptors and are then perturbed by a normal number of a fifth of
  // their size, or of 0.2 if they are zero. y, dx, saved and call_saved are poison, dparams 0, and
  // buffers follow their descriptors. With `own_pitches` no two operands have the same pitch. If
  // rows end at a guard page, so do all other tensors, as closely as their alignment allows.
  // Without `draw` the caller fills x and dy.
  NormRun(const Instance& instance, uint32_t dtype, int64_t rows, uint64_t seed,
          const Place& place = {}, bool own_pitches = false, bool draw = true);
  NormRun(const NormRun&) = delete;
  NormRun& operator=(const NormRun&) = delete;

  const Instance& instance() const { return instance_; }
  uint32_t dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t dim() const { return instance_.dim(); }
  std::string Name() const;  // "f32 dim=17 rows=5", for messages

  // Operands of the element type; the others have the accumulate type. Checks may change all of
  // them.
  Rows x, y, dy, dx;
  Rows x2, dx2;                                 // empty unless the norm has two inputs
  Rows saved;                                   // [rows, saved_per_row]
  Rows call_saved;                              // [1, saved_per_call]
  std::vector<Rows> params, dparams, buffers;   // [1, size] each
  const plumb_norm_context* context = nullptr;  // context of the calls' rows; null: none

  // -- Sequential calls on this thread. Any status except PLUMB_OK ends the check. ---------------

  // Runs all rows in one range. For a cross-row norm, computes statistics first, in the host's
  // chunks, if `train` is true (always with PLUMB_NORM_CROSS_ROW_EVAL).
  void Forward(bool train);
  // Runs backward on all rows; adds to dparams. Requires: Forward(true) on the same rows.
  void Backward(bool accumulate = false);

  // Run one range, without statistics.
  void ForwardRange(bool train, int64_t r0, int64_t r1);
  void BackwardRange(bool accumulate, int64_t r0, int64_t r1);
  // Computes statistics of all rows in chunks of `chunk` rows: partials, combined in order, then
  // finalized. With `by_extension` combines with plumb.norm.combine if the norm offers it.
  void Statistics(uint32_t phase, bool train, int64_t chunk, bool by_extension = false,
                  bool accumulate = false);
  // Returns true if forward needs statistics of this call.
  bool TakesStatistics(bool train) const;
  // Returns the rows per chunk of a host: max(8, ceil(rows / 64)).
  int64_t ChunkRows() const;

  // -- Calls that the check modifies and makes itself --------------------------------------------

  // Return a call for all rows. `scratch`, also for all rows, and `err` belong to this object.
  // Valid until the next of these functions is called.
  plumb_norm_call ForwardCall(bool train);
  plumb_norm_call BackwardCall(bool accumulate);
  // Returns scratch for a range of `rows` rows, which ends where all of it ends.
  void* RangeScratch(int64_t rows);
  // Returns the text that the plugin wrote to call.err.
  std::string ErrorText() const;
  // Ends the check, with the call's name and the plugin's message, unless `status` is PLUMB_OK.
  void Expect(plumb_status status, const char* function, int64_t r0, int64_t r1) const;

  // -- Results ------------------------------------------------------------------------------------

  Outcome Results() const;
  // Returns "" if nothing was written around any operand, else the place: "y: 4 bytes behind row
  // 2".
  std::string PaddingDamage() const;

  // Resets y, dx, dx2, saved and call_saved to poison, dparams to 0, and buffers to their initial
  // values.
  void Reset();

 private:
  plumb_norm_call Call(uint32_t flags);

  const Instance& instance_;
  uint32_t dtype_;
  int64_t rows_;
  uint64_t seed_;
  bool tell_aligned_;
  Rows scratch_;  // NaNs, because its content is undefined
  std::vector<const void*> param_pointers_;
  std::vector<void*> dparam_pointers_, buffer_pointers_;
  char err_[256] = {};
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_NORM_RUN_H_
