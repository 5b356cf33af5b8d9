// SPDX-License-Identifier: Apache-2.0
// Accounts for every key of a config.json: a family reads it, or says why it is irrelevant; what is
// left may change what the model computes. Pure functions.
#ifndef PLUMB_RUNTIME_ZOO_CONFIG_KEYS_H_
#define PLUMB_RUNTIME_ZOO_CONFIG_KEYS_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/zoo/family.h"

namespace plumb {

enum class KeyUse {
  kRead,        // a field of the family's
  kIrrelevant,  // listed with a reason
  kNeutral,     // not read, with a value that has no effect: null, false, empty, a multiplier of 1
  kRefused,     // not read, and another family reads it, or it stands in an object
  kUnknown,     // not read by any family
};

struct ConfigKey {
  std::string key;  // dots lead into objects
  KeyUse use = KeyUse::kUnknown;
  std::string reason;  // of kIrrelevant and kRefused
};

// Returns all keys of `config`, which is an object, in its order. Objects are entered where the
// family reads something in them, and else are one key. `known`: all families that there are.
std::vector<ConfigKey> AccountForKeys(const Family& family, absl::Span<const Family> known,
                                      const nlohmann::json& config);

// "read", "irrelevant", "neutral", "refused", "unknown".
absl::string_view KeyUseName(KeyUse use);

// A key that some family reads or lists, and what becomes of it in each family, unless its value is
// neutral.
struct KeyRow {
  std::string key;                             // * is any text
  std::map<std::string, KeyUse> uses;          // by family: kRead, kIrrelevant, kRefused, kUnknown
  std::map<std::string, std::string> reasons;  // by family: of kIrrelevant
};

// Returns the keys that any of the families reads or lists, sorted.
std::vector<KeyRow> KeyTable(absl::Span<const Family> families);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_CONFIG_KEYS_H_
