// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pre_tokenizer_steps.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/unicode.h"

namespace plumb {
namespace {

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

class PrefixSpace : public PreTokenizerStep {
 public:
  absl::Status Split(absl::string_view text, const SplitContext& context, SplitMatcher*,
                     PreTokenSink sink) const override {
    if (!context.begins_segment || absl::StartsWith(text, " ")) return sink(text);
    return sink(absl::StrCat(" ", text));
  }
};

class ByteAlphabetStep : public PreTokenizerStep {
 public:
  absl::Status Split(absl::string_view text, const SplitContext&, SplitMatcher*,
                     PreTokenSink sink) const override {
    return sink(ToByteAlphabet(text));
  }
};

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

}  // namespace

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

std::unique_ptr<PreTokenizerStep> MakeSplit(std::shared_ptr<const SplitPattern> pattern,
                                            Separator separator, bool inverted) {
  return std::make_unique<PatternSplit>(std::move(pattern), separator, inverted);
}
std::unique_ptr<PreTokenizerStep> MakeCharacterSplit(CharacterSet set, Separator separator) {
  return std::make_unique<CharacterSplit>(set, separator);
}
std::unique_ptr<PreTokenizerStep> MakeWordSplit() { return std::make_unique<WordSplit>(); }
std::unique_ptr<PreTokenizerStep> MakePrefixSpace() { return std::make_unique<PrefixSpace>(); }
std::unique_ptr<PreTokenizerStep> MakeByteAlphabet() {
  return std::make_unique<ByteAlphabetStep>();
}
std::unique_ptr<PreTokenizerStep> MakeMetaspace(std::string mark, MarkScheme scheme, bool cuts) {
  return std::make_unique<MetaspaceStep>(std::move(mark), scheme, cuts);
}

}  // namespace plumb
