// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace plumb::check {
namespace {

constexpr size_t kMaxChoices = 12, kMaxCases = 150;

std::string TextOf(const plumb_attr_def& def, const plumb_attr_value& value) {
  switch (def.type) {
    case PLUMB_ATTR_F64:
      return absl::StrFormat("%s=%g", def.name, value.f);
    case PLUMB_ATTR_I64:
    case PLUMB_ATTR_BOOL:
      return absl::StrCat(def.name, "=", value.i);
    default:
      return absl::StrCat(def.name, "=", value.s == nullptr ? "" : value.s);
  }
}

// Returns all values of an attribute that are tried, without its default.
AttributeValues OtherValues(const plumb_attr_def& def, const plumb_attr_value& usual) {
  AttributeValues values;
  std::set<double> numbers;
  const auto add = [&](double number) {
    if (!(number < def.min) && !(number > def.max) && std::abs(number) <= 1e6)
      numbers.insert(number);
  };
  if (def.type == PLUMB_ATTR_F64) {
    for (const double number : {usual.f / 2, usual.f * 2, usual.f + 1, def.min, def.max})
      add(number);
    if (def.max - def.min <= 10) add((def.min + def.max) / 2);
    numbers.erase(usual.f);
    for (const double number : numbers) values.push_back({number, 0, nullptr});
  } else if (def.type == PLUMB_ATTR_I64) {
    const auto i = static_cast<double>(usual.i);
    for (const double number : {2., 3., 4., 5., 8., 16., 32., 64., i + 1, i * 2}) add(number);
    for (const double bound : {def.min, def.max}) add(std::trunc(bound));
    numbers.erase(i);
    for (const double number : numbers) {
      values.push_back({0, static_cast<int64_t>(number), nullptr});
    }
  } else if (def.type == PLUMB_ATTR_BOOL) {
    values.push_back({0, usual.i == 0 ? 1 : 0, nullptr});
  } else if (def.type == PLUMB_ATTR_ENUM) {
    for (const char* const* choice = def.choices; *choice != nullptr; ++choice) {
      if (absl::string_view(usual.s) != *choice) values.push_back({0, 0, *choice});
    }
  }
  return values;
}

struct Cases {
  std::vector<AttributeCase> all;
  size_t singles = 0;
};

class CaseMaker {
 public:
  explicit CaseMaker(const plumb_norm_plugin& norm) : norm_(norm), defaults_(DefaultValues(norm)) {
    Add(defaults_);
    for (uint32_t i = 0; i < norm.n_attrs; ++i) {
      others_.push_back(OtherValues(AttrOf(norm, i), defaults_[i]));
    }
    AddCombinations();
    for (size_t i = 0; i < others_.size(); ++i) {
      for (const plumb_attr_value& value : others_[i]) AddWith({{i, value}});
    }
    cases_.singles = cases_.all.size();
    AttributeValues together = defaults_;
    for (size_t i = 0; i < others_.size(); ++i) {
      if (!others_[i].empty()) together[i] = others_[i].front();
    }
    Add(together);
    for (size_t i = 0; i < others_.size(); ++i) {
      for (size_t j = i + 1; j < others_.size(); ++j) {
        const size_t a = others_[i].size(), b = others_[j].size();
        for (size_t k = 0; a > 0 && b > 0 && k < std::max(a, b); ++k) {
          AddWith({{i, others_[i][k % a]}, {j, others_[j][k % b]}});
        }
      }
    }
  }
  Cases Take() { return std::move(cases_); }

 private:
  // Adds the combinations of booleans and enums.
  void AddCombinations() {
    for (uint32_t i = 0; i < norm_.n_attrs; ++i) {
      const uint32_t type = AttrOf(norm_, i).type;
      if (type != PLUMB_ATTR_BOOL && type != PLUMB_ATTR_ENUM) continue;
      const size_t so_far = cases_.all.size();
      for (const plumb_attr_value& value : others_[i]) {
        for (size_t k = 0; k < so_far && cases_.all.size() < kMaxChoices; ++k) {
          AttributeValues values = cases_.all[k].values;
          values[i] = value;
          Add(values);
        }
      }
    }
  }

  void AddWith(const std::vector<std::pair<size_t, plumb_attr_value>>& changes) {
    AttributeValues values = defaults_;
    for (const auto& [i, value] : changes) values[i] = value;
    Add(values);
  }

  void Add(const AttributeValues& values) {
    std::string name;
    for (uint32_t i = 0; i < norm_.n_attrs; ++i) {
      const std::string text = TextOf(AttrOf(norm_, i), values[i]);
      if (text == TextOf(AttrOf(norm_, i), defaults_[i])) continue;
      absl::StrAppend(&name, name.empty() ? "" : " ", text);
    }
    if (cases_.all.size() < kMaxCases && known_.insert(name).second) {
      cases_.all.push_back({name, values});
    }
  }

  const plumb_norm_plugin& norm_;
  const AttributeValues defaults_;
  std::vector<AttributeValues> others_;  // other values of each attribute
  std::set<std::string> known_;
  Cases cases_;
};

const Cases& MadeCases(const plumb_norm_plugin& norm) {
  static std::map<const plumb_norm_plugin*, Cases> made;
  const auto it = made.find(&norm);
  return it != made.end() ? it->second : made.emplace(&norm, CaseMaker(norm).Take()).first->second;
}

}  // namespace

const std::vector<AttributeCase>& CasesOf(const plumb_norm_plugin& norm) {
  return MadeCases(norm).all;
}
size_t CountOfSingleCases(const plumb_norm_plugin& norm) { return MadeCases(norm).singles; }

std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm) {
  std::vector<uint32_t> types;
  for (const uint32_t type :
       {uint32_t{PLUMB_DTYPE_F32}, uint32_t{PLUMB_DTYPE_BF16}, uint32_t{PLUMB_DTYPE_F64}}) {
    if (norm.dtypes & type) types.push_back(type);
  }
  return types;
}

std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const AttributeValues& values, uint32_t heads,
                                      std::string* refusal, HostVersion version) {
  CreateOptions options;
  options.heads = heads;
  const Created created = TryCreate(norm, dim, values.data(), options);
  if (created.status == PLUMB_OK) {
    return std::make_unique<Instance>(norm, dim, values, heads, version);
  }
  if (created.status != PLUMB_STATUS_INVALID_ARGUMENT) {
    throw CheckEnded{absl::StrCat("create(dim=", dim, ") answers ", StatusText(created.status),
                                  created.text.empty() ? "" : ": ", created.text)};
  }
  if (refusal != nullptr) *refusal = created.text;
  return nullptr;
}

std::unique_ptr<Instance> FirstInstance(const plumb_norm_plugin& norm,
                                        const std::vector<uint32_t>& dims) {
  std::string refusal;
  for (const uint32_t dim : dims) {
    auto instance = TryInstance(norm, dim, DefaultValues(norm), 0, &refusal);
    if (instance != nullptr) return instance;
  }
  throw CheckEnded{"create refused every dim that was tried: " + refusal};
}

}  // namespace plumb::check
