// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "tests/formats/event_records.h"
#include "tests/session/count_mallocs.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class EventFileTest : public ::testing::Test {
 protected:
  EventFileOptions Options(int64_t first_step = 1) {
    EventFileOptions options;
    options.host = "host";
    options.clock = [this] { return now_; };
    options.first_step = first_step;
    return options;
  }
  EventFile Create(int64_t first_step = 1) {
    auto file = EventFile::Create(dir_.path(), Options(first_step));
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  static void Add(EventFile* file, int64_t first, int64_t last, double value) {
    for (int64_t step = first; step <= last; ++step) {
      const EventScalar scalars[] = {{"train/loss", value + static_cast<double>(step)},
                                     {"train/lr", 0.5}};
      ASSERT_TRUE(file->AddScalars(step, scalars).ok());
    }
  }
  static std::string Content(const EventFile& file) { return *ReadFile(file.path()); }
  std::vector<DecodedFile> Decode() const { return DecodeEventFiles(dir_.path()); }

  double now_ = 1700000000.25;
  ScratchDir dir_;
};

// The bytes are those of TensorFlow's writer for the same event.
TEST_F(EventFileTest, BeginsWithTheRecordThatTensorFlowBeginsWith) {
  now_ = 256.5;
  const EventFile file = Create();
  const absl::string_view expected(
      "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"
      "\x09\0\0\0\0\0\x08\x70\x40\x1a\x0d"
      "brain.Event:2\xbc\x98\x21\x2b",
      40);
  EXPECT_EQ(Content(file).substr(0, 40), expected);
}

TEST_F(EventFileTest, ScalarsAndTextsReadBack) {
  {
    EventFile file = Create(7);
    now_ += 0.5;
    const EventScalar scalars[] = {{"train/loss", 0.1}, {"train/lr", 3e-4}};
    ASSERT_TRUE(file.AddScalars(7, scalars).ok());
    ASSERT_TRUE(file.AddScalars(int64_t{1} << 40, scalars).ok());
    ASSERT_TRUE(file.AddText(7, "equations", "x = x + f(norm(x))\n\xc3\xa9").ok());
  }
  const std::vector<DecodedFile> files = Decode();
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].torn_bytes, 0u);
  const std::vector<DecodedEvent>& events = files[0].events;
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.25);
  EXPECT_EQ(events[1].session_status, 1);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[2].step, 7);
  EXPECT_EQ(events[2].wall_time, 1700000000.75);
  EXPECT_THAT(events[2].scalars, ElementsAre(Pair("train/loss", 0.1f), Pair("train/lr", 3e-4f)));
  EXPECT_THAT(events[2].plugins,
              ElementsAre(Pair("train/loss", "scalars"), Pair("train/lr", "scalars")));
  // The plugin of a tag is written once.
  EXPECT_EQ(events[3].scalars, events[2].scalars);
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
  EXPECT_THAT(events[3].plugins, IsEmpty());
  EXPECT_THAT(events[4].texts, ElementsAre(Pair("equations", "x = x + f(norm(x))\n\xc3\xa9")));
  EXPECT_THAT(events[4].plugins, ElementsAre(Pair("equations", "text")));
}

TEST_F(EventFileTest, ATagThatComesLaterIsDescribedThen) {
  {
    EventFile file = Create();
    Add(&file, 1, 1, 0);
    ASSERT_TRUE(file.AddScalars(2, {{"train/loss", 1}, {"val/loss", 2}}).ok());
    ASSERT_TRUE(file.AddScalars(3, {}).ok());
  }
  const std::vector<DecodedEvent> events = Decode()[0].events;
  ASSERT_EQ(events.size(), 5u);
  EXPECT_THAT(events[3].plugins, ElementsAre(Pair("val/loss", "scalars")));
  EXPECT_THAT(events[4].scalars, IsEmpty());
}

TEST_F(EventFileTest, NumbersBeyondF32AreInfinite) {
  {
    EventFile file = Create();
    ASSERT_TRUE(
        file.AddScalars(1, {{"a", 1e300}, {"b", -1e300}, {"c", kInfinity}, {"d", NAN}}).ok());
  }
  const std::map<std::string, float> scalars = Decode()[0].events[2].scalars;
  EXPECT_EQ(scalars.at("a"), kInfinity);
  EXPECT_EQ(scalars.at("b"), -kInfinity);
  EXPECT_EQ(scalars.at("c"), kInfinity);
  EXPECT_TRUE(std::isnan(scalars.at("d")));
}

