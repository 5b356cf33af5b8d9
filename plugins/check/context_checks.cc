// N20: what a call is told of its rows: positions, sequences, the training step.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/slopes.h"
#include "plugins/check/try_instance.h"
#include "plugins/check/wide_run.h"

namespace plumb::check {
namespace {

using Positions = std::vector<int32_t>;

constexpr uint32_t kContextHeads[] = {0, 2};
constexpr uint32_t kContextDims[] = {17, 16, 64, 8, 4, 128, 2, 1};
const Positions kPositions = {3, 4, 5, 0, 1, 70, 1000000};
constexpr int64_t kStep = 12;

// A context in memory that ends where its numbers end.
class Context {
 public:
  Context(uint32_t rows_per_token, const Positions& positions, int64_t step)
      : positions_(PLUMB_F32, 1, static_cast<int64_t>(positions.size()), AtEnd()) {
    std::memcpy(positions_.data(), positions.data(), positions.size() * sizeof(positions[0]));
    context_.struct_size = sizeof(context_);
    context_.rows_per_token = rows_per_token;
    context_.positions = positions.empty() ? nullptr : static_cast<int32_t*>(positions_.data());
    context_.step = step;
  }
  void SetSequences(std::vector<int64_t> offsets) {
    offsets_ = std::move(offsets);
    context_.n_sequences = static_cast<int64_t>(offsets_.size()) - 1;
    context_.sequence_offsets = offsets_.data();
  }
  const plumb_norm_context* get() const { return &context_; }

 private:
  static Place AtEnd() {
    Place place;
    place.flush = Place::Flush::kEnd;
    return place;
  }

  Rows positions_;
  std::vector<int64_t> offsets_;
  plumb_norm_context context_{};
};

Point ContextPoint(const Instance& instance, uint32_t rows_per_token, uint32_t dtype,
                   uint64_t seed) {
  Point point = Plain(*ParsePoint("dim=1"));
  point[kDim] = instance.dim();
  point[kRows] = static_cast<int64_t>(kPositions.size()) * rows_per_token;
  point[kFrom] = 2;
  point[kTo] = point[kRows] - 1;
  point[kType] = dtype == PLUMB_F32 ? 0 : dtype == PLUMB_BF16 ? 1 : 2;
  point[kSeed] = static_cast<int64_t>(seed % 1000) * 5;  // the simplest x2
  return point;
}

// One norm and its rows, to be called with one context and another.
class ContextTry {
 public:
  ContextTry(const Instance& instance, uint32_t rows_per_token, const Point& point)
      : instance_(instance),
        rows_per_token_(rows_per_token),
        wants_(instance.layout().context_wants),
        point_(point),
        operands_(OperandsAt(instance, point)) {}

  std::string Compare() {
    Context full(rows_per_token_, kPositions, kStep);
    full.SetSequences({0, 3, 5, 7});
    const Outcome must = Run(full.get());
    std::string text = Same(nullptr, must, wants_ == 0, "without a context");
    if (text.empty()) text = CompareUnwanted(must);
    if (text.empty()) text = CompareSequences(must);
    // Without a wish, rows are as N4, N10 and X3 see them.
    if (text.empty() && wants_ != 0) text = CompareTokens(must);
    if (text.empty()) text = CompareCalls(full.get(), must);
    return text;
  }

 private:
  Outcome Run(const plumb_norm_context* context) {
    operands_.context = context;
    Outcome outcome = RunAt(instance_, Plain(point_), TypeOf(point_), operands_).outcome;
    for (const std::vector<double>& y : {outcome.y, outcome.dx}) {
      size_t at = 0;
      if (!AllFinite(y, &at)) throw CheckEnded{absl::StrCat(Name(), ": y or dx is not finite")};
    }
    return outcome;
  }

  std::string Name() const { return TypeName(TypeOf(point_)); }

