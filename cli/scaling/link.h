// Link: what connects two ranks, as `plumb bench --link 25Gbit,20us` says it.
#ifndef PLUMB_CLI_SCALING_LINK_H_
#define PLUMB_CLI_SCALING_LINK_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb::cli {

struct Link {
  double bytes_per_second = 0;  // each way at once, of one rank
  double latency = 0;  // seconds from the start of a send to the arrival of an empty message
};

// "RATE,LATENCY": a rate in kbit, Mbit, Gbit or Tbit a second, a latency in ns, us, ms or s.
// kInvalidArgument says what of it is wrong, with an example.
absl::StatusOr<Link> ParseLink(absl::string_view text);

// "25 Gbit/s, 20 us"
std::string LinkText(const Link& link);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SCALING_LINK_H_
