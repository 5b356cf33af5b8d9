// SPDX-License-Identifier: Apache-2.0
// Tests of plumb plugin with norms that are not plumb's own, and of the runs that use them.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PluginTest : public PlumbTest {
 protected:
  // Returns the path of a norm of tests/check/clean.
  static std::string Plugin(const std::string& name) {
    return std::string(PLUMB_CLEAN_NORM_DIR) + "/" + name + ".so";
  }

  // Returns the lines after the heading "in a model".
  static std::string Example(const std::string& description) {
    const std::string heading = "in a model\n";
    const size_t at = description.find(heading);
    EXPECT_NE(at, std::string::npos) << description;
    return at == std::string::npos ? "" : description.substr(at + heading.size());
  }

  // Writes mine.pbtxt, a small model with these lines.
  void WriteModel(const std::string& lines) const {
    Write("mine.pbtxt", "n_layer: 1 n_head: 2 d_model: 8 context_length: 4\n" + lines);
  }
  Finished Train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train",     "mine.pbtxt", "--data",
                                          "names.txt", "--set",      "train.max_steps=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }
};

TEST_F(PluginTest, ShippedNormExamplesTrain) {
  const auto list =
      nlohmann::json::parse(RunPlumb({"plugin", "list", "--json"}).out, nullptr, false);
  ASSERT_TRUE(list.is_object());
  size_t tried = 0;
  for (const auto& norm : list["plugins"]) {
    if (norm["problem"] != "") continue;
    const std::string id = norm["id"];
    const Finished described = RunPlumb({"plugin", "describe", id});
    EXPECT_EQ(described.exit_code, 0) << described.err;
    WriteModel(Example(described.out));
    const Finished trained = Train({"--out", id});
    EXPECT_EQ(trained.exit_code, 0) << id << ": " << Read("mine.pbtxt") << trained.err;
    ++tried;
  }
  EXPECT_GE(tried, 4u);
}

TEST_F(PluginTest, NormIsSuggestedByTheEndOfItsId) {
  const std::string hint = "did you mean \"org.example.sum_norm\"?";
  const std::vector<std::string> describe = {
      "describe", "mine.pbtxt", "--set", "model.vocab_size=9", "--plugin", Plugin("sum_norm")};
  WriteModel(
      "norm { name: \"n\" plugin: \"sum_norm\" }\n"
      "block { placement: \"pre\" norm: \"n\" }\n");
  EXPECT_THAT(RunPlumb(describe).err, HasSubstr(hint));
  WriteModel(
      "norm { name: \"std_norm\" plugin: \"std_norm\" }\n"
      "block { placement: \"pre\" norm: \"sum_norm\" }\n");
  EXPECT_THAT(RunPlumb(describe).err, HasSubstr(hint));
  EXPECT_THAT(RunPlumb({"plugin", "describe", "sum_norm", "--plugin", Plugin("sum_norm")}).err,
              HasSubstr(hint));
}

TEST_F(PluginTest, TwoInputNormExampleTrains) {
  const std::string file = Plugin("sum_norm");
  const Finished described =
      RunPlumb({"plugin", "describe", "org.example.sum_norm", "--plugin", file});
  EXPECT_EQ(described.exit_code, 0) << described.err;
  WriteModel(Example(described.out));
  EXPECT_THAT(Read("mine.pbtxt"),
              AllOf(HasSubstr("plugin: \"org.example.sum_norm\""), HasSubstr("norm(x, e)")));
  const Finished trained = Train({"--plugin", file});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
}

