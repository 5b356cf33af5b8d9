// What of a norm can be run: its element types, and the dims and attributes that create accepts.
#ifndef PLUMB_PLUGINS_CHECK_TRY_INSTANCE_H_
#define PLUMB_PLUGINS_CHECK_TRY_INSTANCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/calls.h"

namespace plumb::check {

// The element types that a norm offers, PLUMB_F32 first.
std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm);

// An instance with the attributes' defaults; null, with the plugin's words in *refusal, when create
// answers INVALID_ARGUMENT: a norm may refuse a dim.
std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      std::string* refusal);
std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const std::vector<plumb_attr_value>& values,
                                      std::string* refusal, uint32_t heads = 0);
// The first of `dims` that create accepts. Ends the check when it accepts none.
std::unique_ptr<Instance> FirstInstance(const plumb_norm_plugin& norm,
                                        const std::vector<uint32_t>& dims);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TRY_INSTANCE_H_
