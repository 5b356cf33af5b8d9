// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/links.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/types/span.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

constexpr size_t kMaxHosts = 8;
constexpr size_t kSmall = 8, kLarge = size_t{1} << 20;

std::vector<std::pair<int, int>> LinksOf(const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> by_host;  // sorted by the first rank of each host
  std::map<std::string, size_t> places;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [at, is_new] = places.try_emplace(hosts[rank], by_host.size());
    if (is_new) by_host.emplace_back();
    by_host[at->second].push_back(static_cast<int>(rank));
  }
  std::vector<std::pair<int, int>> links;
  for (const std::vector<int>& here : by_host) {
    if (here.size() > 1) links.push_back({here[0], here[1]});
  }
  const size_t from = by_host.size() <= kMaxHosts ? by_host.size() : 1;
  for (size_t i = 0; i < from; ++i) {
    for (size_t j = i + 1; j < by_host.size(); ++j) links.push_back({by_host[i][0], by_host[j][0]});
  }
  return links;
}

// Returns, on rank `a`, the median of `times` round trips of a message, after one warm-up.
absl::StatusOr<double> PingPong(Communicator* ranks, int a, int b, size_t bytes, int times) {
  std::vector<char> data(bytes);
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (ranks->rank() == a) {
      PLUMB_RETURN_IF_ERROR(Send(ranks, b, kTagLinks, data.data(), bytes));
      PLUMB_RETURN_IF_ERROR(Receive(ranks, b, kTagLinks, data.data(), bytes));
    } else {
      PLUMB_RETURN_IF_ERROR(Receive(ranks, a, kTagLinks, data.data(), bytes));
      PLUMB_RETURN_IF_ERROR(Send(ranks, a, kTagLinks, data.data(), bytes));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) seconds.push_back(took.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + times / 2, seconds.end());
  return seconds[times / 2];
}

}  // namespace

absl::StatusOr<std::vector<LinkSpeed>> MeasureLinks(Communicator* ranks,
                                                    const std::vector<std::string>& hosts) {
  std::vector<LinkSpeed> all;
  for (const auto& [a, b] : LinksOf(hosts)) {
    std::vector<double> mine;
    if (ranks->rank() == a || ranks->rank() == b) {
      PLUMB_ASSIGN_OR_RETURN(const double small, PingPong(ranks, a, b, kSmall, 100));
      PLUMB_ASSIGN_OR_RETURN(const double large, PingPong(ranks, a, b, kLarge, 9));
      if (ranks->rank() == a) mine = {small / 2, 2 * static_cast<double>(kLarge) / large};
    }
    PLUMB_ASSIGN_OR_RETURN(const std::vector<double> speeds,
                           AllGather(ranks, absl::MakeConstSpan(mine)));
    if (speeds.size() != 2) return absl::InternalError("a link was measured by none, or by two");
    all.push_back({a, b, speeds[0], speeds[1]});
  }
  return all;
}

}  // namespace plumb
