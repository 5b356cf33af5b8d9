// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr DatasetOptions::Format kText = DatasetOptions::Format::kText;
constexpr DatasetOptions::Format kDocuments = DatasetOptions::Format::kDocuments;

DatasetOptions Options(DatasetOptions::Format format, double val_fraction) {
  DatasetOptions options;
  options.format = format;
  options.val_fraction = val_fraction;
  return options;
}

absl::StatusOr<Dataset> Documents(absl::string_view content, double val_fraction = 0,
                                  const Tokenizer* tokenizer = nullptr) {
  return Dataset::FromContent(content, "d.txt", Options(kDocuments, val_fraction), tokenizer);
}

std::string GetError(const absl::StatusOr<Dataset>& dataset) {
  EXPECT_FALSE(dataset.ok());
  return std::string(dataset.status().message());
}

std::string DocumentText(const Dataset& dataset, Split split, int64_t i) {
  return *dataset.tokenizer().Decode(dataset.document(split, i));
}

std::string Names(int n) {
  std::string content;
  for (int i = 0; i < n; ++i) absl::StrAppend(&content, "n", i, "\n");
  return content;
}

TEST(DatasetTest, DocumentsAreTheLinesThatAreNotEmpty) {
  const absl::StatusOr<Dataset> dataset = Documents("emma\r\n\n\r\nava\nmia");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->num_documents(Split::kTrain), 3);
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 0), "emma");
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 1), "ava");
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 2), "mia");
  // Line ends are not characters of documents.
  EXPECT_EQ(dataset->tokenizer(), *Tokenizer::Characters({"aeimv"}, true));
  EXPECT_EQ(dataset->num_tokens(Split::kTrain), 10);
  EXPECT_EQ(dataset->num_cropped(Split::kTrain, 5), 0);
  EXPECT_EQ(dataset->num_cropped(Split::kTrain, 4), 1);
}

TEST(DatasetTest, AByteOrderMarkIsNotData) {
  const absl::StatusOr<Dataset> dataset = Documents(
      "\xef\xbb\xbf"
      "ab\n");
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 0), "ab");
}

TEST(DatasetTest, TheHeldOutDocumentsAreAFixedChoice) {
  const absl::StatusOr<Dataset> dataset = Documents(Names(100), 0.1);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->num_documents(Split::kTrain), 90);
  EXPECT_EQ(dataset->num_documents(Split::kValidation), 10);
  std::set<std::string> all;
  std::string held_out;
  int64_t last = -1;
  for (int64_t i = 0; i < 10; ++i) {
    const std::string text = DocumentText(*dataset, Split::kValidation, i);
    absl::StrAppend(&held_out, text, " ");
    all.insert(text);
    const int64_t number = std::stoll(text.substr(1));
    EXPECT_GT(number, last);  // in file order
    last = number;
  }
  for (int64_t i = 0; i < 90; ++i) all.insert(DocumentText(*dataset, Split::kTrain, i));
  EXPECT_EQ(all.size(), 100u);
  // The values are fixed: all versions must hold out the same documents.
  EXPECT_EQ(held_out, "n14 n22 n25 n52 n62 n66 n67 n80 n85 n90 ");
}

TEST(DatasetTest, TheVocabularyIsThatOfTheWholeFile) {
  const absl::StatusOr<Dataset> dataset =
      Dataset::FromContent("aaaaaaaaaz", "t.txt", Options(kText, 0.1), nullptr);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->tokenizer(), *Tokenizer::Characters({"az"}, false));
  EXPECT_EQ(dataset->num_tokens(Split::kTrain), 9);
  ASSERT_EQ(dataset->num_tokens(Split::kValidation), 1);
  int32_t first = -1;
  dataset->ReadText(Split::kValidation, 0, absl::MakeSpan(&first, 1));
  EXPECT_EQ(first, 1);
}

TEST(DatasetTest, SplitsTextLikeNanoGpt) {
  // The first int(n * 0.9) characters are training data.
  const std::string text(1234, 'a');
  const absl::StatusOr<Dataset> dataset =
      Dataset::FromContent(text, "t.txt", Options(kText, 0.1), nullptr);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->num_tokens(Split::kTrain), 1110);
  EXPECT_EQ(dataset->num_tokens(Split::kValidation), 124);
}

