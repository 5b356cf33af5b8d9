// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/group_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"

namespace plumb {

absl::StatusOr<GroupModel> MakeGroupModel(const api::Spec& spec, HostRuntime* runtime,
                                          PlanGroup* group) {
  PLUMB_ASSIGN_OR_RETURN(api::Model model, CreateModel(runtime, spec));
  PLUMB_ASSIGN_OR_RETURN(nlohmann::ordered_json description, DescribeModel(model));
  PLUMB_ASSIGN_OR_RETURN(const std::string graph, ExplainModel(model, "graph", 1, 1));
  PLUMB_ASSIGN_OR_RETURN(std::string text, ToStatus(spec.Text()));
  group->fingerprint = Sha256(absl::StrCat(text, graph)).substr(0, 16);
  PLUMB_ASSIGN_OR_RETURN(group->norms, NormFiles(runtime, model));
  group->parameters = description["totals"]["parameters"];
  group->context_length = description["dims"]["context_length"];
  PLUMB_ASSIGN_OR_RETURN(
      const api::Work work,
      ToStatus(model.Work(api::Pass::kTraining, group->context_length, api::Weights::kF32)));
  group->flops_per_token = work.flops / static_cast<double>(group->context_length);
  return GroupModel{std::move(model), std::move(description), std::move(text)};
}

}  // namespace plumb
