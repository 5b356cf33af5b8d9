#include "runtime/data/token_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/io/hash.h"

namespace plumb {
namespace {

constexpr size_t kHashedAtEitherEnd = size_t{1} << 20;

}  // namespace

absl::StatusOr<TokenShards> TokenShards::Open(const std::string& path, TokenLayout headerless) {
  std::vector<std::string> training, validation;
  if (IsDirectory(path)) {
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
    for (const std::string& name : names) {
      if (!absl::EndsWith(name, ".bin")) continue;
      (absl::StrContains(name, "val") ? validation : training).push_back(JoinPath(path, name));
    }
    if (training.empty() && validation.empty()) {
      return absl::NotFoundError(absl::StrCat(path, ": holds no token file (*.bin)"));
    }
  } else {
    training.push_back(path);
  }
  TokenShards shards;
  for (const std::vector<std::string>* list : {&training, &validation}) {
    if (list == &validation) shards.validation_begin_ = shards.size();
    for (const std::string& file : *list) {
      PLUMB_ASSIGN_OR_RETURN(TokenFile opened, TokenFile::Open(file, headerless));
      shards.starts_.push_back(shards.size() + opened.size());
      shards.files_.push_back(std::move(opened));
    }
  }
  if (shards.size() == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": has no tokens"));
  return shards;
}

void TokenShards::Read(int64_t begin, absl::Span<int32_t> out) const {
  size_t shard = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                     starts_.begin() - 1);
  while (!out.empty()) {
    const int64_t left = starts_[shard + 1] - begin;
    const size_t count = static_cast<size_t>(std::min(left, static_cast<int64_t>(out.size())));
    files_[shard].Read(begin - starts_[shard], out.first(count));
    out.remove_prefix(count);
    begin += static_cast<int64_t>(count);
    ++shard;
  }
}

std::string TokenShards::Hash() const {
  ContentHasher hasher;
  for (const TokenFile& file : files_) {
    const absl::string_view content = file.content();
    const size_t end = std::min(content.size(), kHashedAtEitherEnd);
    hasher.Update(absl::StrCat(content.size(), ":"));
    hasher.Update(content.substr(0, end));
    hasher.Update(content.substr(content.size() - end));
  }
  return HexDigits(hasher.Finish());
}

}  // namespace plumb
