// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_tokens.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/output.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/client/model_pass.h"

namespace plumb::cli {
namespace {

// SAX handler that reads lists of lists of ids and stops at the first value of another kind, so
// that no file, however deeply nested, becomes a tree in memory.
class TokenReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `takes_one`: a single list of ids is accepted as a sequence.
  explicit TokenReader(bool takes_one) : takes_one_(takes_one) {}

  TokenBatch batch;
  std::string error;

  bool number_integer(number_integer_t value) override { return Id(absl::StrCat(value), value); }
  bool number_unsigned(number_unsigned_t value) override {
    const auto limit = static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return Id(absl::StrCat(value), value > limit ? -1 : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return Id(text, -1); }
  bool null() override { return depth_ == 2 && IsTarget() ? Id("null", kNone) : Unwanted("null"); }
  bool boolean(bool value) override { return Unwanted(value ? "true" : "false"); }
  bool string(string_t&) override { return Unwanted("a string"); }
  bool binary(binary_t&) override { return Unwanted("binary data"); }
  bool start_object(std::size_t) override {
    if (depth_ > 0 || in_object_ || takes_one_) return Unwanted("an object");
    in_object_ = true;
    lists_ = nullptr;
    return true;
  }
  bool key(string_t& name) override {
    for (const Field& field : kFields) {
      if (name != field.name) continue;
      field_ = &field;
      lists_ = &(batch.*field.lists);
      if (lists_->empty()) return true;
      error = absl::StrCat("\"", name, "\" is there twice");
      return false;
    }
    error = absl::StrCat("unknown key ", nlohmann::json(name).dump(-1, ' ', true, kReplace),
                         DidYouMean(name, {"sequences", "targets", "token_types"}),
                         "; there are sequences, targets and token_types");
    return false;
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override {
    if (depth_ == 2 || (depth_ == 1 && is_one_)) return Unwanted("a list");
    if (++depth_ == 2) lists_->emplace_back();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    error = absl::StrCat("not JSON at byte ", position);
    return false;
  }

 private:
  static constexpr int64_t kNone = -100;  // PyTorch's ignore_index
  static constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  struct Field {
    const char* name;
    std::vector<std::vector<int32_t>> TokenBatch::*lists;
    const char *list, *element;
  };
  static constexpr Field kFields[] = {
      {"sequences", &TokenBatch::sequences, "a list of token ids", "a token id"},
      {"targets", &TokenBatch::targets, "a list of targets", "a token id, -100 or null"},
      {"token_types", &TokenBatch::types, "a list of token types", "a token type"}};

  bool IsTarget() const { return field_ == &kFields[1]; }
  std::string Place() const {
    if (depth_ == 0) return in_object_ ? field_->name : "the file";
    const std::string name = in_object_ ? field_->name : "tokens";
    if (is_one_) return absl::StrCat(name, "[", lists_->back().size(), "]");
    if (depth_ == 1) return absl::StrCat(name, "[", lists_->size(), "]");
    return absl::StrCat(name, "[", lists_->size() - 1, "][", lists_->back().size(), "]");
  }
  bool Id(const std::string& text, int64_t value) {
    if (depth_ == 1 && takes_one_ && lists_->empty()) {
      is_one_ = true;
      lists_->emplace_back();
    }
    if (depth_ != 2 && !is_one_) return Unwanted(text);
    if (IsTarget() && value == kNone) {
      lists_->back().push_back(-1);
      return true;
    }
    if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
      error = absl::StrCat(Place(), ": ", text, " is not ", field_->element);
      return false;
    }
    lists_->back().push_back(static_cast<int32_t>(value));
    return true;
  }
  bool Unwanted(const std::string& what) {
    const std::string wanted = depth_ == 0               ? "a list of sequences"
                               : depth_ == 1 && !is_one_ ? field_->list
                                                         : field_->element;
    error = absl::StrCat(Place(), ": expected ", wanted, ", found ", what);
    return false;
  }

  const Field* field_ = &kFields[0];
  std::vector<std::vector<int32_t>>* lists_ = &batch.sequences;
  const bool takes_one_;
  bool is_one_ = false;  // the file is a single list of ids
  int depth_ = 0;        // nesting of lists
  bool in_object_ = false;
};

std::string JsonNumber(double value) {
  return std::isfinite(value) ? ShortestNumber(value) : "null";
}

absl::StatusOr<TokenBatch> Read(const std::string& path, bool takes_one) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxResultBytes));
  TokenReader reader(takes_one);
  nlohmann::json::sax_parse(text, &reader);
  if (!reader.error.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", reader.error));
  }
  return std::move(reader.batch);
}

}  // namespace

absl::StatusOr<TokenBatch> ReadTokens(const std::string& path) {
  return Read(path, /*takes_one=*/false);
}

absl::StatusOr<std::vector<std::vector<int32_t>>> ReadPrompts(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(TokenBatch read, Read(path, /*takes_one=*/true));
  if (read.sequences.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no sequence of tokens; add at least one"));
  for (size_t i = 0; i < read.sequences.size(); ++i) {
    if (!read.sequences[i].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tokens[", i, "] is empty; a prompt needs a token"));
  }
  return std::move(read.sequences);
}

absl::Status WriteGradientNorms(const ModelOutputs& outputs, const std::string& path) {
  std::string text =
      absl::StrCat("{\"loss\": ", JsonNumber(outputs.loss.value_or(NAN)), ", \"grad_l2\": {");
  const char* separator = "";
  for (const ModelOutputs::Gradient& gradient : outputs.gradients) {
    absl::StrAppend(&text, separator,
                    nlohmann::json(gradient.name)
                        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    ": ", JsonNumber(gradient.l2));
    separator = ", ";
  }
  return WriteFileAtomically(path, absl::StrCat(text, "}}\n"));
}

}  // namespace plumb::cli
