// N7 and N8: a norm touches the elements of its rows and nothing else, and gives the same bits
// wherever the rows lie.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kMemoryRows = 5;

Place At(Place::Flush flush, int64_t gap) {
  Place place;
  place.flush = flush;
  place.gap = gap;
  place.tell = false;  // alignment is another check's
  return place;
}

// Forward in evaluation, then a training step. Ranges, so that what a range writes beyond its end
// is seen even where the next rows lie.
void RunAll(NormRun* run) {
  run->Forward(false);
  run->Forward(true);
  run->Backward(false);
}

// Around the lengths of vectors, where the last elements of a row are a case of their own.
const uint32_t kBoundDims[] = {1, 3, 7, 8, 15, 16, 17, 33, 64, 100};

std::string CheckBoundsOf(const Instance& instance, uint32_t dtype, uint64_t seed) {
  using Flush = Place::Flush;
  NormRun base(instance, dtype, kMemoryRows, seed, At(Flush::kNone, 3));
  RunAll(&base);
  std::string damage = base.PaddingDamage();
  if (!damage.empty()) return absl::StrCat(base.Name(), " wrote outside its rows: ", damage);
  const Outcome must = base.Results();
  for (const Flush flush : {Flush::kEnd, Flush::kStart}) {
    for (const int64_t gap : {int64_t{0}, int64_t{1}}) {
      for (const auto padding : {Rows::Padding::kCanary, Rows::Padding::kSignallingNan}) {
        NormRun run(instance, dtype, kMemoryRows, seed, At(flush, gap));
        run.FillPadding(padding);
        RunAll(&run);
        damage = run.PaddingDamage();
        if (!damage.empty()) return absl::StrCat(run.Name(), " wrote outside its rows: ", damage);
        const std::string text = FirstRowDifference(run.Results(), must, run);
        if (text.empty()) continue;
        return absl::StrCat(run.Name(),
                            padding == Rows::Padding::kCanary
                                ? " next to unreadable memory: "
                                : " with signalling NaNs between the rows: ",
                            text);
      }
    }
  }
  return "";
}

std::string CheckPlaces(const Instance& instance, uint32_t dtype, uint64_t seed) {
  Place plain;
  plain.tell = false;
  NormRun base(instance, dtype, kMemoryRows, seed, plain);
  RunAll(&base);
  const Outcome must = base.Results();
  struct Variant {
    const char* name;
    Place place;
  };
  const auto place = [](int64_t gap, int64_t offset, bool aligned, bool tell) {
    Place p;
    p.gap = gap;
    p.offset = offset;
    p.aligned64 = aligned;
    p.tell = tell;
    return p;
  };
  const Variant variants[] = {
      {"rows one element off alignment", place(0, 1, false, false)},
      {"rows of an odd pitch",
       place(1 + static_cast<int64_t>(instance.dim() % 2), 0, false, false)},
      {"rows one element off alignment, of an odd pitch", place(5, 1, false, false)},
      {"rows at multiples of 64 bytes, without PLUMB_CALL_ALIGNED64", place(0, 0, true, false)},
      {"rows at multiples of 64 bytes, with PLUMB_CALL_ALIGNED64", place(0, 0, true, true)},
  };
  for (const Variant& variant : variants) {
    NormRun run(instance, dtype, kMemoryRows, seed, variant.place);
    RunAll(&run);
    const std::string text = FirstRowDifference(run.Results(), must, run);
    if (!text.empty()) return absl::StrCat(run.Name(), ", ", variant.name, ": ", text);
  }
  return "";
}

// Runs `check` at the dims that the norm accepts, in all its types.
void AtDims(const Subject& subject, Report* report,
            std::string (*check)(const Instance&, uint32_t, uint64_t)) {
  std::string refusal;
  bool any = false;
  const auto run = [&](const Instance& instance) {
    any = true;
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      const std::string text = check(instance, dtype, subject.seed);
      if (text.empty()) continue;
      report->Fail(text);
      return;
    }
  };
  for (const uint32_t dim : kBoundDims) {
    const auto instance = TryInstance(*subject.norm, dim, &refusal);
    if (instance != nullptr) run(*instance);
    if (report->failed()) return;
  }
  if (any) return;
  for (const auto& instance : UsualInstances(*subject.norm)) run(*instance);
}

}  // namespace

void CheckBounds(const Subject& subject, Report* report) { AtDims(subject, report, CheckBoundsOf); }

void CheckAlignment(const Subject& subject, Report* report) {
  AtDims(subject, report, CheckPlaces);
  if (!report->failed()) CheckFarRows(subject, report);
}

}  // namespace plumb::check
