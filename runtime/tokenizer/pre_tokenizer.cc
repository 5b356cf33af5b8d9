// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/unicode.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Pattern of a ByteLevel step that splits (Radford et al. 2019, GPT-2).
constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Treatment of the matched text, the separators; `behavior` of a tokenizer.json.
enum class Separator { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };

// Joins matches and the text between them to pieces.
class Joiner {
 public:
  Joiner(absl::string_view text, Separator separator, bool inverted, PreTokenSink sink)
      : text_(text), separator_(separator), inverted_(inverted), sink_(sink) {}

  // Adds the match [begin, end) and the text before it.
  absl::Status Match(size_t begin, size_t end) {
    if (begin > at_) PLUMB_RETURN_IF_ERROR(Stretch(begin, inverted_));
    return Stretch(end, !inverted_);
  }
  absl::Status Finish() {
    if (text_.size() > at_) PLUMB_RETURN_IF_ERROR(Stretch(text_.size(), inverted_));
    return Flush();
  }

 private:
  // Adds the stretch from the end of the last one to `end`.
  absl::Status Stretch(size_t end, bool separates) {
    if (separator_ == Separator::kIsolated) {
      const size_t begin = std::exchange(at_, end);
      if (begin == end) return absl::OkStatus();
      return sink_(text_.substr(begin, end - begin));
    }
    if (separator_ == Separator::kRemoved && separates) {
      at_ = end;
      piece_ = end;
      return absl::OkStatus();
    }
    const bool joins =
        at_ > piece_ && ((separator_ == Separator::kWithPrevious && separates && !separated_) ||
                         (separator_ == Separator::kWithNext && !separates && separated_) ||
                         (separator_ == Separator::kContiguous && separates == separated_));
    if (!joins) PLUMB_RETURN_IF_ERROR(Flush());
    separated_ = separates;
    at_ = end;
    if (separator_ == Separator::kRemoved) return Flush();
    return absl::OkStatus();
  }
  absl::Status Flush() {
    const size_t begin = std::exchange(piece_, at_);
    if (begin == at_ || separator_ == Separator::kIsolated) return absl::OkStatus();
    return sink_(text_.substr(begin, at_ - begin));
  }

  absl::string_view text_;
  Separator separator_;
  bool inverted_;
  PreTokenSink sink_;
  size_t piece_ = 0, at_ = 0;  // range of the piece that is not yet passed to the sink
  bool separated_ = false;     // true if the last stretch of this piece is a separator
};

// Splits at matches of a pattern; if inverted, at the text between them.
class PatternSplit : public PreTokenizerStep {
 public:
  PatternSplit(std::shared_ptr<const SplitPattern> pattern, Separator separator, bool inverted)
      : pattern_(std::move(pattern)), separator_(separator), inverted_(inverted) {}

  std::shared_ptr<const SplitPattern> pattern() const override { return pattern_; }
  absl::Status Split(absl::string_view text, const SplitContext& context, SplitMatcher* matcher,
                     PreTokenSink sink) const override {
    Joiner joiner(text, separator_, inverted_, sink);
    size_t begin = 0, end = 0;
    for (bool first = true;; first = false) {
      PLUMB_ASSIGN_OR_RETURN(const bool found,
                             matcher->Find(text, first, context.budget, &begin, &end));
      if (!found) return joiner.Finish();
      PLUMB_RETURN_IF_ERROR(joiner.Match(begin, end));
    }
  }

 private:
  std::shared_ptr<const SplitPattern> pattern_;
  Separator separator_;
  bool inverted_;
};

enum class CharacterSet { kWhiteSpace, kPunctuation, kNumbers };

// Splits at characters of a set.
class CharacterSplit : public PreTokenizerStep {
 public:
  CharacterSplit(CharacterSet set, Separator separator) : set_(set), separator_(separator) {}

  absl::Status Split(absl::string_view text, const SplitContext&, SplitMatcher*,
                     PreTokenSink sink) const override {
    Joiner joiner(text, separator_, /*inverted=*/false, sink);
    for (size_t offset = 0; offset < text.size();) {
      const size_t begin = offset;
      if (Has(NextCodePoint(text, &offset).value_or(0xFFFD))) {
        PLUMB_RETURN_IF_ERROR(joiner.Match(begin, offset));
      }
    }
    return joiner.Finish();
  }

