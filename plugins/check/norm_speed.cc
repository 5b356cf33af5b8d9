// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/norm_speed.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/check.h"
#include "plugins/check/float_state.h"
#include "plugins/check/process.h"
#include "runtime/base/status.h"

namespace plumb::check {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns the seconds that the calling thread has run on a processor.
double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Fills the rows with normal numbers that repeat after a few rows, which is faster than drawing
// all.
void FillRepeating(Rows* rows, uint64_t seed) {
  constexpr int64_t kDrawn = 8;
  std::mt19937_64 random(seed);
  Rows drawn(rows->dtype(), kDrawn, rows->width());
  drawn.FillNormal(&random);
  const size_t bytes = TypeSize(rows->dtype()) * static_cast<size_t>(rows->width());
  for (int64_t r = 0; r < rows->rows(); ++r) {
    std::memcpy(static_cast<char*>(rows->data()) + r * rows->pitch(),
                static_cast<const char*>(drawn.data()) + r % kDrawn * drawn.pitch(), bytes);
  }
}

Place Aligned() {
  Place place;
  place.aligned64 = true;
  return place;
}

// -- Sizes ----------------------------------------------------------------------------------------

struct Size {
  uint32_t dtype;
  int64_t rows;
  uint32_t dim;
};

// Returns the sizes: a quarter of a million elements, which caches hold, for each dim, and for two
// of them 32 times as many, which most do not.
std::vector<Size> UsualSizes() {
  constexpr int64_t kElements = int64_t{1} << 18;
  std::vector<Size> sizes;
  for (const uint32_t dtype : {PLUMB_DTYPE_F32, PLUMB_DTYPE_BF16}) {
    for (const uint32_t dim : {64, 256, 768, 1024, 4096})
      sizes.push_back({dtype, kElements / dim, dim});
    for (const uint32_t dim : {768, 4096}) sizes.push_back({dtype, 32 * kElements / dim, dim});
  }
  return sizes;
}

// -- In the process of a size
// -----------------------------------------------------------------------

// Median, and the tenth and ninetieth percentile.
OrderedJson Spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

bool Offers(const plumb_norm_plugin& norm, uint32_t dtype) { return (norm.dtypes & dtype) != 0; }

const plumb_norm_plugin& NormAgainst(const NormOfFile& file, uint32_t index) {
  const absl::StatusOr<void*> library = Open(file.path);
  if (!library.ok()) throw CheckEnded{absl::StrCat(file.path, ": ", library.status().message())};
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = EntryOf(*library);
  if (!entry.ok()) throw CheckEnded{absl::StrCat(file.path, ": ", entry.status().message())};
  return *NormAt(*entry, index);
}

// Returns the figures of one pass; null if the norm does not create an instance of this size.
OrderedJson MeasurePass(const plumb_norm_plugin& norm, const plumb_norm_plugin& against,
                        const Size& size, bool is_forward, int rounds) {
  const auto instance = TryInstance(norm, size.dim, DefaultValues(norm));
  if (instance == nullptr || !Offers(norm, size.dtype)) return nullptr;
  TimedPass pass(*instance, size.dtype, size.rows, is_forward);
  TimedCopy copy(pass.bytes());
  std::unique_ptr<Instance> other;
  if (Offers(against, size.dtype)) other = TryInstance(against, size.dim, DefaultValues(against));
  std::unique_ptr<TimedPass> other_pass;
  if (other != nullptr) {
    other_pass = std::make_unique<TimedPass>(*other, size.dtype, size.rows, is_forward);
  }
  const ScopedFlushing flushing(true);  // as in a host's steps
  const std::function<void()> run = [&] { pass.Run(); }, run_copy = [&] { copy.Run(); },
                              run_other = [&] { other_pass->Run(); };
  const int64_t n = CallsToTime(run), n_copy = CallsToTime(run_copy);
  const int64_t n_other = other == nullptr ? 0 : CallsToTime(run_other);
  std::vector<double> speed, share, ratio;
  for (int round = 0; round < rounds; ++round) {
    const double copied = TimeOf(n_copy, run_copy) / static_cast<double>(n_copy);
    const double own = TimeOf(n, run) / static_cast<double>(n);
    speed.push_back(static_cast<double>(pass.bytes()) / own);
    share.push_back(copied / own);
    if (n_other > 0)
      ratio.push_back(TimeOf(n_other, run_other) / static_cast<double>(n_other) / own);
  }
  return {{"pass", is_forward ? "forward" : "backward"},
          {"dtype", TypeName(size.dtype)},
          {"rows", size.rows},
          {"dim", size.dim},
          {"bytes", pass.bytes()},
          {"bytes_per_second", Spread(speed)},
          {"of_memcpy", Spread(share)},
          {"of_against", ratio.empty() ? OrderedJson() : Spread(ratio)}};
}

// -- In the program
// ---------------------------------------------------------------------------------

// Runs a task in a process of its own. Errors: the finding of a process that did not end normally.
absl::StatusOr<TaskResult> RunOne(const Task& task, const std::string& path) {
  TaskResult result;
  PLUMB_RETURN_IF_ERROR(RunTasks({task}, ProcessOptions(), [&](size_t, TaskResult each) {
    result = std::move(each);
    return true;
  }));
  for (const Finding& finding : result.findings) {
    if (finding.verdict != Verdict::kFail) continue;
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", finding.text));
  }
  return result;
}

// Sets the id of a norm, and returns its index in the file.
absl::StatusOr<uint32_t> FindNorm(NormOfFile* file) {
  Task list;
  list.subject.path = file->path;
  PLUMB_ASSIGN_OR_RETURN(const TaskResult result, RunOne(list, file->path));
  std::string ids;
  for (const ListedNorm& norm : result.norms) {
    const bool wanted = file->id.empty() ? result.norms.size() == 1 : norm.id == file->id;
    absl::StrAppend(&ids, ids.empty() ? "" : ", ", norm.id);
    if (!wanted) continue;
    const std::string& why = norm.problem;
    if (!why.empty()) return absl::FailedPreconditionError(absl::StrCat(file->path, ": ", why));
    file->id = norm.id;
    return norm.index;
  }
  if (file->id.empty() && result.norms.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        file->path, ": offers ", ids, "; name one by its id, with --plugin ", file->path));
  }
  return absl::NotFoundError(absl::StrCat(file->path, ": offers no norm ", file->id,
                                          ids.empty() ? "" : absl::StrCat("; it has ", ids)));
}

