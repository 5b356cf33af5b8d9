// Shard: a part of a study's runs, for one of several machines that know nothing of each other. A
// value.
#ifndef PLUMB_CLI_COMPARE_SHARD_H_
#define PLUMB_CLI_COMPARE_SHARD_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace plumb::cli {

struct Shard {
  size_t index = 0, count = 1;  // 1: the whole study

  // Whether the run with this index in Plan::runs belongs to it.
  bool Has(size_t run) const { return run % count == index; }
  bool is_whole() const { return count == 1; }
  std::string ToText() const;  // "0/3"
};

// "I/N", with I from 0 to N - 1; "": the whole study.
absl::StatusOr<Shard> ParseShard(const std::string& text);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_SHARD_H_
