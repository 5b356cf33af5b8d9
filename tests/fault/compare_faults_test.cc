// SPDX-License-Identifier: Apache-2.0
// Each file call of a comparison fails once, is short once, and is the last before a power loss
// once. The same comparison then ends with the results of an undisturbed one, and a run that had
// ended is not trained again.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"
#include "runtime/study/study_directory.h"
#include "runtime/study/train_runs.h"
#include "tests/app/test_run.h"
#include "tests/fault/fault_file_system.h"
#include "tests/study/quiet_host.h"

namespace plumb {
namespace {

class CompareFaultsTest : public ::testing::Test {
 protected:
  CompareFaultsTest() {
    test_.dir().Write("other.pbtxt", absl::StrCat(kTestModel, "tie_embeddings: true\n"));
    for (const char* model : {"model.pbtxt", "other.pbtxt"}) {
      study_.fields.add_model(test_.dir().File(model));
    }
    study_.fields.set_data(test_.dir().File("data.txt"));
    study_.fields.set_train(test_.dir().File("train.pbtxt"));
    for (const char* setting :
         {"train.max_steps=3", "train.checkpoint_interval=2", "train.checkpoint_seconds=0"}) {
      study_.fields.add_set(setting);
      study_.set_places.push_back(setting);
    }
    study_.fields.add_seed(1);
    study_.fields.set_samples(1);
  }

  // Returns the losses and samples of all runs as text.
  absl::StatusOr<std::string> Compare() {
    absl::StatusOr<StudyPlan> plan = MakePlan(study_, test_.out(), test_.runtime());
    if (!plan.ok()) return plan.status();
    const auto lock = StudyLock::Acquire(test_.out());
    if (!lock.ok()) return lock.status();
    const auto claimed = ClaimDirectory(*plan, /*overwrite=*/false);
    if (!claimed.ok()) return claimed.status();
    const absl::StatusOr<StudyRequirements> requirements = ComputeRequirements(*plan, 1);
    if (!requirements.ok()) return requirements.status();
    QuietHost host;
    const absl::Status ran = TrainRuns(*plan, requirements->division, /*ranks=*/nullptr, &host);
    if (!ran.ok()) return ran;
    const absl::StatusOr<StudyResults> results = CollectResults(*plan);
    if (!results.ok()) return results.status();
    std::string text;
    for (const RunRecord& record : results->records) {
      for (const double loss : record.losses) absl::StrAppend(&text, loss, " ");
      for (const RunSample& sample : record.result.samples) absl::StrAppend(&text, sample.text);
      absl::StrAppend(&text, "\n");
    }
    return text;
  }

  // Returns the inode numbers of the existing results by path.
  std::map<std::string, ino_t> Ended() const {
    std::map<std::string, ino_t> ended;
    if (!FileExists(test_.out())) return ended;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(test_.out())) {
      struct stat info;
      if (entry.path().filename() == "result.json" && stat(entry.path().c_str(), &info) == 0) {
        ended[entry.path().string()] = info.st_ino;
      }
    }
    return ended;
  }

  const TestRun test_;
  Study study_;
};

TEST_F(CompareFaultsTest, LosesNothing) {
  FaultFileSystem faultless{Fault{}};
  std::string whole;
  {
    const ScopedFileSystem scoped(&faultless);
    const auto compared = Compare();
    ASSERT_TRUE(compared.ok()) << compared.status();
    whole = *compared;
  }
  int64_t faults = 0, refused = 0;
  const FaultStride stride;
  for (const Fault::Kind kind : {Fault::Kind::kFail, Fault::Kind::kShort, Fault::Kind::kLast}) {
    for (int64_t at = stride.First(kind); at < faultless.calls(); at += stride.step()) {
      if (kind == Fault::Kind::kShort && !faultless.MovesBytes(at)) continue;
      std::filesystem::remove_all(test_.out());
      FaultFileSystem files{Fault{kind, at, at % 2 == 0 ? EIO : EMFILE}};
      absl::Status status;
      {
        const ScopedFileSystem scoped(&files);
        status = Compare().status();
      }
      if (kind == Fault::Kind::kLast) files.CutPower();
      SCOPED_TRACE(absl::StrCat(Fault{kind, at, 0}.ToString(), ", ", files.faulty_call(),
                                "; then: ", status.ToString()));
      ++faults;
      if (!status.ok()) ++refused;
      EXPECT_TRUE(kind != Fault::Kind::kShort || status.ok());
      const std::map<std::string, ino_t> ended = Ended();
      FaultFileSystem saves_syncs{Fault{}};
      const ScopedFileSystem scoped(&saves_syncs);
      const auto again = Compare();
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, whole);
      const std::map<std::string, ino_t> ended_now = Ended();
      for (const auto& [path, number] : ended) EXPECT_EQ(ended_now.at(path), number) << path;
      if (HasFailure()) return;
    }
  }
  std::cout << "compare: " << faultless.calls() << " calls, " << stride.ToString() << ", " << faults
            << " faults, " << refused << " of them ended the program with an error, 0 lost"
            << std::endl;
}

}  // namespace
}  // namespace plumb
