// SPDX-License-Identifier: Apache-2.0
// Measures the speed of tokenization, compared with other work on the same bytes in the same run: a
// copy, and counting words like wc.
//
//   tokenizer_benchmark [TEXT [TOKENIZER]]      default: plumb's documentation, BPE trained on it
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/tokenizer/bpe_trainer.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace plumb {
namespace {

constexpr size_t kBytes = size_t{16} << 20;
constexpr int kRounds = 5;
constexpr int64_t kVocabSize = 8192;

// Returns the CPU time of this thread, so that other processes do not count.
double Seconds() {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the rate of the fastest of several rounds, in bytes per second.
template <class Body>
double Rate(size_t bytes, const Body& body) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds();
    body();
    best = std::max(best, static_cast<double>(bytes) / (Seconds() - start));
  }
  return best;
}

size_t CountWords(const std::string& text) {
  size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    words += !space && !inside ? 1 : 0;
    inside = !space;
  }
  return words;
}

absl::StatusOr<std::string> Documentation() {
  const std::string directory = JoinPath(PLUMB_SOURCE_DIR, "docs");
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return names.status();
  std::string text;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(directory, name);
    if (IsDirectory(path)) continue;
    absl::StatusOr<std::string> page = ReadFile(path);
    if (!page.ok()) return page.status();
    text += *page;
  }
  return text;
}

std::string Repeated(const std::string& text) {
  std::string longer;
  while (!text.empty() && longer.size() < kBytes) longer += text;
  return longer;
}

absl::Status Run(int argc, char** argv) {
  absl::StatusOr<std::string> read = argc > 1 ? ReadFile(argv[1]) : Documentation();
  if (!read.ok()) return read.status();
  const std::string text = Repeated(*read);
  const auto quiet = [](int64_t) { return absl::OkStatus(); };
  BpeTrainer::Options options;
  options.vocab_size = kVocabSize;
  absl::StatusOr<std::string> json = absl::UnknownError("");
  const double train = Rate(read->size(), [&] {
    const auto trainer = BpeTrainer::Create(options);
    (void)(*trainer)->Count(*read, quiet);
    json = (*trainer)->Train(quiet);
  });
  if (!json.ok()) return json.status();
  absl::StatusOr<Tokenizer> tokenizer =
      argc > 2 ? ReadTokenizer(argv[2]) : Tokenizer::FromJson(*json);
  if (!tokenizer.ok()) return tokenizer.status();

  std::string copy(text.size(), ' ');
  const double copied =
      Rate(text.size(), [&] { std::memcpy(copy.data(), text.data(), text.size()); });
  size_t words = 0;
  const double counted = Rate(text.size(), [&] { words += CountWords(text); });
  std::vector<int32_t> tokens;
  absl::Status status;
  const double encoded = Rate(text.size(), [&] {
    size_t bad_byte = 0;
    tokens.clear();
    status = TokenEncoder(&*tokenizer).Append(text, &tokens, &bad_byte);
  });
  if (!status.ok()) return status;
  std::printf("%zu bytes, %zu words, %zu tokens (%s)\n", text.size(), words / kRounds,
              tokens.size(), tokenizer->Description().c_str());
  const auto line = [&](const char* name, double rate) {
    std::printf("%-18s %9.1f MB/s   1/%.1f of counting words, 1/%.0f of a copy\n", name, rate / 1e6,
                counted / rate, copied / rate);
  };
  line("copy", copied);
  line("count words", counted);
  line("encode", encoded);
  line("train BPE", train);
  return absl::OkStatus();
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  const absl::Status status = plumb::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
