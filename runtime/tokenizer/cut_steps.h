// SPDX-License-Identifier: Apache-2.0
// The steps of which a PreTokenizer is made. Private to this module.
#ifndef PLUMB_RUNTIME_TOKENIZER_CUT_STEPS_H_
#define PLUMB_RUNTIME_TOKENIZER_CUT_STEPS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/pre_tokenizer.h"

namespace plumb {

// What becomes of what separates.
enum class Separator { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };
absl::StatusOr<Separator> TakeBehavior(JsonFields* fields, const char* otherwise);

// Cuts at matches of a pattern; inverted, at what lies between them.
std::unique_ptr<CutStep> MakeSplit(std::shared_ptr<const SplitPattern> pattern, Separator separator,
                                   bool inverted);

// Cuts at characters.
enum class CharacterSet { kWhiteSpace, kPunctuation, kNumbers };
std::unique_ptr<CutStep> MakeCharacterSplit(CharacterSet set, Separator separator);

// Cuts words from other characters, and drops white space.
std::unique_ptr<CutStep> MakeWordSplit();

// A space before a text that has none.
std::unique_ptr<CutStep> MakePrefixSpace();
// Bytes in the alphabet of byte_alphabet.h.
std::unique_ptr<CutStep> MakeByteAlphabet();

// SentencePiece's: spaces become `mark`, of which there is one at the beginning, too.
enum class MarkScheme { kNever, kFirst, kAlways };
std::unique_ptr<CutStep> MakeMetaspace(std::string mark, MarkScheme scheme, bool cuts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_CUT_STEPS_H_
