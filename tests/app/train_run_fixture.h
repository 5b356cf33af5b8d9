// SPDX-License-Identifier: Apache-2.0
// Runs of a small model in a scratch directory, and accessors to the files there.
#ifndef PLUMB_TESTS_APP_TRAIN_RUN_FIXTURE_H_
#define PLUMB_TESTS_APP_TRAIN_RUN_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/train/metrics.h"
#include "runtime/train/train_run.h"
#include "tests/app/test_run.h"

namespace plumb {

class TrainRunTest : public ::testing::Test {
 protected:
  void ExpectError(const TrainRequest& request, absl::StatusCode code,
                   const std::vector<std::string>& said) {
    const absl::Status status = test_.OpenError(request);
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : said) {
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
    }
  }
  std::string RunFile(const std::string& name) const { return JoinPath(test_.out(), name); }
  static std::string Content(const std::string& path) {
    const auto content = ReadFile(path);
    EXPECT_TRUE(content.ok()) << content.status();
    return content.ok() ? *content : "";
  }
  // Returns the metrics without the times.
  std::vector<std::string> Metrics() const {
    std::vector<std::string> lines;
    const auto metrics = ReadMetrics(RunFile("metrics.csv"));
    if (!metrics.ok()) {
      ADD_FAILURE() << metrics.status();
      return lines;
    }
    for (const StepMetrics& line : *metrics) {
      lines.push_back(absl::StrCat(line.step, " ", line.loss, " ", line.learning_rate, " ",
                                   line.gradient_norm, " ", line.tokens));
    }
    return lines;
  }
  // Takes `steps` steps of a new run and closes it.
  void Begin(int steps, const Overrides& overrides = {}) {
    TrainRequest request = test_.Request(test_.out());
    request.train_overrides = overrides;
    const auto run = test_.Open(request);
    TestRun::Steps(run.get(), steps);
  }

  const TestRun test_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_TRAIN_RUN_FIXTURE_H_
