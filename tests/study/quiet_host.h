// SPDX-License-Identifier: Apache-2.0
// Host of studies in tests: shows nothing, and can interrupt them.
#ifndef PLUMB_TESTS_STUDY_QUIET_HOST_H_
#define PLUMB_TESTS_STUDY_QUIET_HOST_H_

#include <functional>
#include <memory>
#include <utility>

#include "runtime/study/study_host.h"
#include "tests/app/test_models.h"

namespace plumb {

class QuietHost : public StudyHost {
 public:
  explicit QuietHost(std::function<bool()> is_interrupted = nullptr)
      : is_interrupted_(std::move(is_interrupted)) {}

  absl::StatusOr<std::unique_ptr<HostRuntime>> CreateRuntime(int threads) override {
    return MakeHostRuntime(threads);
  }
  bool IsInterrupted() override { return is_interrupted_ != nullptr && is_interrupted_(); }

 private:
  const std::function<bool()> is_interrupted_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_STUDY_QUIET_HOST_H_
