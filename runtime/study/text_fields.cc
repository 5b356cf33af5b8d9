// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/text_fields.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace plumb {
namespace {

// Returns the scalar fields of protobuf text, as pairs of a path such as "norm[0].name" and an
// unquoted value.
std::vector<std::pair<std::string, std::string>> Flatten(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::vector<std::string> path;  // names of the open messages
  std::map<std::string, int> count;
  const auto join = [&path](const std::string& name) {
    return path.empty() ? name : absl::StrCat(path.back(), ".", name);
  };
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::EndsWith(line, "{")) {
      const std::string name =
          join(std::string(absl::StripAsciiWhitespace(absl::StripSuffix(line, "{"))));
      const int index = count[name]++;
      path.push_back(index == 0 ? name : absl::StrCat(name, "[", index, "]"));
    } else if (line == "}") {
      if (!path.empty()) path.pop_back();
    } else if (const size_t colon = line.find(": "); colon != absl::string_view::npos) {
      absl::string_view value = line.substr(colon + 2);
      if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
      const std::string name = join(std::string(line.substr(0, colon)));
      const int index = count[name]++;
      fields.emplace_back(index == 0 ? name : absl::StrCat(name, "[", index, "]"), value);
    }
  }
  return fields;
}

}  // namespace

std::vector<FieldValues> Differences(const std::vector<std::string>& texts) {
  std::vector<FieldValues> fields;
  std::map<std::string, size_t> index;
  for (size_t model = 0; model < texts.size(); ++model) {
    for (const auto& [field, value] : Flatten(texts[model])) {
      const auto [entry, added] = index.emplace(field, fields.size());
      if (added) fields.emplace_back(field, std::vector<std::string>(texts.size()));
      fields[entry->second].second[model] = value;
    }
  }
  fields.erase(std::remove_if(fields.begin(), fields.end(),
                              [](const auto& field) {
                                const std::vector<std::string>& values = field.second;
                                return std::all_of(values.begin(), values.end(),
                                                   [&](const auto& v) { return v == values[0]; });
                              }),
               fields.end());
  return fields;
}

}  // namespace plumb
