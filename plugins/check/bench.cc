// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/bench.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/process.h"
#include "plugins/check/run.h"
#include "plugins/check/runner.h"
#include "plugins/check/state.h"
#include "runtime/base/status.h"

namespace plumb::check {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Work = std::function<void()>;

// Returns the sizes: a quarter of a million elements, which caches hold, for each dim, and for two
// of them 32 times as many, which most do not.
std::vector<Point> UsualSizes() {
  constexpr int64_t kElements = int64_t{1} << 18;
  std::vector<Point> sizes;
  for (Point point : ParsePoints("type=f32|bf16,dim=64|256|768|1024|4096,seed=1|32")) {
    const int64_t times = std::exchange(point[kSeed], 0);
    if (times > 1 && point[kDim] != 768 && point[kDim] != 4096) continue;
    point[kRows] = point[kTo] = times * kElements / point[kDim];
    sizes.push_back(point);
  }
  return sizes;
}

// Returns the seconds that `n` calls of `work` take this thread.
double MeasureTime(int64_t n, const Work& work) {
  timespec start{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  for (int64_t i = 0; i < n; ++i) work();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - start.tv_sec) +
         1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
}

// Forward or backward of a norm on rows in memory, in training.
struct Pass {
  Pass(const plumb_norm_plugin& norm, const Point& size, bool is_forward)
      : instance(InstanceAt(norm, size)) {
    if (instance == nullptr) return;
    run = std::make_unique<NormRun>(*instance, size, OperandsAt(*instance, size));
    run->Forward(/*train=*/true);  // leaves the numbers that backward reads
    run->Backward();
    const Hot function = is_forward ? Hot::kForward : Hot::kBackward;
    const plumb_norm_call call = is_forward ? run->ForwardCall(true) : run->BackwardCall(false);
    work = [this, function, call] { instance->Call(function, call, 0, run->rows()); };
    // Each operand is moved once; parameters are not counted.
    int64_t operands = 0;
    for (const void* operand :
         {call.x, static_cast<const void*>(call.y), call.dy, static_cast<const void*>(call.dx),
          call.x2, static_cast<const void*>(call.dx2)}) {
      operands += operand != nullptr ? 1 : 0;
    }
    bytes = operands * size[kRows] * size[kDim] * static_cast<int64_t>(TypeSize(run->dtype()));
  }

  std::unique_ptr<Instance> instance;  // null if create() refuses the size
  std::unique_ptr<NormRun> run;
  Work work;
  int64_t bytes = 0;
};

// Returns how many calls of `work` take at least a fifth of a millisecond, at most 65536.
int64_t CallsToTime(const Work& work) {
  int64_t n = 1;
  while (n < 1 << 16 && MeasureTime(n, work) < 2e-4) n *= 2;
  return n;
}

// Returns the median, and the tenth and ninetieth percentile.
OrderedJson Spread(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

// Returns the figures of one pass; null if the norm does not create an instance of this size.
OrderedJson MeasurePass(const plumb_norm_plugin& norm, const plumb_norm_plugin& against,
                        const Point& size, bool is_forward, int rounds) {
  const Pass pass(norm, size, is_forward);
  if (pass.instance == nullptr) return nullptr;
  const Pass other(against, size, is_forward);
  std::vector<char> from(static_cast<size_t>(pass.bytes / 2), 1), to(from.size(), 2);
  const Work copy = [&] { std::memcpy(to.data(), from.data(), from.size()); };
  const ScopedFlushing flushing(true);  // as in a host's steps
  const int64_t n = CallsToTime(pass.work), n_copy = CallsToTime(copy);
  const int64_t n_other = other.work ? CallsToTime(other.work) : 0;
  std::vector<double> speed, share, ratio;
  for (int round = 0; round < rounds; ++round) {
    const double copied = MeasureTime(n_copy, copy) / static_cast<double>(n_copy);
    const double own = MeasureTime(n, pass.work) / static_cast<double>(n);
    speed.push_back(static_cast<double>(pass.bytes) / own);
    share.push_back(copied / own);
    if (n_other == 0) continue;
    ratio.push_back(MeasureTime(n_other, other.work) / static_cast<double>(n_other) / own);
  }
  return {{"pass", is_forward ? "forward" : "backward"},
          {"dtype", TypeName(GetType(size))},
          {"rows", size[kRows]},
          {"dim", size[kDim]},
          {"bytes", pass.bytes},
          {"bytes_per_second", Spread(speed)},
          {"of_memcpy", Spread(share)},
          {"of_against", Spread(ratio)}};
}

// Returns the norm, with its id.
absl::StatusOr<ListedNorm> FindNorm(const NormOfFile& file) {
  std::string problem, ids;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<ListedNorm> norms, ListNorms(file.path, &problem));
  for (const ListedNorm& norm : norms) {
    absl::StrAppend(&ids, ids.empty() ? "" : ", ", norm.id);
    if (file.id.empty() ? norms.size() > 1 : norm.id != file.id) continue;
    if (norm.problem.empty()) return norm;
    problem = norm.problem;
  }
  if (!problem.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(file.path, ": ", problem));
  }
  if (file.id.empty() && norms.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, ": offers ", ids, "; name one by its id, with --plugin ", file.path));
  }
  return absl::NotFoundError(absl::StrCat(file.path, ": offers no norm ", file.id,
                                          ids.empty() ? "" : absl::StrCat("; it has ", ids)));
}

