// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

std::string WithLength(uint64_t length, absl::string_view rest) {
  std::string file(8, '\0');
  std::memcpy(&file[0], &length, 8);
  return absl::StrCat(file, rest);
}

std::string GetFile(absl::string_view header, size_t data_bytes) {
  return absl::StrCat(WithLength(header.size(), header), std::string(data_bytes, 'd'));
}

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::Status OpenContent(absl::string_view content) {
    return SafetensorsFile::Open(dir_.Write("m.safetensors", content)).status();
  }
  // Returns the error of a header that precedes `data_bytes` bytes.
  std::string GetError(absl::string_view header, size_t data_bytes) {
    const absl::Status status = OpenContent(GetFile(header, data_bytes));
    EXPECT_FALSE(status.ok()) << header;
    EXPECT_THAT(std::string(status.message()), HasSubstr("m.safetensors: "));
    return std::string(status.message());
  }

  ScratchDir dir_;
};

TEST_F(SafetensorsTest, ReadsTheTensorsThatWereWritten) {
  const std::vector<float> w = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> steps = {7};
  TensorType scalar;
  scalar.dtype = DType::kI32;
  const std::vector<TensorToWrite> tensors = {{"z.weight", F32({2, 3}), w.data()},
                                              {"a \"step\" \u00e9", scalar, steps.data()},
                                              {"empty", F32({0, 4}), nullptr}};
  const std::string path = dir_.File("m.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"seed", "1"}}).ok());

  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"seed", "1"}}));
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "z.weight");  // in the given order, not sorted by name
  EXPECT_EQ(file->tensors()[0].dtype, "F32");
  EXPECT_EQ(file->tensors()[0].shape, Shape({2, 3}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->tensors()[0].data.data()) % 64, 0u);
  std::vector<float> read(6);
  ASSERT_TRUE(file->Read("z.weight", F32({2, 3}), read.data()).ok());
  EXPECT_EQ(read, w);
  int32_t step = 0;
  ASSERT_TRUE(file->Read("a \"step\" \u00e9", scalar, &step).ok());
  EXPECT_EQ(step, 7);
  ASSERT_NE(file->Find("empty"), nullptr);
  EXPECT_TRUE(file->Find("empty")->data.empty());
  EXPECT_EQ(file->Find("missing"), nullptr);
}

// The tensor is written in several pieces, the last of which is shorter.
TEST_F(SafetensorsTest, CallbackTensorsEqualMemoryTensors) {
  std::vector<float> w(600001);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i) * 0.37f;
  const auto copy = [&w](int64_t begin, int64_t n, void* to) {
    std::copy_n(w.data() + begin, n, static_cast<float*>(to));
  };
  const auto none = [](int64_t, int64_t, void*) { FAIL() << "there is nothing to copy"; };
  const Shape shape({static_cast<int64_t>(w.size())});
  const std::string here = dir_.File("here"), pieces = dir_.File("pieces");
  ASSERT_TRUE(WriteSafetensors(here, {{"w", F32(shape), w.data()},
                                      {"empty", F32({0})},
                                      {"w again", F32(shape), w.data()}})
                  .ok());
  ASSERT_TRUE(WriteSafetensors(pieces, {{"w", F32(shape), nullptr, copy},
                                        {"empty", F32({0}), nullptr, none},
                                        {"w again", F32(shape), nullptr, copy}})
                  .ok());
  EXPECT_TRUE(*ReadFile(here) == *ReadFile(pieces));
}

