// SPDX-License-Identifier: Apache-2.0
// A scratch directory with a small model, its training and its data, and requests to train it.
#ifndef PLUMB_TESTS_APP_TEST_RUN_H_
#define PLUMB_TESTS_APP_TEST_RUN_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/train/train_run.h"
#include "tests/app/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {

inline constexpr char kTestModel[] = R"pbtxt(
  n_layer: 2 n_head: 2 d_model: 8 context_length: 10
  block { placement: "pre" norm: "rms_norm" }
)pbtxt";

inline constexpr char kTestTraining[] = R"pbtxt(
  max_steps: 8 batch_size: 2 learning_rate: 0.01 warmup_steps: 2 schedule: COSINE
  data { format: DOCUMENTS val_fraction: 0.25 }
)pbtxt";

class TestRun {
 public:
  explicit TestRun(int threads = 1) : runtime_(MakeHostRuntime(threads)) {
    dir_.Write("model.pbtxt", kTestModel);
    dir_.Write("train.pbtxt", kTestTraining);
    std::string data;
    for (int i = 0; i < 40; ++i) {
      absl::StrAppend(&data,
                      std::string(static_cast<size_t>(1 + i % 7), static_cast<char>('a' + i % 5)),
                      i % 3 == 0 ? "ab" : "", "\n");
    }
    dir_.Write("data.txt", data);
  }

  HostRuntime* runtime() const { return runtime_.get(); }
  const ScratchDir& dir() const { return dir_; }
  std::string out() const { return dir_.File("run"); }

  // Returns a request to train the model from the files above into out(); "" writes nothing.
  TrainRequest Request(const std::string& out) const {
    TrainRequest request;
    request.model_path = dir_.File("model.pbtxt");
    request.train_path = dir_.File("train.pbtxt");
    request.data_path = dir_.File("data.txt");
    request.out = out;
    return request;
  }
  TrainRequest Resume() const {
    TrainRequest request;
    request.data_path = dir_.File("data.txt");
    request.out = out();
    request.resume = true;
    return request;
  }

  std::unique_ptr<TrainRun> Open(const TrainRequest& request) const {
    auto run = TrainRun::Open(runtime_.get(), request);
    if (!run.ok()) {
      ADD_FAILURE() << run.status();
      return nullptr;
    }
    return *std::move(run);
  }
  absl::Status OpenError(const TrainRequest& request) const {
    return TrainRun::Open(runtime_.get(), request).status();
  }

  // Takes up to `n` steps. Returns their losses.
  static std::vector<double> Steps(TrainRun* run, int n) {
    std::vector<double> losses;
    if (run == nullptr) return losses;  // Open has reported the error
    for (int i = 0; i < n && !run->done(); ++i) {
      const auto step = run->Step();
      if (!step.ok()) {
        ADD_FAILURE() << step.status();
        break;
      }
      losses.push_back(step->loss);
    }
    return losses;
  }

 private:
  const std::unique_ptr<HostRuntime> runtime_;
  ScratchDir dir_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_TEST_RUN_H_
