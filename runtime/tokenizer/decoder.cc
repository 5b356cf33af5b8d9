// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/decoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/normalizer.h"

namespace plumb {
namespace {

using Json = nlohmann::json;
using Pieces = std::vector<std::string>;
using MadeDecoder = absl::StatusOr<std::unique_ptr<const Decoder>>;

class SequenceDecoder : public Decoder {
 public:
  std::vector<std::unique_ptr<const Decoder>> steps;
  absl::Status Apply(bool continues, WorkBudget* budget, Pieces* pieces) const override {
    for (const auto& step : steps) PLUMB_RETURN_IF_ERROR(step->Apply(continues, budget, pieces));
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override {
    for (const auto& step : steps) {
      if (!step->Streams(fused)) return false;
      fused = fused || step->Fuses();
    }
    return true;
  }
  bool Fuses() const override {
    return std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step->Fuses(); });
  }
};

class SpacesDecoder : public Decoder {
  absl::Status Apply(bool continues, WorkBudget*, Pieces* pieces) const override {
    for (size_t i = continues ? 0 : 1; i < pieces->size(); ++i) (*pieces)[i].insert(0, " ");
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override { return !fused; }
};

class ByteLevelDecoder : public Decoder {
  absl::Status Apply(bool, WorkBudget*, Pieces* pieces) const override {
    for (std::string& piece : *pieces) {
      absl::optional<std::string> bytes = FromByteAlphabet(piece);
      if (bytes) piece = *std::move(bytes);
    }
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override { return !fused; }
};

// Replaces a piece such as "<0x0A>" by that byte.
class ByteFallbackDecoder : public Decoder {
  absl::Status Apply(bool, WorkBudget*, Pieces* pieces) const override {
    for (std::string& piece : *pieces) {
      uint32_t byte = 0;
      if (piece.size() == 6 && absl::StartsWith(piece, "<0x") && piece[5] == '>' &&
          absl::SimpleHexAtoi(piece.substr(3, 2), &byte)) {
        piece.assign(1, static_cast<char>(byte));
      }
    }
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override { return !fused; }
};

class FuseDecoder : public Decoder {
  absl::Status Apply(bool, WorkBudget*, Pieces* pieces) const override {
    pieces->assign(1, absl::StrJoin(*pieces, ""));
    return absl::OkStatus();
  }
  bool Streams(bool) const override { return true; }
  bool Fuses() const override { return true; }
};

// Strips each piece, or the whole text if the pieces have been fused.
class StripDecoder : public Decoder {
 public:
  StripDecoder(std::string content, int64_t first, int64_t last, bool fused)
      : content_(std::move(content)), first_(first), last_(last), fused_(fused) {}
  absl::Status Apply(bool continues, WorkBudget*, Pieces* pieces) const override {
    const int64_t first = fused_ && continues ? 0 : first_;
    for (std::string& piece : *pieces) {
      size_t begin = 0, end = piece.size();
      for (int64_t i = 0; i < first && HasAt(piece, begin); ++i) begin += content_.size();
      for (int64_t i = 0;
           i < last_ && end >= begin + content_.size() && HasAt(piece, end - content_.size());
           ++i) {
        end -= content_.size();
      }
      piece = piece.substr(begin, end - begin);
    }
    return absl::OkStatus();
  }
  // A fused text streams only if its beginning can be stripped byte by byte and its end not at all:
  // content of several bytes may arrive in parts, and the end is known only with the last piece.
  bool Streams(bool fused) const override { return !fused || (content_.size() == 1 && last_ == 0); }

 private:
  bool HasAt(const std::string& piece, size_t at) const {
    return piece.compare(at, content_.size(), content_) == 0;
  }
  std::string content_;
  int64_t first_, last_;
  bool fused_;
};

class ReplaceDecoder : public Decoder {
 public:
  explicit ReplaceDecoder(std::unique_ptr<Normalizer> replace) : replace_(std::move(replace)) {}
  absl::Status Apply(bool, WorkBudget* budget, Pieces* pieces) const override {
    for (std::string& piece : *pieces) {
      if (replace_->Keeps(piece)) continue;
      std::string replaced;
      PLUMB_RETURN_IF_ERROR(replace_->Append(piece, /*begins=*/true, budget, &replaced));
      piece.swap(replaced);
    }
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override { return !fused; }

 private:
  std::unique_ptr<Normalizer> replace_;
};

class MetaspaceDecoder : public Decoder {
 public:
  MetaspaceDecoder(std::string mark, bool prefixes) : mark_(std::move(mark)), prefixes_(prefixes) {}
  absl::Status Apply(bool continues, WorkBudget*, Pieces* pieces) const override {
    for (size_t i = 0; i < pieces->size(); ++i) {
      std::string& piece = (*pieces)[i];
      if (i == 0 && prefixes_ && !continues && absl::StartsWith(piece, mark_)) {
        piece.erase(0, mark_.size());
      }
      piece = absl::StrReplaceAll(piece, {{mark_, " "}});
    }
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override { return !fused; }

 private:
  std::string mark_;
  bool prefixes_;
};

class WordPieceDecoder : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}
  absl::Status Apply(bool continues, WorkBudget*, Pieces* pieces) const override {
    for (size_t i = 0; i < pieces->size(); ++i) {
      std::string& piece = (*pieces)[i];
      if (i > 0 || continues) {
        if (absl::StartsWith(piece, prefix_)) {
          piece.erase(0, prefix_.size());
        } else {
          piece.insert(0, " ");
        }
      }
      if (!cleans_) continue;
      for (const auto& [from, to] : kCleaned) piece = absl::StrReplaceAll(piece, {{from, to}});
    }
    return absl::OkStatus();
  }
  bool Streams(bool fused) const override { return !fused; }

