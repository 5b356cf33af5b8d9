// SPDX-License-Identifier: Apache-2.0
// Settings: which values of a model's formulas come to something. Each execution of a statement is
// a setting, which reads others; those that the logits do not depend on are dead. A statement that
// is dead at every layer is a mistake, and so is a dead call of a sublayer, whose weights would not
// be trained; a value that is dead at one layer, such as the last of a chain, is none.
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
  // What the logits and the conditions are computed from; it is live.
  static constexpr int32_t kRoot = 0;

  Settings() : settings_(1) {}

  // A setting, which begins to read. `name` is what it sets: "h[3]"; `description` the scope,
  // `where` the layer, both for errors.
  int32_t Begin(const Statement& statement, std::string name, const std::string& description,
                std::string where);
  // What Reads and CallsSublayer are about; returns the setting before. kRoot at first.
  int32_t Enter(int32_t setting) { return std::exchange(current_, setting); }

  void Reads(int32_t setting) {
    if (setting >= 0) settings_[static_cast<size_t>(current_)].reads.push_back(setting);
  }
  void CallsSublayer() { settings_[static_cast<size_t>(current_)].calls_sublayer = true; }

  // The first mistake. `streams`: names of which "end" should make something; `note` is said of
  // them.
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

  std::vector<Setting> settings_;                         // the root first
  std::map<const Statement*, std::string> descriptions_;  // of the scope where each ran first
  int32_t current_ = kRoot;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SETTINGS_H_
