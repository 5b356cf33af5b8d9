// SPDX-License-Identifier: Apache-2.0
// TokenShards: token files one after another as one long list of ids, larger than memory if need
// be. Immutable but for read_status(), thread-safe.
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

// True if a file's name says that it is for validation: one of its words is val, valid, validation,
// eval or evaluation. Words are what digits, '_', '-', '.' and other characters than letters
// separate: "val_000.bin" and "shakespeare.Val-1.bin" are, "retrieval_000.bin" is not.
bool IsValidationName(absl::string_view name);

class TokenShards {
 public:
  // One file, or of a directory all *.bin files in the order of their names.
  // Errors name the file; a directory without one is kNotFound.
  static absl::StatusOr<TokenShards> Open(const std::string& path, TokenLayout headerless);

  int64_t size() const { return starts_.back(); }
  // Index of the first token that is held out. Held out are those shards of a directory whose name
  // IsValidationName; they come last. Equal to size() if there is none.
  int64_t validation_begin() const { return validation_begin_; }
  // Copies tokens [begin, begin + out.size()). Allocates nothing unless it fails. An error is kept
  // in read_status(), and the tokens that could not be read are 0.
  // Requires: begin + out.size() <= size().
  void Read(int64_t begin, absl::Span<int32_t> out) const;
  // First error of Read: a file was cut while it was in use, for example. Lasting.
  absl::Status read_status() const;
  // Identity of the data, 16 hexadecimal digits: of every shard its size and the MiB at either end.
  absl::StatusOr<std::string> Hash() const;

 private:
  struct ReadError {
    std::mutex mutex;
    absl::Status first;
  };

  std::unique_ptr<ReadError> error_ = std::make_unique<ReadError>();
  std::vector<TokenFile> files_;
  std::vector<int64_t> starts_ = {0};  // of each file, and the end
  int64_t validation_begin_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_