TEST_F(SafetensorsTest, BytesFollowTheFormat) {
  const float value = 1.0f;
  const std::string path = dir_.File("m.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"w", F32({1}), &value}}).ok());
  std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize(120, ' ');
  EXPECT_EQ(*ReadFile(path), WithLength(120, header + std::string("\x00\x00\x80\x3f", 4)));
}

TEST_F(SafetensorsTest, EntriesOutliveAMoveOfTheFile) {
  const float value = 3.0f;
  const std::string path = dir_.File("m.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"w", F32({1}), &value}}).ok());
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  const SafetensorsFile moved = std::move(*file);
  float read = 0;
  ASSERT_TRUE(moved.Read("w", F32({1}), &read).ok());
  EXPECT_EQ(read, 3.0f);
}

TEST_F(SafetensorsTest, ReadNamesTheDifference) {
  const std::vector<float> w(6);
  const std::string path = dir_.File("m.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"layer.0.weight", F32({2, 3}), w.data()}}).ok());
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  std::vector<float> read(6);
  absl::Status status = file->Read("layer.0.wieght", F32({2, 3}), read.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean \"layer.0.weight\"?"));
  status = file->Read("layer.0.weight", F32({3, 2}), read.data());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("is F32[2, 3], but the model needs F32[3, 2]"));
  EXPECT_FALSE(file->Read("layer.0.weight", I32({2, 3}), read.data()).ok());
}

TEST_F(SafetensorsTest, ReadsFilesOfOthers) {
  // The names are sorted, metadata is missing, spaces pad the header, and plumb does not compute
  // with one dtype.
  const std::string header = R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                             R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8],"note":1}}   )";
  const absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(dir_.Write("m.safetensors", GetFile(header, 12)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[1].dtype, "BF16");
  EXPECT_TRUE(file->metadata().empty());
  for (const char* dtype : {"F64", "U64", "F16", "I16", "U16", "U32", "I8", "U8", "BOOL"}) {
    const std::string one =
        absl::StrCat(R"({"a":{"dtype":")", dtype, R"(","shape":[0],"data_offsets":[0,0]}})");
    EXPECT_TRUE(OpenContent(GetFile(one, 0)).ok()) << dtype;
  }
}

