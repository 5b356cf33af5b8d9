// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/normalizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/precompiled_map.h"
#include "runtime/tokenizer/unicode.h"

namespace plumb {
namespace {

using Json = nlohmann::json;
using MadeNormalizer = absl::StatusOr<std::unique_ptr<Normalizer>>;

// Charges for the growth of `text` to out[before...], which a rule has made that multiplies the
// length at most by a small factor.
absl::Status ChargeGrowth(absl::string_view text, size_t before, const std::string& out,
                          WorkBudget* budget) {
  const size_t size = out.size() - before;
  return size <= text.size() ? absl::OkStatus()
                             : budget->ChargeGrowth(size - text.size(), "a normalizer");
}

class SequenceNormalizer : public Normalizer {
 public:
  std::vector<std::unique_ptr<Normalizer>> steps;

  bool Keeps(absl::string_view text) const override {
    for (const auto& step : steps) {
      if (!step->Keeps(text)) return false;
    }
    return true;
  }
  absl::Status Append(absl::string_view text, bool begins, WorkBudget* budget,
                      std::string* out) const override {
    std::string held(text), next;
    for (const auto& step : steps) {
      if (step->Keeps(held)) continue;
      next.clear();
      PLUMB_RETURN_IF_ERROR(step->Append(held, begins, budget, &next));
      held.swap(next);
    }
    out->append(held);
    return absl::OkStatus();
  }
};

class InForm : public Normalizer {
 public:
  explicit InForm(NormalForm form) : form_(form) {}
  bool Keeps(absl::string_view text) const override { return IsAscii(text); }
  absl::Status Append(absl::string_view text, bool, WorkBudget* budget,
                      std::string* out) const override {
    const size_t before = out->size();
    AppendNormalForm(text, form_, out);
    return ChargeGrowth(text, before, *out, budget);
  }

