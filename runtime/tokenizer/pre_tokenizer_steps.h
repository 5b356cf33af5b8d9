// SPDX-License-Identifier: Apache-2.0
// Steps of a PreTokenizer. Private to this module.
#ifndef PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_STEPS_H_
#define PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_STEPS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/pre_tokenizer.h"

namespace plumb {

// Treatment of the matched text, the separators; `behavior` of a tokenizer.json.
enum class Separator { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };
absl::StatusOr<Separator> TakeBehavior(JsonFields* fields, const char* otherwise);

// Splits at matches of a pattern; if inverted, at the text between them.
std::unique_ptr<PreTokenizerStep> MakeSplit(std::shared_ptr<const SplitPattern> pattern,
                                            Separator separator, bool inverted);

// Splits at characters of a set.
enum class CharacterSet { kWhiteSpace, kPunctuation, kNumbers };
std::unique_ptr<PreTokenizerStep> MakeCharacterSplit(CharacterSet set, Separator separator);

// Splits words from other characters, and drops white space.
std::unique_ptr<PreTokenizerStep> MakeWordSplit();

// Prepends a space to a text that does not begin with one.
std::unique_ptr<PreTokenizerStep> MakePrefixSpace();
// Maps bytes to the alphabet of byte_alphabet.h.
std::unique_ptr<PreTokenizerStep> MakeByteAlphabet();

// Replaces spaces by `mark` as SentencePiece does, and may prepend one at the beginning.
enum class MarkScheme { kNever, kFirst, kAlways };
std::unique_ptr<PreTokenizerStep> MakeMetaspace(std::string mark, MarkScheme scheme, bool cuts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_STEPS_H_
