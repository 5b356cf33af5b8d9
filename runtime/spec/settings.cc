// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/settings.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace plumb {

int32_t Settings::Begin(const Statement& statement, std::string name,
                        const std::string& description, std::string where) {
  descriptions_.emplace(&statement, description);
  Setting setting;
  setting.statement = &statement;
  setting.name = std::move(name);
  setting.where = std::move(where);
  settings_.push_back(std::move(setting));
  return static_cast<int32_t>(settings_.size() - 1);
}

std::vector<bool> Settings::Live() const {
  std::vector<bool> live(settings_.size(), false);
  std::vector<int32_t> next = {kRoot};
  live[kRoot] = true;
  while (!next.empty()) {
    const Setting& setting = settings_[static_cast<size_t>(next.back())];
    next.pop_back();
    for (const int32_t read : setting.reads) {
      if (live[static_cast<size_t>(read)]) continue;
      live[static_cast<size_t>(read)] = true;
      next.push_back(read);
    }
  }
  return live;
}

absl::Status Settings::Error(const Setting& setting, const std::string& what) const {
  return ErrorInText(setting.statement->text, 0,
                     absl::StrCat(descriptions_.at(setting.statement), ": ", what));
}

absl::Status Settings::Check(const std::vector<std::string>& streams,
                             const std::string& note) const {
  const std::vector<bool> live = Live();
  std::set<const Statement*> used;
  std::set<std::string> read;
  for (size_t i = 1; i < settings_.size(); ++i) {
    if (!live[i]) continue;
    used.insert(settings_[i].statement);
    read.insert(settings_[i].name);
  }
  const auto place = [](const Setting* setting) {
    const SourceLocation& p = setting->statement->text.place;
    return std::make_tuple(p.file, p.line, p.column);
  };
  const Setting* first = nullptr;
  for (size_t i = 1; i < settings_.size(); ++i) {
    if (used.count(settings_[i].statement) > 0) continue;
    // A stream that a later layer replaces before it reads it, as behind a prelude, has to be
    // declared in "begin". A copy of another stream declares it without cost.
    const Statement& statement = *settings_[i].statement;
    if (statement.section == "begin" && statement.index.empty() &&
        statement.value.kind == Expr::Kind::kName && read.count(settings_[i].name) > 0) {
      continue;
    }
    if (first == nullptr || place(&settings_[i]) < place(first)) first = &settings_[i];
  }
  if (first != nullptr) {
    const bool is_stream = std::find(streams.begin(), streams.end(), first->name) != streams.end();
    if (!is_stream)
      return Error(*first, absl::StrCat("\"", first->name, "\" is set and never read"));
    if (first->statement->section == "begin" && read.count(first->name) > 0) {
      return Error(*first, absl::StrCat("the stream \"", first->name,
                                        "\" is set again before anything reads it; a copy declares "
                                        "it: ",
                                        first->name, " = x"));
    }
    return Error(*first, absl::StrCat("the stream \"", first->name,
                                      "\" is set and never read; \"end\" must use it", note));
  }
  for (size_t i = 1; i < settings_.size(); ++i) {
    if (live[i] || !settings_[i].calls_sublayer) continue;
    return Error(settings_[i],
                 absl::StrCat("nothing reads \"", settings_[i].name, "\"", settings_[i].where,
                              ", though it calls a sublayer, whose weights would be dead"));
  }
  return absl::OkStatus();
}

}  // namespace plumb
