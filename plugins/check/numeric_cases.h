// The cases of the numeric checks: dims that a norm accepts, and legal values of its attributes.
// Stateless.
#ifndef PLUMB_PLUGINS_CHECK_NUMERIC_CASES_H_
#define PLUMB_PLUGINS_CHECK_NUMERIC_CASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/norm_run.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

struct AttributeCase {
  std::string name;  // "eps=0.5"; empty: the defaults
  bool is_default() const { return name.empty(); }
  std::vector<plumb_attr_value> values;
};

// The defaults first; then the combinations of the booleans and enums (at most 12 of them), and for
// each number a few values within its range with everything else at its default. Whether create()
// accepts a combination is for the caller to try.
std::vector<AttributeCase> AttributeCases(const plumb_norm_plugin& norm);

// The same and, for checks that explore, more numbers, bounds, each two attributes at other values,
// and all of them at once; at most 150.
std::vector<AttributeCase> ExploredCases(const plumb_norm_plugin& norm);

// Two instances with default attributes, where the norm has two: a short odd dim and a longer one,
// or what comes nearest to them.
std::vector<std::unique_ptr<Instance>> UsualInstances(const plumb_norm_plugin& norm);

// Is every number finite? If not, *at is the first that is not.
bool AllFinite(const std::vector<double>& values, size_t* at);
double LargestMagnitude(const std::vector<double>& values);

// Where two tensors [.., width] differ by more than `relative` of the largest number of a row of
// `must` plus `absolute`: "y[4][2] is 0.5, must be 0.25 (+- 1e-6)"; empty when nowhere.
std::string FirstDeviation(const char* name, const std::vector<double>& got,
                           const std::vector<double>& must, int64_t width, double relative,
                           double absolute);

// The first difference in bits of y, saved and dx, and of dparams by more than the rounding that
// another order of additions makes: the promise of the ABI for the same rows, wherever they lie.
std::string FirstRowDifference(const Outcome& got, const Outcome& must, const NormRun& run);
// What FirstRowDifference allows dparams, as a part of the largest.
double ReorderTolerance(uint32_t dtype);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_NUMERIC_CASES_H_
