#include "cli/scaling/costs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

constexpr int64_t kBytes = 4;                       // of a gradient's element
constexpr int64_t kBucketBytes = int64_t{1} << 20;  // as in runtime/session/bucket_plan.cc
constexpr int64_t kMostRanks = int64_t{1} << 20;

absl::StatusOr<int64_t> ParseCount(absl::string_view text, absl::string_view whole) {
  int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 1 && count <= kMostRanks) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("--ranks: \"", text, "\" in \"", whole, "\" is not a number of ranks from 1 to ",
                   kMostRanks, "; for example --ranks 1,2,4 or --ranks 1..1024"));
}

// Bytes of each bucket, in the model's order.
std::vector<int64_t> BucketBytes(const std::vector<int64_t>& tensors, int64_t ranks) {
  int64_t all = 0;
  for (const int64_t elements : tensors) all += elements * kBytes;
  const int64_t enough = std::min(kBucketBytes, all / (2 * ranks));
  std::vector<int64_t> buckets;
  for (const int64_t elements : tensors) {
    const int64_t bytes = elements * kBytes;
    if (buckets.empty() || bytes >= enough || buckets.back() >= enough) buckets.push_back(0);
    buckets.back() += bytes;
  }
  return buckets;
}

}  // namespace

StepShares SharesOf(const Profile& profile, double seconds) {
  StepShares shares;
  for (const ProfileRow& row : profile.rows) {
    double& share = row.in_graph              ? shares.passes
                    : row.name == "optimizer" ? shares.update
                                              : shares.other;
    share += row.seconds;
  }
  const double all = shares.passes + shares.update + shares.other;
  const double scale = all > 0 ? seconds / all : 0;
  return {shares.passes * scale, shares.update * scale, shares.other * scale};
}

StepCosts CostsOf(const StepShares& shares, int64_t units, const std::vector<int64_t>& tensors,
                  double add_bytes_per_second, int64_t ranks) {
  StepCosts costs;
  costs.units = units;
  costs.pass_seconds = shares.passes / static_cast<double>(units);
  costs.other_seconds = shares.other;
  costs.add_bytes_per_second = add_bytes_per_second;
  std::vector<int64_t> buckets = BucketBytes(tensors, ranks);
  std::reverse(buckets.begin(), buckets.end());
  double all = 0, finished = 0;
  for (const int64_t bytes : buckets) all += static_cast<double>(bytes);
  for (const int64_t bytes : buckets) {
    const double part = static_cast<double>(bytes) / all;
    finished += part;
    costs.buckets.push_back(
        {bytes, costs.pass_seconds * (1 + 2 * finished) / 3, shares.update * part});
  }
  return costs;
}

absl::StatusOr<std::vector<int64_t>> ParseRankCounts(absl::string_view text) {
  std::set<int64_t> counts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits("..", 1));
    const bool is_range = part.find("..") != absl::string_view::npos;
    PLUMB_ASSIGN_OR_RETURN(const int64_t first, ParseCount(ends.first, text));
    PLUMB_ASSIGN_OR_RETURN(const int64_t last,
                           ParseCount(is_range ? ends.second : ends.first, text));
    if (last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ranks: \"", part, "\" ends before it begins"));
    }
    counts.insert(first);
    for (int64_t n = 1; n < last; n *= 2) {
      if (n > first) counts.insert(n);
    }
    counts.insert(last);
  }
  return std::vector<int64_t>(counts.begin(), counts.end());
}

}  // namespace plumb::cli
