#include "plugins/check/cases.h"


#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/guarded.h"

namespace plumb::check {
namespace {

constexpr size_t kMostChoices = 12;
constexpr size_t kMostExplored = 150;

// All values of a boolean or enum.
std::vector<plumb_attr_value> Choices(const plumb_attr_def& def) {
  std::vector<plumb_attr_value> values;
  if (def.type == PLUMB_ATTR_BOOL) {
    for (int64_t i : {0, 1}) values.push_back({0, i, nullptr});
  } else if (def.type == PLUMB_ATTR_ENUM && def.choices != nullptr) {
    for (const char* const* c = def.choices; *c != nullptr; ++c) values.push_back({0, 0, *c});
  }
  return values;
}

// Values of a number other than `usual`.
std::vector<double> NumbersOf(const plumb_attr_def& def, double usual) {
  const double low = std::isnan(def.min) ? -HUGE_VAL : def.min;
  const double high = std::isnan(def.max) ? HUGE_VAL : def.max;
  std::set<double> values;
  const auto add = [&](double value) {
    if (value >= low && value <= high && value != usual) values.insert(value);
  };
  add(usual / 2);
  add(usual * 2);
  add(usual + 1);
  if (def.type == PLUMB_ATTR_I64) add(low);  // where 0 means something else
  if (std::isfinite(low) && std::isfinite(high) && high - low <= 10) add((low + high) / 2);
  return std::vector<double>(values.begin(), values.end());
}

std::string TextOf(const plumb_attr_def& def, const plumb_attr_value& value) {
  switch (def.type) {
    case PLUMB_ATTR_F64:
      return absl::StrFormat("%s=%g", def.name, value.f);
    case PLUMB_ATTR_BOOL:
      return absl::StrCat(def.name, value.i != 0 ? "=true" : "=false");
    case PLUMB_ATTR_I64:
      return absl::StrCat(def.name, "=", value.i);
    default:
      return absl::StrCat(def.name, "=", value.s == nullptr ? "" : value.s);
  }
}

// All that is tried of an attribute, without what is usual.
std::vector<plumb_attr_value> OtherValues(const plumb_attr_def& def,
                                          const plumb_attr_value& usual) {
  std::vector<plumb_attr_value> values;
  if (def.type == PLUMB_ATTR_I64) {
    std::set<int64_t> numbers = {2, 3, 4, 5, 8, 16, 32, 64, usual.i + 1, usual.i * 2};
    for (const double bound : {def.min, def.max}) {
      if (std::abs(bound) <= 1e6) numbers.insert(static_cast<int64_t>(bound));
    }
    for (const int64_t number : numbers) {
      const double value = static_cast<double>(number);
      if (number != usual.i && !(value < def.min) && !(value > def.max)) {
        values.push_back({0, number, nullptr});
      }
    }
  } else if (def.type == PLUMB_ATTR_F64) {
    for (const double number : NumbersOf(def, usual.f)) values.push_back({number, 0, nullptr});
    for (const double bound : {def.min, def.max}) {
      if (std::abs(bound) <= 1e6 && bound != usual.f) values.push_back({bound, 0, nullptr});
    }
  } else {
    for (const plumb_attr_value& value : Choices(def)) {
      const bool same = def.type == PLUMB_ATTR_BOOL
                            ? value.i == usual.i
                            : usual.s != nullptr && std::string(value.s) == usual.s;
      if (!same) values.push_back(value);
    }
  }
  return values;
}

bool Same(const plumb_attr_value& a, const plumb_attr_value& b) {
  const std::string s = a.s == nullptr ? "" : a.s, t = b.s == nullptr ? "" : b.s;
  return a.f == b.f && a.i == b.i && s == t;
}

std::string NameOfCase(const plumb_norm_plugin& norm, const std::vector<plumb_attr_value>& values) {
  const std::vector<plumb_attr_value> defaults = DefaultValues(norm);
  std::string name;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    if (Same(values[i], defaults[i])) continue;
    absl::StrAppend(&name, name.empty() ? "" : " ", TextOf(AttrOf(norm, i), values[i]));
  }
  return name;
}

}  // namespace

std::vector<AttributeCase> AttributeCases(const plumb_norm_plugin& norm) {
  const std::vector<plumb_attr_value> defaults = DefaultValues(norm);
  std::vector<std::vector<plumb_attr_value>> all = {defaults};
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const size_t so_far = all.size();
    for (const plumb_attr_value& value : Choices(AttrOf(norm, i))) {
      if (Same(value, defaults[i])) continue;
      for (size_t k = 0; k < so_far && all.size() < kMostChoices; ++k) {
        all.push_back(all[k]);
        all.back()[i] = value;
      }
    }
  }
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    if (def.type != PLUMB_ATTR_F64 && def.type != PLUMB_ATTR_I64) continue;
    const bool whole = def.type == PLUMB_ATTR_I64;
    const double usual = whole ? static_cast<double>(defaults[i].i) : defaults[i].f;
    for (const double number : NumbersOf(def, usual)) {
      if (whole && number != std::floor(number)) continue;
      all.push_back(defaults);
      all.back()[i] = whole ? plumb_attr_value{0, static_cast<int64_t>(number), nullptr}
                            : plumb_attr_value{number, 0, nullptr};
    }
  }
  std::vector<AttributeCase> cases;
  for (std::vector<plumb_attr_value>& values : all) {
    AttributeCase c;
    c.name = NameOfCase(norm, values);
    c.values = std::move(values);
    cases.push_back(std::move(c));
  }
  return cases;
}

