// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/probe_log.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

constexpr size_t kNumberLength = 32;  // max length of a number
constexpr size_t kMaxNumbers = 13;    // max count of numbers of a name

// Appends to a buffer, which must be large enough.
class ProbeLine {
 public:
  explicit ProbeLine(char* begin) : begin_(begin), end_(begin) {}

  void Text(absl::string_view text) {
    std::memcpy(end_, text.data(), text.size());
    end_ += text.size();
  }
  void Integer(int64_t value) { end_ = std::to_chars(end_, end_ + kNumberLength, value).ptr; }
  // A norm may exceed the range of floats even if no element does.
  void Number(double value) {
    constexpr double kMax = static_cast<double>(std::numeric_limits<float>::max());
    end_ = std::abs(value) <= kMax
               ? std::to_chars(end_, end_ + kNumberLength, static_cast<float>(value)).ptr
               : std::to_chars(end_, end_ + kNumberLength, value).ptr;
  }
  absl::string_view text() const { return {begin_, static_cast<size_t>(end_ - begin_)}; }

 private:
  char* const begin_;
  char* end_;
};

// `names`: the names of these tensors as they appear in the line.
void AddTensors(const std::vector<ProbedTensor>& tensors, const std::string* names,
                ProbeLine* line) {
  for (const ProbedTensor& tensor : tensors) {
    line->Text(*names++);
    line->Text("\"rms\":");
    line->Number(tensor.figures.rms);
    line->Text(",\"max\":");
    line->Number(tensor.figures.max);
    line->Text(",\"mean\":");
    line->Number(tensor.figures.mean);
    line->Text(",\"nonfinite\":");
    line->Integer(tensor.figures.nonfinite);
    line->Text("}");
  }
}

void AddParameters(const std::vector<ProbedParameter>& parameters, const std::string* names,
                   ProbeLine* line) {
  for (const ProbedParameter& parameter : parameters) {
    line->Text(*names++);
    line->Text("\"rms\":");
    line->Number(parameter.value.rms);
    line->Text(",\"max\":");
    line->Number(parameter.value.max);
    line->Text(",\"grad_norm\":");
    line->Number(parameter.gradient.norm);
    line->Text(",\"grad_rms\":");
    line->Number(parameter.gradient.rms);
    line->Text(",\"grad_max\":");
    line->Number(parameter.gradient.max);
    line->Text(",\"grad_mean\":");
    line->Number(parameter.gradient.mean);
    line->Text(",\"grad_nonfinite\":");
    line->Integer(parameter.gradient.nonfinite);
    const auto add = [line](absl::string_view key, std::optional<double> value) {
      if (!value.has_value() || !std::isfinite(*value)) return;
      line->Text(key);
      line->Number(*value);
    };
    add(",\"update_rms\":", parameter.update_rms);
    add(",\"update_ratio\":", parameter.update_ratio);
    add(",\"spectral_norm\":", parameter.spectral_norm);
    if (const std::optional<LearnedRange>& learned = parameter.learned) {
      add(",\"value_mean\":", learned->mean);
      add(",\"value_min\":", learned->min);
      add(",\"value_max\":", learned->max);
    }
    line->Text("}");
  }
}

// Adds the names of a list, each with the comma before it: "a":{ followed by ,"b":{
template <class Named>
void AddNames(const std::vector<Named>& list, std::vector<std::string>* names) {
  for (const Named& named : list) {
    names->push_back(absl::StrCat(&named == list.data() ? "" : ",", QuoteJson(named.name), ":{"));
  }
}

absl::StatusOr<int64_t> GetStep(absl::string_view text) {
  constexpr int kLineDepth = 8;
  const absl::StatusOr<nlohmann::json> object = ParseStrictJson(text, kLineDepth);
  if (!object.ok()) return absl::DataLossError(object.status().message());
  const nlohmann::json* step = FindMember(*object, "step");
  const absl::optional<int64_t> number = step == nullptr ? absl::nullopt : AsInt64(*step);
  if (number) return *number;
  return absl::DataLossError("\"step\" is missing or not a whole number");
}

}  // namespace

absl::StatusOr<ProbeWriter> ProbeWriter::Open(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(LineWriter lines, LineWriter::Open(path));
  return ProbeWriter(std::move(lines));
}

void ProbeWriter::Prepare(const ProbeFigures& figures) {
  AddNames(figures.activations, &names_);
  AddNames(figures.gradients, &names_);
  AddNames(figures.parameters, &names_);
  size_t length = 256;
  for (const std::string& name : names_) length += name.size() + kMaxNumbers * (kNumberLength + 20);
  line_.resize(length);
}

absl::Status ProbeWriter::Append(const ProbeFigures& figures) {
  if (line_.empty()) Prepare(figures);
  PLUMB_CHECK(names_.size() ==
                  figures.activations.size() + figures.gradients.size() + figures.parameters.size(),
              "all lines of a file are of one probe");
  const std::string* names = names_.data();
  ProbeLine line(line_.data());
  line.Text("{\"step\":");
  line.Integer(figures.step);
  if (figures.diverged) line.Text(",\"diverged\":true");
  line.Text(",\"activations\":{");
  AddTensors(figures.activations, names, &line);
  names += figures.activations.size();
  line.Text("},\"gradients\":{");
  AddTensors(figures.gradients, names, &line);
  names += figures.gradients.size();
  line.Text("},\"parameters\":{");
  AddParameters(figures.parameters, names, &line);
  line.Text("}}\n");
  return lines_.Append(line.text());
}

absl::StatusOr<std::string> TruncateProbes(const std::string& path, int64_t last_step) {
  return FilterLines(path, /*header=*/"",
                     [last_step](absl::string_view line) -> absl::StatusOr<bool> {
                       PLUMB_ASSIGN_OR_RETURN(const int64_t step, GetStep(line));
                       return step <= last_step;
                     });
}

}  // namespace plumb
