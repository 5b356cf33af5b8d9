// SPDX-License-Identifier: Apache-2.0
// TrainRun on several ranks: messages of rank 0 when it resumes, and the actions of the other
// ranks.
#include <utility>

#include "runtime/base/status.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/train/train_run.h"
#include "runtime/train/train_run_state.h"

namespace plumb {

absl::Status TrainRunState::SendRunFiles(const Tokenizer& tokenizer) {
  std::string vocabulary = tokenizer.ToJson();
  std::string special = GenerationConfigJson(tokenizer.special_tokens());
  return ranks->BroadcastTexts({&recipe.text, &model_text, &vocabulary, &special});
}

absl::Status TrainRunState::ReadRunFilesOfRankZero(const TrainRequest& request) {
  std::string train_text, whole_model, vocabulary, special_text;
  PLUMB_RETURN_IF_ERROR(
      ranks->BroadcastTexts({&train_text, &whole_model, &vocabulary, &special_text}));
  PLUMB_ASSIGN_OR_RETURN(recipe, ParseRecipe(train_text, RunTrainPath(request.out), {}));
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec,
                         ToStatus(api::Spec::FromText(whole_model, RunModelPath(request.out))));
  PLUMB_RETURN_IF_ERROR(CreateModel(spec));
  PLUMB_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::FromJson(vocabulary));
  PLUMB_ASSIGN_OR_RETURN(SpecialTokens special, SpecialTokensOfJson(special_text, "special tokens",
                                                                    tokenizer.vocab_size()));
  tokenizer.set_special_tokens(std::move(special));
  return LoadData(request.data_path, tokenizer);
}

absl::Status TrainRunState::OpenFollower(const TrainRequest& request, bool resumes) {
  PLUMB_RETURN_IF_ERROR(ranks->AllOk(resumes ? ReadRunFilesOfRankZero(request) : ReadNew(request)));
  return CreateTrainer(request);
}

absl::StatusOr<int> TrainRun::Follow(const std::function<bool()>& wants_stop) {
  const auto step = [this](int64_t batch) { return state_->StepOn(batch).status(); };
  return OrOutOfMemory("a training step", [&] { return state_->ranks->Follow(step, wants_stop); });
}

absl::Status TrainRun::EndFollowers(int exit_code) {
  return state_->ranks == nullptr ? absl::OkStatus() : state_->ranks->End(exit_code);
}

}  // namespace plumb