 private:
  bool Has(uint32_t c) const {
    switch (set_) {
      case CharacterSet::kWhiteSpace:
        return IsWhiteSpace(c);
      case CharacterSet::kNumbers:
        return IsNumber(c);
      case CharacterSet::kPunctuation:
        break;
    }
    return IsPunctuation(c);
  }
  CharacterSet set_;
  Separator separator_;
};

// Splits at transitions between words, white space and other characters, and drops white space.
class WordSplit : public PreTokenizerStep {
 public:
  absl::Status Split(absl::string_view text, const SplitContext&, SplitMatcher*,
                     PreTokenSink sink) const override {
    Kind last = kSpace;
    size_t begin = 0;
    for (size_t offset = 0; offset <= text.size();) {
      const size_t at = offset;
      const absl::optional<uint32_t> c =
          at < text.size() ? NextCodePoint(text, &offset) : absl::nullopt;
      const Kind kind = !c || IsWhiteSpace(*c) ? kSpace : IsWordCharacter(*c) ? kWord : kOther;
      if (kind != last) {
        if (last != kSpace) PLUMB_RETURN_IF_ERROR(sink(text.substr(begin, at - begin)));
        begin = at;
        last = kind;
      }
      if (at == text.size()) break;
    }
    return absl::OkStatus();
  }

 private:
  enum Kind { kSpace, kWord, kOther };
};

// Prepends a space to a text that does not begin with one.
class PrefixSpace : public PreTokenizerStep {
 public:
  absl::Status Split(absl::string_view text, const SplitContext& context, SplitMatcher*,
                     PreTokenSink sink) const override {
    if (!context.begins_segment || absl::StartsWith(text, " ")) return sink(text);
    return sink(absl::StrCat(" ", text));
  }
};

// Maps bytes to the alphabet of byte_alphabet.h.
class ByteAlphabetStep : public PreTokenizerStep {
 public:
  absl::Status Split(absl::string_view text, const SplitContext&, SplitMatcher*,
                     PreTokenSink sink) const override {
    return sink(ToByteAlphabet(text));
  }
};

enum class MarkScheme { kNever, kFirst, kAlways };

// Replaces spaces by `mark` as SentencePiece does, and may prepend one at the beginning.
class MetaspaceStep : public PreTokenizerStep {
 public:
  MetaspaceStep(std::string mark, MarkScheme scheme, bool cuts)
      : mark_(std::move(mark)), scheme_(scheme), cuts_(cuts) {}

  absl::Status Split(absl::string_view text, const SplitContext& context, SplitMatcher*,
                     PreTokenSink sink) const override {
    std::string marked = absl::StrReplaceAll(text, {{" ", mark_}});
    const bool wants_mark =
        scheme_ == MarkScheme::kAlways || (scheme_ == MarkScheme::kFirst && context.begins_text);
    if (wants_mark && context.begins_segment && !absl::StartsWith(marked, mark_)) {
      marked.insert(0, mark_);
    }
    if (!cuts_) return sink(marked);
    Joiner joiner(marked, Separator::kWithNext, /*inverted=*/false, sink);
    for (size_t at = marked.find(mark_); at != std::string::npos;
         at = marked.find(mark_, at + mark_.size())) {
      PLUMB_RETURN_IF_ERROR(joiner.Match(at, at + mark_.size()));
    }
    return joiner.Finish();
  }

 private:
  std::string mark_;
  MarkScheme scheme_;
  bool cuts_;
};

absl::StatusOr<Separator> TakeBehavior(JsonFields* fields, const char* otherwise) {
  PLUMB_ASSIGN_OR_RETURN(const std::string name, fields->String("behavior", otherwise));
  if (name == "Isolated") return Separator::kIsolated;
  if (name == "Removed") return Separator::kRemoved;
  if (name == "MergedWithPrevious") return Separator::kWithPrevious;
  if (name == "MergedWithNext") return Separator::kWithNext;
  if (name == "Contiguous") return Separator::kContiguous;
  return fields->Error(absl::StrCat("behavior ", QuoteName(name), " is not supported",
                                    DidYouMean(name, {"Isolated", "Removed", "MergedWithPrevious",
                                                      "MergedWithNext", "Contiguous"})));
}

