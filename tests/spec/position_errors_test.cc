// Positions and widths of embeddings that are wrong, and what is said of them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(ResolveErrorTest, RotaryEmbeddingTurnsPairs) {
  EXPECT_EQ(ResolveError(absl::StrCat("head_dim: 3\npositions { kind: ROPE }\n", kBlock)),
            "m.pbtxt:3:1: positions: ROPE turns pairs; head_dim 3 is odd");
  EXPECT_EQ(ResolveError(absl::StrCat("head_dim: 3\n", kBlock)), "no error");
  EXPECT_EQ(ResolveError(absl::StrCat("positions { kind: ROPE rope_theta: -1 }\n", kBlock)),
            "m.pbtxt:2:24: rope_theta must be positive and finite");
  EXPECT_EQ(ResolveError(absl::StrCat("positions { kind: ROPE rope_theta: inf }\n", kBlock)),
            "m.pbtxt:2:24: rope_theta must be positive and finite");
}

TEST(ResolveErrorTest, ABidirectionalModelHasNoAlibi) {
  EXPECT_EQ(ResolveError(absl::StrCat("bidirectional: true\npositions { kind: ALIBI }\n", kBlock)),
            "m.pbtxt:3:13: ALIBI says how far back a token is, and the model is bidirectional; use "
            "other positions");
}

// head_dim is 4.
TEST(ResolveErrorTest, FieldsOfTheRotaryEmbeddingTakeNumbersThatMeanSomething) {
  const auto rope = [](absl::string_view fields) {
    return ResolveError(absl::StrCat("positions { kind: ROPE ", fields, " }\n", kBlock));
  };
  EXPECT_EQ(rope("rope_dims: \"2 * (layer - 1)\" rope_interleaved: true"), "no error");
  EXPECT_EQ(rope("rope_base: \"10000 + 990000 * (layer % 6 == 0)\""), "no error");
  EXPECT_EQ(
      rope("rope_dims: \"1 + layer\""),
      "m.pbtxt:2:24: rope_dims: 3 at layer 2, sublayer 3 must be an even number of a head's 4 "
      "elements, or 0 for none\n"
      "  1 + layer\n"
      "    ^");
  EXPECT_EQ(
      FirstLine(rope("rope_dims: \"6\"")),
      "m.pbtxt:2:24: rope_dims: 6 at layer 1, sublayer 1 must be an even number of a head's 4 "
      "elements, or 0 for none");
  EXPECT_EQ(FirstLine(rope("rope_dims: \"head_dims\"")),
            "m.pbtxt:2:24: unknown scalar \"head_dims\"; did you mean \"head_dim\"?");
  EXPECT_EQ(FirstLine(rope("rope_base: \"layer - 1\"")),
            "m.pbtxt:2:24: rope_base: 0 at layer 1, sublayer 1 must be positive");
  EXPECT_EQ(rope("rope_theta: 5 rope_base: \"5\""),
            "m.pbtxt:2:38: rope_base: rope_theta is there too; give one of the two");
  EXPECT_EQ(rope("rop_base: \"5\""),
            "m.pbtxt:2:24: unknown field \"rop_base\" in Positions; did you mean \"rope_base\"?");
  for (const char* field : {"rope_dims: \"2\"", "rope_interleaved: true", "rope_base: \"5\"",
                            "rope_scaling { linear: \"2\" }"}) {
    const std::string name(field, std::strcspn(field, ": "));
    EXPECT_EQ(ResolveError(absl::StrCat("positions { ", field, " }\n", kBlock)),
              absl::StrCat("m.pbtxt:2:13: ", name,
                           " is about the rotary embedding: it belongs beside kind: ROPE"));
  }
}

TEST(ResolveErrorTest, OnlyATableOfPositionsHasAnOffset) {
  const auto positions = [](absl::string_view fields) {
    return ResolveError(absl::StrCat("positions { ", fields, " }\n", kBlock));
  };
  EXPECT_EQ(positions("offset: 2"), "no error");
  EXPECT_EQ(positions("kind: LEARNED offset: 2"), "no error");
  EXPECT_EQ(positions("offset: -1"), "m.pbtxt:2:13: offset: -1 is not in 0..16777216");
  EXPECT_EQ(positions("kind: NONE offset: 2"),
            "m.pbtxt:2:24: offset is about a table of positions: it belongs beside kind: LEARNED");
}

TEST(ResolveErrorTest, TheEmbeddingsWidthIsAWholeNumber) {
  const auto width = [](absl::string_view expression, absl::string_view more = "") {
    return ResolveError(absl::StrCat("embedding_width: \"", expression, "\"\n", more, kBlock));
  };
  EXPECT_EQ(width("d_model / 2"), "no error");
  EXPECT_EQ(width("d_model / 3"),
            "m.pbtxt:2:1: embedding_width: 2.66667 is no whole number in 1..16777216\n"
            "  d_model / 3\n"
            "          ^");
  EXPECT_EQ(FirstLine(width("d_modl")),
            "m.pbtxt:2:1: unknown scalar \"d_modl\"; did you mean \"d_model\"?");
  EXPECT_EQ(width("4", "embedding { name: \"project\" }\n"),
            "m.pbtxt:3:13: embedding \"project\": there is one already; give it another name");
}