 private:
  // Rules for English contractions and punctuation, applied one after another.
  static constexpr std::pair<absl::string_view, absl::string_view> kCleaned[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  std::string prefix_;
  bool cleans_;
};

// Reads the object at `place`. `fused` is true if an earlier step joins all pieces.
MadeDecoder ReadStep(const Json* json, const std::string& place, bool fused);

MadeDecoder ReadDecoders(JsonFields* fields, bool fused) {
  PLUMB_ASSIGN_OR_RETURN(const Json* list, fields->NeededArray("decoders"));
  PLUMB_RETURN_IF_ERROR(CheckPartCount(list->size(), fields->GetPlace("decoders")));
  auto sequence = std::make_unique<SequenceDecoder>();
  for (size_t i = 0; i < list->size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        auto step,
        ReadStep(&(*list)[i], absl::StrCat(fields->GetPlace("decoders"), "[", i, "]"), fused));
    fused = fused || step->Fuses();
    sequence->steps.push_back(std::move(step));
  }
  return std::unique_ptr<const Decoder>(std::move(sequence));
}

MadeDecoder ReadMetaspaceDecoder(JsonFields* fields) {
  PLUMB_ASSIGN_OR_RETURN(std::string mark, fields->String("replacement", "\u2581"));
  PLUMB_ASSIGN_OR_RETURN(const bool prefix, fields->Bool("add_prefix_space", true));
  PLUMB_ASSIGN_OR_RETURN(const std::string scheme,
                         fields->String("prepend_scheme", prefix ? "always" : "never"));
  for (const char* name : {"split", "str_rep"}) fields->Ignore(name);
  if (!IsOneCharacter(mark)) return fields->Error("replacement is not one character");
  return std::make_unique<MetaspaceDecoder>(std::move(mark), scheme != "never");
}

MadeDecoder ReadDecoder(const Json& json, const std::string& type, bool fused, JsonFields* fields) {
  if (type == "Sequence") return ReadDecoders(fields, fused);
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Metaspace") return ReadMetaspaceDecoder(fields);
  if (type == "ByteLevel") {
    for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) fields->Ignore(name);
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type == "Strip") {
    PLUMB_ASSIGN_OR_RETURN(std::string content, fields->NeededString("content"));
    PLUMB_ASSIGN_OR_RETURN(const int64_t first, fields->Int("start", 0));
    PLUMB_ASSIGN_OR_RETURN(const int64_t last, fields->Int("stop", 0));
    if (!IsOneCharacter(content)) return fields->Error("content is not one character");
    return std::make_unique<StripDecoder>(std::move(content), first, last, fused);
  }
  if (type == "Replace") {
    for (const char* name : {"pattern", "content"}) fields->Ignore(name);
    PLUMB_ASSIGN_OR_RETURN(auto replace, Normalizer::Read(&json, fields->place()));
    return std::make_unique<ReplaceDecoder>(std::move(replace));
  }
  if (type == "WordPiece") {
    PLUMB_ASSIGN_OR_RETURN(std::string prefix, fields->String("prefix", "##"));
    PLUMB_ASSIGN_OR_RETURN(const bool cleans, fields->Bool("cleanup", true));
    return std::make_unique<WordPieceDecoder>(std::move(prefix), cleans);
  }
  return UnsupportedType(*fields, type,
                         {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace",
                          "Metaspace", "WordPiece"});
}

MadeDecoder ReadStep(const Json* json, const std::string& place, bool fused) {
  if (json == nullptr || json->is_null()) return std::make_unique<SpacesDecoder>();
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(*json, place));
  PLUMB_ASSIGN_OR_RETURN(const std::string type, fields.NeededString("type"));
  PLUMB_ASSIGN_OR_RETURN(auto decoder, ReadDecoder(*json, type, fused, &fields));
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  return decoder;
}

}  // namespace

MadeDecoder Decoder::Read(const Json* json, const std::string& place) {
  return ReadStep(json, place, /*fused=*/false);
}

}  // namespace plumb
