// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/attrs.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"

namespace plumb {
namespace {

// Returns the shortest decimal that reads back as the same double, in any locale.
std::string ShortestDecimal(double number) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), number);
  return std::string(text, end.ptr);
}

struct AttrPrinter {
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(int64_t i) const { return absl::StrCat(i); }
  std::string operator()(double d) const { return ShortestDecimal(d); }
  std::string operator()(const std::string& s) const {
    return absl::StrCat("\"", absl::CEscape(s), "\"");
  }
  std::string operator()(const std::vector<double>& numbers) const {
    const auto append = [](std::string* out, double d) { out->append(ShortestDecimal(d)); };
    return absl::StrCat("[", absl::StrJoin(numbers, ", ", append), "]");
  }
  std::string operator()(const std::shared_ptr<const AttrObject>& object) const {
    return object == nullptr ? "null" : object->ToString();
  }
};

struct NameIsLess {
  template <class Item>
  bool operator()(const Item& item, absl::string_view name) const {
    return item.first < name;
  }
};

template <class Items>
void SetItem(absl::string_view name, Attr value, Items* items) {
  const auto at = std::lower_bound(items->begin(), items->end(), name, NameIsLess());
  if (at != items->end() && at->first == name) {
    at->second = std::move(value);
  } else {
    items->emplace(at, std::string(name), std::move(value));
  }
}

}  // namespace

Attrs::Attrs(std::initializer_list<std::pair<const char*, Attr>> items) {
  if (items.size() == 0) return;
  auto set = std::make_shared<Items>();
  for (const auto& [name, value] : items) SetItem(name, value, set.get());
  items_ = std::move(set);
}

void Attrs::Set(absl::string_view name, Attr value) {
  auto set = items_ == nullptr ? std::make_shared<Items>() : std::make_shared<Items>(*items_);
  SetItem(name, std::move(value), set.get());
  items_ = std::move(set);
}

bool Attrs::GetBool(absl::string_view name, bool fallback) const {
  const Attr* attr = Find(name);
  if (attr == nullptr) return fallback;
  PLUMB_CHECK(std::holds_alternative<bool>(*attr), "the attribute is not a bool");
  return std::get<bool>(*attr);
}

int64_t Attrs::GetInt(absl::string_view name) const {
  const Attr& attr = Require(name);
  PLUMB_CHECK(std::holds_alternative<int64_t>(attr), "the attribute is not an integer");
  return std::get<int64_t>(attr);
}

double Attrs::GetDouble(absl::string_view name) const {
  const Attr& attr = Require(name);
  if (std::holds_alternative<int64_t>(attr)) return static_cast<double>(std::get<int64_t>(attr));
  PLUMB_CHECK(std::holds_alternative<double>(attr), "the attribute is not a number");
  return std::get<double>(attr);
}

double Attrs::GetDouble(absl::string_view name, double fallback) const {
  return Has(name) ? GetDouble(name) : fallback;
}

const std::string& Attrs::GetString(absl::string_view name) const {
  const Attr& attr = Require(name);
  PLUMB_CHECK(std::holds_alternative<std::string>(attr), "the attribute is not a string");
  return std::get<std::string>(attr);
}

const std::vector<double>& Attrs::GetDoubles(absl::string_view name) const {
  const Attr& attr = Require(name);
  PLUMB_CHECK(std::holds_alternative<std::vector<double>>(attr),
              "the attribute is not a list of numbers");
  return std::get<std::vector<double>>(attr);
}

const std::shared_ptr<const AttrObject>& Attrs::GetObject(absl::string_view name) const {
  const Attr& attr = Require(name);
  PLUMB_CHECK(std::holds_alternative<std::shared_ptr<const AttrObject>>(attr),
              "the attribute is not an object");
  return std::get<std::shared_ptr<const AttrObject>>(attr);
}

std::string Attrs::ToString() const {
  if (items_ == nullptr) return "";
  const auto append = [](std::string* out, const std::pair<std::string, Attr>& item) {
    absl::StrAppend(out, item.first, "=", std::visit(AttrPrinter(), item.second));
  };
  return absl::StrCat("{", absl::StrJoin(*items_, ", ", append), "}");
}

const Attr* Attrs::Find(absl::string_view name) const {
  if (items_ == nullptr) return nullptr;
  const auto at = std::lower_bound(items_->begin(), items_->end(), name, NameIsLess());
  return at != items_->end() && at->first == name ? &at->second : nullptr;
}

const Attr& Attrs::Require(absl::string_view name) const {
  const Attr* attr = Find(name);
  PLUMB_CHECK(attr != nullptr, std::string(name).c_str());
  return *attr;
}

}  // namespace plumb