TEST_F(EventFileTest, AResumedRunShowsEveryStepOnce) {
  {
    EventFile file = Create();
    Add(&file, 1, 20, 100);
  }
  {
    EventFile file = Create(11);  // resumed from a checkpoint of step 10
    Add(&file, 11, 15, 200);
  }
  {
    EventFile file = Create(13);
    Add(&file, 13, 16, 300);
  }
  const std::vector<DecodedFile> files = Decode();
  ASSERT_EQ(files.size(), 3u);
  std::map<int64_t, float> expected;
  for (int step = 1; step <= 16; ++step) {
    expected[step] = static_cast<float>(step + (step <= 10 ? 100 : step <= 12 ? 200 : 300));
  }
  EXPECT_EQ(Shown(files, "train/loss"), expected);
}

TEST_F(EventFileTest, NamesAreInTheOrderOfTheSessionsWhateverTheClockSays) {
  EXPECT_THAT(Create().path(), EndsWith("/events.out.tfevents.1700000000.host.plumb"));
  EXPECT_THAT(Create().path(), EndsWith("/events.out.tfevents.1700000001.host.plumb"));
  now_ = 1600000000;  // the clock was set back
  EXPECT_THAT(Create().path(), EndsWith("/events.out.tfevents.1700000002.host.plumb"));
  now_ = 1700000009.9;
  EXPECT_THAT(Create().path(), EndsWith("/events.out.tfevents.1700000009.host.plumb"));
  dir_.Write("events.out.tfevents.1800000000.elsewhere.17.0.v2", "");
  EXPECT_THAT(Create().path(), EndsWith("/events.out.tfevents.1800000001.host.plumb"));
}

TEST_F(EventFileTest, OddClocksHostsAndNeighboursGiveAName) {
  for (const double odd : {-5.0, 0.0, std::nan(""), -kInfinity}) {
    ScratchDir dir;
    now_ = odd;
    const auto file = EventFile::Create(dir.path(), Options());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(file->path(), EndsWith("/events.out.tfevents.0000000000.host.plumb"));
  }
  now_ = 1700000000;
  for (const char* name :
       {"events.out.tfevents.", "events.out.tfevents.x.y.plumb", "events.out.tfevents.17",
        "events.out.tfevents.99999999999999999999.host.plumb", "metrics.jsonl"}) {
    dir_.Write(name, "");
  }
  EXPECT_THAT(Create().path(), EndsWith("/events.out.tfevents.1700000000.host.plumb"));
  EventFileOptions options = Options();
  options.host = "a/../b c";
  EXPECT_THAT(EventFile::Create(dir_.path(), options)->path(),
              EndsWith("/events.out.tfevents.1700000001.a_.._b_c.plumb"));
  options.host = "";
  EXPECT_THAT(EventFile::Create(dir_.path(), options)->path(), HasSubstr(".localhost."));
  options.host = std::string(1000, 'h');
  EXPECT_TRUE(EventFile::Create(dir_.path(), options).ok());
}

TEST_F(EventFileTest, HasEventFileMeansOneOfPlumbs) {
  EXPECT_FALSE(*HasEventFile(dir_.path()));
  dir_.Write("events.out.tfevents.1800000000.elsewhere.17.0.v2", "");
  dir_.Write("notes.plumb", "");
  EXPECT_FALSE(*HasEventFile(dir_.path()));
  Create();
  EXPECT_TRUE(*HasEventFile(dir_.path()));
  EXPECT_FALSE(HasEventFile(dir_.File("nowhere")).ok());
}

TEST_F(EventFileTest, EventsAreBufferedForTheTimeThatTheClockSays) {
  EventFile file = Create();
  const size_t begun = Content(file).size();
  EXPECT_GT(begun, 40u);  // a reader finds the run at once
  Add(&file, 1, 10, 0);
  now_ += 1.9;
  Add(&file, 11, 11, 0);
  EXPECT_EQ(Content(file).size(), begun);
  now_ += 0.1;
  Add(&file, 12, 12, 0);
  const size_t flushed = Content(file).size();
  EXPECT_EQ(DecodeEvents(Content(file)).events.size(), 2u + 12);
  now_ += 1.9;
  Add(&file, 13, 13, 0);
  EXPECT_EQ(Content(file).size(), flushed);
  ASSERT_TRUE(file.Flush().ok());
  EXPECT_EQ(DecodeEvents(Content(file)).events.size(), 2u + 13);
  now_ -= 1000;  // the clock was set back; a flush must not wait 1000 seconds
  Add(&file, 14, 14, 0);
  EXPECT_EQ(DecodeEvents(Content(file)).events.size(), 2u + 14);
  Add(&file, 15, 15, 0);
  ASSERT_TRUE(file.Sync().ok());
  EXPECT_EQ(DecodeEvents(Content(file)).events.size(), 2u + 15);
}

