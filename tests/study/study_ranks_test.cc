// SPDX-License-Identifier: Apache-2.0
// Tests of a study on several ranks, which are threads in these tests.
#include "runtime/study/study_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/ranks/local_ranks.h"
#include "runtime/report/tables.h"
#include "runtime/study/results.h"
#include "runtime/study/study_directory.h"
#include "runtime/study/train_runs.h"
#include "tests/app/test_run.h"
#include "tests/study/quiet_host.h"

namespace plumb {
namespace {

class StudyRanksTest : public ::testing::Test {
 protected:
  StudyRanksTest() {
    study_.fields.add_model(test_.dir().File("model.pbtxt"));
    study_.fields.set_data(test_.dir().File("data.txt"));
    study_.fields.set_train(test_.dir().File("train.pbtxt"));
    for (const char* setting :
         {"train.max_steps=12", "train.checkpoint_interval=4", "train.checkpoint_seconds=0"}) {
      study_.fields.add_set(setting);
      study_.set_places.push_back(setting);
    }
    study_.fields.set_seeds(7);
    study_.fields.set_samples(1);
  }

  std::string Directory(const std::string& name) { return test_.dir().File(name); }

  // Trains the study on `size` ranks; a rank stops if `interrupted(rank)` returns true.
  std::vector<absl::Status> Train(const std::string& out, int size,
                                  const std::function<bool(int rank)>& interrupted = nullptr) {
    return RunRanks(size, [&](Communicator* ranks) -> absl::Status {
      const int rank = ranks->rank();
      const std::unique_ptr<HostRuntime> runtime = MakeHostRuntime(1);
      const std::string mine = rank == 0 ? out : absl::StrCat(out, "-rank", rank);
      const absl::StatusOr<StudyPlan> plan = MakePlan(study_, mine, runtime.get());
      if (!plan.ok()) return plan.status();
      StudyDivision division;
      division.workers = 1 + rank % 2;
      QuietHost host([&, rank] { return interrupted != nullptr && interrupted(rank); });
      return TrainRuns(*plan, division, ranks, &host);
    });
  }

  std::string Table(const std::string& out) {
    const absl::StatusOr<StudyPlan> plan = MakePlan(study_, out, test_.runtime());
    if (!plan.ok()) return "";
    const absl::StatusOr<StudyResults> results = CollectResults(*plan);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? TableCsv(*plan, *results) : "";
  }

  TestRun test_;
  Study study_;
};

TEST_F(StudyRanksTest, RanksDoNotChangeTheTable) {
  std::string table;
  for (int size : {1, 2, 3, 4}) {
    const std::string out = Directory(absl::StrCat("study", size));
    for (const absl::Status& status : Train(out, size)) ASSERT_TRUE(status.ok()) << status;
    if (size == 1) table = Table(out);
    EXPECT_FALSE(table.empty());
    EXPECT_EQ(Table(out), table) << size;
    // The other ranks have sent all their files.
    for (int rank = 1; rank < size; ++rank) {
      const auto left = ListRunFiles(absl::StrCat(out, "-rank", rank));
      EXPECT_TRUE(!left.ok() || left->empty()) << rank;
    }
  }
}

TEST_F(StudyRanksTest, AnInterruptedStudyResumesOnOtherRanks) {
  const std::string whole = Directory("whole"), out = Directory("study");
  for (const absl::Status& status : Train(whole, 1)) ASSERT_TRUE(status.ok()) << status;
  const auto stopped = Train(out, 3, [](int rank) { return rank == 2; });
  EXPECT_TRUE(absl::IsCancelled(stopped[0])) << stopped[0];
  EXPECT_TRUE(stopped[1].ok() && stopped[2].ok()) << stopped[1] << stopped[2];
  for (const absl::Status& status : Train(out, 2)) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Table(out), Table(whole));
}

TEST_F(StudyRanksTest, ErrorOfOneRankEndsAll) {
  const std::string out = Directory("study");
  // A file occupies the directory of the other rank's runs.
  std::filesystem::create_directory(Directory("study-rank1"));
  test_.dir().Write("study-rank1/runs", "");
  const std::vector<absl::Status> ended = Train(out, 2);
  EXPECT_FALSE(ended[1].ok());
  EXPECT_FALSE(absl::IsAborted(ended[1])) << ended[1];
}

TEST_F(StudyRanksTest, RefusesFilesOutsideTheRun) {
  absl::StatusOr<IncomingRun> run = IncomingRun::Begin(Directory("run"));
  ASSERT_TRUE(run.ok());
  for (const char* path : {"../other", "/etc/passwd", "", "a/../../b", "a//b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(run->Add(path, ""))) << path;
  }
  ASSERT_TRUE(run->Add("checkpoints/step-1/state.json", "{}").ok());
  EXPECT_FALSE(FileExists(Directory("run")));
  ASSERT_TRUE(run->Finish().ok());
  EXPECT_EQ(*ListRunFiles(Directory("run")),
            std::vector<std::string>{"checkpoints/step-1/state.json"});
}

}  // namespace
}  // namespace plumb
