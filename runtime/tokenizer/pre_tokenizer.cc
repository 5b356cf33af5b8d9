// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/pre_tokenizer_steps.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Pattern of a ByteLevel step that splits (Radford et al. 2019, GPT-2).
constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

absl::StatusOr<std::unique_ptr<PreTokenizerStep>> ReadMetaspace(JsonFields* fields) {
  PLUMB_ASSIGN_OR_RETURN(const std::string mark, fields->String("replacement", "\u2581"));
  PLUMB_ASSIGN_OR_RETURN(const bool cuts, fields->Bool("split", true));
  PLUMB_ASSIGN_OR_RETURN(const bool prefix, fields->Bool("add_prefix_space", true));
  PLUMB_ASSIGN_OR_RETURN(const std::string scheme,
                         fields->String("prepend_scheme", prefix ? "always" : "never"));
  fields->Ignore("str_rep");  // a copy of the replacement in old files
  if (!IsOneCharacter(mark)) return fields->Error("replacement is not one character");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return fields->Error("prepend_scheme is none of always, first, never");
  }
  return MakeMetaspace(mark,
                       scheme == "always"  ? MarkScheme::kAlways
                       : scheme == "first" ? MarkScheme::kFirst
                                           : MarkScheme::kNever,
                       cuts);
}

absl::StatusOr<std::unique_ptr<PreTokenizerStep>> ReadSplit(JsonFields* fields) {
  PLUMB_ASSIGN_OR_RETURN(JsonPattern pattern, TakePattern(fields));
  PLUMB_ASSIGN_OR_RETURN(const Separator separator, TakeBehavior(fields, "Isolated"));
  PLUMB_ASSIGN_OR_RETURN(const bool inverted, fields->Bool("invert", false));
  return MakeSplit(std::move(pattern.pattern), separator, inverted);
}

absl::StatusOr<std::unique_ptr<PreTokenizerStep>> ReadPreTokenizerStep(const std::string& type,
                                                                       JsonFields* fields) {
  if (type == "Split") return ReadSplit(fields);
  if (type == "Metaspace") return ReadMetaspace(fields);
  if (type == "WhitespaceSplit") {
    return MakeCharacterSplit(CharacterSet::kWhiteSpace, Separator::kRemoved);
  }
  if (type == "Whitespace") return MakeWordSplit();
  if (type == "Punctuation") {
    PLUMB_ASSIGN_OR_RETURN(const Separator separator, TakeBehavior(fields, "Isolated"));
    return MakeCharacterSplit(CharacterSet::kPunctuation, separator);
  }
  if (type == "Digits") {
    PLUMB_ASSIGN_OR_RETURN(const bool each, fields->Bool("individual_digits", false));
    return MakeCharacterSplit(CharacterSet::kNumbers,
                              each ? Separator::kIsolated : Separator::kContiguous);
  }
  return UnsupportedType(*fields, type,
                         {"Sequence", "ByteLevel", "Split", "Metaspace", "BertPreTokenizer",
                          "Whitespace", "WhitespaceSplit", "Punctuation", "Digits"});
}

}  // namespace

absl::Status PreTokenizer::AddByteLevel(JsonFields* fields) {
  if (byte_level_) return fields->Error("is the second ByteLevel");
  PLUMB_ASSIGN_OR_RETURN(const bool prefix, fields->Bool("add_prefix_space", true));
  PLUMB_ASSIGN_OR_RETURN(const bool cuts, fields->Bool("use_regex", true));
  fields->Ignore("trim_offsets");  // affects offsets, which plumb does not return
  byte_level_ = true;
  if (prefix) steps_.push_back(MakePrefixSpace());
  if (!cuts) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(auto pattern, SplitPattern::Compile(kGpt2Pattern));
  steps_.push_back(MakeSplit(std::move(pattern), Separator::kIsolated, /*inverted=*/false));
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddStep(const Json& json, const std::string& place) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, place));
  PLUMB_ASSIGN_OR_RETURN(const std::string type, fields.NeededString("type"));
  if (type == "Sequence") {
    PLUMB_ASSIGN_OR_RETURN(const Json* list, fields.NeededArray("pretokenizers"));
    PLUMB_RETURN_IF_ERROR(CheckPartCount(list->size(), fields.PlaceOf("pretokenizers")));
    for (size_t i = 0; i < list->size(); ++i) {
      PLUMB_RETURN_IF_ERROR(
          AddStep((*list)[i], absl::StrCat(fields.PlaceOf("pretokenizers"), "[", i, "]")));
    }
    return fields.Finish();
  }
  // A step after ByteLevel sees characters of the alphabet: a byte may be a digit or punctuation.
  if (byte_level_ && !maps_bytes_) {
    steps_.push_back(MakeByteAlphabet());
    maps_bytes_ = true;
  }
  if (type == "ByteLevel") {
    PLUMB_RETURN_IF_ERROR(AddByteLevel(&fields));
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(MakeCharacterSplit(CharacterSet::kWhiteSpace, Separator::kRemoved));
    steps_.push_back(MakeCharacterSplit(CharacterSet::kPunctuation, Separator::kIsolated));
  } else {
    PLUMB_ASSIGN_OR_RETURN(auto step, ReadPreTokenizerStep(type, &fields));
    steps_.push_back(std::move(step));
  }
  return fields.Finish();
}

absl::StatusOr<std::unique_ptr<const PreTokenizer>> PreTokenizer::Read(const Json* json,
                                                                       const std::string& place) {
  auto made = std::make_unique<PreTokenizer>();
  if (json != nullptr && !json->is_null()) PLUMB_RETURN_IF_ERROR(made->AddStep(*json, place));
  // The limit bounds the stack: each step takes a few frames, and a host's threads may have little.
  PLUMB_RETURN_IF_ERROR(CheckPartCount(made->steps_.size(), place));
  return std::unique_ptr<const PreTokenizer>(std::move(made));
}

PreTokenizerRunner::PreTokenizerRunner(const PreTokenizer* pre_tokenizer)
    : pre_tokenizer_(pre_tokenizer) {
  for (const auto& step : pre_tokenizer->steps_) {
    auto pattern = step->pattern();
    matchers_.push_back(pattern == nullptr ? nullptr
                                           : std::make_unique<SplitMatcher>(std::move(pattern)));
  }
}

absl::Status PreTokenizerRunner::SplitFrom(size_t step, absl::string_view text,
                                           const SplitContext& context, PreTokenSink sink) {
  if (step == matchers_.size()) return sink(text);
  SplitMatcher* matcher = matchers_[step].get();
  if (step + 1 == matchers_.size()) {
    return pre_tokenizer_->steps_[step]->Split(text, context, matcher, sink);
  }
  SplitContext inner = context;
  return pre_tokenizer_->steps_[step]->Split(
      text, context, matcher, [&](absl::string_view piece) -> absl::Status {
        PLUMB_RETURN_IF_ERROR(SplitFrom(step + 1, piece, inner, sink));
        inner.begins_text = false;
        return absl::OkStatus();
      });
}

}  // namespace plumb
