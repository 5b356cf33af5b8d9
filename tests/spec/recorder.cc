// SPDX-License-Identifier: Apache-2.0
#include "tests/spec/recorder.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/spec/interpret.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

// Backend that records its calls, one per line. Handles are t0, t1, ... in order.
class Recorder : public FormulaBackend {
 public:
  TensorHandle Embed() override { return Log("embed"); }
  TensorHandle Combine(absl::Span<const Term> terms, double constant) override {
    std::string text = absl::StrJoin(terms, " + ", [](std::string* out, const Term& term) {
      if (term.coefficient != 1) absl::StrAppend(out, term.coefficient, " ");
      absl::StrAppend(out, "t", term.tensor);
    });
    if (constant != 0) absl::StrAppend(&text, " + ", constant);
    return Log(text);
  }
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override {
    return Log(absl::StrCat("t", a, " * t", b));
  }
  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) override {
    std::string text = absl::StrCat(function.name, "(", Handles(operands));
    for (const double number : function.numbers) {
      absl::StrAppend(&text, text.back() == '(' ? "" : ", ", number);
    }
    return Log(absl::StrCat(text, ")"));
  }
  TensorHandle Step() override { return Log("step"); }
  TensorHandle Drop(const DropSite& site, TensorHandle a) override {
    return Log(absl::StrCat(site.name, " p ", site.p, site.path ? " path" : "", "(t", a, ")"));
  }
  TensorHandle Learned(const LearnedSite& site) override {
    const LearnedPlace& place = *site.place;
    std::string text = absl::StrCat("learned ", place.name, "[", place.width, "]");
    if (!place.extents.empty()) {
      absl::StrAppend(&text, " value ", site.index, " of ", absl::StrJoin(place.extents, " x "));
    }
    return Log(absl::StrCat(text, " init ", place.init[static_cast<size_t>(site.index)],
                            place.weight_decay.value_or(false) ? " decays" : ""));
  }
  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) override {
    return Log(absl::StrCat("linear ", site.name, "[", site.out, " of ", site.in, "](t", a, ")",
                            site.again ? " again" : ""));
  }
  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override {
    return Log(absl::StrCat(site.norm->name, " ", site.name, "[", site.dim, " of ", site.width,
                            "](", Handles(inputs), ")", site.again ? " again" : ""));
  }
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    absl::StatusOr<TensorHandle> inner = inputs.back();
    for (const char* point : ListPoints(*site.spec)) {
      inner = at_point(point, *inner);
      if (!inner.ok()) return inner;
    }
    const std::string others =
        inputs.size() == 1 ? "" : absl::StrCat(Handles(inputs.first(inputs.size() - 1)), ", ");
    return Log(absl::StrCat(site.name, "(", others, "t", *inner, ") layer ", site.scope.layer,
                            " sublayer ", site.scope.sublayer));
  }
  absl::Status Head(TensorHandle x, AtPoint at_point) override {
    const absl::StatusOr<TensorHandle> logits =
        at_point(kHeadPoint, Log(absl::StrCat("head(t", x, ")")));
    if (!logits.ok()) return logits.status();
    absl::StrAppend(&text_, "logits t", *logits, "\n");
    return absl::OkStatus();
  }
  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override {
    return Log(absl::StrCat("rows of ", site.name, "[", site.width, "]"));
  }
  void BeginLayer(int64_t layer_index, TensorHandle x) override {
    absl::StrAppend(&text_, "begin layer ", layer_index, " t", x, "\n");
  }
  void EndLayer(int64_t layer_index, TensorHandle x) override {
    absl::StrAppend(&text_, "end layer ", layer_index, " t", x, "\n");
  }

  const std::string& text() const { return text_; }

 private:
  static std::string Handles(absl::Span<const TensorHandle> handles) {
    return absl::StrJoin(handles, ", ", [](std::string* out, TensorHandle handle) {
      absl::StrAppend(out, "t", handle);
    });
  }
  TensorHandle Log(const std::string& what) {
    absl::StrAppend(&text_, "t", next_, " = ", what, "\n");
    return next_++;
  }

  TensorHandle next_ = 0;
  std::string text_;
};

}  // namespace

std::string Trace(absl::string_view model_text) {
  const absl::StatusOr<ResolvedModel> model = ResolveText(model_text);
  if (!model.ok()) return std::string(model.status().message());
  Recorder recorder;
  const absl::Status status = RunStack(*model, &recorder);
  EXPECT_TRUE(status.ok()) << status;
  return recorder.text();
}

std::string LinesWith(absl::string_view part, const std::string& trace) {
  std::string lines;
  for (absl::string_view line : absl::StrSplit(trace, '\n')) {
    if (absl::StrContains(line, part)) absl::StrAppend(&lines, line, "\n");
  }
  return lines;
}

}  // namespace plumb
