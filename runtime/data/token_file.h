// SPDX-License-Identifier: Apache-2.0
// Token files: token ids in binary, 16 or 32 bits each, little-endian, in shards that are read
// piece by piece and may be larger than memory. Three layouts are read and written:
//
//   UINT16, UINT32   ids and nothing else (nanoGPT's train.bin is UINT16)
//   LLMC             llm.c's: 256 words of 32 bits, of which the first three are a magic number,
//                    a version and the number of ids, then the ids: 16 bits each (20240520, 1) or
//                    32 (20240801, 7)
//
// TokenFile is immutable and thread-safe. A file that is cut while it is in use is an error of
// Read.
#ifndef PLUMB_RUNTIME_DATA_TOKEN_FILE_H_
#define PLUMB_RUNTIME_DATA_TOKEN_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/file.h"

namespace plumb {

enum class TokenLayout { kUint16, kUint32, kLlmc };
const char* LayoutName(TokenLayout layout);  // "uint16"
int BytesPerToken(TokenLayout layout, int64_t vocab_size);

class TokenFile {
 public:
  // The layout is LLMC where the file begins so, and else `headerless`. InvalidArgument for a file
  // whose size is no whole number of ids, or that is shorter than its header says.
  static absl::StatusOr<TokenFile> Open(
      const std::string& path, TokenLayout headerless,
      RandomAccessFile::Descriptor descriptor = RandomAccessFile::Descriptor::kKept);
  // The same of content in memory, which outlives this; `path` stands for it in errors.
  static absl::StatusOr<TokenFile> FromContent(absl::string_view content, const std::string& path,
                                               TokenLayout headerless);

  int64_t size() const { return size_; }
  TokenLayout layout() const { return layout_; }
  const RandomAccessFile& file() const { return file_; }
  // Copies tokens [begin, begin + out.size()). Ids beyond 2^31 - 1 come out as -1. Allocates
  // nothing unless it fails. Errors: as RandomAccessFile::Read.
  // Requires: the file had these tokens when it was opened.
  absl::Status Read(int64_t begin, absl::Span<int32_t> out) const;

 private:
  TokenFile(RandomAccessFile file, TokenLayout layout, bool wide, int64_t offset, int64_t size)
      : file_(std::move(file)), layout_(layout), wide_(wide), offset_(offset), size_(size) {}
  static absl::StatusOr<TokenFile> Of(RandomAccessFile file, TokenLayout headerless);
  RandomAccessFile file_;
  TokenLayout layout_;
  bool wide_;       // 32 bits
  int64_t offset_;  // bytes before the first token
  int64_t size_;    // tokens
};

// What a file of `tokens` ids begins with; empty for layouts without a header.
std::string TokenFileHeader(TokenLayout layout, int64_t vocab_size, int64_t tokens);
// InvalidArgument when the layout has no room for such ids.
absl::Status CheckLayout(TokenLayout layout, int64_t vocab_size);
// Appends ids to `bytes` as the layout has them.
void AppendTokenBytes(absl::Span<const int32_t> tokens, TokenLayout layout, int64_t vocab_size,
                      std::string* bytes);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_TOKEN_FILE_H_
