// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/token_tables.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Backend that records the tables read by a walk.
class TablesRead : public NullBackend {
 public:
  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override {
    names_.insert(site.table);
    return 0;
  }
  bool Has(const std::string& name) const { return names_.count(name) > 0; }

 private:
  std::set<std::string> names_;
};

// Returns the kind of name in the block that equals `name`, or "".
std::string TakenIn(const BlockSpec& block, const std::string& name) {
  for (const Statement& let : block.placement->lets) {
    if (let.target == name) return "a let";
  }
  for (const LearnedSpec& learned : block.placement->learned) {
    if (learned.name == name) return "a learned value";
  }
  for (const SublayerSpec& sublayer : block.sublayers) {
    if (sublayer.name == name) return "a sublayer";
  }
  return "";
}

}  // namespace

const TokenTable* FindTokenTable(const ResolvedModel& model, const std::string& name) {
  const auto it = std::find_if(model.token_tables.begin(), model.token_tables.end(),
                               [&name](const TokenTable& table) { return table.name == name; });
  return it == model.token_tables.end() ? nullptr : &*it;
}

TokenEmbeddingSite SiteOf(const TokenTable& table, int64_t layer) {
  TokenEmbeddingSite site;
  site.table = table.name;
  site.name = absl::StrCat("embedding.", table.name);
  if (table.per_layer) absl::StrAppend(&site.name, ".", layer - 1);
  site.width = table.width;
  return site;
}

absl::Status CheckTokenTables(const ResolvedModel& model) {
  if (model.token_tables.empty()) return absl::OkStatus();
  TablesRead read;
  PLUMB_RETURN_IF_ERROR(RunStack(model, &read));
  for (const TokenTable& table : model.token_tables) {
    for (const auto& block : model.layers) {
      const std::string taken = TakenIn(*block, table.name);
      if (taken.empty()) continue;
      return ErrorAt(table.place,
                     absl::StrCat("embedding \"", table.name, "\": the name is that of ", taken,
                                  " of placement \"", block->placement->name,
                                  "\" or its block; give it another"));
    }
    if (read.Has(table.name)) continue;
    return ErrorAt(table.place,
                   absl::StrCat("embedding \"", table.name, "\" is never read; a formula reads it ",
                                "by its name: ", table.name, table.per_layer ? "[layer]" : ""));
  }
  return absl::OkStatus();
}

}  // namespace plumb
