#include "cli/eval_tokens.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

// Takes [[id, ...], ...] from the parser event by event and stops at the first thing that is
// something else, so that no file, however deep or odd, becomes a tree in memory.
class TokenReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<std::vector<int32_t>> tokens;
  std::string mistake;

  bool number_integer(number_integer_t value) override { return Token(absl::StrCat(value), value); }
  bool number_unsigned(number_unsigned_t value) override {
    const auto limit = static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return Token(absl::StrCat(value), value > limit ? -1 : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return Token(text, -1); }
  bool null() override { return Unwanted("null"); }
  bool boolean(bool value) override { return Unwanted(value ? "true" : "false"); }
  bool string(string_t&) override { return Unwanted("a string"); }
  bool binary(binary_t&) override { return Unwanted("binary data"); }
  bool start_object(std::size_t) override { return Unwanted("an object"); }
  bool key(string_t&) override { return Unwanted("a key"); }
  bool end_object() override { return Unwanted("an object"); }
  bool start_array(std::size_t) override {
    if (++depth_ == 2) tokens.emplace_back();
    return depth_ <= 2 || Unwanted("a list");
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    mistake = absl::StrCat("not JSON at byte ", position);
    return false;
  }

 private:
  std::string Place() const {
    if (depth_ == 0) return "the file";
    if (depth_ == 1) return absl::StrCat("tokens[", tokens.size(), "]");
    return absl::StrCat("tokens[", tokens.size() - 1, "][", tokens.back().size(), "]");
  }
  bool Token(const std::string& text, int64_t value) {
    if (depth_ != 2) return Unwanted(text);
    if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
      mistake = absl::StrCat(Place(), ": ", text, " is not a token id");
      return false;
    }
    tokens.back().push_back(static_cast<int32_t>(value));
    return true;
  }
  bool Unwanted(const std::string& what) {
    const int depth = depth_ > 2 ? 2 : depth_;
    const char* wanted = depth == 0   ? "a list of sequences"
                         : depth == 1 ? "a list of token ids"
                                      : "a token id";
    mistake = absl::StrCat(Place(), ": expected ", wanted, ", found ", what);
    return false;
  }

  int depth_ = 0;
};

std::string ShortestNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int32_t>>> ReadTokens(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxResultBytes);
  if (!text.ok()) return text.status();
  TokenReader reader;
  nlohmann::json::sax_parse(*text, &reader);
  if (!reader.mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", reader.mistake));
  }
  return std::move(reader.tokens);
}

absl::Status WriteGradients(const Model::Outputs& outputs, const std::string& path) {
  std::string text = absl::StrCat("{\"loss\": ", ShortestNumber(outputs.loss), ", \"grad_l2\": {");
  const char* separator = "";
  for (const auto& [name, l2] : outputs.grad_l2) {
    absl::StrAppend(
        &text, separator,
        nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), ": ",
        ShortestNumber(l2));
    separator = ", ";
  }
  return WriteFile(path, absl::StrCat(text, "}}\n"));
}

}  // namespace plumb::cli
