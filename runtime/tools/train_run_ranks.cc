// A TrainRun of several ranks. Rank 0 has the run: its directory, its clock, whatever is decided.
// The others do what it tells them, by one small message for each step, and nothing else.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/tools/checkpoint_layout.h"
#include "runtime/tools/checkpoint_writers.h"
#include "runtime/tools/norm_files.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/text_difference.h"
#include "runtime/tools/train_run_impl.h"
#include "runtime/tools/trainer_tensors.h"

namespace plumb {
namespace {

// Of rank 0, to the others: they run the same program, so it is sent as it lies.
struct RankOrder {
  enum Kind : int64_t { kStep = 1, kCheckFinite, kShareStates, kCheckpoint, kEnd } kind;
  int64_t argument = 0;  // kStep: the batch; kEnd: the exit code
};

absl::Status TellRanks(Launch* launch, RankOrder order) {
  return Broadcast(launch->ranks(), 0, &order, sizeof(order));
}

// Of plumb_trainer_share_states; `user` is this.
struct StatesUse {
  absl::FunctionRef<absl::Status()> use;
  absl::Status status;

  static int32_t Call(void* user) {
    auto* const self = static_cast<StatesUse*>(user);
    self->status = self->use();
    return self->status.ok() ? 0 : 1;
  }
};

// What rank 0 has of a text that all are to have alike.
absl::Status CheckSameText(Launch* launch, absl::string_view what, const std::string& mine) {
  std::string first = mine;
  PLUMB_RETURN_IF_ERROR(Broadcast(launch->ranks(), 0, &first));
  absl::Status same;
  if (first != mine) {
    const bool is_short =
        !absl::StrContains(first, '\n') && !absl::StrContains(mine, '\n') && first.size() < 200;
    same = absl::InvalidArgumentError(absl::StrCat(
        what, " is not that of rank 0 on host ", launch->hosts()[0],
        is_short ? absl::StrCat(": ", mine, ", not ", first) : TextDifference(first, mine)));
  }
  return AllOk(launch->ranks(), same);
}

std::string ProcessorText(const RankFacts& facts) {
  return absl::StrCat(facts.processor, ", kernels ", facts.isa);
}

}  // namespace

absl::Status TrainRun::Impl::WhereAllAreWell(const absl::Status& mine) const {
  if (launch == nullptr) return mine;
  const absl::Status all = AllOk(launch->ranks(), mine);
  return mine.ok() ? all : mine;
}

absl::Status TrainRun::Impl::CheckRanksAgree(HostRuntime* warned, const TrainRequest& request) {
  if (launch == nullptr) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(CheckSameText(launch, "version of plumb", plumb_version()));
  PLUMB_RETURN_IF_ERROR(CheckSameText(launch, "recipe", recipe.text));
  PLUMB_RETURN_IF_ERROR(CheckSameText(launch, "model", model_text));
  PLUMB_RETURN_IF_ERROR(
      CheckSameText(launch, absl::StrCat(data->name(), ": hash of the data"), data->data_hash()));
  const absl::StatusOr<std::string> files = NormFilesText(warned, model.get());
  PLUMB_RETURN_IF_ERROR(WhereAllAreWell(files.status()));
  PLUMB_RETURN_IF_ERROR(CheckSameText(launch, "norms", *files));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<RankFacts> all, launch->AllFacts(FactsOf(*warned)));
  const RankFacts& first = all.front();
  for (const RankFacts& each : all) {
    const std::string who = absl::StrCat("rank ", each.rank, " on host ", each.host);
    if (ProcessorText(each) != ProcessorText(first)) {
      std::string text = absl::StrCat(
          who, ": a processor of another kind than that of rank 0 on host ", first.host, ": ",
          ProcessorText(each), ", not ", ProcessorText(first),
          ". Processors round differently, so the run is not that of one machine to the bit");
      if (request.require_same_bits) {
        return absl::InvalidArgumentError(absl::StrCat(text, " (--require-same-bits)"));
      }
      absl::StrAppend(&text, "; train.shard: OPTIMIZER keeps the weights of all ranks equal");
      ranks_are_alike = false;
      if (launch->is_first()) warnings.push_back(std::move(text));
      return absl::OkStatus();
    }
    if (each.matmul != first.matmul) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": matrices are multiplied otherwise than by rank 0 on host ",
                       first.host, ": ", each.matmul, ", not ", first.matmul));
    }
  }
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::SendRunFiles(const Tokenizer& tokenizer) {
  if (launch == nullptr) return absl::OkStatus();
  std::string vocabulary = tokenizer.ToJson();
  std::string special = GenerationConfigJson(tokenizer.special_tokens());
  for (std::string* text : {&recipe.text, &model_text, &vocabulary, &special}) {
    PLUMB_RETURN_IF_ERROR(Broadcast(launch->ranks(), 0, text));
  }
  return absl::OkStatus();
}

