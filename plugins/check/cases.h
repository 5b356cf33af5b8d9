// SPDX-License-Identifier: Apache-2.0
// Instances of a norm that can be made: its element types, the dims that create() accepts, and legal
// values of its attributes. Stateless.
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
  std::string name;  // "eps=0.5"; empty: the defaults
  AttributeValues values;
};

// Returns sets of attributes, at most 150: the defaults first; then the combinations of the booleans
// and enums (at most 12 of them), and values of one attribute at a time. These are the first
// CountOfSingleCases(). Then all attributes at other values at once, and each two of them. The
// caller tries if create() accepts one. Made once for each norm; not thread-safe.
const std::vector<AttributeCase>& CasesOf(const plumb_norm_plugin& norm);
size_t CountOfSingleCases(const plumb_norm_plugin& norm);

// Returns the element types that a norm offers, PLUMB_F32 first.
std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm);

// Makes an instance; null, with the plugin's message in *refusal, when create answers
// INVALID_ARGUMENT: a norm may refuse a dim.
std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const AttributeValues& values,
                                      uint32_t heads = 0, std::string* refusal = nullptr,
                                      HostVersion version = HostVersion::kThis);
// Makes an instance of the first of `dims` that create accepts, with default attributes. Ends the
// check when it accepts none.
std::unique_ptr<Instance> FirstInstance(const plumb_norm_plugin& norm,
                                        const std::vector<uint32_t>& dims);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CASES_H_
