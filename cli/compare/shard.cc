#include "cli/compare/shard.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace plumb::cli {
namespace {

constexpr uint32_t kMostShards = 100000;

bool IsNumber(absl::string_view word, uint32_t* number) {
  return !word.empty() && word.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(word, number);
}

}  // namespace

std::string Shard::ToText() const { return absl::StrCat(index, "/", count); }

absl::StatusOr<Shard> ParseShard(const std::string& text) {
  if (text.empty()) return Shard();
  const std::vector<absl::string_view> words = absl::StrSplit(text, '/');
  uint32_t index = 0, count = 0;
  if (words.size() != 2 || !IsNumber(words[0], &index) || !IsNumber(words[1], &count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--shard ", text, ": write it like --shard 0/3, the first of three parts of the study"));
  }
  if (count < 1 || count > kMostShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard ", text, ": a study has 1 to ", kMostShards, " shards"));
  }
  if (index >= count) {
    return absl::InvalidArgumentError(absl::StrCat("--shard ", text, ": shards count from 0: 0/",
                                                   count, " to ", count - 1, "/", count));
  }
  return Shard{index, count};
}

}  // namespace plumb::cli
