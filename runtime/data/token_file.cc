#include "runtime/data/token_file.h"

#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr int64_t kHeaderWords = 256, kHeaderBytes = kHeaderWords * 4;
constexpr int32_t kNarrowMagic = 20240520, kNarrowVersion = 1;
constexpr int32_t kWideMagic = 20240801, kWideVersion = 7;
constexpr int64_t kNarrowTokens = 65536;

bool IsWide(TokenLayout layout, int64_t vocab_size) {
  return layout == TokenLayout::kUint32 ||
         (layout == TokenLayout::kLlmc && vocab_size > kNarrowTokens);
}

int32_t WordAt(absl::string_view content, int64_t word) {
  int32_t value = 0;
  std::memcpy(&value, content.data() + word * 4, sizeof(value));
  return value;
}

}  // namespace

const char* LayoutName(TokenLayout layout) {
  switch (layout) {
    case TokenLayout::kUint16:
      return "uint16";
    case TokenLayout::kUint32:
      return "uint32";
    case TokenLayout::kLlmc:
      break;
  }
  return "llm.c";
}

int BytesPerToken(TokenLayout layout, int64_t vocab_size) {
  return IsWide(layout, vocab_size) ? 4 : 2;
}

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path, TokenLayout headerless) {
  PLUMB_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return Of(std::move(file), path, headerless);
}

absl::StatusOr<TokenFile> TokenFile::FromContent(absl::string_view content, const std::string& path,
                                                 TokenLayout headerless) {
  return Of(MappedFile::Borrow(content), path, headerless);
}

absl::StatusOr<TokenFile> TokenFile::Of(MappedFile file, const std::string& path,
                                        TokenLayout headerless) {
  const absl::string_view content = file.content();
  const int64_t bytes = static_cast<int64_t>(content.size());
  const int32_t magic = bytes >= 4 ? WordAt(content, 0) : 0;
  if (bytes >= kHeaderBytes && (magic == kNarrowMagic || magic == kWideMagic)) {
    const bool wide = magic == kWideMagic;
    const int32_t version = WordAt(content, 1), tokens = WordAt(content, 2);
    if (version != (wide ? kWideVersion : kNarrowVersion)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is llm.c's version ", version,
                                                     " of token files; plumb reads ",
                                                     wide ? kWideVersion : kNarrowVersion));
    }
    if (tokens < 0 || tokens > (bytes - kHeaderBytes) / (wide ? 4 : 2)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": its header says ", tokens,
                                                     " tokens, and it has room for ",
                                                     (bytes - kHeaderBytes) / (wide ? 4 : 2)));
    }
    return TokenFile(std::move(file), TokenLayout::kLlmc, wide, kHeaderBytes, tokens);
  }
  const bool wide = headerless == TokenLayout::kUint32;
  if (bytes % (wide ? 4 : 2) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", bytes, " bytes are no whole number of tokens of ", wide ? 32 : 16, " bits"));
  }
  return TokenFile(std::move(file), headerless, wide, 0, bytes / (wide ? 4 : 2));
}

void TokenFile::Read(int64_t begin, absl::Span<int32_t> out) const {
  PLUMB_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size_,
              "the file has these tokens");
  const char* from = file_.content().data() + offset_ + begin * (wide_ ? 4 : 2);
  for (size_t i = 0; i < out.size(); ++i) {
    if (wide_) {
      std::memcpy(&out[i], from + 4 * i, 4);
      if (out[i] < 0) out[i] = -1;
    } else {
      uint16_t token = 0;
      std::memcpy(&token, from + 2 * i, 2);
      out[i] = token;
    }
  }
}

std::string TokenFileHeader(TokenLayout layout, int64_t vocab_size, int64_t tokens) {
  if (layout != TokenLayout::kLlmc) return "";
  const bool wide = IsWide(layout, vocab_size);
  std::array<int32_t, kHeaderWords> words = {};
  words[0] = wide ? kWideMagic : kNarrowMagic;
  words[1] = wide ? kWideVersion : kNarrowVersion;
  words[2] = static_cast<int32_t>(tokens);
  return std::string(reinterpret_cast<const char*>(words.data()), sizeof(words));
}

absl::Status CheckLayout(TokenLayout layout, int64_t vocab_size) {
  if (layout != TokenLayout::kUint16 || vocab_size <= kNarrowTokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", vocab_size,
                                                 " tokens does not fit into 16 bits; use uint32"));
}

void AppendTokenBytes(absl::Span<const int32_t> tokens, TokenLayout layout, int64_t vocab_size,
                      std::string* bytes) {
  if (IsWide(layout, vocab_size)) {
    bytes->append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4);
    return;
  }
  for (const int32_t token : tokens) {
    const uint16_t narrow = static_cast<uint16_t>(token);
    bytes->append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  }
}

}  // namespace plumb
