// SPDX-License-Identifier: Apache-2.0
// Instances of a norm that can be created: its element types, the dims that create() accepts, and
// legal values of its attributes. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_CASES_H_
#define PLUMB_PLUGINS_CHECK_CASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/calls.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

struct AttributeCase {
  std::string name;  // "eps=0.5"; empty for the defaults
  AttributeValues values;
};

// Returns at most 150 sets of attributes. First come the defaults, the combinations of booleans and
// enums (at most 12), and sets that change one attribute; these are the first CountOfSingleCases().
// Then come sets that change all attributes at once, and each two of them. The caller checks that
// create() accepts a set. Computed once per norm. Thread-safety: none.
const std::vector<AttributeCase>& CasesOf(const plumb_norm_plugin& norm);
size_t CountOfSingleCases(const plumb_norm_plugin& norm);

// Returns the element types that a norm offers, PLUMB_DTYPE_F32 first.
std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm);

// Creates an instance. Returns null, with the plugin's message in *refusal, if create() answers
// INVALID_ARGUMENT, because a norm may refuse a dim.
std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const AttributeValues& values, uint32_t heads = 0,
                                      std::string* refusal = nullptr,
                                      HostVersion version = HostVersion::kThis);
// Creates an instance with default attributes for the first of `dims` that create() accepts. Ends
// the check if it accepts none.
std::unique_ptr<Instance> FirstInstance(const plumb_norm_plugin& norm,
                                        const std::vector<uint32_t>& dims);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CASES_H_
