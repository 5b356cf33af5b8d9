// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/op.h"

#include <utility>

#include "runtime/base/check.h"

namespace plumb {

void OpRegistry::Add(OpDef op) {
  PLUMB_CHECK(!op.name.empty(), "an op needs a name");
  PLUMB_CHECK(op.infer != nullptr && op.make_kernel != nullptr && op.reference != nullptr,
              "an op needs a shape rule, a kernel and a reference");
  auto [at, is_new] = ops_.try_emplace(op.name, nullptr);
  PLUMB_CHECK(is_new, "two ops have the same name");
  at->second = std::make_unique<OpDef>(std::move(op));
}

const OpDef* OpRegistry::Find(absl::string_view name) const {
  const auto at = ops_.find(name);
  return at == ops_.end() ? nullptr : at->second.get();
}

std::vector<const OpDef*> OpRegistry::All() const {
  std::vector<const OpDef*> all;
  all.reserve(ops_.size());
  for (const auto& [name, op] : ops_) all.push_back(op.get());
  return all;
}

}  // namespace plumb
