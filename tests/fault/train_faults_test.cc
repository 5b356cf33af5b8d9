// SPDX-License-Identifier: Apache-2.0
// Each file call of training and of resuming fails once, is short once, and is the last before a
// power loss once. In each case the run continues from a complete checkpoint, which is not older
// than the last one that it reported, to the same bits as an undisturbed run; or an error gives the
// reason, and the directory can be used again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/client/model.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/metrics.h"
#include "runtime/train/trained_model.h"
#include "tests/app/test_run.h"
#include "tests/fault/fault_file_system.h"

namespace plumb {
namespace {

// Results of a run, which must not depend on faults.
struct Outcome {
  std::string weights;
  std::vector<double> losses;
};

// Result of a run with a fault.
struct Attempt {
  absl::Status status;
  int64_t checkpoint = 0;  // step of the last reported checkpoint
};

class TrainFaultsTest : public ::testing::Test {
 protected:
  TrainFaultsTest() {
    RunOptions().swap(overrides_);
    Train(test_.Request(File("whole")), nullptr);
    whole_ = Read(File("whole"));
  }

  std::string File(const std::string& name) const { return test_.dir().File(name); }
  static Overrides RunOptions() {
    return {{"max_steps", "5"},        {"checkpoint_interval", "2"}, {"checkpoint_seconds", "0"},
            {"keep_checkpoints", "1"}, {"eval_interval", "3"},       {"eval_batches", "1"}};
  }

  // Takes at most `steps` steps, until the end or an error.
  Attempt Train(TrainRequest request, std::string* first_error, int steps = 100) {
    if (!request.resume) {
      request.train_overrides = overrides_;
      request.probe.every = 3;
    }
    Attempt attempt;
    auto run = TrainRun::Open(test_.runtime(), request);
    attempt.status = run.status();
    while (attempt.status.ok() && !(*run)->done() && steps-- > 0) {
      const absl::StatusOr<StepReport> report = (*run)->Step();
      attempt.status = report.status();
      if (report.ok() && !report->checkpoint.empty()) attempt.checkpoint = report->step;
    }
    test_.runtime()->TakeWarnings();
    if (first_error != nullptr) *first_error = std::string(attempt.status.message());
    return attempt;
  }

  static Outcome Read(const std::string& run) {
    Outcome outcome;
    const auto latest = FindLatestCheckpoint(run);
    EXPECT_TRUE(latest.ok()) << latest.status();
    if (!latest.ok()) return outcome;
    const auto weights = ReadFile(JoinPath(*latest, "model.safetensors"));
    EXPECT_TRUE(weights.ok()) << weights.status();
    if (weights.ok()) outcome.weights = *weights;
    const auto metrics = ReadMetrics(JoinPath(run, "metrics.csv"));
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (metrics.ok()) {
      for (const StepMetrics& line : *metrics) outcome.losses.push_back(line.loss);
    }
    return outcome;
  }
  void ExpectWhole(const std::string& run) const {
    const Outcome outcome = Read(run);
    EXPECT_EQ(outcome.weights, whole_.weights);
    EXPECT_EQ(outcome.losses, whole_.losses);
  }

  // Checks after a fault that the run ends like the undisturbed one, whatever its state is.
  void Recover(const Attempt& attempt) {
    FaultFileSystem files{Fault{}};  // without a fault, only skips the syncs
    const ScopedFileSystem scoped(&files);
    TrainRequest request = test_.Resume();
    std::string error;
    auto run = TrainRun::Open(test_.runtime(), request);
    if (!run.ok()) {
      EXPECT_EQ(attempt.checkpoint, 0) << "a checkpoint is lost: " << run.status();
      EXPECT_FALSE(run.status().message().empty());
      // No checkpoint existed, so the directory takes a new run, perhaps after it is emptied.
      if (!Train(test_.Request(test_.out()), &error).status.ok()) {
        EXPECT_NE(error.find(test_.out()), std::string::npos) << error;
        std::filesystem::remove_all(test_.out());
        EXPECT_TRUE(Train(test_.Request(test_.out()), &error).status.ok()) << error;
      }
      ExpectWhole(test_.out());
      return;
    }
    EXPECT_GE((*run)->step(), attempt.checkpoint);
    while (!(*run)->done()) {
      const absl::StatusOr<StepReport> report = (*run)->Step();
      ASSERT_TRUE(report.ok()) << report.status();
    }
    run->reset();
    test_.runtime()->TakeWarnings();
    ExpectWhole(test_.out());
  }

