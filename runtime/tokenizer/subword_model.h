// SPDX-License-Identifier: Apache-2.0
// SubwordModel: encodes one piece of text, mostly a word, as tokens: byte-pair encoding, unigram or
// WordPiece. Immutable, thread-safe; a ModelScratch holds the mutable state of one thread.
#ifndef PLUMB_RUNTIME_TOKENIZER_SUBWORD_MODEL_H_
#define PLUMB_RUNTIME_TOKENIZER_SUBWORD_MODEL_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

// SentencePiece's mark for a space, U+2581.
inline constexpr absl::string_view kSpaceMark = "\u2581";

// Reused memory, which grows to the size for the longest piece. Thread-compatible.
struct ModelScratch {
  struct Symbol {  // for BPE: a token so far, in a linked list
    int32_t token, previous, next;
    uint64_t merge;  // merge of this token and the next: rank and result
  };
  struct Best {  // for unigram: the best segmentation that ends at a byte
    double score;
    int32_t from, token;  // -1: an unknown character
  };
  std::vector<Symbol> symbols;
  std::vector<std::pair<uint64_t, int32_t>> heap;
  std::vector<Best> best;
  std::vector<int32_t> tokens;
  WorkBudget* budget = nullptr;  // budget of the current text
};

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  // Appends the tokens of a piece. The piece may have bytes that are not UTF-8 if takes_bytes().
  // Errors: kInvalidArgument for text without a token, kResourceExhausted if scratch->budget has
  // too few steps.
  virtual absl::Status Append(absl::string_view piece, ModelScratch* scratch,
                              std::vector<int32_t>* tokens) const = 0;
  virtual bool takes_bytes() const = 0;

  // Returns true if `mark` occurs in tokens only at the beginning (or in tokens made of marks), so
  // that splitting a text before every run of marks changes no token.
  virtual bool NeverCrosses(absl::string_view mark) const = 0;

  // Text of each token, as in the file; "" for an unused id.
  const std::vector<std::string>& pieces() const { return pieces_; }
  // Number of entries in the file's vocabulary; added tokens are numbered from it.
  size_t entries() const { return entries_; }
  // Returns "BPE", "unigram" or "WordPiece".
  virtual const char* name() const = 0;

 protected:
  std::vector<std::string> pieces_;
  size_t entries_ = 0;
};

// Reads the object `model` of a tokenizer.json, whose type the caller has checked. If `byte_level`,
// the vocabulary is in the alphabet of bytes (byte_alphabet.h), and Append takes bytes.
absl::StatusOr<std::unique_ptr<SubwordModel>> ReadBpe(const nlohmann::json& model, bool byte_level);
absl::StatusOr<std::unique_ptr<SubwordModel>> ReadUnigram(const nlohmann::json& model);
absl::StatusOr<std::unique_ptr<SubwordModel>> ReadWordPiece(const nlohmann::json& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SUBWORD_MODEL_H_
