// SPDX-License-Identifier: Apache-2.0
// Encodes many texts with one tokenizer, for tests that compare token ids.
//
//   encode_frames TOKENIZER [--post-process] < TEXTS > TOKENS
//
// Standard input is a sequence of texts, each a 32-bit length and that many bytes. Standard output
// has a 32-bit count and that many 32-bit ids for each. If a text is an error, the count is the
// length of the message with the highest bit set, followed by the message.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace {

constexpr uint32_t kError = 0x80000000;

void Write(uint32_t head, const void* data, size_t bytes) {
  std::fwrite(&head, sizeof(head), 1, stdout);
  std::fwrite(data, 1, bytes, stdout);
}

int Run(const std::string& path, bool post_process) {
  const absl::StatusOr<plumb::Tokenizer> tokenizer = plumb::ReadTokenizer(path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  plumb::TokenEncoder encoder(&*tokenizer);
  plumb::SubwordEncoder::Options options;
  options.post_process = post_process;
  const auto no_progress = [](std::vector<int32_t>*, size_t) { return absl::OkStatus(); };
  std::string text;
  std::vector<int32_t> tokens;
  uint32_t size = 0;
  while (std::fread(&size, sizeof(size), 1, stdin) == 1) {
    text.resize(size);
    if (std::fread(&text[0], 1, size, stdin) != size) return 1;
    tokens.clear();
    size_t bad_byte = 0;
    const absl::Status status = encoder.Append(text, options, &tokens, &bad_byte, no_progress);
    if (status.ok()) {
      Write(static_cast<uint32_t>(tokens.size()), tokens.data(), tokens.size() * sizeof(int32_t));
    } else {
      const std::string message(status.message());
      Write(static_cast<uint32_t>(message.size()) | kError, message.data(), message.size());
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return Run(argv[1], argc > 2 && std::strcmp(argv[2], "--post-process") == 0);
}
