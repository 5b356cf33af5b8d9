// SPDX-License-Identifier: Apache-2.0
// Tests of runtime/schema without protobuf as the oracle: error messages, locations in lists,
// fields set by their paths, and the accessors that the schema's compiler generates.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/study.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

template <class Message>
std::string GetError(absl::string_view text) {
  Message message;
  textproto::Locations locations;
  return std::string(textproto::ReadText(text, "f", &message, &locations).message());
}
std::string ModelError(absl::string_view text) { return GetError<v1::Model>(text); }

template <class Message>
Message Read(absl::string_view text, textproto::Locations* locations) {
  Message message;
  EXPECT_TRUE(textproto::ReadText(text, "f", &message, locations).ok()) << text;
  return message;
}

TEST(TextprotoErrorTest, PointsAtInvalidTokens) {
  EXPECT_EQ(ModelError("name: \"a\nb\""),
            "f:1:7: no \" ends this text; it has to, in the same line");
  EXPECT_EQ(ModelError("name: 'a"), "f:1:7: no ' ends this text; it has to, in the same line");
  EXPECT_EQ(ModelError("name: \"a\\q\""),
            "f:1:9: unknown escape \"\\q\"; a backslash itself is \"\\\\\"");
  EXPECT_EQ(ModelError("name: \"a\\x\""), "f:1:9: \"\\x\" without hexadecimal digits");
  EXPECT_EQ(ModelError("name: \"\\u12\""), "f:1:8: \"\\u\" needs four hexadecimal digits");
  EXPECT_EQ(ModelError("name: \"\\U00110000\""),
            "f:1:8: \"\\U\" needs eight hexadecimal digits, of at most 0010FFFF");
  EXPECT_EQ(ModelError("n_layer: 12abc"),
            "f:1:10: \"12\" and \"a\" together are not a number; is a space missing?");
  EXPECT_EQ(ModelError("n_layer: 09"),
            "f:1:10: a number that begins with 0 is octal: its digits are 0 to 7");
  EXPECT_EQ(ModelError("n_layer: 0x"), "f:1:10: \"0x\" without hexadecimal digits");
  EXPECT_EQ(ModelError("positions { rope_theta: 1e }"),
            "f:1:25: a number whose exponent has no digits");
  EXPECT_EQ(ModelError("n_layer: \xc3\xa9"), "f:1:10: a \"\xc3\xa9\" outside of quotes");
  EXPECT_EQ(ModelError("\x80"), "f:1:1: a byte that is not UTF-8, outside of quotes");
  EXPECT_EQ(ModelError("\xef\xbb\xbfn_layer: 1"),
            "f:1:1: the text begins with a byte order mark; save it as UTF-8 without one");
  EXPECT_EQ(ModelError("n_layer: \x01"), "f:1:10: a control character, U+0001, outside of quotes");
}

TEST(TextprotoErrorTest, RemovedNamesAreRefusedWithAdvice) {
  EXPECT_EQ(GetError<v1::Train>("step_back_learning_rate_scale: 1 shard: NONE wire: F32"), "")
      << "runs of former versions have them, without effect";
  EXPECT_EQ(
      GetError<v1::Train>("shard: OPTIMIZER"),
      "f:1:1: unknown field \"shard\" in Train; it was removed: every rank stores all states; "
      "drop it, or start from the weights of such a run by --init RUN");
  EXPECT_EQ(GetError<v1::Train>("step_back_learning_rate_scale: 0.5"),
            "f:1:1: unknown field \"step_back_learning_rate_scale\" in Train; it was removed: drop "
            "it, as STEP_BACK was removed too");
  EXPECT_EQ(GetError<v1::Train>("on_divergence: STEP_BACK"),
            "f:1:16: unknown value \"STEP_BACK\" for on_divergence; it was removed: use SKIP, or "
            "STOP and resume from last_good with a lower learning_rate");
  EXPECT_EQ(GetError<v1::Study>("tensorboard: false seeds: 2"), "");
  EXPECT_EQ(GetError<v1::Study>("tensorboard: true"),
            "f:1:1: unknown field \"tensorboard\" in Study; it was removed: convert the runs with "
            "python -m plumb_runtime tensorboard RUN");
  v1::Train train;
  EXPECT_EQ(textproto::SetField(&train, "on_divergence", "step_back").message(),
            "on_divergence: \"step_back\" is not one of STOP, SKIP; it was removed: use SKIP, or "
            "STOP and resume from last_good with a lower learning_rate");
}

