// SPDX-License-Identifier: Apache-2.0
// runs.hpp: the part of plumb.hpp, which includes it, for run directories and studies.
#ifndef PLUMB_RUNS_HPP_
#define PLUMB_RUNS_HPP_

#include <cstdint>
#include <string>
#include <utility>

#include "plumb.h"
#include "plumb/base.hpp"
#include "plumb/models.hpp"
#include "plumb/runtime.hpp"
#include "plumb/texts.hpp"

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {
  // Model and tokenizer of a run, trained or imported. A movable value.
  struct Run {
    Model model;  // with the weights of the newest checkpoint
    Tokenizer tokenizer;
    std::int64_t step = 0;  // number of completed steps; 0 for an imported run

    // Opens a run or one of its checkpoints (plumb_run_open). `average`: takes the average of the
    // weights (ema_decay of the recipe).
    static Result<Run> Open(Runtime& runtime, const std::string& path, bool average = false) {
      plumb_tokenizer* tokenizer = nullptr;
      std::int64_t step = 0;
      auto model = internal::Make<Model::Handle>(
          [&](plumb_model** made, plumb_error** error) {
            return plumb_run_open(runtime.get(), path.c_str(), average ? PLUMB_RUN_AVERAGE : 0,
                                  made, &tokenizer, &step, error);
          },
          runtime.handle_.get_deleter().host);
      if (!model) return model.error();
      return Run{Model(*std::move(model)), Tokenizer(Tokenizer::Handle(tokenizer)), step};
    }
  };

  // Trains a run like `plumb train` (plumb_run_train). Its callback must not throw.
  inline Result<void> TrainRun(Runtime & runtime, const plumb_run_training& training) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_run_train(runtime.get(), &training, error); });
  }

  // Runs the study in a file like `plumb compare` (plumb_study_run). Its callback must not throw.
  inline Result<void> RunStudy(const std::string& study, const plumb_study_options& options) {
    return internal::Call(
        [&](plumb_error** error) { return plumb_study_run(study.c_str(), &options, error); });
  }

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_RUNS_HPP_
