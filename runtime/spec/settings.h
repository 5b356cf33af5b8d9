// SPDX-License-Identifier: Apache-2.0
// Settings: liveness of the values of a model's formulas. Each execution of a statement is a
// setting, which reads other settings; one that does not contribute to the logits is dead. It is an
// error if a statement is dead at every layer, or if a dead setting calls a sublayer, whose weights
// would not be trained. A value may be dead at some layers, such as the last of a chain.
// Thread-compatible. Internal to the walk of spec/interpret.h.
#ifndef PLUMB_RUNTIME_SPEC_SETTINGS_H_
#define PLUMB_RUNTIME_SPEC_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/spec/formula.h"

namespace plumb {

class Settings {
 public:
  // Setting that stands for the logits and the conditions; always live.
  static constexpr int32_t kRoot = 0;

  Settings() : settings_(1) {}

  // Adds a setting. `name` is its target, such as "h[3]"; `description` (the scope) and `where`
  // (the layer) appear in errors.
  int32_t Begin(const Statement& statement, std::string name, const std::string& description,
                std::string where);
  // Makes `setting` the reader that Reads and CallsSublayer refer to. Returns the previous one;
  // kRoot at first.
  int32_t Enter(int32_t setting) { return std::exchange(current_, setting); }

  void Reads(int32_t setting) {
    if (setting >= 0) settings_[static_cast<size_t>(current_)].reads.push_back(setting);
  }
  void CallsSublayer() { settings_[static_cast<size_t>(current_)].calls_sublayer = true; }

  // Returns the first error, or OK. For names in `streams`, which "end" should read, `note` is
  // added to the message.
  absl::Status Check(const std::vector<std::string>& streams, const std::string& note) const;

 private:
  struct Setting {
    const Statement* statement = nullptr;
    std::string name, where;
    std::vector<int32_t> reads;
    bool calls_sublayer = false;
  };
  std::vector<bool> Live() const;
  absl::Status Error(const Setting& setting, const std::string& what) const;

  std::vector<Setting> settings_;                         // the root is first
  std::map<const Statement*, std::string> descriptions_;  // scope where each ran first
  int32_t current_ = kRoot;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SETTINGS_H_
