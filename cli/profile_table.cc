#include "cli/profile_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumb::cli {
namespace {

// What is slower than this is not a figure but noise.
constexpr double kLeastSeconds = 1e-9;

std::string GigaPerSecond(double count, double seconds) {
  if (count <= 0 || seconds < kLeastSeconds) return "-";
  return absl::StrFormat("%.1f", count / seconds / 1e9);
}

void AppendRow(const ProfileRow& row, const Profile& profile, std::string* text) {
  const double steps = static_cast<double>(profile.steps);
  const double share = profile.seconds > 0 ? 100 * row.seconds / profile.seconds : 0;
  const std::string name = row.in_graph ? row.name : absl::StrCat("(", row.name, ")");
  absl::StrAppendFormat(text, "%-24s %7.1f %10.3f %6.1f%% %9s %8s\n", name,
                        static_cast<double>(row.runs) / steps, 1e3 * row.seconds / steps, share,
                        GigaPerSecond(row.flops, row.seconds),
                        GigaPerSecond(row.bytes, row.seconds));
}

}  // namespace

std::string ProfileTable(const Profile& profile) {
  if (profile.steps == 0) return "profile: no step was timed\n";
  std::string text = absl::StrFormat("%-24s %7s %10s %7s %9s %8s\n", "op", "runs", "ms", "share",
                                     "GFLOP/s", "GB/s");
  ProfileRow all;
  all.name = "a step";
  all.seconds = profile.seconds;
  for (const ProfileRow& row : profile.rows) {
    AppendRow(row, profile, &text);
    if (row.in_graph) all.runs += row.runs;
    all.flops += row.flops;
  }
  AppendRow(all, profile, &text);
  return text;
}

Json ProfileJson(const Profile& profile) {
  Json rows = Json::array();
  for (const ProfileRow& row : profile.rows) {
    rows.push_back({{"name", row.name},
                    {"in_graph", row.in_graph},
                    {"runs", row.runs},
                    {"seconds", row.seconds},
                    {"flops", row.flops},
                    {"bytes", row.bytes}});
  }
  return {{"steps", profile.steps}, {"seconds", profile.seconds}, {"rows", rows}};
}

}  // namespace plumb::cli
