#include "cli/bench_figures.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/profile_table.h"

namespace plumb::cli {
namespace {

constexpr double kBillion = 1e9;

// Seconds in the unit in which they read best.
std::string TimeText(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", 1e6 * seconds);
  if (seconds < 10) return absl::StrFormat("%.2f ms", 1e3 * seconds);
  return absl::StrFormat("%.2f s", seconds);
}

std::string ShareText(const PassFigures& pass) {
  if (pass.share.empty()) return "-";
  return absl::StrFormat("%.0f %% of %.1f", 100 * pass.share.Median(),
                         pass.machine.Median() / kBillion);
}

}  // namespace

double Series::Quantile(double q) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Json Series::ToJson() const {
  return {{"median", Median()}, {"p10", Quantile(0.1)}, {"p90", Quantile(0.9)}};
}

Json ToJson(const PassFigures& pass) {
  Json json = {{"pass", pass.name}, {"shape", pass.shape}, {"dtype", pass.dtype}};
  if (!pass.problem.empty()) {
    json["problem"] = pass.problem;
    return json;
  }
  json["seconds"] = pass.seconds.ToJson();
  json["tokens_per_second"] = pass.tokens_per_second.ToJson();
  json["rate"] = pass.rate.ToJson();
  json["rate_unit"] = pass.unit == "GB/s" ? "bytes/s" : "FLOP/s";
  json["machine"] = pass.machine.empty() ? Json() : pass.machine.ToJson();
  json["share"] = pass.share.empty() ? Json() : pass.share.ToJson();
  if (pass.profile.has_value()) json["profile"] = ProfileJson(*pass.profile);
  json["peak_memory_bytes"] = pass.peak_memory > 0 ? Json(pass.peak_memory) : Json();
  return json;
}

std::string ToTable(const std::vector<PassFigures>& passes) {
  std::string text =
      absl::StrFormat("%-24s %10s %24s %10s %16s %18s %11s\n", "pass", "median", "p10 .. p90",
                      "tokens/s", "rate", "of the machine", "peak memory");
  for (const PassFigures& pass : passes) {
    const std::string name = absl::StrCat(pass.name, " ", pass.shape, " ", pass.dtype);
    if (!pass.problem.empty()) {
      absl::StrAppendFormat(&text, "%-24s %s\n", name, pass.problem);
      continue;
    }
    const std::string spread = absl::StrCat(TimeText(pass.seconds.Quantile(0.1)), " .. ",
                                            TimeText(pass.seconds.Quantile(0.9)));
    const std::string rate = absl::StrFormat("%.1f %s", pass.rate.Median() / kBillion, pass.unit);
    absl::StrAppendFormat(&text, "%-24s %10s %24s %10s %16s %18s %11s\n", name,
                          TimeText(pass.seconds.Median()), spread,
                          Rate(pass.tokens_per_second.Median()), rate, ShareText(pass),
                          pass.peak_memory > 0 ? Bytes(pass.peak_memory) : "-");
  }
  return text;
}

}  // namespace plumb::cli
