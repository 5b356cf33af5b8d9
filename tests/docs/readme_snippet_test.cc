// SPDX-License-Identifier: Apache-2.0
// Tests that the program in README.md trains a model. Like a program that embeds plumb, it is
// compiled against plumb.hpp and linked only to libplumb.so.
#include <gtest/gtest.h>

#include "plumb.hpp"
// A program that decodes token by token must use a Decoder. Tokenizer::Decode of single tokens
// loses spaces and characters, so it does not compile here.
#define Decode DecodeOfSingleTokens
#include "tests/docs/readme_snippet.inc"
#undef Decode

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

TEST(ReadmeSnippetTest, TrainsAModel) {
  std::string directory = ::testing::TempDir() + "/readme_snippet_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(directory + "/" + name) << text;
    return directory + "/" + name;
  };
  const std::string model = write("model.pbtxt",
                                  "n_layer: 2 n_head: 2 d_model: 16 context_length: 10\n"
                                  "block { placement: \"pre\" norm: \"rms_norm\" }\n");
  std::string text;
  for (int i = 0; i < 20; ++i) text += "ab";
  EXPECT_EQ(Train(model, text, "aba"), "abababababa");
  // An error is thrown, with its location.
  try {
    Train(write("wrong.pbtxt", "n_layer: 2\nn_hed: 2\n"), text, "a");
    FAIL() << "an unknown field was taken";
  } catch (const plumb::Error& error) {
    EXPECT_NE(std::string(error.what()).find("wrong.pbtxt:2:"), std::string::npos) << error.what();
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
