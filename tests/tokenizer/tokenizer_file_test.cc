// SPDX-License-Identifier: Apache-2.0
// Errors for other formats of vocabularies name the format and say what to do.
#include "runtime/tokenizer/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenizerFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/plumb_tokenizer_XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    std::remove(file_.c_str());
    std::remove(directory_.c_str());
  }

  // Expects that a file with this content, and a directory with that file, are refused as `format`.
  void ExpectFormat(const std::string& name, const std::string& content,
                    const std::string& format) {
    file_ = directory_ + "/" + name;
    std::ofstream(file_, std::ios::binary) << content;
    for (const std::string& path : {file_, directory_}) {
      const absl::Status status = ReadTokenizer(path).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr(file_), HasSubstr(format), HasSubstr("tokenizer.json")));
    }
  }

 private:
  std::string directory_, file_;
};

TEST_F(TokenizerFileTest, TiktokenIsNamed) {
  ExpectFormat("qwen.tiktoken", "IQ== 0\nIg== 1\n", "tiktoken");
}
TEST_F(TokenizerFileTest, SentencePieceIsNamed) {
  ExpectFormat("tokenizer.model",
               std::string("\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0a\n\x03<s>", 23),
               "SentencePiece");
}
TEST_F(TokenizerFileTest, WordPieceIsNamed) {
  ExpectFormat("vocab.txt", "[PAD]\n[unused0]\n[UNK]\n[CLS]\nthe\n##s\n", "WordPiece");
}

}  // namespace
}  // namespace plumb
