// SPDX-License-Identifier: Apache-2.0
// Attrs: a node's compile-time arguments, a small ordered map from names to constants. A value;
// copies share their constants.
#ifndef PLUMB_RUNTIME_GRAPH_ATTRS_H_
#define PLUMB_RUNTIME_GRAPH_ATTRS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// A constant of a kind that the graph does not know (a norm plugin's instance). Immutable; shared.
class AttrObject {
 public:
  virtual ~AttrObject() = default;
  // Returns deterministic text without pointers: "rms_norm(eps=1e-05)[16]". Equal text means equal
  // behaviour.
  virtual std::string ToString() const = 0;
};

using Attr = std::variant<bool, int64_t, double, std::string, std::vector<double>,
                          std::shared_ptr<const AttrObject>>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const char*, Attr>> items);

  void Set(absl::string_view name, Attr value);
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }

  // Returns the attribute, or `fallback` if it is absent. GetDouble accepts an integer too.
  // Requires: it exists if there is no `fallback`, and has this type.
  bool GetBool(absl::string_view name, bool fallback) const;
  int64_t GetInt(absl::string_view name) const;
  double GetDouble(absl::string_view name) const;
  double GetDouble(absl::string_view name, double fallback) const;
  const std::string& GetString(absl::string_view name) const;
  const std::vector<double>& GetDoubles(absl::string_view name) const;
  const std::shared_ptr<const AttrObject>& GetObject(absl::string_view name) const;

  std::string ToString() const;  // "{eps=1e-05, transpose_b=true}"; "" when empty
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return a.items_ == b.items_ || a.ToString() == b.ToString();
  }

 private:
  using Items = std::vector<std::pair<std::string, Attr>>;  // sorted by name

  const Attr* Find(absl::string_view name) const;
  const Attr& Require(absl::string_view name) const;
  std::shared_ptr<const Items> items_;  // null if there are none
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_ATTRS_H_