absl::Status TrainRun::Impl::OpenFollower(HostRuntime* warned, const TrainRequest& request,
                                          bool resumes) {
  if (!resumes) {
    PLUMB_RETURN_IF_ERROR(WhereAllAreWell(ReadNew(request)));
  } else {
    std::string train_text, whole_model, vocabulary, special_text;
    for (std::string* text : {&train_text, &whole_model, &vocabulary, &special_text}) {
      PLUMB_RETURN_IF_ERROR(Broadcast(launch->ranks(), 0, text));
    }
    const auto read = [&]() -> absl::Status {
      PLUMB_ASSIGN_OR_RETURN(recipe, ParseRecipe(train_text, RunTrainPath(request.out), {}));
      PLUMB_ASSIGN_OR_RETURN(const Spec spec,
                             Spec::FromText(whole_model, RunModelPath(request.out)));
      PLUMB_RETURN_IF_ERROR(CreateModel(spec));
      PLUMB_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::FromJson(vocabulary));
      PLUMB_ASSIGN_OR_RETURN(
          SpecialTokens special,
          SpecialTokensOfJson(special_text, "special tokens", tokenizer.vocab_size()));
      tokenizer.set_special_tokens(std::move(special));
      PLUMB_ASSIGN_OR_RETURN(
          Dataset dataset, Dataset::Load(request.data_path, ToDatasetOptions(recipe), &tokenizer));
      data = std::make_unique<Dataset>(std::move(dataset));
      return absl::OkStatus();
    };
    PLUMB_RETURN_IF_ERROR(WhereAllAreWell(read()));
  }
  PLUMB_RETURN_IF_ERROR(CheckRanksAgree(warned, request));
  return CreateTrainer();
}

absl::StatusOr<plumb_step_info> TrainRun::Impl::StepTogether(int64_t batch, StepReport* report) {
  if (launch == nullptr) return trainer->Step(batch);
  PLUMB_RETURN_IF_ERROR(TellRanks(launch, {RankOrder::kStep, batch}));
  absl::StatusOr<plumb_step_info> stepped = trainer->Step(batch);
  if (!stepped.ok() && !absl::IsAborted(stepped.status())) return stepped;
  PLUMB_ASSIGN_OR_RETURN(const bool wanted, launch->Any(false));
  report->stop_wanted = report->stop_wanted || wanted;
  return stepped;
}

absl::Status TrainRun::Impl::CheckFinite() const {
  if (launch == nullptr) return CallPlumb(plumb_trainer_check, trainer->get());
  // Each looks at what it has of the optimizer's states.
  PLUMB_RETURN_IF_ERROR(TellRanks(launch, {RankOrder::kCheckFinite}));
  return WhereAllAreWell(CallPlumb(plumb_trainer_check, trainer->get()));
}

absl::Status TrainRun::Impl::WithStates(absl::FunctionRef<absl::Status()> use) {
  if (launch == nullptr) return use();
  PLUMB_RETURN_IF_ERROR(TellRanks(launch, {RankOrder::kShareStates}));
  StatesUse states = {use, absl::OkStatus()};
  const absl::Status shared = CallPlumb(plumb_trainer_share_states, trainer->get(),
                                        &StatesUse::Call, static_cast<void*>(&states));
  return states.status.ok() ? shared : states.status;
}

