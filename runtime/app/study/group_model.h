// SPDX-License-Identifier: Apache-2.0
// GroupModel: the model of a group while a plan is made.
#ifndef PLUMB_RUNTIME_APP_STUDY_GROUP_MODEL_H_
#define PLUMB_RUNTIME_APP_STUDY_GROUP_MODEL_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/model.h"
#include "runtime/app/study/plan.h"

namespace plumb {

struct GroupModel {
  api::Model model;
  nlohmann::ordered_json description;  // DescribeModel
  std::string text;                    // protobuf text
};

// Makes the model of `spec`, and sets the facts about it in `group`: parameters, FLOPs, norms and
// fingerprint. Errors: those of CreateModel.
absl::StatusOr<GroupModel> MakeGroupModel(const api::Spec& spec, HostRuntime* runtime,
                                          PlanGroup* group);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_GROUP_MODEL_H_