TEST(DatasetTest, AWholeFileCanBeEitherSplit) {
  const absl::StatusOr<Dataset> all_train = Documents(Names(7), 0);
  EXPECT_EQ(all_train->num_documents(Split::kTrain), 7);
  EXPECT_EQ(all_train->num_documents(Split::kValidation), 0);
  const absl::StatusOr<Dataset> all_validation = Documents(Names(7), 1);
  EXPECT_EQ(all_validation->num_documents(Split::kTrain), 0);
  EXPECT_EQ(all_validation->num_documents(Split::kValidation), 7);
  // A single document is training data, whatever the fraction is.
  EXPECT_EQ(Documents("one", 0.1)->num_documents(Split::kTrain), 1);
  for (double bad : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(GetError(Documents("a", bad)), HasSubstr("val_fraction must be between 0 and 1"));
  }
}

TEST(DatasetTest, FilesWithoutDataAreErrors) {
  EXPECT_EQ(GetError(Documents("")), "d.txt: the file is empty");
  EXPECT_EQ(GetError(Documents("\xef\xbb\xbf")), "d.txt: the file is empty");
  EXPECT_EQ(GetError(Documents("\n\r\n\n")),
            "d.txt: no document: all 3 lines are empty; a document is a line with text");
  ScratchDir dir;
  EXPECT_EQ(Dataset::Load(dir.File("none"), Options(kText, 0)).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(Dataset::Load(dir.path(), Options(kText, 0)).ok());
}

TEST(DatasetTest, IdsOf32BitsAreNotReadAsOf16) {
  ScratchDir dir;
  std::string ids;
  for (int i = 0; i < 20; ++i) ids += {static_cast<char>(i % 7), 0, 0, 0};
  dir.Write("ids.bin", ids);
  const Tokenizer bytes = Tokenizer::Bytes(/*with_begin_end=*/false);
  DatasetOptions options = Options(DatasetOptions::Format::kTokens, 0);
  EXPECT_THAT(
      GetError(Dataset::Load(dir.File("ids.bin"), options, &bytes)),
      HasSubstr("ids.bin: every second id of 16 bits is 0, so these are ids of 32 bits: set "
                "data.token_bits to 32"));
  for (const int bits : {16, 32}) {
    options.token_bits = bits;
    const absl::StatusOr<Dataset> dataset = Dataset::Load(dir.File("ids.bin"), options, &bytes);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->num_tokens(Split::kTrain), 640 / bits);
  }
  dir.Write("ids.bin", std::string(64, '\0'));  // ids of 0, of any size
  options.token_bits = 0;
  EXPECT_TRUE(Dataset::Load(dir.File("ids.bin"), options, &bytes).ok());
}

TEST(DatasetTest, BadUtf8IsAnErrorWithItsPlace) {
  EXPECT_EQ(GetError(Documents("ok\nb\xe9\n")),
            "d.txt: line 2, byte 4 (0xe9) is not valid UTF-8; convert the file to UTF-8 or use "
            "vocabulary: BYTES");
  EXPECT_THAT(GetError(Documents(absl::string_view("\xff\xfe"
                                                   "a\0",
                                                   4))),
              HasSubstr("it looks like UTF-16"));
  DatasetOptions bytes = Options(kDocuments, 0);
  bytes.vocabulary = Tokenizer::Kind::kBytes;
  const absl::StatusOr<Dataset> dataset = Dataset::FromContent("b\xe9\n", "d.txt", bytes);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->tokenizer().vocab_size(), 257);
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 0), "b\xe9");
}