TEST(ResolveErrorTest, AlibisScaleIsPositive) {
  const auto alibi = [](absl::string_view fields) {
    return ResolveError(absl::StrCat("positions { ", fields, " }\n", kBlock));
  };
  EXPECT_EQ(alibi("kind: ALIBI alibi_scale: \"1 / sqrt(head_dim)\""), "no error");
  EXPECT_EQ(FirstLine(alibi("kind: ALIBI alibi_scale: \"1 - layer\"")),
            "m.pbtxt:2:25: alibi_scale: 0 at layer 1, sublayer 1 must be positive");
  EXPECT_EQ(alibi("kind: ROPE alibi_scale: \"1\""),
            "m.pbtxt:2:24: alibi_scale is about ALiBi: it belongs beside kind: ALIBI");
  EXPECT_EQ(alibi("kind: ALIBI rope_dims: \"2\""),
            "m.pbtxt:2:25: rope_dims is about the rotary embedding: it belongs beside kind: ROPE");
}

TEST(ResolveErrorTest, ScalingsOfTheRotaryEmbeddingNeedTheirNumbers) {
  const auto scaling = [](absl::string_view fields) {
    return ResolveError(
        absl::StrCat("positions { kind: ROPE rope_scaling {\n", fields, " } }\n", kBlock));
  };
  EXPECT_EQ(scaling("linear: \"2\""), "no error");
  EXPECT_EQ(scaling("llama3 { factor: 8 low_freq_factor: 1 high_freq_factor: 4 "
                    "original_context_length: 8192 }"),
            "no error");
  EXPECT_EQ(scaling("yarn { factor: 4 original_context_length: 4096 }"), "no error");
  EXPECT_EQ(scaling(""),
            "m.pbtxt:2:24: rope_scaling: give linear: \"..\", llama3 { .. }, yarn { .. } or "
            "longrope { .. }");
  EXPECT_EQ(FirstLine(scaling("linear: \"1 - layer\"")),
            "m.pbtxt:3:1: linear: 0 at layer 1, sublayer 1 must be positive");
  EXPECT_EQ(scaling("llama3 { factor: 8 low_freq_factor: 1 high_freq_factor: 4 }"),
            "m.pbtxt:3:1: rope_scaling: original_context_length is missing");
  EXPECT_EQ(scaling("llama3 { factor: -8 }"), "m.pbtxt:3:10: factor: -8 is not a positive number");
  EXPECT_EQ(scaling("llama3 { factor: 8 low_freq_factor: 4 high_freq_factor: 4 "
                    "original_context_length: 8192 }"),
            "m.pbtxt:3:20: low_freq_factor: 4 must be less than high_freq_factor 4");
  EXPECT_EQ(scaling("yarn { original_context_length: 4096 }"),
            "m.pbtxt:3:1: rope_scaling: factor is missing");
  EXPECT_EQ(scaling("yarn { factor: 4 original_context_length: 4096 beta_fast: inf }"),
            "m.pbtxt:3:48: beta_fast: inf is not a positive number");
  EXPECT_EQ(scaling("yarn { factor: 4 original_context_length: 4096 beta_slow: 32 }"),
            "m.pbtxt:3:48: beta_slow: 32 must be less than beta_fast 32");
  EXPECT_EQ(scaling("longrope { factor: [1, 2.5] }"), "no error");
  EXPECT_EQ(scaling("longrope { factor: [1, 0] }"),
            "m.pbtxt:3:24: factor: 0 is not a positive number");
  EXPECT_EQ(scaling("longrope { factor: 1 }"),
            "m.pbtxt:2:24: longrope has 1 factors at layer 1, sublayer 1, and there are 2 pairs "
            "that turn");
  // Only where its condition holds.
  EXPECT_EQ(scaling("longrope { factor: 1 } when: \"layer == 9\""), "no error");
  EXPECT_EQ(FirstLine(scaling("linear: \"2\" when: \"lay\"")),
            "m.pbtxt:3:13: unknown scalar \"lay\"; did you mean \"layer\"?");
  EXPECT_EQ(ResolveError(absl::StrCat(
                "positions { kind: ROPE rope_theta: 1\n rope_scaling { yarn { factor: 4 "
                "original_context_length: 4096 } } }\n",
                kBlock)),
            "m.pbtxt:2:24: yarn needs a base above 1, not 1 at layer 1, sublayer 1");
}

}  // namespace
}  // namespace plumb
