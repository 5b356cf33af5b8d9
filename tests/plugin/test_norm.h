// SPDX-License-Identifier: Apache-2.0
// A norm that is linked into the tests, y = x, with attributes of every type. Tests copy its table
// and break the copy.
#ifndef PLUMB_TESTS_PLUGIN_TEST_NORM_H_
#define PLUMB_TESTS_PLUGIN_TEST_NORM_H_

#include <cmath>
#include <cstdio>
#include <cstring>

#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

struct plumb_norm_instance {
  plumb_attr_value values[5];
};

namespace plumb::test_norm {

inline const char* const kChoices[] = {"row", "column", nullptr};
inline plumb_attr_def kAttrs[] = {
    {"eps", "A number.", PLUMB_ATTR_F64, 0, 0, 1, {1e-5, 0, nullptr}, nullptr},
    {"groups", "An integer.", PLUMB_ATTR_I64, 0, 1, NAN, {0, 4, nullptr}, nullptr},
    {"affine", "A bool.", PLUMB_ATTR_BOOL, 0, 0, 0, {0, 1, nullptr}, nullptr},
    {"axis", "A choice.", PLUMB_ATTR_ENUM, 0, 0, 0, {0, 0, "row"}, kChoices},
    {"label", "Text.", PLUMB_ATTR_STRING, 0, 0, 0, {0, 0, ""}, nullptr},
};

// Result of layout(), which a test may change.
inline plumb_norm_layout layout_answer = {};
// Result of forward().
inline plumb_status forward_answer = PLUMB_OK;
// Values in the last call of create(), and the number of live instances.
inline plumb_attr_value last_values[5] = {};
inline int live = 0;

inline plumb_status Create(const plumb_host*, uint32_t, const plumb_attr_value* values,
                           plumb_norm_instance** out, char*, size_t) {
  *out = new plumb_norm_instance();
  for (int i = 0; i < 5; ++i) last_values[i] = (*out)->values[i] = values[i];
  ++live;
  return PLUMB_OK;
}
inline void Destroy(plumb_norm_instance* instance) {
  delete instance;
  --live;
}
inline plumb_status Layout(const plumb_norm_instance*, plumb_norm_layout* out) {
  const uint32_t size = out->struct_size;
  *out = layout_answer;
  out->struct_size = size;
  return PLUMB_OK;
}
inline plumb_status Run(const plumb_norm_instance*, const plumb_norm_call* call, int64_t, int64_t) {
  if (forward_answer != PLUMB_OK && call->err != nullptr) {
    std::snprintf(call->err, call->err_cap, "not today");
  }
  return forward_answer;
}

// Adds statistics functions that do nothing, for a norm that must have some.
inline void AddStatistics(plumb_norm_plugin* table) {
  table->stats_partial = [](const plumb_norm_instance*, uint32_t, const plumb_norm_call*, int64_t,
                            int64_t, void*) -> plumb_status { return PLUMB_OK; };
  table->stats_combine = [](const plumb_norm_instance*, uint32_t, const plumb_norm_call*, void*,
                            const void*) {};
  table->stats_finalize = [](const plumb_norm_instance*, uint32_t, const plumb_norm_call*,
                             void*) -> plumb_status { return PLUMB_OK; };
}

// The residual extension, which GetExtension returns for its id.
inline plumb_norm_residual residual_answer = {};
inline plumb_norm_residual Residual() {
  const auto run = [](const plumb_norm_instance*, const plumb_norm_call*,
                      const plumb_residual_call*, int64_t,
                      int64_t) -> plumb_status { return PLUMB_OK; };
  return {sizeof(plumb_norm_residual), 0, run, run};
}
inline const void* GetExtension(const char* id) {
  return std::strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &residual_answer : nullptr;
}

inline plumb_norm_plugin Table() {
  plumb_norm_plugin table{};
  table.struct_size = sizeof(table);
  table.id = "org.example.test";
  table.version = "1.2.3";
  table.dtypes = PLUMB_DTYPE_F32;
  table.n_attrs = 5;
  table.attr_stride = sizeof(plumb_attr_def);
  table.attrs = kAttrs;
  table.create = Create;
  table.destroy = Destroy;
  table.layout = Layout;
  table.forward = Run;
  table.backward = Run;
  return table;
}

}  // namespace plumb::test_norm

#endif  // PLUMB_TESTS_PLUGIN_TEST_NORM_H_
