#include "runtime/tokenizer/tokenizer_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

absl::StatusOr<Tokenizer> FromText(absl::string_view json, const std::string& path) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), absl::StrCat(path, ": "));
  return tokenizer;
}

absl::StatusOr<Tokenizer> FromVocabAndMerges(const std::string& vocab_path,
                                             const std::string& merges_path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string vocab, ReadFile(vocab_path));
  PLUMB_ASSIGN_OR_RETURN(const std::string merges, ReadFile(merges_path));
  const absl::StatusOr<std::string> json = SubwordTokenizer::JsonOfVocabAndMerges(vocab, merges);
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(DirectoryOf(vocab_path), ": "));
  return FromText(*json, DirectoryOf(vocab_path));
}

absl::StatusOr<Tokenizer> ReadWithoutConfigs(const std::string& path) {
  std::string file = path;
  if (IsDirectory(path)) {
    file = JoinPath(path, "tokenizer.json");
    const std::string vocab = JoinPath(path, "vocab.json"), merges = JoinPath(path, "merges.txt");
    if (!FileExists(file)) {
      if (FileExists(vocab) && FileExists(merges)) return FromVocabAndMerges(vocab, merges);
      return absl::NotFoundError(absl::StrCat(
          path, ": holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"));
    }
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string json, ReadFile(file));
  return FromText(json, file);
}

}  // namespace

absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(Tokenizer tokenizer, ReadWithoutConfigs(path));
  if (!IsDirectory(path)) return tokenizer;
  PLUMB_ASSIGN_OR_RETURN(SpecialTokens special,
                         ReadSpecialTokens(path, nullptr, &tokenizer, tokenizer.vocab_size()));
  tokenizer.set_special_tokens(std::move(special));
  return tokenizer;
}

}  // namespace plumb
