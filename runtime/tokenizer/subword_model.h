// SPDX-License-Identifier: Apache-2.0
// SubwordModel: what turns one piece of text (a word, mostly) into tokens: byte-pair encoding,
// unigram or WordPiece. Immutable, thread-safe; what a thread needs to run one is a ModelScratch.
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

// Memory that grows to the longest piece and is used again. Thread-compatible.
struct ModelScratch {
  struct Symbol {  // of BPE: a token so far, in a list
    int32_t token, previous, next;
    uint64_t merge;  // of this one and the next: rank and result
  };
  struct Best {  // of unigram: the best way to a byte
    double score;
    int32_t from, token;  // -1: an unknown character
  };
  std::vector<Symbol> symbols;
  std::vector<std::pair<uint64_t, int32_t>> heap;
  std::vector<Best> best;
  std::vector<int32_t> tokens;
  WorkBudget* budget = nullptr;  // of the text at hand
};

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  // Appends the tokens of a piece. It may hold bytes that are not UTF-8 if takes_bytes().
  // Errors: InvalidArgument for what has no token, ResourceExhausted if scratch->budget has too few
  // steps.
  virtual absl::Status Append(absl::string_view piece, ModelScratch* scratch,
                              std::vector<int32_t>* tokens) const = 0;
  virtual bool takes_bytes() const = 0;

  // Whether no token has `mark` anywhere but at its beginning (or is made of nothing else), so that
  // cutting a text before every mark changes no token.
  virtual bool NeverCrosses(absl::string_view mark) const = 0;

  // The text of each token as the file has it; "" for an id that is none's.
  const std::vector<std::string>& pieces() const { return pieces_; }
  // Entries of the file's vocabulary, from which added tokens are numbered.
  size_t entries() const { return entries_; }
  // "BPE", "unigram", "WordPiece"
  virtual const char* name() const = 0;

 protected:
  std::vector<std::string> pieces_;
  size_t entries_ = 0;
};

// Each reads the object `model` of a tokenizer.json, whose type the caller has looked at.
// `byte_level`: pieces are in the alphabet of bytes (byte_alphabet.h), and what is given to Append
// is bytes.
absl::StatusOr<std::unique_ptr<SubwordModel>> ReadBpe(const nlohmann::json& model, bool byte_level);
absl::StatusOr<std::unique_ptr<SubwordModel>> ReadUnigram(const nlohmann::json& model);
absl::StatusOr<std::unique_ptr<SubwordModel>> ReadWordPiece(const nlohmann::json& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SUBWORD_MODEL_H_
