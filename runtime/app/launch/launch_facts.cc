// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/app/launch/launch.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"

namespace plumb {
namespace {

using FactsJson = nlohmann::json;

std::string TextOf(const FactsJson& value) {
  if (value.is_null()) return "?";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

FactsJson ToJson(const RankFacts& facts) {
  return {{"processor", facts.processor}, {"isa", facts.isa}, {"matmul", facts.matmul}};
}

}  // namespace

RankFacts FactsOf(const HostRuntime& runtime) {
  RankFacts facts;
  facts.matmul = runtime.matmul();
  const FactsJson report = FactsJson::parse(runtime.DescribeJson(), nullptr, false);
  if (report.is_discarded() || !report.contains("processor")) return facts;
  const FactsJson& processor = report["processor"];
  facts.processor = absl::StrCat(TextOf(processor["name"]), " (", TextOf(processor["vendor"]), " ",
                                 TextOf(processor["family"]), "-", TextOf(processor["model"]), ")");
  facts.isa = TextOf(processor["kernels"]);
  return facts;
}

absl::StatusOr<std::vector<RankFacts>> Launch::AllFacts(const RankFacts& mine) {
  PLUMB_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      AllGather(ranks(), ToJson(mine).dump(-1, ' ', false, FactsJson::error_handler_t::replace)));
  std::vector<RankFacts> all;
  for (const std::string& text : texts) {
    const FactsJson json = FactsJson::parse(text, nullptr, false);
    if (json.is_discarded()) return absl::InternalError("the facts of a rank are not JSON");
    RankFacts facts;
    facts.rank = static_cast<int>(all.size());
    facts.host = hosts()[all.size()];
    facts.processor = json.value("processor", "");
    facts.isa = json.value("isa", "");
    facts.matmul = json.value("matmul", "");
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace plumb
