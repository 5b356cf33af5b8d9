// SPDX-License-Identifier: Apache-2.0
// Tests of plumb plugin with norms that are not plumb's own, and of the runs that use them.

#include <gmock/gmock.h>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(PluginTest, EveryShippedNormsExampleTrains) {
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

TEST_F(PluginTest, TheExampleOfANormOfTwoInputsTrains) {
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

}  // namespace
}  // namespace plumb::cli