  // The call must work in any case, and give the same where `same`.
  std::string Same(const plumb_norm_context* context, const Outcome& must, bool same,
                   const char* what) {
    const Outcome got = Run(context);
    if (!same) return "";
    const std::string text = FirstDifference(got, must, point_[kDim]);
    return text.empty() ? text : absl::StrCat(text, ", as with all of a context, ", what);
  }

  // What the layout does not want changes nothing, and what it wants may be unknown.
  std::string CompareUnwanted(const Outcome& must) {
    const bool positions = (wants_ & PLUMB_CONTEXT_POSITIONS) != 0;
    const bool step = (wants_ & PLUMB_CONTEXT_STEP) != 0;
    Positions others = kPositions;
    for (int32_t& position : others) position += 9;
    std::string text = Same(Context(rows_per_token_, {}, kStep).get(), must, !positions,
                            "without positions, and context_wants has no POSITIONS");
    if (text.empty()) {
      text = Same(Context(rows_per_token_, others, kStep).get(), must, !positions,
                  "with other positions, and context_wants has no POSITIONS");
    }
    for (const int64_t other : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
      if (!text.empty()) break;
      text = Same(Context(rows_per_token_, kPositions, other).get(), must, !step,
                  "with another step, and context_wants has no STEP");
    }
    return text;
  }

  // Sequences are no business of a row's results.
  std::string CompareSequences(const Outcome& must) {
    Context context(rows_per_token_, kPositions, kStep);
    std::string text = Same(context.get(), must, true, "without sequences");
    context.SetSequences({0, 7});
    if (text.empty()) text = Same(context.get(), must, true, "cut into other sequences");
    if (!text.empty() || rows_per_token_ != 1 || instance_.layout().heads != 0) return text;
    // Two rows of each token: positions of tokens, not of rows.
    const ContextTry pairs(instance_, 2, WithRows(point_[kRows] * 2));
    return pairs.CompareRowsOfTokens();
  }

  Point WithRows(int64_t rows) const {
    Point point = Plain(point_);
    point[kRows] = point[kTo] = rows;
    return point;
  }

  std::string CompareRowsOfTokens() const {
    Positions of_rows;
    for (const int32_t position : kPositions) of_rows.insert(of_rows.end(), 2, position);
    const Context tokens(2, kPositions, kStep), rows(1, of_rows, kStep);
    Operands operands = operands_;
    operands.context = tokens.get();
    const Outcome got = RunAt(instance_, point_, TypeOf(point_), operands).outcome;
    operands.context = rows.get();
    const Outcome must = RunAt(instance_, point_, TypeOf(point_), operands).outcome;
    const std::string text = FirstDifference(got, must, point_[kDim]);
    return text.empty() ? text : absl::StrCat(text, ", two rows a token: row r is of token r / 2");
  }

  // Each token in a call of its own, as in decoding.
  std::string CompareTokens(const Outcome& whole) const {
    const int64_t dim = point_[kDim], rows = rows_per_token_;
    for (size_t t = 0; t < kPositions.size(); ++t) {
      const Context context(rows_per_token_, {kPositions[t]}, kStep);
      const int64_t first = static_cast<int64_t>(t) * rows;
      const auto part = [&](const std::vector<double>& values) {
        const auto width = static_cast<int64_t>(values.size()) / point_[kRows];
        return std::vector<double>(values.begin() + first * width,
                                   values.begin() + (first + rows) * width);
      };
      Operands operands = operands_;
      operands.x = part(operands_.x);
      operands.dy = part(operands_.dy);
      operands.x2 = part(operands_.x2);
      operands.context = context.get();
      for (const bool train : {true, false}) {
        Point alone = WithRows(rows);
        alone[kEvaluation] = train ? 0 : 1;
        const Outcome got = RunAt(instance_, alone, TypeOf(point_), operands).outcome;
        std::string text = FirstDifference("y", got.y, part(whole.y), dim);
        if (text.empty() && train) text = FirstDifference("dx", got.dx, part(whole.dx), dim);
        if (text.empty() && train) text = FirstDifference("dx2", got.dx2, part(whole.dx2), dim);
        if (text.empty()) continue;
        return absl::StrCat("token ", t, " alone, at its position",
                            train ? ": " : ", evaluation: ", text, ", as among others");
      }
    }
    return "";
  }

