// TokenShards: token files one after another as one long list of ids, mapped, larger than memory if
// need be. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_
#define PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/data/token_file.h"

namespace plumb {

class TokenShards {
 public:
  // One file, or of a directory all *.bin files in the order of their names.
  // Errors name the file; a directory without one is kNotFound.
  static absl::StatusOr<TokenShards> Open(const std::string& path, TokenLayout headerless);

  int64_t size() const { return starts_.back(); }
  // Tokens from the first shard that is held out: of a directory those whose names have "val" in
  // them, which come last. Equal to size() where there is none.
  int64_t validation_begin() const { return validation_begin_; }
  // Copies tokens [begin, begin + out.size()). REQUIRES: they are there. Allocates nothing.
  void Read(int64_t begin, absl::Span<int32_t> out) const;
  // Which data it is, 16 hexadecimal digits: of every shard its size and the MiB at either end.
  std::string Hash() const;

 private:
  std::vector<TokenFile> files_;
  std::vector<int64_t> starts_ = {0};  // of each file, and the end
  int64_t validation_begin_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_TOKEN_SHARDS_H_
