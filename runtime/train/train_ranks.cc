// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/train_ranks.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/ranks/collectives.h"
#include "runtime/train/run_identity.h"

namespace plumb {
namespace {

// Returns "Intel(R) Xeon(R) ... (GenuineIntel 6-143), kernels AVX3_SPR".
std::string ProcessorText(const HostRuntime& runtime) {
  const auto report = nlohmann::json::parse(runtime.DescribeJson(), nullptr, false);
  if (report.is_discarded() || !report.contains("processor")) return "?";
  const nlohmann::json& processor = report["processor"];
  const auto text = [&processor](const char* name) {
    const nlohmann::json& value = processor[name];
    return value.is_string() ? value.get<std::string>() : value.is_null() ? "?" : value.dump();
  };
  return absl::StrCat(text("name"), " (", text("vendor"), " ", text("family"), "-", text("model"),
                      "), kernels ", text("kernels"));
}

}  // namespace

// Order from rank 0. All ranks run the same program, so its bytes are sent.
struct TrainRanks::Order {
  enum Kind : int64_t { kStep = 1, kShareStates, kEnd } kind;
  int64_t argument = 0;  // kStep: the batch; kEnd: the exit code
};

absl::Status TrainRanks::BroadcastOrder(Order order) {
  return Broadcast(launch_->ranks(), 0, &order, sizeof(order));
}

absl::Status TrainRanks::AllOk(const absl::Status& mine) const {
  const absl::Status all = plumb::AllOk(launch_->ranks(), mine);
  return mine.ok() ? all : mine;
}

absl::StatusOr<bool> TrainRanks::BroadcastFlag(bool mine) const {
  int64_t says = mine ? 1 : 0;
  PLUMB_RETURN_IF_ERROR(Broadcast(launch_->ranks(), 0, &says, sizeof(says)));
  return says != 0;
}

absl::Status TrainRanks::BroadcastTexts(std::initializer_list<std::string*> texts) const {
  for (std::string* text : texts) {
    PLUMB_RETURN_IF_ERROR(Broadcast(launch_->ranks(), 0, text));
  }
  return absl::OkStatus();
}

absl::Status TrainRanks::CheckSameText(absl::string_view what, const std::string& mine) const {
  std::string first = mine;
  PLUMB_RETURN_IF_ERROR(Broadcast(launch_->ranks(), 0, &first));
  absl::Status same;
  if (first != mine) {
    const bool is_short =
        !absl::StrContains(first, '\n') && !absl::StrContains(mine, '\n') && first.size() < 200;
    same = absl::InvalidArgumentError(absl::StrCat(
        what, " is not that of rank 0 on host ", launch_->hosts()[0],
        is_short ? absl::StrCat(": ", mine, ", not ", first) : TextDifference(first, mine)));
  }
  return plumb::AllOk(launch_->ranks(), same);
}

absl::Status TrainRanks::CheckAgree(HostRuntime* runtime, const Recipe& recipe,
                                    const std::string& model_text, const api::Model& model,
                                    const Dataset& data, bool require_same_bits) {
  PLUMB_RETURN_IF_ERROR(
      CheckSameText("build of plumb", absl::StrCat(api::Version(), " ", BuildId())));
  PLUMB_RETURN_IF_ERROR(CheckSameText("recipe", recipe.text));
  PLUMB_RETURN_IF_ERROR(CheckSameText("model", model_text));
  PLUMB_RETURN_IF_ERROR(
      CheckSameText(absl::StrCat(data.name(), ": hash of the data"), data.data_hash()));
  const auto norms = IdentifyNorms(runtime, model);
  PLUMB_RETURN_IF_ERROR(AllOk(norms.status()));
  PLUMB_RETURN_IF_ERROR(
      CheckSameText("norms", absl::StrJoin(*norms, "\n", absl::PairFormatter(" "))));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> processors,
                         AllGather(launch_->ranks(), ProcessorText(*runtime)));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> engines,
                         AllGather(launch_->ranks(), runtime->matmul()));
  const std::vector<std::string>& hosts = launch_->hosts();
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string who = absl::StrCat("rank ", rank, " on host ", hosts[rank]);
    if (processors[rank] != processors[0]) {
      const std::string text =
          absl::StrCat(who, ": a processor of another kind than that of rank 0 on host ", hosts[0],
                       ": ", processors[rank], ", not ", processors[0],
                       "; processors round differently, so the results are not those of one "
                       "machine to the bit");
      if (require_same_bits) {
        return absl::InvalidArgumentError(
            absl::StrCat(text, "; drop --require-same-bits, or use hosts of one kind"));
      }
      if (launch_->is_first()) runtime->Warn(text);
      return absl::OkStatus();
    }
    if (engines[rank] != engines[0]) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": multiplies matrices by ", engines[rank], ", but rank 0 on host ",
                       hosts[0], " by ", engines[0],
                       "; install the same oneDNN on all hosts, or give all ranks --gemm small"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<api::StepInfo> TrainRanks::Step(
    int64_t batch, absl::FunctionRef<absl::StatusOr<api::StepInfo>()> step, bool* stop_wanted) {
  PLUMB_RETURN_IF_ERROR(BroadcastOrder({Order::kStep, batch}));
  absl::StatusOr<api::StepInfo> stepped = step();
  if (!stepped.ok() && !absl::IsAborted(stepped.status())) return stepped;
  PLUMB_ASSIGN_OR_RETURN(const bool wanted, launch_->Any(false));
  *stop_wanted = *stop_wanted || wanted;
  return stepped;
}

absl::Status TrainRanks::ShareStates(absl::FunctionRef<absl::Status()> use) {
  absl::Status used;
  const absl::Status shared = ToStatus(trainer_->ShareStates([&] {
    used = use();
    return used.ok() ? api::Next::kGoOn : api::Next::kStop;
  }));
  return used.ok() ? shared : used;
}

absl::Status TrainRanks::WithStates(absl::FunctionRef<absl::Status()> use) {
  PLUMB_RETURN_IF_ERROR(BroadcastOrder({Order::kShareStates}));
  return ShareStates(use);
}

absl::Status TrainRanks::End(int exit_code) { return BroadcastOrder({Order::kEnd, exit_code}); }

absl::StatusOr<int> TrainRanks::Follow(absl::FunctionRef<absl::Status(int64_t batch)> step,
                                       const std::function<bool()>& wants_stop) {
  for (;;) {
    Order order = {};
    PLUMB_RETURN_IF_ERROR(Broadcast(launch_->ranks(), 0, &order, sizeof(order)));
    switch (order.kind) {
      case Order::kStep: {
        const absl::Status stepped = step(order.argument);
        // Rank 0 decides how to handle a diverged step.
        if (!stepped.ok() && !absl::IsAborted(stepped)) return stepped;
        PLUMB_RETURN_IF_ERROR(launch_->Any(wants_stop()).status());
        break;
      }
      case Order::kShareStates: {
        const absl::Status shared = ShareStates([] { return absl::OkStatus(); });
        // Rank 0 has the error and decides how to handle it.
        if (!shared.ok() && !absl::IsCancelled(shared)) return shared;
        break;
      }
      case Order::kEnd:
        return static_cast<int>(order.argument);
      default:
        return absl::InternalError(
            absl::StrCat("rank 0 sent the unknown order ", static_cast<int64_t>(order.kind)));
    }
  }
}

}  // namespace plumb
