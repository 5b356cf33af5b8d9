// SPDX-License-Identifier: Apache-2.0
// Accounts for every key of a config.json: a family reads the key or gives a reason why it is
// irrelevant. Any other key could change what the model computes. Stateless.
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
  kRead,        // the family has a field for it
  kIrrelevant,  // the family lists it with a reason
  kNeutral,     // not read, but its value has no effect: null, false, empty, a multiplier of 1
  kRefused,     // not read, but another family reads it, or it is inside an object
  kUnknown,     // not read by any family
};

struct ConfigKey {
  std::string key;  // dots lead into objects
  KeyUse use = KeyUse::kUnknown;
  std::string reason;  // for kIrrelevant and kRefused
};

// Returns all keys of the object `config`, in its order. An object is expanded if the family reads
// a field inside it; otherwise it counts as one key. `known`: all families.
std::vector<ConfigKey> AccountForKeys(const Family& family, absl::Span<const Family> known,
                                      const nlohmann::json& config);

// Returns "read", "irrelevant", "neutral", "refused" or "unknown".
absl::string_view KeyUseName(KeyUse use);

// Key that some family reads or lists, and its use by family if its value is not neutral: names of
// families, in their order. The other families do not know it.
struct KeyUses {
  std::string key;  // * matches any text
  std::vector<std::string> read, refused;
  std::map<std::string, std::vector<std::string>> irrelevant;  // keyed by reason
};

// Returns the keys that at least one family reads or lists, sorted.
std::vector<KeyUses> KeyTable(absl::Span<const Family> families);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_CONFIG_KEYS_H_
