#include "cli/scaling/link.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct Unit {
  const char* name;
  double factor;
};

// Longer names first: every name of a time ends in "s".
constexpr std::array<Unit, 4> kRates = {
    {{"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}, {"Tbit", 1e12 / 8}}};
constexpr std::array<Unit, 4> kTimes = {{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};

absl::StatusOr<double> ParseQuantity(absl::string_view text, const std::array<Unit, 4>& units,
                                     absl::string_view what) {
  std::vector<absl::string_view> names;
  for (const Unit& unit : units) {
    names.push_back(unit.name);
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.name)) continue;
    double value = 0;
    if (!absl::SimpleAtod(number, &value) || !std::isfinite(value) || value < 0) break;
    return value * unit.factor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--link: the ", what, " \"", text, "\" is not a number with one of ",
                   absl::StrJoin(names, ", "), ", as in 25Gbit,20us"));
}

// In the largest unit that is no larger than the value, or in the smallest.
std::string InItsUnit(double value, const std::array<Unit, 4>& units) {
  const Unit* chosen = nullptr;
  for (const Unit& unit : units) {
    const bool fits = unit.factor <= value;
    if (chosen == nullptr || (fits && (unit.factor > chosen->factor || chosen->factor > value)) ||
        (!fits && unit.factor < chosen->factor)) {
      chosen = &unit;
    }
  }
  return absl::StrFormat("%.3g %s", value / chosen->factor, chosen->name);
}

}  // namespace

absl::StatusOr<Link> ParseLink(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(',', 1));
  PLUMB_ASSIGN_OR_RETURN(const double rate, ParseQuantity(parts.first, kRates, "rate"));
  if (rate == 0) return absl::InvalidArgumentError("--link: the rate must be above zero");
  PLUMB_ASSIGN_OR_RETURN(const double latency, ParseQuantity(parts.second, kTimes, "latency"));
  return Link{rate, latency};
}

std::string LinkText(const Link& link) {
  return absl::StrCat(InItsUnit(link.bytes_per_second, kRates), "/s, ",
                      link.latency == 0 ? "0 s" : InItsUnit(link.latency, kTimes));
}

}  // namespace plumb::cli
