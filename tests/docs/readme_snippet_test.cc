// The program that README.md shows trains a model. Like one that embeds plumb, it is compiled
// against the public headers and linked to plumb_api.
#include "tests/docs/readme_snippet.inc"

#include <gtest/gtest.h>

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
  plumb::TrainRequest request;
  request.model_path = write("model.pbtxt",
                             "n_layer: 2 n_head: 2 d_model: 8 context_length: 10\n"
                             "block { placement: \"pre\" norm: \"rms_norm\" }\n");
  request.data_path = write("names.txt", "anna\nemma\nhannah\nlena\nlina\nmarie\nmia\nnora\n");
  request.train_overrides = {{"max_steps", "8"}, {"data.format", "DOCUMENTS"}};
  request.out = directory + "/run";
  const absl::Status status = Train(request);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::filesystem::exists(request.out + "/checkpoints/step-000008"));
  // What is wrong comes back as a status.
  request.model_path = directory + "/missing.pbtxt";
  request.out = "";
  EXPECT_FALSE(Train(request).ok());
  std::filesystem::remove_all(directory);
}

}  // namespace
