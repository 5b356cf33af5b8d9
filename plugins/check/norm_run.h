// SPDX-License-Identifier: Apache-2.0
// Runs an instance of a norm on rows of random numbers, as a host does: owns all that a call points
// to, takes statistics for cross-row norms, and compares what came out. Thread-compatible.
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

// A tensor [.., width] of results.
struct Tensor {
  std::string name;  // "dparams[1]"
  const std::vector<double>* values;
  int64_t width;
};

// Everything that a norm writes, as numbers, row after row.
struct Outcome {
  int64_t rows = 0;
  std::vector<double> y, saved, dx, call_saved;
  std::vector<std::vector<double>> dparams, buffers;
  std::vector<double> dx2;  // of a norm of two inputs

  std::vector<Tensor> Tensors() const;
};

// Returns "" when all bits are equal, else the first difference: "dx[4][2] is 0.5, must be 0.25".
std::string FirstDifference(const Outcome& got, const Outcome& must);
// The same of two tensors [.., width] called `name`.
std::string FirstDifference(const std::string& name, const std::vector<double>& got,
                            const std::vector<double>& must, int64_t width);
// Returns where two tensors differ by more than `relative` of the largest number of a row of `must`
// plus `absolute`: "y[4][2] is 0.5, must be 0.25 (+- 1e-6)"; "" when nowhere. Numbers of `must`
// that are not finite are not compared.
std::string FirstDeviation(const std::string& name, const std::vector<double>& got,
                           const std::vector<double>& must, int64_t width, double relative,
                           double absolute);

// Returns "y[4][2]": element i of a tensor [.., width] of `size` elements; "y[2]" when it is one row.
std::string PlaceInTensor(const std::string& name, size_t i, size_t size, int64_t width);

// True if every number is finite. If not, *at is the first that is not.
bool AllFinite(const std::vector<double>& values, size_t* at);
double LargestMagnitude(const std::vector<double>& values);

// Memory for plumb_norm_call::scratch, filled with NaNs: its content is undefined.
class Scratch {
 public:
  Scratch(const plumb_norm_layout& layout, int64_t rows);  // a range of so many rows
  void* data() const { return bytes_.data(); }             // 64-byte aligned
  const Rows& bytes() const { return bytes_; }
  void Refill();

 private:
  Rows bytes_;
};

// What outputs hold before a call: a NaN of its own bits, in every element type.
double Poison();
bool IsPoison(double value);

class NormRun {
 public:
  // Operands and parameters are the same numbers for the same seed, whatever the place, parameters
  // whatever the rows; for different types they are the same before rounding. x, dy: standard
  // normal. Parameters: drawn as their descriptors say, then moved by a normal number of a fifth of
  // their size (at least 0.2). y, dx, saved and call_saved: poison. dparams: 0. Buffers: as their
  // descriptors say. With `own_pitches` no two operands have the same pitch. Without `draw` x and
  // dy are for the caller to fill.
  NormRun(const Instance& instance, uint32_t dtype, int64_t rows, uint64_t seed,
          const Place& place = {}, bool own_pitches = false, bool draw = true);
  NormRun(const NormRun&) = delete;
  NormRun& operator=(const NormRun&) = delete;

  const Instance& instance() const { return instance_; }
  uint32_t dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t dim() const { return instance_.dim(); }
  std::string Name() const;  // "f32 dim=17 rows=5", for messages

  // Operands, of the element type; the rest, of the accumulate type. Checks may change them all.
  Rows x, y, dy, dx;
  Rows x2, dx2;                                 // of a norm of two inputs, else without rows
  Rows saved;                                   // [rows, saved_per_row]
  Rows call_saved;                              // [1, saved_per_call]
  std::vector<Rows> params, dparams, buffers;   // [1, size] each
  const plumb_norm_context* context = nullptr;  // what calls tell of their rows; null: nothing

  // -- One after the other, on this thread. Any status but PLUMB_OK ends the check. --------------

  // All rows in one range. A cross-row norm has its statistics taken first, when `train` (with
  // PLUMB_NORM_CROSS_ROW_EVAL always), in the host's chunks.
  void Forward(bool train);
  // Adds into dparams. Needs Forward(true) of the same rows.
  void Backward(bool accumulate = false);

  // The parts of it. Ranges without statistics:
  void ForwardRange(bool train, int64_t r0, int64_t r1);
  void BackwardRange(bool accumulate, int64_t r0, int64_t r1);
  // Statistics of all rows, in chunks of `chunk` rows: partials, combined in order, finalized. With
  // `by_extension` combined by plumb.norm.combine, where the norm offers it.
  void Statistics(uint32_t phase, bool train, int64_t chunk, bool by_extension = false,
                  bool accumulate = false);
  // Whether forward needs statistics of this call.
  bool TakesStatistics(bool train) const;
  // Rows in a chunk, as the host cuts: max(8, ceil(rows / 64)).
  int64_t ChunkRows() const;

  // -- A call to be changed and made by the check itself ------------------------------------------

  // Filled for all rows. `scratch` is for all rows too; it and `err` are this object's. Valid until
  // the next such function.
  plumb_norm_call ForwardCall(bool train);
  plumb_norm_call BackwardCall(bool accumulate);
  // What the plugin wrote into call.err.
  std::string ErrorText() const;
  // Ends the check, with the call's name and the plugin's words, unless `status` is PLUMB_OK.
  void Expect(plumb_status status, const char* function, int64_t r0, int64_t r1) const;

  // -- Results ------------------------------------------------------------------------------------

  Outcome Results() const;
  // Empty when nothing was written around any operand, else where: "y: 4 bytes behind row 2".
  std::string PaddingDamage() const;

  // y, dx, dx2, saved, call_saved: poison again; dparams: 0; buffers: as their descriptors say.
  void Reset();

 private:
  plumb_norm_call Call(uint32_t flags);

  const Instance& instance_;
  uint32_t dtype_;
  int64_t rows_;
  uint64_t seed_;
  bool tell_aligned_;
  Scratch scratch_;
  std::vector<const void*> param_pointers_;
  std::vector<void*> dparam_pointers_, buffer_pointers_;
  char err_[256] = {};
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_NORM_RUN_H_
