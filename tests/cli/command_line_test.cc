// SPDX-License-Identifier: Apache-2.0
// Tests of the command line itself: help, versions, misspelled words, numbers, exit codes, output
// streams.

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class CommandLineTest : public PlumbTest {};

TEST_F(CommandLineTest, EveryCommandHasHelpWithAnExample) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"demo"},
                                             {"train"},
                                             {"sample"},
                                             {"eval"},
                                             {"describe"},
                                             {"explain"},
                                             {"zoo"},
                                             {"zoo", "keys"},
                                             {"plugin"},
                                             {"plugin", "list"},
                                             {"plugin", "describe"}}) {
    std::vector<std::string> arguments = words;
    arguments.push_back("--help");
    const Finished result = RunPlumb(arguments);
    std::string command = "plumb";
    for (const std::string& word : words) command += " " + word;
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, AllOf(HasSubstr("Usage: " + command), HasSubstr("Example:\n  plumb "),
                                  HasSubstr("--plugin"), HasSubstr("--threads")))
        << command;
    EXPECT_THAT(result.err, IsEmpty()) << command;
  }
}

TEST_F(CommandLineTest, VersionNamesItsParts) {
  const Finished result = RunPlumb({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(StartsWith("plumb "), HasSubstr("oneDNN"),
                                HasSubstr("\nproducts: oneDNN "), HasSubstr("bf16 ")));
}

TEST_F(CommandLineTest, HelpShowsFirstSteps) {
  const Finished result = RunPlumb({"help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* command : {"demo", "describe", "compare", "train"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("\n  plumb ") + command));
  }
  EXPECT_THAT(result.out, HasSubstr("All commands: plumb --help"));
  EXPECT_EQ(RunPlumb({}).err, result.out + "\n");
}

TEST_F(CommandLineTest, HelpOfACommandIsItsHelp) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"train"}, {"plugin"}, {"plugin", "new"}}) {
    std::vector<std::string> help = words, option = words;
    help.insert(help.begin(), "help");
    option.push_back("--help");
    EXPECT_EQ(RunPlumb(help).out, RunPlumb(option).out) << words.back();
  }
  const Finished result = RunPlumb({"help", "trian"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown command \"trian\"; did you mean \"train\"?"));
}

TEST_F(CommandLineTest, HelpOfAFileListsItsFields) {
  const Finished recipe = RunPlumb({"help", "recipe"});
  EXPECT_EQ(recipe.exit_code, 0);
  EXPECT_THAT(recipe.out,
              AllOf(HasSubstr("\n  max_steps: whole number\n      Number of optimizer "
                              "steps. Default: 1000.\n"),
                    HasSubstr("\n  schedule: CONSTANT, LINEAR, COSINE, WSD or INVERSE_SQRT\n"),
                    HasSubstr("\n      Default: CONSTANT.\n"), HasSubstr("\n  data { Data }\n"),
                    HasSubstr("\n\nData\n")));
  EXPECT_THAT(RunPlumb({"help", "model"}).out,
              AllOf(HasSubstr("\n  n_layer: whole number\n"), HasSubstr("\n  block { Block }\n"),
                    HasSubstr("\n\nPlacement\n")));
  EXPECT_THAT(RunPlumb({"help", "study"}).out,
              HasSubstr("\n  grid { Grid }, any number of times\n"));
  EXPECT_THAT(RunPlumb({"help", "formula"}).out, HasSubstr("\n  each: text in quotes"));
  const Finished misspelt = RunPlumb({"help", "recipy"});
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.err,
              AllOf(HasSubstr("did you mean \"recipe\"?"),
                    HasSubstr("family, formula, model, recipe, study, placements, norms")));
  EXPECT_EQ(RunPlumb({"help", "model", "train"}).exit_code, 2);
  EXPECT_EQ(RunPlumb({"help", "--man", "model"}).exit_code, 2);
}