TEST(TextprotoErrorTest, NamesFieldsAndTheirTypes) {
  EXPECT_EQ(ModelError("n_layer"),
            "f:1:8: expected \":\" after n_layer, found the end of the text");
  EXPECT_EQ(ModelError("n_layer: -2147483649"),
            "f:1:10: n_layer: -2147483649 is not a number of 32 bits");
  EXPECT_EQ(GetError<v1::Study>("seed: -1"),
            "f:1:7: expected a whole number >= 0 for seed, found \"-\"");
  EXPECT_EQ(GetError<v1::Study>("seed: 18446744073709551616"),
            "f:1:7: seed: 18446744073709551616 is not a number of 64 bits");
  EXPECT_EQ(GetError<v1::Train>("beta1: high"),
            "f:1:8: expected a number for beta1, found \"high\"");
  EXPECT_EQ(GetError<v1::Train>("beta1: 0x1"),
            "f:1:8: expected a decimal number for beta1, found \"0x1\"");
  EXPECT_EQ(ModelError("head_bias: yes"),
            "f:1:12: expected true or false for head_bias, found \"yes\"");
  EXPECT_EQ(ModelError("name: pre"), "f:1:7: expected text in quotes for name, found \"pre\"");
  EXPECT_EQ(ModelError("d_ff: 64"), "f:1:7: expected text in quotes for d_ff; write d_ff: \"64\"");
  EXPECT_EQ(ModelError("positions { kind: \"ROPE\" }"),
            "f:1:19: expected one of LEARNED, ROPE, NONE, ALIBI for kind, found the text \"ROPE\"");
  EXPECT_EQ(ModelError("block: 4"), "f:1:8: expected \"{\" after block, found \"4\"");
  EXPECT_EQ(ModelError("import: [\"a\" \"b\", 'c' 4]"),
            "f:1:23: expected \",\" or \"]\" in the list of import, found \"4\"");
  EXPECT_EQ(ModelError(absl::StrCat("name: ", std::string(100, 'x'))),
            absl::StrCat("f:1:7: expected text in quotes for name, found \"", std::string(60, 'x'),
                         "...\""));
}

TEST(TextprotoErrorTest, TruncatesLongQuotations) {
  const std::string nines(5000000, '9'), shown(60, '9');
  EXPECT_EQ(ModelError("n_layer: " + nines),
            "f:1:10: n_layer: " + shown + "... is not a number of 32 bits");
  EXPECT_EQ(GetError<v1::Train>("seed: " + nines),
            "f:1:7: seed: " + shown + "... is not a number of 64 bits");
  EXPECT_EQ(
      ModelError("n_layer: " + nines + "a"),
      "f:1:10: \"" + shown + "...\" and \"a\" together are not a number; is a space missing?");
  const std::string name(5000000, 'x');
  EXPECT_LT(ModelError(name + ": 1").size(), 1000u);
  EXPECT_LT(ModelError("positions { kind: " + name + " }").size(), 1000u);
  EXPECT_LT(ModelError("n_layer: " + name).size(), 1000u);
}

