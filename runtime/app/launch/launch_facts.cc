// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/app/launch/launch.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

using FactsJson = nlohmann::json;

// Returns the CPU affinity of this thread: "0-3,8"; "" if the system does not report it.
std::string OwnProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "";
  std::string text;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &set)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last > first) absl::StrAppend(&text, "-", last);
    first = last;
  }
  return text;
}

std::string TextOf(const FactsJson& value) {
  if (value.is_null()) return "?";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

FactsJson ToJson(const RankFacts& facts) {
  return {{"host", facts.host},           {"pid", facts.pid},
          {"processor", facts.processor}, {"isa", facts.isa},
          {"matmul", facts.matmul},       {"threads", facts.threads},
          {"rank", facts.rank},           {"processors", facts.processors}};
}

}  // namespace

RankFacts FactsOf(const HostRuntime& runtime) {
  RankFacts facts;
  facts.host = OwnHostName();
  facts.pid = getpid();
  facts.matmul = runtime.matmul();
  facts.threads = runtime.threads();
  facts.processors = OwnProcessors();
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
    facts.pid = json.value("pid", int64_t{0});
    facts.processor = json.value("processor", "");
    facts.isa = json.value("isa", "");
    facts.matmul = json.value("matmul", "");
    facts.threads = json.value("threads", int64_t{0});
    facts.processors = json.value("processors", "");
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace plumb