TEST_F(CommandLineTest, HelpListsPlacementsAndNorms) {
  const auto report = nlohmann::json::parse(RunPlumb({"doctor", "--json"}).out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  const Finished placements = RunPlumb({"help", "placements"});
  EXPECT_EQ(placements.exit_code, 0) << placements.err;
  size_t listed = 0;
  for (const auto& directory : report["placements"]["directories"]) {
    for (const std::string name : directory["names"]) {
      EXPECT_THAT(placements.out, HasSubstr("\n  " + name + "  "));
      ++listed;
    }
  }
  EXPECT_GT(listed, 50u);
  EXPECT_THAT(placements.out, HasSubstr("  Post-norm: the sum of stream and sublayer"));
  EXPECT_THAT(placements.out, HasSubstr("beta (v - k . x) k, a"));  // whole formulas

  const Finished norms = RunPlumb({"help", "norms"});
  EXPECT_EQ(norms.exit_code, 0) << norms.err;
  EXPECT_THAT(norms.out, HasSubstr("\n  layer_norm  y = gamma (x - mean) / sqrt(var + eps)"));
}

TEST_F(CommandLineTest, HelpOfAPlacementOrANormShowsIt) {
  EXPECT_THAT(RunPlumb({"help", "placements", "post"}).out,
              AllOf(HasSubstr("/post.pbtxt\n"), HasSubstr("each: \"x = norm(x + f(x))\"")));
  EXPECT_EQ(RunPlumb({"help", "norms", "rms_norm"}).out,
            RunPlumb({"plugin", "describe", "rms_norm"}).out);
  const Finished placement = RunPlumb({"help", "placements", "deepnrm"});
  EXPECT_EQ(placement.exit_code, 2);
  EXPECT_THAT(placement.err, HasSubstr("did you mean \"deepnorm\"?"));
  const Finished norm = RunPlumb({"help", "norms", "rms_nrm"});
  EXPECT_EQ(norm.exit_code, 2);
  EXPECT_THAT(norm.err, HasSubstr("did you mean \"rms_norm\"?"));
  EXPECT_THAT(RunPlumb({"help", "placement"}).err, HasSubstr("did you mean \"placements\"?"));
  EXPECT_EQ(RunPlumb({"help", "--man", "norms"}).exit_code, 2);
}

TEST_F(CommandLineTest, ClosedOutputIsNoError) {
  // The reader of the pipe has ended before plumb prints.
  Write("script",
        "exec 3> >(true); wait $!; '" + PlumbBinary() + "' help model >&3 2>said; echo $? >> said");
  ASSERT_EQ(std::system(("cd '" + directory() + "' && bash script").c_str()), 0);
  EXPECT_EQ(Read("said"), "141\n");
}

TEST_F(CommandLineTest, NoArgumentsShowHelpAsAnError) {
  const Finished result = RunPlumb({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("Usage: plumb"));
}

TEST_F(CommandLineTest, PluginListNamesInstalledPlugins) {
  const Finished text = RunPlumb({"plugin", "list"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("layer_norm "), HasSubstr("rms_norm ")));
  const Finished json = RunPlumb({"plugin", "list", "--json"});
  const auto list = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(list.is_object()) << json.out;
  EXPECT_GE(list["plugins"].size(), 3u);
}

TEST_F(CommandLineTest, PluginDescribeShowsAttributes) {
  const Finished text = RunPlumb({"plugin", "describe", "rms_norm"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("eps: number"), HasSubstr("weight [dim]")));
  const Finished json = RunPlumb({"plugin", "describe", "rms_norm", "--json"});
  const auto plugin = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(plugin.is_object()) << json.out;
  EXPECT_EQ(plugin["id"], "rms_norm");
  EXPECT_FALSE(plugin["attributes"].empty());
}

TEST_F(CommandLineTest, FailedOutputIsAFailure) {
  PlumbProcess full(directory(), {"describe", "pre.pbtxt"}, "/dev/full");
  const Finished result = full.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("stdout"));
}

TEST_F(CommandLineTest, ErrorsHaveNoColourInAFile) {
  const Finished result = RunPlumb({"describe", "nowhere.pbtxt"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(StartsWith("error: nowhere.pbtxt"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace plumb::cli