TEST(DatasetTest, AGivenTokenizerIsTheVocabulary) {
  const Tokenizer tokenizer = *Tokenizer::Characters({"abcdef"}, true);
  const absl::StatusOr<Dataset> dataset = Documents("fa\nce\n", 0, &tokenizer);
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->tokenizer(), tokenizer);
  EXPECT_EQ(dataset->document(Split::kTrain, 0)[0], 5);
  EXPECT_EQ(GetError(Documents("fa\r\n\nc\u00e9xx\n", 0, &tokenizer)),
            "d.txt:3:2: '\u00e9' (U+00E9) is not in the vocabulary: 6 characters \"abcdef\", and a "
            "begin/end token");
  EXPECT_THAT(GetError(Documents("zz\nzz\n", 0, &tokenizer)), HasSubstr("d.txt:1:1: 'z'"));
  EXPECT_THAT(GetError(Documents("a\xff\n", 0, &tokenizer)), HasSubstr("not valid UTF-8"));
  const Tokenizer of_text = *Tokenizer::Characters({"abcdef"}, false);
  EXPECT_THAT(GetError(Documents("fa\n", 0, &of_text)), HasSubstr("name it with data.end_token"));
}

TEST(DatasetTest, JsonlHasPromptsThatAreNoTargets) {
  const DatasetOptions options = Options(DatasetOptions::Format::kJsonl, 0);
  const auto load = [&](absl::string_view content, const Tokenizer* tokenizer = nullptr) {
    return Dataset::FromContent(content, "d.jsonl", options, tokenizer);
  };
  const absl::StatusOr<Dataset> dataset =
      load("\xef\xbb\xbf{\"prompt\": \"ab\", \"completion\": \"cd\"}\n\n{\"text\": \"bad\"}\n");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->num_documents(Split::kTrain), 2);
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 0), "abcd");
  EXPECT_EQ(DocumentText(*dataset, Split::kTrain, 1), "bad");
  EXPECT_EQ(dataset->prompt_size(Split::kTrain, 0), 2);
  EXPECT_EQ(dataset->prompt_size(Split::kTrain, 1), 0);
  EXPECT_EQ(dataset->tokenizer(), *Tokenizer::Characters({"abcd"}, true));
  EXPECT_FALSE(dataset->is_running());
  EXPECT_TRUE(dataset->has_masks());
  EXPECT_EQ(dataset->num_targets(Split::kTrain), 3 + 4);
  EXPECT_EQ(dataset->num_without_targets(Split::kTrain, 2), 1);
  EXPECT_EQ(dataset->num_without_targets(Split::kTrain, 3), 0);
  EXPECT_EQ(dataset->Description(),
            "d.jsonl: 2 documents to train on, 0 held out; 7 targets to train on, 0 held out; 4 "
            "characters \"abcd\", and a begin/end token");
  EXPECT_FALSE(load("{\"text\": \"bad\"}")->has_masks());

  const Tokenizer letters = *Tokenizer::Characters({"abcd"}, true);
  EXPECT_THAT(
      GetError(load("{\"text\": \"a\"}\n{\"prompt\": \"b\", \"completion\": \"xa\"}", &letters)),
      HasSubstr("d.jsonl:2:17: 'x' (U+0078) is not in the vocabulary"));
  EXPECT_EQ(GetError(load("\n \n")),
            "d.jsonl: no document: all 2 lines are empty; a document is a line with text");
  EXPECT_THAT(GetError(load("a name\n")), HasSubstr("d.jsonl:1:1: syntax error"));
}

TEST(DatasetTest, RecognizesAListInAText) {
  const auto longest = [](const std::string& text) {
    return Dataset::FromContent(text, "t.txt", Options(kText, 0.1), nullptr)->longest_item();
  };
  std::string list;
  for (int i = 0; i < 99; ++i) absl::StrAppend(&list, "name", i, "\n");
  EXPECT_EQ(longest(list), 0) << "too few lines";
  EXPECT_EQ(longest(list + "the last name\n"), 13);
  EXPECT_EQ(longest(list + "\nafter an empty line\n"), 0);
  EXPECT_EQ(longest(list + std::string(33, 'x')), 0) << "a line of prose";
}

TEST(DatasetTest, HashesTheFileUnchanged) {
  EXPECT_EQ(Documents("foobar")->data_hash(), "85944171f73967e8");
  EXPECT_NE(Documents("foobar\n")->data_hash(), "85944171f73967e8");
  ScratchDir dir;
  const absl::StatusOr<Dataset> dataset =
      Dataset::Load(dir.Write("d.txt", "foobar"), Options(kDocuments, 0));
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->data_hash(), "85944171f73967e8");
  EXPECT_EQ(dataset->name(), dir.File("d.txt"));
}

}  // namespace
}  // namespace plumb