std::string SpreadText(const OrderedJson& spread, double scale, int digits) {
  if (spread.is_null()) return "-";
  const auto text = [&](size_t i) {
    return absl::StrFormat("%.*f", digits, scale * spread[i].get<double>());
  };
  return absl::StrCat(text(0), " (", text(1), "..", text(2), ")");
}

std::string RowText(const OrderedJson& row) {
  return absl::StrFormat("%-8s  %-4s  %12s  %18s  %14s  %18s\n", row["pass"].get<std::string>(),
                         row["dtype"].get<std::string>(),
                         absl::StrCat(row["rows"].get<int64_t>(), " x ", row["dim"].get<int64_t>()),
                         SpreadText(row["bytes_per_second"], 1e-9, 1),
                         SpreadText(row["of_memcpy"], 100, 0), SpreadText(row["of_against"], 1, 2));
}

}  // namespace

double TimeOf(int64_t n, const std::function<void()>& work) {
  const double start = ThreadSeconds();
  for (int64_t i = 0; i < n; ++i) work();
  return ThreadSeconds() - start;
}

int64_t CallsToTime(const std::function<void()>& work) {
  constexpr double kSampleSeconds = 2e-4;
  int64_t n = 1;
  while (n < 1 << 16 && TimeOf(n, work) < kSampleSeconds) n *= 2;
  return n;
}

