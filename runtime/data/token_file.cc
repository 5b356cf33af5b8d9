// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/token_file.h"

#include <algorithm>
#include <array>
#include <iterator>
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

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path, TokenLayout headerless,
                                          RandomAccessFile::Descriptor descriptor) {
  PLUMB_ASSIGN_OR_RETURN(RandomAccessFile opened, RandomAccessFile::Open(path, descriptor));
  PLUMB_ASSIGN_OR_RETURN(TokenFile file, Of(std::move(opened), headerless));
  const std::string mask_path = absl::StrCat(path, ".mask");
  if (!FileExists(mask_path)) return file;
  PLUMB_ASSIGN_OR_RETURN(file.mask_, RandomAccessFile::Open(mask_path, descriptor));
  if (file.mask_->size() == file.size()) return file;
  return absl::InvalidArgumentError(absl::StrCat(
      mask_path, ": has ", file.mask_->size(), " bytes, but a mask has one for each of the ",
      file.size(), " tokens in ", path, "; write it with mask.astype(numpy.uint8).tofile(..)"));
}

absl::StatusOr<TokenFile> TokenFile::FromContent(absl::string_view content, const std::string& path,
                                                 TokenLayout headerless) {
  return Of(RandomAccessFile::Borrow(content, path), headerless);
}

absl::StatusOr<TokenFile> TokenFile::Of(RandomAccessFile file, TokenLayout headerless) {
  const std::string& path = file.path();
  const int64_t bytes = file.size();
  int32_t words[3] = {};  // first words of a header
  if (bytes >= kHeaderBytes) {
    PLUMB_RETURN_IF_ERROR(file.Read(0, sizeof(words), reinterpret_cast<char*>(words)));
  }
  const int32_t magic = words[0];
  if (magic == kNarrowMagic || magic == kWideMagic) {
    const bool wide = magic == kWideMagic;
    const int32_t version = words[1], tokens = words[2];
    if (version != (wide ? kWideVersion : kNarrowVersion)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is llm.c's version ", version,
                                                     " of token files; plumb reads ",
                                                     wide ? kWideVersion : kNarrowVersion));
    }
    if (tokens < 0 || tokens > (bytes - kHeaderBytes) / (wide ? 4 : 2)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": its header records ", tokens,
                                                     " tokens, and it has room for ",
                                                     (bytes - kHeaderBytes) / (wide ? 4 : 2)));
    }
    return TokenFile(std::move(file), TokenLayout::kLlmc, wide, kHeaderBytes, tokens);
  }
  const bool wide = headerless == TokenLayout::kUint32;
  if (bytes % (wide ? 4 : 2) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its ", bytes, " bytes are not a whole number of ", wide ? 32 : 16,
                     "-bit tokens; is it of another layout, or truncated?"));
  }
  return TokenFile(std::move(file), headerless, wide, 0, bytes / (wide ? 4 : 2));
}

absl::Status TokenFile::Read(int64_t begin, absl::Span<int32_t> out) const {
  PLUMB_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size_,
              "the file has these tokens");
  const int64_t n = static_cast<int64_t>(out.size());
  if (wide_) {
    PLUMB_RETURN_IF_ERROR(
        file_.Read(offset_ + 4 * begin, 4 * n, reinterpret_cast<char*>(out.data())));
    for (int32_t& token : out) token = std::max(token, -1);
    return absl::OkStatus();
  }
  uint16_t narrow[4096];
  for (int64_t done = 0; done < n;) {
    const int64_t count = std::min<int64_t>(n - done, std::size(narrow));
    PLUMB_RETURN_IF_ERROR(
        file_.Read(offset_ + 2 * (begin + done), 2 * count, reinterpret_cast<char*>(narrow)));
    std::copy_n(narrow, count, out.begin() + done);
    done += count;
  }
  return absl::OkStatus();
}

absl::Status TokenFile::ReadTargets(int64_t begin, absl::Span<int32_t> out) const {
  PLUMB_RETURN_IF_ERROR(Read(begin, out));
  char bytes[4096];
  while (mask_.has_value() && !out.empty()) {
    const absl::Span<int32_t> part = out.first(std::min(out.size(), std::size(bytes)));
    const auto count = static_cast<int64_t>(part.size());
    PLUMB_RETURN_IF_ERROR(mask_->Read(begin, count, bytes));
    for (size_t i = 0; i < part.size(); ++i) part[i] = bytes[i] == 0 ? -1 : part[i];
    out.remove_prefix(part.size());
    begin += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TokenFile::CountTargets(int64_t begin, int64_t end) const {
  if (!mask_.has_value()) return end - begin;
  int64_t targets = 0;
  std::string bytes(size_t{1} << 16, '\0');
  while (begin < end) {
    const int64_t count = std::min<int64_t>(end - begin, static_cast<int64_t>(bytes.size()));
    PLUMB_RETURN_IF_ERROR(mask_->Read(begin, count, &bytes[0]));
    const auto last = bytes.begin() + count;
    const auto wrong = std::find_if(bytes.begin(), last, [](char c) { return c != 0 && c != 1; });
    if (wrong != last) {
      return absl::InvalidArgumentError(absl::StrCat(
          mask_->path(), ": byte ", begin + (wrong - bytes.begin()), " is ",
          static_cast<int>(static_cast<unsigned char>(*wrong)), "; a mask has 0 and 1 only"));
    }
    targets += std::count(bytes.begin(), last, 1);
    begin += count;
  }
  return targets;
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
