// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/token_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/file_hash.h"
#include "runtime/formats/hash.h"

namespace plumb {
namespace {

// Files that are kept open: most systems allow a process 1024.
constexpr size_t kMaxOpenFiles = 256;

// Bytes above ASCII, which may encode letters of other alphabets, all count as letters.
bool IsLetter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return absl::ascii_isalpha(byte) || byte >= 0x80;
}

}  // namespace

bool IsValidationName(absl::string_view name) {
  while (!name.empty()) {
    const auto end = std::find_if_not(name.begin(), name.end(), IsLetter);
    const absl::string_view word = name.substr(0, static_cast<size_t>(end - name.begin()));
    for (const absl::string_view known : {"val", "valid", "validation", "eval", "evaluation"}) {
      if (absl::EqualsIgnoreCase(word, known)) return true;
    }
    name.remove_prefix(std::min(name.size(), word.size() + 1));
  }
  return false;
}

absl::StatusOr<TokenShards> TokenShards::Open(const std::string& path, TokenLayout headerless) {
  std::vector<std::string> training, validation;
  if (IsDirectory(path)) {
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
    for (const std::string& name : names) {
      if (!absl::EndsWith(name, ".bin")) continue;
      (IsValidationName(name) ? validation : training).push_back(JoinPath(path, name));
    }
    if (training.empty() && validation.empty()) {
      return absl::NotFoundError(absl::StrCat(path, ": holds no token file (*.bin)"));
    }
  } else {
    training.push_back(path);
  }
  const auto descriptor = training.size() + validation.size() <= kMaxOpenFiles
                              ? RandomAccessFile::Descriptor::kKept
                              : RandomAccessFile::Descriptor::kForRead;
  TokenShards shards;
  for (const std::vector<std::string>* list : {&training, &validation}) {
    if (list == &validation) shards.validation_begin_ = shards.size();
    for (const std::string& file : *list) {
      PLUMB_ASSIGN_OR_RETURN(TokenFile opened, TokenFile::Open(file, headerless, descriptor));
      shards.starts_.push_back(shards.size() + opened.size());
      shards.files_.push_back(std::move(opened));
    }
  }
  if (shards.size() == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": has no tokens"));
  return shards;
}

void TokenShards::ReadEach(absl::Status (TokenFile::*read)(int64_t, absl::Span<int32_t>) const,
                           int64_t begin, absl::Span<int32_t> out) const {
  size_t shard = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                     starts_.begin() - 1);
  while (!out.empty()) {
    const int64_t left = starts_[shard + 1] - begin;
    const size_t count = static_cast<size_t>(std::min(left, static_cast<int64_t>(out.size())));
    const absl::Status status = (files_[shard].*read)(begin - starts_[shard], out.first(count));
    if (!status.ok()) {
      std::fill(out.begin(), out.end(), 0);
      const std::lock_guard<std::mutex> lock(error_->mutex);
      error_->first.Update(status);
      return;
    }
    out.remove_prefix(count);
    begin += static_cast<int64_t>(count);
    ++shard;
  }
}

bool TokenShards::has_masks() const {
  return std::any_of(files_.begin(), files_.end(),
                     [](const TokenFile& file) { return file.mask() != nullptr; });
}

absl::StatusOr<int64_t> TokenShards::CountTargets(int64_t begin, int64_t end) const {
  int64_t targets = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    const int64_t from = std::max(begin, starts_[i]), to = std::min(end, starts_[i + 1]);
    if (from >= to) continue;
    PLUMB_ASSIGN_OR_RETURN(const int64_t count,
                           files_[i].CountTargets(from - starts_[i], to - starts_[i]));
    targets += count;
  }
  return targets;
}

absl::Status TokenShards::read_status() const {
  const std::lock_guard<std::mutex> lock(error_->mutex);
  return error_->first;
}

absl::StatusOr<std::string> TokenShards::Hash() const {
  ContentHasher hasher;
  for (const TokenFile& shard : files_) {
    for (const RandomAccessFile* file : {&shard.file(), shard.mask()}) {
      if (file == nullptr) continue;
      PLUMB_ASSIGN_OR_RETURN(const std::string hash, CachedHashOfFile(file->path()));
      hasher.Update(absl::StrCat(file->size(), ":", hash));
    }
  }
  return HexDigits(hasher.Finish());
}

}  // namespace plumb