TEST_F(SafetensorsTest, RefusesTruncatedFiles) {
  const std::vector<float> w(40, 1.5f);
  const std::string path = dir_.File("whole.safetensors");
  ASSERT_TRUE(
      WriteSafetensors(path, {{"a", F32({20}), w.data()}, {"b", F32({20}), w.data()}}).ok());
  const std::string whole = *ReadFile(path);
  ASSERT_TRUE(OpenContent(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_FALSE(OpenContent(whole.substr(0, length)).ok()) << length;
  }
  EXPECT_EQ(OpenContent(whole.substr(0, 300)).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(OpenContent(whole + "x").message()),
              HasSubstr("1 bytes of data after the last tensor, \"b\", belong to no tensor"));
  EXPECT_EQ(SafetensorsFile::Open(dir_.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(SafetensorsFile::Open(dir_.path()).ok());
}

// No altered byte of the header may cause a crash. If the file still opens, all ranges are inside
// it.
TEST_F(SafetensorsTest, SurvivesEveryAlteredByteOfTheHeader) {
  const std::vector<float> w(8, 1.5f);
  const std::string path = dir_.File("whole.safetensors");
  ASSERT_TRUE(
      WriteSafetensors(path, {{"a", F32({2, 2}), w.data()}, {"b", F32({4}), w.data()}}).ok());
  const std::string whole = *ReadFile(path);
  for (size_t i = 0; i < whole.size() - 32; ++i) {
    for (int flip : {0x01, 0x10, 0x80}) {
      std::string altered = whole;
      altered[i] = static_cast<char>(altered[i] ^ flip);
      const absl::StatusOr<SafetensorsFile> file =
          SafetensorsFile::Open(dir_.Write("m.safetensors", altered));
      if (!file.ok()) continue;
      size_t bytes = 0;
      for (const TensorEntry& tensor : file->tensors()) bytes += tensor.data.size();
      ASSERT_EQ(bytes, 32u);
    }
  }
}

TEST_F(SafetensorsTest, RefusesHostileHeaderLengths) {
  EXPECT_THAT(std::string(OpenContent(WithLength(~uint64_t{0}, "{}")).message()),
              HasSubstr("more than the 100000000 that the format allows"));
  EXPECT_EQ(OpenContent(WithLength(100'000'000, "{}")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenContent(WithLength(3, "{}")).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(OpenContent(WithLength(0, "{}")).ok());
}

TEST_F(SafetensorsTest, RefusesHeadersThatAreNotTheFormat) {
  EXPECT_THAT(GetError("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(GetError("{\"a\"", 0), HasSubstr("the header is not valid"));
  EXPECT_THAT(GetError("{\"\xff\":1}", 0), HasSubstr("the header is not valid"));
  EXPECT_THAT(GetError(R"({"a":[[[1]]]})", 0), HasSubstr("nested deeper"));
  EXPECT_THAT(GetError(R"({"a":1})", 0), HasSubstr("tensor \"a\": is not described by an object"));
  EXPECT_THAT(GetError(R"({"__metadata__":{"k":1}})", 0), HasSubstr("\"k\" is not a string"));
  EXPECT_THAT(GetError(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ is not an object"));
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(GetError(absl::StrCat("{", a, ",", a, "}"), 4), HasSubstr("\"a\" stands twice"));
}

TEST_F(SafetensorsTest, RefusesTensorsThatAreNotTheFormat) {
  const auto error = [&](absl::string_view fields, size_t data) {
    const std::string message = GetError(absl::StrCat("{\"a\":{", fields, "}}"), data);
    EXPECT_THAT(message, HasSubstr("tensor \"a\": ")) << fields;
    return message;
  };
  EXPECT_THAT(error(R"("shape":[],"data_offsets":[0,4])", 4), HasSubstr("no dtype"));
  EXPECT_THAT(error(R"("dtype":"F7","shape":[],"data_offsets":[0,4])", 4), HasSubstr("\"F7\""));
  EXPECT_THAT(error(R"("dtype":"F32","data_offsets":[0,4])", 4), HasSubstr("no shape"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4), HasSubstr(">= 0"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])", 4), HasSubstr("whole"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])", 4), HasSubstr("whole"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[1])", 4), HasSubstr("data_offsets"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[1],"data_offsets":[0])", 4),
              HasSubstr("data_offsets"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4), HasSubstr("<= end"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])", 4), HasSubstr("<= end"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615])", 4),
              HasSubstr("<= end"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 4),
              HasSubstr("only 4 bytes"));
  EXPECT_THAT(error(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
              HasSubstr("span 4 bytes, but F32 of its shape takes 8"));
  // The size 2^62 * 4 wraps around to 0, and a zero in another dimension must not hide that.
  EXPECT_THAT(error(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])", 0),
              HasSubstr("too large"));
  EXPECT_THAT(error(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", 0),
              HasSubstr("too large"));
}

TEST_F(SafetensorsTest, RefusesHolesAndOverlaps) {
  const auto header = [](absl::string_view a, absl::string_view b) {
    return absl::StrCat(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)", a,
                        R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)", b, "}}");
  };
  ASSERT_TRUE(OpenContent(GetFile(header("[8,16]", "[0,8]"), 16)).ok());
  EXPECT_THAT(GetError(header("[0,8]", "[12,20]"), 20),
              HasSubstr("tensor \"b\": there is a hole of 4 bytes before its data"));
  EXPECT_THAT(GetError(header("[4,12]", "[12,20]"), 20),
              HasSubstr("tensor \"a\": there is a hole"));
  EXPECT_THAT(GetError(header("[0,8]", "[4,12]"), 12),
              HasSubstr("tensor \"b\": its data overlap those of \"a\""));
  EXPECT_THAT(GetError(header("[0,8]", "[0,8]"), 8), HasSubstr("overlap"));
  EXPECT_THAT(GetError(header("[0,8]", "[8,16]"), 20), HasSubstr("4 bytes of data after"));
}

TEST_F(SafetensorsTest, WriterRefusesUnreadableNames) {
  const float value = 0;
  const std::string path = dir_.File("m.safetensors");
  for (const char* name : {"", "__metadata__", "\xff"}) {
    EXPECT_FALSE(WriteSafetensors(path, {{name, F32({1}), &value}}).ok()) << name;
  }
  EXPECT_FALSE(WriteSafetensors(path, {{"a", F32({1}), &value}, {"a", F32({1}), &value}}).ok());
  EXPECT_FALSE(WriteSafetensors(path, {}, {{"format", "tf"}}).ok());
  EXPECT_FALSE(WriteSafetensors(path, {}, {{"k", "\xff"}}).ok());
  EXPECT_FALSE(FileExists(path));
  EXPECT_TRUE(WriteSafetensors(path, {}).ok());
  EXPECT_TRUE(SafetensorsFile::Open(path).ok());
}

}  // namespace
}  // namespace plumb