TEST(TextprotoErrorTest, ReportsUnmatchedBraces) {
  EXPECT_EQ(ModelError("}"), "f:1:1: a \"}\" without a \"{\"");
  EXPECT_EQ(ModelError("block {"), "f:1:8: the text ends too early; is a \"}\" missing?");
  EXPECT_EQ(ModelError("block { >"), "f:1:9: expected \"}\", found \">\"");
  EXPECT_EQ(ModelError("[a.b]: 1"),
            "f:1:1: a \"[\" instead of a field; extensions and Any are not read");
  std::string deep;
  for (int i = 0; i < 51; ++i) deep += "x{";
  const std::string error = ModelError(deep);
  EXPECT_EQ(error.substr(error.find('\n') + 1), "f:1:102: messages nest more than 50 deep");
  const std::string lists = ModelError("x: " + std::string(51, '['));
  EXPECT_EQ(lists.substr(lists.find('\n') + 1), "f:1:54: lists nest more than 50 deep");
}

TEST(TextprotoErrorTest, NamesTheEarlierField) {
  EXPECT_EQ(ModelError("name: 'a'\n\n name: 'b'"), "f:3:2: name is given twice, first in line 1");
  EXPECT_EQ(ModelError("block {\n sublayer {\n attention {}\n mlp {} } }"),
            "f:4:2: mlp and attention (line 3) exclude each other");
}

// An unknown field is skipped with any value, so that the next one is found.
TEST(TextprotoErrorTest, FindsUnknownFieldsUpToAnotherError) {
  EXPECT_EQ(
      ModelError("a: 'x' 'y' b: [1, {c: 2}, <>] d { e: [] 7: 8 } f: -inf; g < >, h: {}\n"
                 "n_layer: x\ni: 1"),
      "f:1:1: unknown field \"a\" in Model; it has name, import, n_layer, n_head, n_kv_head, "
      "d_model, d_ff, head_dim, vocab_size, context_length, bidirectional, positions, "
      "embedding_scale, embedding_width, token_types, embedding, tie_embeddings, head_bias, "
      "attention, mlp, norm, placement, block, layers, init, adapter\n" +
          [] {
            std::string others;
            const std::string known = ModelError("a: 1").substr(24);
            for (const char* place :
                 {"12: unknown field \"b\"", "31: unknown field \"d\"", "48: unknown field \"f\"",
                  "57: unknown field \"g\"", "64: unknown field \"h\""}) {
              absl::StrAppend(&others, "f:1:", place, known, "\n");
            }
            return others;
          }() +
          "f:2:10: expected a whole number for n_layer, found \"x\"");
}

TEST(TextprotoLocationsTest, ListElementsHaveLocations) {
  textproto::Locations locations;
  Read<v1::Study>("seed: [1,\n  2] seed: 3\nset: ['a']", &locations);
  const textproto::MessageType& type = v1::Study::kType;
  const auto at = [&](const char* field, int index) {
    const textproto::Location location = locations.At(*type.Find(field), index);
    return absl::StrCat(location.line, ":", location.column);
  };
  EXPECT_EQ(at("seed", 0), "1:8");
  EXPECT_EQ(at("seed", 1), "2:3");
  EXPECT_EQ(at("seed", 2), "2:6");
  EXPECT_EQ(at("seed", 3), "0:0");
  EXPECT_EQ(at("set", 0), "3:7");
  EXPECT_EQ(at("data", 0), "0:0");
}

TEST(TextprotoSetFieldTest, SwitchesTheMemberOfAOneof) {
  textproto::Locations locations;
  auto model = Read<v1::Model>("norm { attr { name: 'eps' number: 2 } }", &locations);
  ASSERT_TRUE(textproto::SetField(&model, "norm[0].attr[0].text", "small").ok());
  EXPECT_EQ(textproto::PrintText(model),
            "norm {\n  attr {\n    name: \"eps\"\n    text: \"small\"\n  }\n}\n");
  EXPECT_EQ(model.norm(0).attr(0).number(), 0);
}