  // Runs `program` after `prepare` with a fault at each of its calls.
  void StepThrough(const char* name, const std::function<void()>& prepare,
                   const std::function<Attempt()>& program) {
    FaultFileSystem faultless{Fault{}};
    prepare();
    {
      const ScopedFileSystem scoped(&faultless);
      const Attempt attempt = program();
      ASSERT_TRUE(attempt.status.ok()) << attempt.status;
    }
    const int64_t calls = faultless.calls();
    ExpectWhole(test_.out());
    int64_t trials = 0, refused = 0;
    const FaultStride stride;
    for (const Fault::Kind kind : {Fault::Kind::kFail, Fault::Kind::kShort, Fault::Kind::kLast}) {
      for (int64_t at = stride.First(kind); at < calls; at += stride.step()) {
        if (kind == Fault::Kind::kShort && !faultless.MovesBytes(at)) continue;
        const int error = at % 2 == 0 ? EIO : ENOSPC;
        FaultFileSystem files{Fault{kind, at, error}};
        prepare();
        Attempt attempt;
        {
          const ScopedFileSystem scoped(&files);
          attempt = program();
        }
        if (kind == Fault::Kind::kLast) files.CutPower();
        SCOPED_TRACE(absl::StrCat(Fault{kind, at, error}.ToString(), ", ", files.faulty_call(),
                                  "; then: ", attempt.status.ToString()));
        ++trials;
        if (!attempt.status.ok()) ++refused;
        EXPECT_TRUE(kind != Fault::Kind::kShort || attempt.status.ok());
        Recover(attempt);
        if (HasFailure()) return;
      }
    }
    std::cout << name << ": " << calls << " calls, " << stride.ToString() << ", " << trials
              << " faults, " << refused << " of them ended the program with an error, 0 lost"
              << std::endl;
  }

  TestRun test_;
  Overrides overrides_;
  Outcome whole_;
};

TEST_F(TrainFaultsTest, TrainingLosesNothing) {
  StepThrough(
      "train", [this] { std::filesystem::remove_all(test_.out()); },
      [this] { return Train(test_.Request(test_.out()), nullptr); });
}

TEST_F(TrainFaultsTest, ResumingLosesNothing) {
  ASSERT_TRUE(Train(test_.Request(File("begun")), nullptr, 3).status.ok());
  StepThrough(
      "resume",
      [this] {
        std::filesystem::remove_all(test_.out());
        std::filesystem::copy(File("begun"), test_.out(), std::filesystem::copy_options::recursive);
      },
      [this] {
        Attempt attempt = Train(test_.Resume(), nullptr);
        attempt.checkpoint = std::max<int64_t>(attempt.checkpoint, 2);
        return attempt;
      });
}

// An export replaces an existing file. Afterwards the file is completely the old or the new one.
TEST_F(TrainFaultsTest, ExportingLeavesTheOldFileOrTheNew) {
  const auto spec = ReadSpec(JoinPath(File("whole"), "model.pbtxt"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  auto model = CreateModel(test_.runtime(), *spec);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE(model->Init(1).ok());
  const std::string path = File("weights.safetensors");
  ASSERT_TRUE(model->Save(path).ok());
  const std::string exported = ReadFile(path).value();
  int64_t calls = 1;
  for (const Fault::Kind kind : {Fault::Kind::kFail, Fault::Kind::kShort, Fault::Kind::kLast}) {
    for (int64_t at = 0; at < calls; ++at) {
      ScratchDir::Overwrite(path, "old");
      FaultFileSystem files{Fault{kind, at, at % 2 == 0 ? EIO : ENOSPC}};
      absl::Status status;
      {
        const ScopedFileSystem scoped(&files);
        status = ToStatus(model->Save(path));
      }
      calls = std::max(calls, files.calls());
      if (kind == Fault::Kind::kLast) files.CutPower();
      const std::string content = ReadFile(path).value();
      SCOPED_TRACE(absl::StrCat(files.faulty_call(), ": ", status.ToString()));
      EXPECT_TRUE(content == "old" || content == exported);
      EXPECT_TRUE(!status.ok() || content == exported);
      EXPECT_TRUE(kind != Fault::Kind::kShort || status.ok());
    }
  }
  std::cout << "export: " << calls << " calls, 0 lost" << std::endl;
}

}  // namespace
}  // namespace plumb