TEST_F(PluginTest, BenchComparesWithAnotherNormAndMemcpy) {
  const Finished json =
      RunPlumb({"plugin", "bench", "org.example.sum_norm", "--plugin", Plugin("sum_norm"),
                "--against", "none", "--rounds", "3", "--json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto figures = nlohmann::json::parse(json.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(figures.is_object()) << json.out;
  EXPECT_EQ(figures["norm"], "org.example.sum_norm");
  EXPECT_EQ(figures["against"], "none");
  EXPECT_EQ(figures["rows"].size(), 28u);  // 7 sizes, 2 passes, f32 and bf16
  for (const auto& row : figures["rows"]) {
    for (const char* spread : {"bytes_per_second", "of_memcpy", "of_against"}) {
      ASSERT_EQ(row[spread].size(), 3u) << row;
      const double median = row[spread][0], low = row[spread][1], high = row[spread][2];
      EXPECT_GT(low, 0) << row;
      EXPECT_LE(low, median) << row;
      EXPECT_LE(median, high) << row;
    }
    const int64_t elements = row["rows"].get<int64_t>() * row["dim"].get<int64_t>();
    const bool is_f32 = row["dtype"] == "f32";
    // forward: x, x2, y; backward: dy, x, x2, dx, dx2.
    EXPECT_EQ(row["bytes"], elements * (is_f32 ? 4 : 2) * (row["pass"] == "forward" ? 3 : 5))
        << row;
    // A plain double loop over two inputs is many times slower than the shipped identity.
    if (is_f32 && row["dim"] == 256) {
      EXPECT_LT(row["of_against"][0].get<double>(), 1) << row;
    }
  }
}

TEST_F(PluginTest, BenchMeasuresOfferedFunctionsOnly) {
  const Finished f32_only =
      RunPlumb({"plugin", "bench", Plugin("../../plugin/readme/l2_norm"), "--rounds", "3"});
  EXPECT_EQ(f32_only.exit_code, 0) << f32_only.err;
  EXPECT_THAT(f32_only.out, AllOf(HasSubstr("forward   f32"), Not(HasSubstr("bf16"))));
}

TEST_F(PluginTest, BenchRefusesCrossRowNorms) {
  const Finished cross_row = RunPlumb({"plugin", "bench", "batch_norm"});
  EXPECT_EQ(cross_row.exit_code, 2);
  EXPECT_THAT(cross_row.err, HasSubstr("takes statistics over tokens is not timed"));
}

constexpr char kId[] = "org.example.deviation_rows";

class RunPluginTest : public PluginTest {
 protected:
  RunPluginTest() {
    std::filesystem::copy_file(Plugin("deviation_rows"), Real("mine.so"));
    WriteModel("norm { name: \"n\" plugin: \"" + std::string(kId) +
               "\" }\nblock { placement: \"pre\" norm: \"n\" }\n");
    const Finished trained = Train({"--plugin", Real("mine.so"), "--out", "run"});
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
  }
  // Returns the path of a file as plumb resolves it.
  std::string Real(const std::string& name) const {
    return std::filesystem::canonical(directory()).string() + "/" + name;
  }
  std::string Recorded(const char* field) const {
    return ReadJson("run/run.json")["plugin_files"][kId].value(field, "");
  }
  Finished Resume(int steps, const std::string& plugin, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {
        "train",    "--resume",  "--out", "run",
        "--data",   "names.txt", "--set", "train.max_steps=" + std::to_string(steps),
        "--plugin", plugin};
    command.insert(command.end(), more.begin(), more.end());
    return RunPlumb(command);
  }
};

TEST_F(RunPluginTest, RunRecordsThePluginFile) {
  EXPECT_EQ(Recorded("path"), Real("mine.so"));
  EXPECT_EQ(Recorded("hash").size(), 64u);
  ASSERT_EQ(RunPlumb(TrainArguments("shipped", 1)).exit_code, 0);
  EXPECT_FALSE(ReadJson("shipped/run.json").contains("plugin_files"));
}

TEST_F(RunPluginTest, MissingPluginNamesFileAndOption) {
  const std::vector<std::vector<std::string>> commands = {
      {"sample", "run", "--num", "1"},
      {"eval", "run", "--data", "names.txt"},
      {"train", "--resume", "--out", "run", "--data", "names.txt", "--set", "train.max_steps=2"},
      {"train", "mine.pbtxt", "--init", "run", "--data", "names.txt", "--out", "other", "--set",
       "train.max_steps=1", "--set", "model.norm[0].plugin=rms_norm"}};
  const std::string where =
      "the norm " + std::string(kId) + " of this run was in " + Real("mine.so");
  for (std::vector<std::string> command : commands) {
    const Finished refused = RunPlumb(command);
    EXPECT_EQ(refused.exit_code, 2) << command[0];
    EXPECT_THAT(refused.err, AllOf(StartsWith("error: run"), HasSubstr(where),
                                   HasSubstr("add --plugin " + Real("mine.so") + "\n")))
        << command[0];
    command.insert(command.end(), {"--plugin", Real("mine.so")});
    const Finished follows = RunPlumb(command);
    EXPECT_EQ(follows.exit_code, 0) << command[0] << follows.err;
  }
  std::filesystem::remove(Real("mine.so"));
  for (const std::vector<std::string>& command : commands) {
    const Finished gone = RunPlumb(command);
    EXPECT_EQ(gone.exit_code, 2) << command[0];
    if (command.back() == "model.norm[0].plugin=rms_norm") continue;  // other/ holds a run by now
    EXPECT_THAT(gone.err,
                AllOf(HasSubstr(where + ", which no longer exists"), HasSubstr("--plugin FILE")))
        << command[0];
  }
}

TEST_F(RunPluginTest, Resume_RefusesOtherContentsUnlessEditsAreAccepted) {
  const std::string moved = Real("moved.so");
  std::filesystem::rename(Real("mine.so"), moved);
  const Finished same = Resume(2, moved);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("other inputs")));
  EXPECT_EQ(Recorded("path"), moved);
  const std::string hash = Recorded("hash");
  std::ofstream(moved, std::ios::app) << "bytes after the end of an ELF file change nothing";
  EXPECT_THAT(RunPlumb({"sample", "run"}).err, HasSubstr("the file has changed since"));
  const std::string part = std::string("norm ") + kId;
  const Finished refused = Resume(3, moved);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("was trained with other inputs"), HasSubstr(part)));
  EXPECT_EQ(Recorded("hash"), hash);
  EXPECT_THAT(RunPlumb({"sample", "run", "--num", "1", "--plugin", moved}).err,
              HasSubstr("is not the one that it was trained with: " + moved));
  const Finished changed = Resume(3, moved, {"--accept-edits"});
  EXPECT_EQ(changed.exit_code, 0) << changed.err;
  EXPECT_THAT(changed.err, HasSubstr("was trained with other inputs"));
  EXPECT_NE(Recorded("hash"), hash);
  // The run stays different from one that was trained with one norm.
  EXPECT_THAT(ReadJson("run/run.json")["identity"]["before"].get<std::string>(),
              AllOf(HasSubstr("step 2: "), HasSubstr(part)));
  EXPECT_THAT(Resume(4, moved).err, Not(HasSubstr("other inputs")));
  EXPECT_EQ(RunPlumb({"sample", "run", "--num", "1", "--plugin", moved}).err, "");
}

TEST_F(RunPluginTest, ADamagedRecordIsAnErrorOfTheRun) {
  auto record = ReadJson("run/run.json");
  record["identity"] = {1, 2};
  Write("run/run.json", record.dump());
  const Finished resumed = Resume(2, Real("mine.so"));
  EXPECT_NE(resumed.exit_code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("run.json: \"identity\" must be"));
}

}  // namespace
}  // namespace plumb::cli