  // In ranges, against f64, and against slopes.
  std::string CompareCalls(const plumb_norm_context* context, const Outcome& whole) {
    if (wants_ == 0) return "";  // X1, X2 and X3 have seen it
    operands_.context = context;
    const PointResult got = RunAt(instance_, point_, TypeOf(point_), operands_);
    if (!got.problem.empty()) return got.problem;
    std::string text = FirstDifference("y", got.outcome.y, whole.y, point_[kDim]);
    if (text.empty()) text = FirstDifference("dx", got.outcome.dx, whole.dx, point_[kDim]);
    if (!text.empty()) return absl::StrCat(text, ", as in one range");
    const plumb_norm_plugin& norm = instance_.norm();
    if ((norm.dtypes & PLUMB_F64) == 0) return "";
    const WideRun wide(instance_, point_, PLUMB_F64, TypeOf(point_), operands_, got.outcome.y);
    text = wide.CompareY(got.outcome.y);
    if (text.empty()) text = wide.CompareDx(got.outcome.dx, 0);
    if (text.empty()) text = wide.CompareSums(got.outcome.dparams);
    if (!text.empty()) return absl::StrCat(text, " as in f64, in one range");
    if (norm.flags & PLUMB_NORM_APPROXIMATE_GRADIENT) return "";
    const Point at = ForSlopes(point_);
    Operands operands = OperandsAt(instance_, at);
    operands.context = context;
    double worst = 0;
    bool is_problem = false;
    return SlopeProblem(instance_, at, operands, &worst, &is_problem);
  }

  const Instance& instance_;
  const uint32_t rows_per_token_, wants_;
  const Point point_;
  Operands operands_;
};

}  // namespace

void CheckContext(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  constexpr uint32_t kKnown = PLUMB_CONTEXT_POSITIONS | PLUMB_CONTEXT_STEP;
  const bool cross_row = (norm.flags & PLUMB_NORM_CROSS_ROW) != 0;
  const std::vector<AttributeCase> cases = AttributeCases(norm);
  for (size_t c = 0; c < cases.size(); ++c) {
    for (const uint32_t heads : kContextHeads) {
      std::string refusal;
      std::unique_ptr<Instance> instance;
      for (size_t i = 0; i < std::size(kContextDims) && instance == nullptr; ++i) {
        instance = TryInstance(norm, kContextDims[i], cases[c].values, &refusal, heads);
      }
      if (instance == nullptr) continue;
      const std::string where = absl::StrCat("dim=", instance->dim(), " heads=", heads,
                                             cases[c].is_default() ? "" : " ", cases[c].name, ": ");
      const uint32_t wants = instance->layout().context_wants;
      if ((wants & ~kKnown) != 0) {
        return report->Fail(absl::StrCat(where, "context_wants has unknown bits: ", wants));
      }
      if (cross_row && wants != 0) {
        return report->Fail(absl::StrCat(where, "a cross-row norm wants a context, and gets none"));
      }
      if (cross_row) continue;
      const uint32_t rows_per_token = std::max(heads, 1u);
      for (const uint32_t dtype : OfferedTypes(norm)) {
        Point point = ContextPoint(*instance, rows_per_token, dtype, subject.seed);
        point[kAttributes] = static_cast<int64_t>(c);
        const std::string text = ContextTry(*instance, rows_per_token, point).Compare();
        if (!text.empty()) return report->Fail(absl::StrCat(where, TypeName(dtype), ": ", text));
      }
    }
  }
}

}  // namespace plumb::check
