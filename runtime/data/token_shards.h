// SPDX-License-Identifier: Apache-2.0
// TokenShards: token files, one after another, as one long list of ids that may be larger than
// memory. Immutable except for read_status(); thread-safe.
#ifndef PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_
#define PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/data/token_file.h"

namespace plumb {

// Returns true if a file name marks validation data: one of its words is val, valid, validation,
// eval or evaluation. All characters other than letters separate words: true for "val_000.bin" and
// "shakespeare.Val-1.bin", false for "retrieval_000.bin".
bool IsValidationName(absl::string_view name);

class TokenShards {
 public:
  // Opens one file, or all *.bin files of a directory in the order of their names.
  // Errors: kNotFound for a directory without one; errors of a file name it.
  static absl::StatusOr<TokenShards> Open(const std::string& path, TokenLayout headerless);

  int64_t size() const { return starts_.back(); }
  // Index of the first held-out token. The shards of a directory that satisfy IsValidationName are
  // held out and come last. Equal to size() if there are none.
  int64_t validation_begin() const { return validation_begin_; }
  // Copies tokens [begin, begin + out.size()). Allocates nothing unless it fails. After an error,
  // which read_status() keeps, the tokens that could not be read are 0.
  // Requires: begin + out.size() <= size().
  void Read(int64_t begin, absl::Span<int32_t> out) const {
    ReadEach(&TokenFile::Read, begin, out);
  }
  // Does the same, but tokens that are no targets become -1.
  void ReadTargets(int64_t begin, absl::Span<int32_t> out) const {
    ReadEach(&TokenFile::ReadTargets, begin, out);
  }
  // Returns true if a shard has a mask.
  bool has_masks() const;
  // Returns the number of targets in [begin, end). Errors: those of TokenFile::CountTargets.
  absl::StatusOr<int64_t> CountTargets(int64_t begin, int64_t end) const;
  // First error of Read, for example that a file was truncated while in use. It stays.
  absl::Status read_status() const;
  // Returns the identity of the data, 16 hexadecimal digits: a hash over the sizes and hashes
  // (HashOfFile) of all shards and masks.
  absl::StatusOr<std::string> Hash() const;

 private:
  struct ReadError {
    std::mutex mutex;
    absl::Status first;
  };

  void ReadEach(absl::Status (TokenFile::*read)(int64_t, absl::Span<int32_t>) const, int64_t begin,
                absl::Span<int32_t> out) const;

  std::unique_ptr<ReadError> error_ = std::make_unique<ReadError>();
  std::vector<TokenFile> files_;
  std::vector<int64_t> starts_ = {0};  // index of the first token of each file, and the end
  int64_t validation_begin_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_