TimedPass::TimedPass(const Instance& instance, uint32_t dtype, int64_t rows, bool is_forward)
    : run_(instance, dtype, rows, /*seed=*/1, Aligned(), /*own_pitches=*/false, /*draw=*/false),
      is_forward_(is_forward) {
  const bool two_inputs = (instance.norm().flags & PLUMB_NORM_TWO_INPUTS) != 0;
  FillRepeating(&run_.x, 1);
  FillRepeating(&run_.dy, 2);
  if (two_inputs) FillRepeating(&run_.x2, 3);
  run_.Forward(/*train=*/true);  // leaves the statistics that backward reads
  run_.Backward();
  call_ = is_forward ? run_.ForwardCall(/*train=*/true) : run_.BackwardCall(/*accumulate=*/false);
  int64_t operands = two_inputs ? 3 : 2;
  if (!is_forward) {
    for (const uint32_t each :
         {PLUMB_BACKWARD_READS_X, PLUMB_BACKWARD_READS_Y, PLUMB_BACKWARD_READS_X2}) {
      operands += (instance.layout().backward_needs & each) != 0;
    }
  }
  bytes_ = operands * rows * instance.dim() * static_cast<int64_t>(TypeSize(dtype));
}

void TimedPass::Run() {
  const Instance& instance = run_.instance();
  is_forward_ ? Forward(instance, call_, 0, run_.rows())
              : Backward(instance, call_, 0, run_.rows());
}

TimedCopy::TimedCopy(int64_t bytes)
    : from_(static_cast<size_t>(bytes / 2), 1), to_(from_.size(), 2) {}

void TimedCopy::Run() { std::memcpy(to_.data(), from_.data(), from_.size()); }

absl::Status BenchNorms(const BenchOptions& options,
                        const std::function<bool(const std::string&)>& print) {
  NormOfFile norm = options.norm, against = options.against;
  PLUMB_ASSIGN_OR_RETURN(const uint32_t index, FindNorm(&norm));
  PLUMB_ASSIGN_OR_RETURN(const uint32_t against_index, FindNorm(&against));
  bool printed =
      options.json ||
      print(absl::StrCat(
          norm.id, " compared with ", against.id, " and memcpy, one thread; medians of ",
          options.rounds, " rounds (10th..90th percentile); above 1 x it is faster\n",
          absl::StrFormat("%-8s  %-4s  %12s  %18s  %14s  %18s\n", "pass", "type", "rows x dim",
                          "GB/s", "% of memcpy", absl::StrCat("x ", against.id))));
  OrderedJson rows = OrderedJson::array();
  for (const Size& size : UsualSizes()) {
    Check check = {
        "bench", 3, false, "speed", [&](const Subject& subject, Report* report) {
          const plumb_norm_plugin& other = NormAgainst(against, against_index);
          if (((subject.norm->flags | other.flags) & PLUMB_NORM_CROSS_ROW) != 0) {
            return report->Fail("a norm that takes statistics over tokens is not timed");
          }
          for (const bool is_forward : {true, false}) {
            report->Note(
                MeasurePass(*subject.norm, other, size, is_forward, options.rounds).dump());
          }
        }};
    Task task;
    task.check = &check;
    task.norm_index = index;
    task.subject.path = norm.path;
    PLUMB_ASSIGN_OR_RETURN(const TaskResult result,
                           RunOne(task, absl::StrCat(norm.path, " next to ", against.path)));
    for (const Finding& finding : result.findings) {
      const OrderedJson row = OrderedJson::parse(finding.text, nullptr, /*allow_exceptions=*/false);
      if (!row.is_object()) continue;  // the norm does not offer this size
      rows.push_back(row);
      if (!options.json) printed = printed && print(RowText(row));
    }
  }
  if (rows.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(norm.path, ": ", norm.id, " takes no usual size with its default attributes"));
  }
  if (options.json) {
    printed = print(absl::StrCat(OrderedJson({{"norm", norm.id},
                                              {"against", against.id},
                                              {"rounds", options.rounds},
                                              {"rows", rows}})
                                     .dump(),
                                 "\n"));
  }
  return printed ? absl::OkStatus() : absl::UnavailableError("the figures cannot be written");
}

}  // namespace plumb::check