 private:
  NormalForm form_;
};

// Replaces each character independently of the others.
class ByCharacter : public Normalizer {
 public:
  bool Keeps(absl::string_view) const override { return false; }
  absl::Status Append(absl::string_view text, bool, WorkBudget* budget,
                      std::string* out) const override {
    const size_t before = out->size();
    for (size_t offset = 0; offset < text.size();) {
      const absl::optional<uint32_t> c = NextCodePoint(text, &offset);
      Put(c.value_or(0xFFFD), out);
    }
    return ChargeGrowth(text, before, *out, budget);
  }
  virtual void Put(uint32_t c, std::string* out) const = 0;
};

class LowercaseNormalizer : public ByCharacter {
  void Put(uint32_t c, std::string* out) const override { AppendLowerCase(c, out); }
};

class StripAccentsNormalizer : public ByCharacter {
  void Put(uint32_t c, std::string* out) const override {
    if (!IsMark(c)) AppendUtf8(c, out);
  }
};

// BertNormalizer's strip_accents, which keeps spacing and enclosing marks.
class StripNonspacingNormalizer : public ByCharacter {
  void Put(uint32_t c, std::string* out) const override {
    if (!IsNonspacingMark(c)) AppendUtf8(c, out);
  }
};

// Tests for control characters before white space, since U+000B and U+0085 are both.
class CleanTextNormalizer : public ByCharacter {
  void Put(uint32_t c, std::string* out) const override {
    if (IsControl(c)) return;
    if (IsWhiteSpace(c)) {
      out->push_back(' ');
    } else {
      AppendUtf8(c, out);
    }
  }
};

// Surrounds ideographs, in BERT's definition, with spaces, so that each becomes a word.
class SpacesAroundIdeographs : public ByCharacter {
  void Put(uint32_t c, std::string* out) const override {
    const bool is_one = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
                        (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
                        (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
                        (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
    if (is_one) out->push_back(' ');
    AppendUtf8(c, out);
    if (is_one) out->push_back(' ');
  }
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string text) : text_(std::move(text)) {}
  bool Keeps(absl::string_view text) const override { return text.empty(); }
  absl::Status Append(absl::string_view text, bool begins, WorkBudget* budget,
                      std::string* out) const override {
    if (begins) {
      PLUMB_RETURN_IF_ERROR(budget->ChargeGrowth(text_.size(), "Prepend"));
      out->append(text_);
    }
    absl::StrAppend(out, text);
    return absl::OkStatus();
  }

 private:
  std::string text_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(JsonPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  bool Keeps(absl::string_view text) const override {
    return !pattern_.literal.empty() && text.find(pattern_.literal) == absl::string_view::npos;
  }
  absl::Status Append(absl::string_view text, bool, WorkBudget* budget,
                      std::string* out) const override {
    absl::optional<SplitMatcher> matcher;
    if (pattern_.literal.empty()) matcher.emplace(pattern_.pattern);
    size_t at = 0, begin = 0, end = 0;
    for (bool first = true; !text.empty(); first = false) {
      bool found = false;
      if (matcher) {
        PLUMB_ASSIGN_OR_RETURN(found, matcher->Find(text, first, budget, &begin, &end));
      } else {
        begin = text.find(pattern_.literal, at);
        found = begin != absl::string_view::npos;
        end = begin + pattern_.literal.size();
      }
      if (!found) break;
      if (content_.size() > end - begin) {
        PLUMB_RETURN_IF_ERROR(budget->ChargeGrowth(content_.size() - (end - begin), "Replace"));
      }
      absl::StrAppend(out, text.substr(at, begin - at), content_);
      at = end;
    }
    absl::StrAppend(out, text.substr(at));
    return absl::OkStatus();
  }

 private:
  JsonPattern pattern_;
  std::string content_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  bool Keeps(absl::string_view) const override { return false; }
  absl::Status Append(absl::string_view text, bool begins, WorkBudget*,
                      std::string* out) const override {
    size_t begin = 0, end = 0;  // range of the text without surrounding spaces
    bool any = false;
    for (size_t offset = 0; offset < text.size();) {
      const size_t at = offset;
      if (IsWhiteSpace(NextCodePoint(text, &offset).value_or(0))) continue;
      if (!any) begin = at;
      any = true;
      end = offset;
    }
    const bool strips_left = left_ && begins;
    if (!any && strips_left) return absl::OkStatus();
    if (!strips_left) begin = 0;
    if (!right_) end = text.size();
    if (end > begin) out->append(text.data() + begin, end - begin);
    return absl::OkStatus();
  }

 private:
  bool left_, right_;
};

class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(PrecompiledMap map) : map_(std::move(map)) {}
  bool Keeps(absl::string_view) const override { return false; }
  absl::Status Append(absl::string_view text, bool, WorkBudget* budget,
                      std::string* out) const override {
    return map_.Append(text, budget, out);
  }

 private:
  PrecompiledMap map_;
};

MadeNormalizer ReadBert(JsonFields* fields) {
  PLUMB_ASSIGN_OR_RETURN(const bool clean, fields->Bool("clean_text", true));
  PLUMB_ASSIGN_OR_RETURN(const bool ideographs, fields->Bool("handle_chinese_chars", true));
  PLUMB_ASSIGN_OR_RETURN(const bool lower, fields->Bool("lowercase", true));
  PLUMB_ASSIGN_OR_RETURN(const bool strip, fields->Bool("strip_accents", lower));
  auto steps = std::make_unique<SequenceNormalizer>();
  if (clean) steps->steps.push_back(std::make_unique<CleanTextNormalizer>());
  if (ideographs) steps->steps.push_back(std::make_unique<SpacesAroundIdeographs>());
  if (strip) {
    steps->steps.push_back(std::make_unique<InForm>(NormalForm::kNfd));
    steps->steps.push_back(std::make_unique<StripNonspacingNormalizer>());
  }
  if (lower) steps->steps.push_back(std::make_unique<LowercaseNormalizer>());
  return std::unique_ptr<Normalizer>(std::move(steps));
}

MadeNormalizer ReadNormalizers(JsonFields* fields) {
  PLUMB_ASSIGN_OR_RETURN(const Json* list, fields->NeededArray("normalizers"));
  PLUMB_RETURN_IF_ERROR(CheckPartCount(list->size(), fields->GetPlace("normalizers")));
  auto sequence = std::make_unique<SequenceNormalizer>();
  for (const Json& entry : *list) {
    PLUMB_ASSIGN_OR_RETURN(
        auto step, Normalizer::Read(&entry, absl::StrCat(fields->GetPlace("normalizers"), "[",
                                                         sequence->steps.size(), "]")));
    sequence->steps.push_back(std::move(step));
  }
  return std::unique_ptr<Normalizer>(std::move(sequence));
}

MadeNormalizer ReadNormalizer(const std::string& type, JsonFields* fields) {
  if (type == "Sequence") return ReadNormalizers(fields);
  if (type == "NFC") return std::make_unique<InForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<InForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<InForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<InForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "BertNormalizer") return ReadBert(fields);
  if (type == "Prepend") {
    PLUMB_ASSIGN_OR_RETURN(std::string text, fields->NeededString("prepend"));
    return std::make_unique<PrependNormalizer>(std::move(text));
  }
  if (type == "Replace") {
    PLUMB_ASSIGN_OR_RETURN(JsonPattern pattern, TakePattern(fields));
    PLUMB_ASSIGN_OR_RETURN(std::string content, fields->NeededString("content"));
    if (pattern.pattern->matches_nothing()) {
      return fields->Error("a pattern that matches an empty text is not supported in Replace");
    }
    return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    PLUMB_ASSIGN_OR_RETURN(const bool left, fields->Bool("strip_left", true));
    PLUMB_ASSIGN_OR_RETURN(const bool right, fields->Bool("strip_right", true));
    return std::make_unique<StripNormalizer>(left, right);
  }
  if (type == "Precompiled") {
    PLUMB_ASSIGN_OR_RETURN(const std::string base64, fields->NeededString("precompiled_charsmap"));
    absl::StatusOr<PrecompiledMap> map = PrecompiledMap::Read(base64);
    if (!map.ok()) return Annotate(map.status(), absl::StrCat(fields->place(), ": "));
    return std::make_unique<PrecompiledNormalizer>(*std::move(map));
  }
  return UnsupportedType(*fields, type,
                         {"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents",
                          "BertNormalizer", "Prepend", "Replace", "Strip", "Precompiled"});
}

}  // namespace

MadeNormalizer Normalizer::Read(const Json* json, const std::string& place) {
  if (json == nullptr || json->is_null()) return std::make_unique<SequenceNormalizer>();
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(*json, place));
  PLUMB_ASSIGN_OR_RETURN(const std::string type, fields.NeededString("type"));
  PLUMB_ASSIGN_OR_RETURN(auto normalizer, ReadNormalizer(type, &fields));
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  return normalizer;
}

}  // namespace plumb
