// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/stop_texts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

namespace plumb {

absl::StatusOr<StopTexts> StopTexts::Create(const std::vector<std::string>& texts) {
  StopTexts made;
  for (const std::string& text : texts) {
    if (text.empty()) return absl::InvalidArgumentError("a stop text is empty");
    PLUMB_RETURN_IF_ERROR(
        Annotate(CheckUtf8(text), absl::StrCat("stop text ", QuoteName(text), ": ")));
    Stop stop;
    stop.text = text;
    stop.border.resize(text.size() + 1);
    for (size_t i = 1; i < text.size(); ++i) {
      size_t length = stop.border[i];
      while (length > 0 && text[length] != text[i]) length = stop.border[length];
      stop.border[i + 1] = text[length] == text[i] ? length + 1 : 0;
    }
    made.stops_.push_back(std::move(stop));
  }
  return made;
}

void StopTexts::Advance(char byte, Stop* stop) {
  size_t& matched = stop->matched;
  while (matched > 0 && stop->text[matched] != byte) matched = stop->border[matched];
  if (stop->text[matched] == byte) ++matched;
}

std::string StopTexts::Add(absl::string_view text) {
  if (stops_.empty()) return std::string(text);
  for (const char byte : text) {
    held_.push_back(byte);
    size_t complete = 0;
    for (Stop& stop : stops_) {
      Advance(byte, &stop);
      if (stop.matched == stop.text.size()) complete = std::max(complete, stop.matched);
    }
    if (complete == 0) continue;
    stopped_ = true;
    held_.resize(held_.size() - complete);
    return Rest();
  }
  size_t back = 0;
  for (const Stop& stop : stops_) back = std::max(back, stop.matched);
  std::string shown = held_.substr(0, held_.size() - back);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopTexts::Rest() { return std::exchange(held_, ""); }

void StopTexts::Restart() {
  for (Stop& stop : stops_) stop.matched = 0;
  held_.clear();
  stopped_ = false;
}

}  // namespace plumb