CheckpointWriters TrainRun::Impl::Writers() {
  return {launch->ranks(), trainer->get(), info.out, plumb_model_tensor_count(model.get())};
}

absl::Status TrainRun::Impl::WriteStates(const std::string& directory,
                                         CheckpointContents::Write write) {
  constexpr char kVariable[] = "PLUMB_CHECKPOINT_WRITERS";
  const char* const said = std::getenv(kVariable);
  const absl::string_view writers_wanted = said == nullptr ? "" : said;
  if (!writers_wanted.empty() && writers_wanted != "ONE" && writers_wanted != "ALL") {
    return absl::InvalidArgumentError(
        absl::StrCat(kVariable, ": is ONE, ALL or nothing, not ", writers_wanted));
  }
  if (launch != nullptr && ranks_are_alike && writers_wanted != "ONE") {
    PLUMB_RETURN_IF_ERROR(TellRanks(launch, {RankOrder::kCheckpoint}));
    CheckpointWriters writers = Writers();
    const size_t name = directory.rfind('/') + 1;
    PLUMB_ASSIGN_OR_RETURN(const int blind, writers.Begin(directory.substr(name)));
    if (blind < 0) {
      const auto together = [&](const std::string&, const char* file,
                                const SafetensorsImage& image) {
        const bool is_model = absl::string_view(file) == kModelFile;
        return writers.Write(file, is_model ? PLUMB_STATE_MODEL : PLUMB_STATE_OPTIMIZER, image);
      };
      const absl::Status written = write(together);
      const absl::Status ended = writers.End();
      return written.ok() ? ended : written;
    }
    if (writers_wanted == "ALL") {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", blind, " on host ", launch->hosts()[static_cast<size_t>(blind)],
                       ": does not see ", directory, ", which all ranks are to write (", kVariable,
                       "=ALL); without that rank 0 writes alone"));
    }
  }
  return WithStates([&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(write(&WriteTensorFile));
    return CheckStatesWereHere(trainer->get());
  });
}

absl::StatusOr<int> TrainRun::Impl::Follow(const std::function<bool()>& wants_stop) {
  for (;;) {
    RankOrder order = {};
    PLUMB_RETURN_IF_ERROR(Broadcast(launch->ranks(), 0, &order, sizeof(order)));
    switch (order.kind) {
      case RankOrder::kStep: {
        const absl::Status stepped = trainer->Step(order.argument).status();
        // What comes of a step that diverged is rank 0's to decide.
        if (!stepped.ok() && !absl::IsAborted(stepped)) return stepped;
        PLUMB_RETURN_IF_ERROR(launch->Any(wants_stop()).status());
        break;
      }
      case RankOrder::kCheckFinite: {
        const absl::Status finite = CallPlumb(plumb_trainer_check, trainer->get());
        const absl::Status all = AllOk(launch->ranks(), finite);
        if (!all.ok() && !absl::IsAborted(all)) return all;
        break;
      }
      case RankOrder::kShareStates: {
        const auto nothing = [] { return absl::OkStatus(); };
        StatesUse none = {nothing, absl::OkStatus()};
        const absl::Status shared = CallPlumb(plumb_trainer_share_states, trainer->get(),
                                              &StatesUse::Call, static_cast<void*>(&none));
        // Rank 0 has the error, and says what comes of it.
        if (!shared.ok() && !absl::IsCancelled(shared)) return shared;
        break;
      }
      case RankOrder::kCheckpoint:
        PLUMB_RETURN_IF_ERROR(Writers().Follow());
        break;
      case RankOrder::kEnd:
        return static_cast<int>(order.argument);
      default:
        return absl::InternalError(
            absl::StrCat("rank 0 orders ", static_cast<int64_t>(order.kind)));
    }
  }
}

absl::StatusOr<int> TrainRun::Follow(const std::function<bool()>& wants_stop) {
  return OrOutOfMemory("a training step", [&] { return impl_->Follow(wants_stop); });
}

absl::Status TrainRun::EndFollowers(int exit_code) {
  if (impl_->launch == nullptr) return absl::OkStatus();
  return TellRanks(impl_->launch, {RankOrder::kEnd, exit_code});
}

}  // namespace plumb
