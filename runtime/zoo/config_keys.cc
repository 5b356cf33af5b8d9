// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/config_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/zoo/tensor_names.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Returns the fields that a family reads; true: a plain number.
std::map<std::string, bool> GetFields(const Family& family) {
  std::map<std::string, bool> fields;
  for (const ScalarRule& rule : family.scalars) {
    const bool is_number = rule.kind == v1::Scalar::NUMBER && rule.choices.empty();
    for (const std::string& field : rule.fields) fields.emplace(field, is_number);
  }
  for (const StringVariableRule& rule : family.string_variables) {
    for (const std::string& field : rule.fields) fields.emplace(field, false);
  }
  return fields;
}

// Returns the rule that lists a key as irrelevant, or null.
const IrrelevantRule* FindIrrelevant(const Family& family, absl::string_view key) {
  for (const IrrelevantRule& rule : family.irrelevant) {
    for (const std::string& pattern : rule.keys) {
      if (MatchTensorName(pattern, key).has_value()) return &rule;
    }
  }
  return nullptr;
}

class Accountant {
 public:
  Accountant(const Family& family, absl::Span<const Family> known)
      : family_(family), fields_(GetFields(family)) {
    for (const Family& other : known) {
      if (other.name == family.name) continue;
      for (const auto& [field, is_number] : GetFields(other)) {
        readers_[field].push_back(other.name);
        const auto [at, added] = is_number_.emplace(field, is_number);
        if (!added) at->second = at->second && is_number;
      }
    }
  }

  void Add(const std::string& inside, const Json& object) {
    for (const auto& [name, value] : object.items()) {
      const std::string key = inside.empty() ? name : absl::StrCat(inside, ".", name);
      if (value.is_object() && !value.empty() && EntersInto(key)) {
        Add(key, value);
      } else {
        keys_.push_back(MakeUse(inside, key, value));
      }
    }
  }

  std::vector<ConfigKey> Take() { return std::move(keys_); }

 private:
  // Returns true if the family reads a field inside the object.
  bool EntersInto(const std::string& key) const {
    if (FindIrrelevant(family_, key) != nullptr) return false;
    const auto depth = std::count(key.begin(), key.end(), '.') + 1;
    return std::any_of(fields_.begin(), fields_.end(), [&](const auto& field) {
      std::vector<std::string> names = absl::StrSplit(field.first, '.');
      if (static_cast<int64_t>(names.size()) <= depth) return false;
      names.resize(static_cast<size_t>(depth));
      return MatchTensorName(absl::StrJoin(names, "."), key).has_value();
    });
  }

  // Returns true if the key is a field of the family, in which {layer} is any number.
  bool Reads(const std::string& key) const {
    return std::any_of(fields_.begin(), fields_.end(), [&key](const auto& field) {
      return MatchTensorName(field.first, key).has_value();
    });
  }

  ConfigKey MakeUse(const std::string& inside, const std::string& key, const Json& value) const {
    const bool is_filled_object = value.is_object() && !value.empty();
    const bool reads_elements = value.is_array() && EntersInto(key);
    if ((Reads(key) || reads_elements) && !is_filled_object) return {key, KeyUse::kRead, ""};
    if (const IrrelevantRule* rule = FindIrrelevant(family_, key)) {
      return {key, KeyUse::kIrrelevant, rule->reason};
    }
    const auto readers = readers_.find(key);
    const bool is_known = readers != readers_.end() || is_filled_object || !inside.empty();
    if (value.is_null()) return {key, KeyUse::kNeutral, ""};
    if (!is_known) return {key, KeyUse::kUnknown, ""};
    if (IsNeutral(key, value)) return {key, KeyUse::kNeutral, ""};
    if (is_filled_object) {
      return {key, KeyUse::kRefused, "it is an object, and none of its keys is read"};
    }
    if (readers != readers_.end()) {
      return {key, KeyUse::kRefused,
              absl::StrCat(absl::StrJoin(readers->second, ", "),
                           readers->second.size() == 1 ? " reads it" : " read it")};
    }
    return {key, KeyUse::kRefused, absl::StrCat("the rest of ", inside, " is read")};
  }

  bool IsNeutral(const std::string& key, const Json& value) const {
    if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return true;
    if (value.is_array() || value.is_object()) return value.empty();
    const auto at = is_number_.find(key);
    return value.is_number() && value.get<double>() == 1 && at != is_number_.end() && at->second;
  }

  const Family& family_;
  const std::map<std::string, bool> fields_;
  std::map<std::string, std::vector<std::string>> readers_;  // families that read a field
  std::map<std::string, bool> is_number_;                    // fields of other families
  std::vector<ConfigKey> keys_;
};

}  // namespace

std::vector<ConfigKey> AccountForKeys(const Family& family, absl::Span<const Family> known,
                                      const Json& config) {
  Accountant accountant(family, known);
  accountant.Add("", config);
  return accountant.Take();
}

absl::string_view KeyUseName(KeyUse use) {
  constexpr absl::string_view kNames[] = {"read", "irrelevant", "neutral", "refused", "unknown"};
  return kNames[static_cast<size_t>(use)];
}

std::vector<KeyUses> KeyTable(absl::Span<const Family> families) {
  std::set<std::string> read, keys;
  for (const Family& family : families) {
    for (const auto& each : GetFields(family)) read.insert(each.first);
    for (const IrrelevantRule& rule : family.irrelevant) {
      keys.insert(rule.keys.begin(), rule.keys.end());
    }
  }
  keys.insert(read.begin(), read.end());
  std::vector<KeyUses> table;
  for (const std::string& key : keys) {
    KeyUses& uses = table.emplace_back();
    uses.key = key;
    for (const Family& family : families) {
      if (GetFields(family).count(key) > 0) {
        uses.read.push_back(family.name);
      } else if (const IrrelevantRule* rule = FindIrrelevant(family, key)) {
        uses.irrelevant[rule->reason].push_back(family.name);
      } else if (read.count(key) > 0 || absl::StrContains(key, ".")) {
        uses.refused.push_back(family.name);
      }
    }
  }
  return table;
}

}  // namespace plumb