TEST(TextprotoSetFieldTest, SetsElementsOfEveryType) {
  textproto::Locations locations;
  auto study = Read<v1::Study>("seed: [1, 2] set: ['a', 'b']", &locations);
  ASSERT_TRUE(textproto::SetField(&study, "seed[1]", "7").ok());
  ASSERT_TRUE(textproto::SetField(&study, "set[0]", "c").ok());
  EXPECT_EQ(textproto::PrintText(study), "set: \"c\"\nset: \"b\"\nseed: 1\nseed: 7\n");
  EXPECT_EQ(textproto::SetField(&study, "seed", "7").message(),
            "seed: seed needs an index below 2: seed[0]");
}

TEST(TextprotoSetFieldTest, FindsElementsByName) {
  textproto::Locations locations;
  auto model =
      Read<v1::Model>("norm { name: 'a' } norm { name: 'b' attr { name: 'eps' } }", &locations);
  ASSERT_TRUE(textproto::SetField(&model, "norm[b].attr[eps].number", "2").ok());
  EXPECT_EQ(model.norm(1).attr(0).number(), 2);
  const auto found = textproto::FindField(model, "norm[b].attr[0].number");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->message, &model.norm(1).attr(0));
  EXPECT_STREQ(found->field->name, "number");
  EXPECT_EQ(textproto::SetField(&model, "norm[b].attr[esp].number", "2").message(),
            "norm[b].attr[esp].number: there is no attr \"esp\"; did you mean \"eps\"?");
  EXPECT_EQ(textproto::FindField(model, "norm[]").status().message(),
            "norm[]: bad index in \"norm[]\"");
}

TEST(TextprotoSetFieldTest, ReplacesAListOfNumbers) {
  textproto::Locations locations;
  auto model = Read<v1::Model>("positions { rope_scaling { longrope { factor: 7 } } }", &locations);
  const char* path = "positions.rope_scaling[0].longrope.factor";
  ASSERT_TRUE(textproto::SetField(&model, path, "1, 2.5").ok());
  EXPECT_EQ(model.positions().rope_scaling(0).longrope().factor(), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(textproto::SetField(&model, path, "1, x").message(),
            absl::StrCat(path, ": \"1, x\" is not a list of numbers with commas between them"));
}

// A path through messages that are not set finds an empty message, and sets none of them.
TEST(TextprotoSetFieldTest, FindsFieldsOfMessagesThatAreNotSet) {
  const v1::Model model;
  const auto found = textproto::FindField(model, "mlp.bias");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->message->Has(*found->field));
  EXPECT_TRUE(model.IsEmpty());
}

TEST(SchemaCompilerTest, AccessorsTrackPresence) {
  v1::Train train;
  EXPECT_TRUE(train.IsEmpty());
  EXPECT_FALSE(train.has_seed());
  train.set_seed(0);
  EXPECT_TRUE(train.has_seed());
  EXPECT_FALSE(train.has_data());
  train.mutable_data();
  EXPECT_TRUE(train.has_data());
  train.set_warmup_steps(0);  // this does not count as set
  EXPECT_EQ(textproto::PrintText(train), "seed: 0\ndata {\n}\n");
  train.set_dtype(v1::Train::BF16);
  EXPECT_EQ(train.dtype(), v1::Train::BF16);

  v1::Init init;
  EXPECT_EQ(init.distribution_case(), v1::Init::DISTRIBUTION_NOT_SET);
  init.mutable_normal()->set_std("2");
  EXPECT_EQ(init.distribution_case(), v1::Init::kNormal);
  const v1::Init copy = init;
  init.mutable_uniform();
  EXPECT_EQ(init.distribution_case(), v1::Init::kUniform);
  EXPECT_EQ(init.normal().std(), "");
  EXPECT_EQ(copy.distribution_case(), v1::Init::kNormal);
  EXPECT_EQ(copy.normal().std(), "2");
}

}  // namespace
}  // namespace plumb