namespace {

std::vector<AttributeCase> MakeExploredCases(const plumb_norm_plugin& norm) {
  const std::vector<plumb_attr_value> defaults = DefaultValues(norm);
  std::vector<AttributeCase> cases = AttributeCases(norm);
  std::set<std::string> known;
  for (const AttributeCase& c : cases) known.insert(c.name);
  const auto add = [&](std::vector<plumb_attr_value> values) {
    AttributeCase c;
    c.name = NameOfCase(norm, values);
    c.values = std::move(values);
    if (cases.size() < kMostExplored && known.insert(c.name).second) cases.push_back(std::move(c));
  };
  std::vector<std::vector<plumb_attr_value>> others;  // of each attribute
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    others.push_back(OtherValues(AttrOf(norm, i), defaults[i]));
    for (const plumb_attr_value& value : others.back()) {
      std::vector<plumb_attr_value> values = defaults;
      values[i] = value;
      add(std::move(values));
    }
  }
  std::vector<plumb_attr_value> together = defaults;
  for (size_t i = 0; i < others.size(); ++i) {
    if (!others[i].empty()) together[i] = others[i].front();
  }
  add(std::move(together));
  // Each two attributes, values of the one against those of the other.
  for (size_t i = 0; i < others.size(); ++i) {
    for (size_t j = i + 1; j < others.size(); ++j) {
      const size_t pairs = std::max(others[i].size(), others[j].size());
      for (size_t k = 0; k < pairs && !others[i].empty() && !others[j].empty(); ++k) {
        std::vector<plumb_attr_value> values = defaults;
        values[i] = others[i][k % others[i].size()];
        values[j] = others[j][k % others[j].size()];
        add(std::move(values));
      }
    }
  }
  return cases;
}

}  // namespace

const std::vector<AttributeCase>& ExploredCases(const plumb_norm_plugin& norm) {
  static std::map<const plumb_norm_plugin*, std::vector<AttributeCase>> made;
  const auto it = made.find(&norm);
  if (it != made.end()) return it->second;
  return made.emplace(&norm, MakeExploredCases(norm)).first->second;
}

std::vector<uint32_t> OfferedTypes(const plumb_norm_plugin& norm) {
  std::vector<uint32_t> types;
  for (const uint32_t type : {uint32_t{PLUMB_F32}, uint32_t{PLUMB_BF16}, uint32_t{PLUMB_F64}}) {
    if (norm.dtypes & type) types.push_back(type);
  }
  return types;
}

std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim) {
  return TryInstance(norm, dim, DefaultValues(norm));
}

std::unique_ptr<Instance> TryInstance(const plumb_norm_plugin& norm, uint32_t dim,
                                      const std::vector<plumb_attr_value>& values, uint32_t heads,
                                      std::string* refusal) {
  plumb_host host = TestHost();
  host.heads = heads;
  char err[256] = {};
  plumb_norm_instance* trial = nullptr;
  const plumb_status status = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&host, dim, values.data(), &trial, err, sizeof(err));
  });
  err[sizeof(err) - 1] = '\0';
  if (status == PLUMB_OK) {
    Guarded(Function::kDestroy, dim, [&] { norm.destroy(trial); });
    return std::make_unique<Instance>(norm, dim, values, heads);
  }
  if (status != PLUMB_INVALID_ARGUMENT) {
    throw CheckEnded{absl::StrCat("create(dim=", dim, ") answers ", StatusText(status),
                                  err[0] == '\0' ? "" : ": ", err)};
  }
  if (refusal != nullptr) *refusal = err;
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

bool AllFinite(const std::vector<double>& values, size_t* at) {
  const auto it = std::find_if(values.begin(), values.end(),
                               [](double value) { return !std::isfinite(value); });
  *at = static_cast<size_t>(it - values.begin());
  return it == values.end();
}

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

std::string FirstDeviation(const char* name, const std::vector<double>& got,
                           const std::vector<double>& must, int64_t width, double relative,
                           double absolute) {
  const size_t w = static_cast<size_t>(std::max<int64_t>(width, 1));
  for (size_t start = 0; start < must.size(); start += w) {
    double largest = 0;
    for (size_t i = start; i < start + w; ++i) largest = std::max(largest, std::abs(must[i]));
    const double allowed = relative * largest + absolute;
    for (size_t i = start; i < start + w; ++i) {
      if (std::abs(got[i] - must[i]) <= allowed) continue;
      return absl::StrFormat("%s is %.9g, must be %.9g (+- %.2g)",
                             PlaceInTensor(name, i, must.size(), width), got[i], must[i], allowed);
    }
  }
  return "";
}

}  // namespace plumb::check
