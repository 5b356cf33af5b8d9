// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/norm_cases.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/plugin/registry.h"
#include "tests/app/grown_norm.h"
#include "tests/ops/batch_norm_plugin.h"
#include "tests/ops/tanh_norm_plugin.h"

namespace plumb {
namespace {

struct Owner {
  PluginRegistry registry;
  std::shared_ptr<const NormInstance> instance;  // destroyed first
};

}  // namespace

std::shared_ptr<const NormAttr> MakeNormAttr(const std::string& id, int64_t dim,
                                             const NormAttrs& attrs, int64_t heads) {
  auto owner = std::make_shared<Owner>();
  owner->registry.AddDirectory(PLUMB_TEST_PLUGIN_DIR);
  for (const plumb_norm_plugin* norm :
       {TanhNorm(), TanhNormWithoutF64(), TanhNormWithResidual(), BatchNorm(),
        BatchNormInEvaluationToo(), GrownNorm(), PairNorm()}) {
    PLUMB_CHECK(owner->registry.Register(norm).ok(), "the test's norm is well formed");
  }
  auto plugin = owner->registry.Find(id);
  PLUMB_CHECK(plugin.ok(), plugin.status().ToString().c_str());
  auto instance = (*plugin)->Instantiate(dim, attrs, heads);
  PLUMB_CHECK(instance.ok(), instance.status().ToString().c_str());
  owner->instance = *std::move(instance);
  const NormInstance* pointer = owner->instance.get();
  return std::make_shared<NormAttr>(std::shared_ptr<const NormInstance>(std::move(owner), pointer));
}

}  // namespace plumb