// `is_first` is false for a step after another, which may have removed the text's first spaces.
absl::StatusOr<std::unique_ptr<PreTokenizerStep>> ReadMetaspace(bool is_first, JsonFields* fields) {
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
  if (scheme == "first" && !is_first) {
    return fields->Error("prepend_scheme first is not supported after another pre-tokenizer");
  }
  return std::make_unique<MetaspaceStep>(mark,
                                         scheme == "always"  ? MarkScheme::kAlways
                                         : scheme == "first" ? MarkScheme::kFirst
                                                             : MarkScheme::kNever,
                                         cuts);
}

absl::StatusOr<std::unique_ptr<PreTokenizerStep>> ReadSplit(JsonFields* fields) {
  PLUMB_ASSIGN_OR_RETURN(JsonPattern pattern, TakePattern(fields));
  PLUMB_ASSIGN_OR_RETURN(const Separator separator, TakeBehavior(fields, "Isolated"));
  PLUMB_ASSIGN_OR_RETURN(const bool inverted, fields->Bool("invert", false));
  return std::make_unique<PatternSplit>(std::move(pattern.pattern), separator, inverted);
}

absl::StatusOr<std::unique_ptr<PreTokenizerStep>> ReadPreTokenizerStep(const std::string& type,
                                                                       bool is_first,
                                                                       JsonFields* fields) {
  if (type == "Split") return ReadSplit(fields);
  if (type == "Metaspace") return ReadMetaspace(is_first, fields);
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterSplit>(CharacterSet::kWhiteSpace, Separator::kRemoved);
  }
  if (type == "Whitespace") return std::make_unique<WordSplit>();
  if (type == "Punctuation") {
    PLUMB_ASSIGN_OR_RETURN(const Separator separator, TakeBehavior(fields, "Isolated"));
    return std::make_unique<CharacterSplit>(CharacterSet::kPunctuation, separator);
  }
  if (type == "Digits") {
    PLUMB_ASSIGN_OR_RETURN(const bool each, fields->Bool("individual_digits", false));
    return std::make_unique<CharacterSplit>(CharacterSet::kNumbers,
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
  if (prefix) steps_.push_back(std::make_unique<PrefixSpace>());
  if (!cuts) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(auto pattern, SplitPattern::Compile(kGpt2Pattern));
  steps_.push_back(
      std::make_unique<PatternSplit>(std::move(pattern), Separator::kIsolated, /*inverted=*/false));
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddStep(const Json& json, const std::string& place) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, place));
  PLUMB_ASSIGN_OR_RETURN(const std::string type, fields.NeededString("type"));
  if (type == "Sequence") {
    PLUMB_ASSIGN_OR_RETURN(const Json* list, fields.NeededArray("pretokenizers"));
    PLUMB_RETURN_IF_ERROR(CheckPartCount(list->size(), fields.GetPlace("pretokenizers")));
    for (size_t i = 0; i < list->size(); ++i) {
      PLUMB_RETURN_IF_ERROR(
          AddStep((*list)[i], absl::StrCat(fields.GetPlace("pretokenizers"), "[", i, "]")));
    }
    return fields.Finish();
  }
  // A step after ByteLevel sees characters of the alphabet: a byte may be a digit or punctuation.
  if (byte_level_ && !maps_bytes_) {
    steps_.push_back(std::make_unique<ByteAlphabetStep>());
    maps_bytes_ = true;
  }
  if (type == "ByteLevel") {
    PLUMB_RETURN_IF_ERROR(AddByteLevel(&fields));
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(
        std::make_unique<CharacterSplit>(CharacterSet::kWhiteSpace, Separator::kRemoved));
    steps_.push_back(
        std::make_unique<CharacterSplit>(CharacterSet::kPunctuation, Separator::kIsolated));
  } else if (type == "Metaspace" && byte_level_) {
    return fields.Error("is a Metaspace after ByteLevel, and its mark stands for no byte");
  } else {
    PLUMB_ASSIGN_OR_RETURN(auto step, ReadPreTokenizerStep(type, steps_.empty(), &fields));
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