std::string SpreadText(const OrderedJson& spread, double scale, int digits) {
  if (spread.is_null()) return "-";
  return absl::StrFormat("%.*f (%.*f..%.*f)", digits, scale * spread[0].get<double>(), digits,
                         scale * spread[1].get<double>(), digits, scale * spread[2].get<double>());
}

constexpr char kColumns[] = "%-8s  %-4s  %12s  %18s  %14s  %18s\n";

std::string RowText(const OrderedJson& row) {
  const std::string shape =
      absl::StrCat(row["rows"].get<int64_t>(), " x ", row["dim"].get<int64_t>());
  return absl::StrFormat(kColumns, row["pass"].get<std::string>(), row["dtype"].get<std::string>(),
                         shape, SpreadText(row["bytes_per_second"], 1e-9, 1),
                         SpreadText(row["of_memcpy"], 100, 0), SpreadText(row["of_against"], 1, 2));
}

}  // namespace

absl::Status BenchNorms(const NormOfFile& norm, const NormOfFile& against, int rounds, bool json,
                        const std::function<bool(const std::string&)>& print) {
  PLUMB_ASSIGN_OR_RETURN(const ListedNorm own, FindNorm(norm));
  PLUMB_ASSIGN_OR_RETURN(const ListedNorm other, FindNorm(against));
  std::string heading =
      absl::StrCat(own.id, " compared with ", other.id, " and memcpy, one thread; medians of ",
                   rounds, " rounds (10th..90th percentile); above 1 x it is faster\n");
  absl::StrAppendFormat(&heading, kColumns, "pass", "type", "rows x dim", "GB/s", "% of memcpy",
                        absl::StrCat("x ", other.id));
  bool printed = json || print(heading);
  std::vector<Task> tasks;
  for (const Point& size : UsualSizes()) {
    tasks.push_back([&, size](Report* report) {
      const plumb_norm_plugin &a = GetNorm(norm.path, own), &b = GetNorm(against.path, other);
      if (((a.flags | b.flags) & PLUMB_NORM_CROSS_ROW) != 0) {
        return report->Fail("a norm that takes statistics over tokens is not timed");
      }
      for (const bool is_forward : {true, false}) {
        report->Note(MeasurePass(a, b, size, is_forward, rounds).dump());
      }
    });
  }
  OrderedJson rows = OrderedJson::array();
  std::string problem;
  PLUMB_RETURN_IF_ERROR(RunTasks(tasks, 1, kTimeout, [&](size_t, TaskResult result) {
    for (const Finding& finding : result.findings) {
      const OrderedJson row = OrderedJson::parse(finding.text, nullptr, /*allow_exceptions=*/false);
      if (finding.verdict == Verdict::kFail) problem = finding.text;
      if (!row.is_object()) continue;  // the norm does not offer this size
      rows.push_back(row);
      printed = printed && (json || print(RowText(row)));
    }
    return problem.empty();
  }));
  if (problem.empty() && rows.empty()) {
    problem = own.id + " takes no usual size with its default attributes";
  }
  if (!problem.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(norm.path, " next to ", against.path, ": ", problem));
  }
  if (json) {
    const OrderedJson all = {
        {"norm", own.id}, {"against", other.id}, {"rounds", rounds}, {"rows", rows}};
    printed = print(all.dump() + "\n");
  }
  return printed ? absl::OkStatus() : absl::UnavailableError("the figures cannot be written");
}

}  // namespace plumb::check
