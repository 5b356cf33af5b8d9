// SPDX-License-Identifier: Apache-2.0
// Token files: token ids in binary, 16 or 32 bits each, little-endian. They are read at random
// offsets and may be larger than memory. Three layouts are read and written:
//
//   UINT16, UINT32   ids and nothing else (nanoGPT's train.bin is UINT16)
//   LLMC             llm.c's: a header of 256 words of 32 bits, of which the first three are a
//                    magic number, a version and the number of ids; then the ids, 16 bits each
//                    (20240520, 1) or 32 bits each (20240801, 7)
//
// A file PATH.mask next to it, if there is one, holds a byte for each token: 1, or 0 if the token
// is no target, so that predicting it does not count for the loss.
//
// TokenFile is immutable and thread-safe. Read fails if the file is truncated while it is in use.
#ifndef PLUMB_RUNTIME_DATA_TOKEN_FILE_H_
#define PLUMB_RUNTIME_DATA_TOKEN_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/base/file.h"

namespace plumb {

enum class TokenLayout { kUint16, kUint32, kLlmc };
const char* LayoutName(TokenLayout layout);  // "uint16", "uint32", "llm.c"

class TokenFile {
 public:
  // Opens a file and its mask. The layout is LLMC if the file begins with such a header, else
  // `headerless`. Errors: kInvalidArgument if the size is no whole number of ids, or less than the
  // header states, or if the mask has not one byte for each token.
  static absl::StatusOr<TokenFile> Open(
      const std::string& path, TokenLayout headerless,
      RandomAccessFile::Descriptor descriptor = RandomAccessFile::Descriptor::kKept);
  // Does the same for content in memory, which must outlive the object; `path` is for errors.
  static absl::StatusOr<TokenFile> FromContent(absl::string_view content, const std::string& path,
                                               TokenLayout headerless);

  int64_t size() const { return size_; }  // number of tokens
  TokenLayout layout() const { return layout_; }
  const RandomAccessFile& file() const { return file_; }
  // Copies tokens [begin, begin + out.size()). Ids above 2^31 - 1 become -1. Allocates nothing
  // unless it fails.
  // Requires: begin + out.size() <= size(). Errors: see RandomAccessFile::Read.
  absl::Status Read(int64_t begin, absl::Span<int32_t> out) const;

  // Mask of the file; null if all tokens are targets.
  const RandomAccessFile* mask() const { return mask_ ? &*mask_ : nullptr; }
  // Does the same as Read, but tokens that are no targets become -1.
  absl::Status ReadTargets(int64_t begin, absl::Span<int32_t> out) const;
  // Returns the number of targets in [begin, end). Errors: kInvalidArgument, with its place, for a
  // byte of the mask that is neither 0 nor 1; those of Read.
  absl::StatusOr<int64_t> CountTargets(int64_t begin, int64_t end) const;

 private:
  TokenFile(RandomAccessFile file, TokenLayout layout, bool wide, int64_t offset, int64_t size)
      : file_(std::move(file)), layout_(layout), wide_(wide), offset_(offset), size_(size) {}
  static absl::StatusOr<TokenFile> Of(RandomAccessFile file, TokenLayout headerless);
  RandomAccessFile file_;
  absl::optional<RandomAccessFile> mask_;
  TokenLayout layout_;
  bool wide_;       // true: 32 bits, false: 16 bits
  int64_t offset_;  // offset of the first token in bytes
  int64_t size_;    // number of tokens
};

// Returns the header of a file of `tokens` ids; empty for layouts without one.
std::string TokenFileHeader(TokenLayout layout, int64_t vocab_size, int64_t tokens);
// Checks that ids below vocab_size fit the layout. Errors: kInvalidArgument.
absl::Status CheckLayout(TokenLayout layout, int64_t vocab_size);
// Appends ids to `bytes` in the given layout.
void AppendTokenBytes(absl::Span<const int32_t> tokens, TokenLayout layout, int64_t vocab_size,
                      std::string* bytes);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_TOKEN_FILE_H_
