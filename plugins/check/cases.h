// What of a norm can be run: its element types, the dims that create accepts, and legal values of
// its attributes. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_CASES_H_
#define PLUMB_PLUGINS_CHECK_CASES_H_

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
// and all of them at once; at most 150. Made once for each norm; not thread-safe.
const std::vector<AttributeCase>& ExploredCases(const plumb_norm_plugin& norm);

// The element types that a norm offers, PLUMB_F32 first.
std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm);

// An instance; null, with the plugin's words in *refusal, when create answers INVALID_ARGUMENT: a
// norm may refuse a dim. The shorter form has the attributes' defaults.
std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim);
std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const std::vector<plumb_attr_value>& values,
                                      uint32_t heads = 0, std::string* refusal = nullptr);
// An instance of the first of `dims` that create accepts. Ends the check when it accepts none.
std::unique_ptr<Instance> FirstInstance(const plumb_norm_plugin& norm,
                                        const std::vector<uint32_t>& dims);

// Is every number finite? If not, *at is the first that is not.
bool AllFinite(const std::vector<double>& values, size_t* at);
double LargestMagnitude(const std::vector<double>& values);

// Where two tensors [.., width] differ by more than `relative` of the largest number of a row of
// `must` plus `absolute`: "y[4][2] is 0.5, must be 0.25 (+- 1e-6)"; empty when nowhere.
std::string FirstDeviation(const char* name, const std::vector<double>& got,
                           const std::vector<double>& must, int64_t width, double relative,
                           double absolute);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CASES_H_
