// SPDX-License-Identifier: Apache-2.0
// Malicious text is refused with a message or read, and does nothing worse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/rng.h"
#include "runtime/spec/train_spec.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const std::vector<std::string> files = ListDirectory(ShippedPlacements()).value();
  for (const std::string& file : files) {
    const std::string name = file.substr(0, file.find('.'));
    seeds.push_back(
        absl::StrCat("n_layer: 2 n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n",
                     ReadFile(JoinPath(ShippedPlacements(), file)).value(), "block { placement: \"",
                     name, "\" norm: \"rms_norm\" }\n"));
  }
  return seeds;
}

TEST(HostileTextTest, DamagedModelsAreRefusedOrRead) {
  const std::vector<std::string> seeds = Seeds();
  const RngStream stream(1, "damage");
  uint64_t next = 0;
  const auto pick = [&](uint64_t n) { return stream.Below(next++, n); };
  const std::string pieces[] = {"x",  "f",     "(",     ")",   "\"", "{", "}",    "norm(", "+ ",
                                "-",  "^",     "* 1e9", "%",   "if", "/", "d",    "each",  "0",
                                ": ", "layer", "tanh(", "and", ",",  "=", "\xff", "\n"};
  int read = 0;
  for (int i = 0; i < 1500; ++i) {  // tests/fuzz tries more
    std::string text = seeds[pick(seeds.size())];
    for (uint64_t n = 1 + pick(4); n > 0; --n) {
      const size_t at = pick(text.size());
      switch (pick(4)) {
        case 0:
          text[at] = static_cast<char>(pick(256));
          break;
        case 1:
          text.erase(at, 1 + pick(8));
          break;
        case 2:
          text.insert(at, pieces[pick(std::size(pieces))]);
          break;
        default:
          text.insert(at, text.substr(pick(text.size()), pick(30)));
      }
    }
    const absl::StatusOr<ResolvedModel> model = ResolveText(text);
    if (model.ok()) {
      ++read;
      const absl::StatusOr<ResolvedModel> again = ResolveText(model->self_contained_text);
      ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
      ASSERT_EQ(Print(*again), Print(*model)) << text;
    } else {
      ASSERT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << text;
      ASSERT_NE(model.status().message(), "");
    }
  }
  EXPECT_GT(read, 25);
}

TEST(HostileTextTest, DamagedTrainingTextsAreRefusedOrRead) {
  const std::string seed = ParseTrainSpec("", "t.pbtxt", {})->text;
  const RngStream stream(2, "damage");
  uint64_t next = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = seed;
    for (uint64_t n = 1 + stream.Below(next++, 3); n > 0; --n) {
      text[stream.Below(next, text.size())] = static_cast<char>(stream.Below(next + 1, 256));
      next += 2;
    }
    const absl::StatusOr<TrainSpec> spec = ParseTrainSpec(text, "t.pbtxt", {});
    if (!spec.ok()) {
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(HostileTextTest, DeepMessagesAreRefused) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "block {";
  EXPECT_NE(GetError(text), "no error");
}

TEST(HostileTextTest, LongFormulasDoNotExhaustTheStack) {
  std::string sum = "x = x + f(x)";
  while (sum.size() < 1990) sum += "+x";
  EXPECT_THAT(GetError(ModelWith(absl::StrCat("each: \"", sum, "\""))),
              testing::StartsWith("m.pbtxt:4:1: the formula has more than 100 operators inside of "
                                  "each other; give a part of it a name\n"));
  std::string deep = "x = x + f(";
  for (int i = 0; i < 90; ++i) deep += "norm(";
  deep += "x";
  for (int i = 0; i < 91; ++i) deep += ")";
  EXPECT_EQ(GetError(ModelWith(absl::StrCat("each: \"", deep, "\""))), "no error");
}

TEST(HostileTextTest, LongTextsHaveShortMessages) {
  const std::string word(1000000, 'q');
  for (const std::string& text : {
           absl::StrCat(kDims, "block { placement: \"", word, "\" norm: \"rms_norm\" }"),
           absl::StrCat(kDims, "block { placement: \"pre\" norm: \"", word, "\" }"),
           absl::StrCat(kDims, "block { slot { key: \"", word, "\" } }"),
           absl::StrCat(kDims, "embedding_scale: \"", word, "\""),
           absl::StrCat(kDims, "import: \"", word, "\""),
           absl::StrCat(kDims, "norm { name: \"", word, "\" }"),
           absl::StrCat(kDims, "norm { name: \"n\" plugin: \"", word, "\" }"),
           absl::StrCat(kDims, "norm { name: \"n\" plugin: \"rms_norm\" attr { name: \"", word,
                        "\" number: 1 } } block { placement: \"pre\" norm: \"n\" }"),
           ModelWith(absl::StrCat("each: \"", word, "\"")),
           ModelWith(absl::StrCat("each: \"x = x + ", word, "\"")),
           ModelWith(absl::StrCat("let: \"", word, " = 1\" each: \"x = x + f(x)\"")),
           ModelWith(
               absl::StrCat("learned { name: \"", word, "\" init: 0 } each: \"x = x + f(x)\"")),
       }) {
    const std::string error = GetError(text);
    EXPECT_NE(error, "no error") << text.substr(0, 200);
    EXPECT_LT(error.size(), 6000u) << error.substr(0, 500);
  }
}

TEST(HostileTextTest, LongLinesAreExcerpted) {
  std::string sum = "x = x + f(x)";
  for (int i = 0; i < 45; ++i) sum += " + x";
  EXPECT_EQ(GetError(ModelWith(absl::StrCat("each: \"", sum, " + y", sum.substr(12), "\""))),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"y\"; here there are x, "
            "layer, sublayer, and "
            "the model's dimensions\n"
            "  ...x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + y + x + x + x + x + "
            "x + x + x + x + x + x + x + x + x + x + ...\n"
            "                                                                 ^");
}

}  // namespace
}  // namespace plumb