TEST_F(EventFileTest, LongEventsAreWrittenInOrder) {
  std::string long_text(200000, 'a');
  {
    EventFile file = Create();
    Add(&file, 1, 3000, 0);  // about 160 KB
    ASSERT_TRUE(file.AddText(3000, "long", long_text).ok());
    Add(&file, 3001, 3002, 0);
  }
  const DecodedFile file = Decode()[0];
  EXPECT_EQ(file.torn_bytes, 0u);
  ASSERT_EQ(file.events.size(), 2u + 3003);
  EXPECT_EQ(file.events[2 + 3000].texts.at("long"), long_text);
  for (int64_t i = 0; i < 3000; ++i) {
    EXPECT_EQ(file.events[static_cast<size_t>(2 + i)].step, i + 1);
  }
}

TEST_F(EventFileTest, AFileCutAnywhereReadsUpToTheCut) {
  {
    EventFile file = Create();
    Add(&file, 1, 3, 0);
  }
  const std::string path = dir_.File("events.out.tfevents.1700000000.host.plumb");
  const std::string whole = *ReadFile(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    const DecodedFile cut = DecodeEvents(absl::string_view(whole).substr(0, length));
    EXPECT_LT(cut.events.size(), 5u);
    EXPECT_EQ(Shown({cut}, "train/loss").size(), cut.events.size() < 2 ? 0 : cut.events.size() - 2);
  }
  // The session after a kill writes the events that the truncated file lost.
  ScratchDir::Overwrite(path, whole.substr(0, whole.size() - 3));
  {
    EventFile file = Create(3);
    Add(&file, 3, 4, 50);
  }
  EXPECT_THAT(Shown(Decode(), "train/loss"),
              ElementsAre(Pair(1, 1.0f), Pair(2, 2.0f), Pair(3, 53.0f), Pair(4, 54.0f)));
}

// A file size limit simulates a disk that is full for a while.
TEST_F(EventFileTest, AFailedWriteTearsNoRecord) {
  EventFile file = Create();
  Add(&file, 1, 100, 0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;  // in the middle of a record
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = file.Flush();
  const EventScalar scalar = {"train/loss", 101};
  const absl::Status added = file.AddScalars(101, {scalar});
  const size_t size = Content(file).size();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(full.message()), HasSubstr(file.path() + ": cannot write: "));
  EXPECT_EQ(size, 1000u);
  EXPECT_TRUE(added.ok()) << added;  // the buffer has space
  ASSERT_TRUE(file.Flush().ok());
  const DecodedFile decoded = DecodeEvents(Content(file));
  EXPECT_EQ(decoded.torn_bytes, 0u);
  EXPECT_EQ(Shown({decoded}, "train/loss").size(), 101u);
}

TEST_F(EventFileTest, AMissingDirectoryIsAnError) {
  const auto file = EventFile::Create(dir_.File("nowhere"), Options());
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("nowhere"));
}

TEST_F(EventFileTest, MovingAFileMovesWhatItHasBuffered) {
  {
    EventFile first = Create();
    Add(&first, 1, 1, 0);
    EventFile moved = std::move(first);
    Add(&moved, 2, 2, 0);
    EventFile other = Create();
    other = std::move(moved);
    Add(&other, 3, 3, 0);
  }
  const std::vector<DecodedFile> files = Decode();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(Shown({files[0]}, "train/loss").size(), 3u);
  EXPECT_THAT(Shown({files[1]}, "train/loss"), IsEmpty());
}

TEST_F(EventFileTest, AddingScalarsAllocatesNothing) {
  EventFile file = Create();
  Add(&file, 1, 1, 0);
  const int64_t before = MallocCount();
  Add(&file, 2, 5000, 0);
  ASSERT_TRUE(file.Flush().ok());
  EXPECT_EQ(MallocCount() - before, 0);
}

}  // namespace
}  // namespace plumb
