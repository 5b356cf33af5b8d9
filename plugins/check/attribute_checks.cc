// M2 and M3: the attribute schema, and create() with values inside and outside of it.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/calls.h"
#include "plugins/check/guarded.h"
#include "plugins/check/checks.h"

namespace plumb::check {
namespace {

constexpr size_t kMaxChoices = 64;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr uint32_t kAttributeDims[] = {64, 768, 4096, 1, 2, 3, 7, 8, 16, 100, 1000};

using AttrValues = std::vector<plumb_attr_value>;

// A value of one attribute, and how messages call it.
struct Tried {
  plumb_attr_value value;
  std::string name;  // "eps = 0.001 (its default)"
};

Tried Number(const plumb_attr_def& def, double number, const char* what) {
  plumb_attr_value value{};
  (def.type == PLUMB_ATTR_F64 ? void(value.f = number)
                              : void(value.i = static_cast<int64_t>(number)));
  return {value, absl::StrFormat("%s = %.17g (%s)", def.name, number, what)};
}

Tried Integer(const plumb_attr_def& def, int64_t number, const char* what) {
  plumb_attr_value value{};
  value.i = number;
  return {value, absl::StrFormat("%s = %d (%s)", def.name, number, what)};
}

Tried Word(const plumb_attr_def& def, const char* word, const char* what) {
  plumb_attr_value value{};
  value.s = word;
  return {value, absl::StrFormat("%s = \"%s\" (%s)", def.name, word, what)};
}

// What one call of create() did.
struct Created {
  plumb_status status = PLUMB_OK;
  std::string text;          // of err
  bool touched = false;      // *out, although it failed
  bool overran = false;      // err, beyond its capacity
  bool no_instance = false;  // OK, but *out was not set
};

// Calls create() with `capacity` bytes for its words (0: none, and NULL), and ends what it made.
Created Create(const plumb_norm_plugin& norm, uint32_t dim, const AttrValues& values,
               size_t capacity) {
  constexpr size_t kCapacity = 512;
  constexpr char kCanary = 0x5a;
  char err[kCapacity + 64];
  std::memset(err, kCanary, sizeof(err));
  err[0] = '\0';
  // An address that no plugin gives.
  auto* const untouched = reinterpret_cast<plumb_norm_instance*>(&err);
  plumb_norm_instance* out = untouched;
  Created created;
  created.status = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&TestHost(), dim, values.data(), &out, capacity == 0 ? nullptr : err,
                       capacity);
  });
  created.touched = created.status != PLUMB_OK && out != untouched;
  created.no_instance = created.status == PLUMB_OK && (out == untouched || out == nullptr);
  for (size_t i = std::max<size_t>(capacity, 1); i < sizeof(err); ++i) {
    created.overran = created.overran || err[i] != kCanary;
  }
  created.text = std::string(err, strnlen(err, sizeof(err)));
  if (created.status == PLUMB_OK && !created.no_instance) {
    Guarded(Function::kDestroy, dim, [&] { norm.destroy(out); });
  }
  return created;
}

constexpr size_t kCapacity = 512;

// -- M2 -----------------------------------------------------------------------------------------

void CheckText(const char* text, const std::string& what, Report* report) {
  if (text == nullptr || text[0] == '\0') report->Fail(what + " is missing");
}

void CheckNumbers(const plumb_attr_def& def, const std::string& who, Report* report) {
  const bool is_integer = def.type == PLUMB_ATTR_I64;
  if (def.min > def.max) {
    return report->Fail(absl::StrFormat("%s: its range [%g, %g] is empty", who, def.min, def.max));
  }
  if ((def.flags & PLUMB_ATTR_REQUIRED) != 0) return;
  const double value = is_integer ? static_cast<double>(def.def.i) : def.def.f;
  if (!std::isfinite(value)) report->Fail(absl::StrFormat("%s: its default is %g", who, value));
  if (value < def.min || value > def.max) {
    report->Fail(absl::StrFormat("%s: its default %g is outside its range [%g, %g]", who, value,
                                 def.min, def.max));
  }
}

void CheckChoices(const plumb_attr_def& def, const std::string& who, Report* report) {
  if (def.choices == nullptr || def.choices[0] == nullptr)
    return report->Fail(who + ": has no choices");
  std::set<std::string> choices;
  for (size_t i = 0; def.choices[i] != nullptr; ++i) {
    if (i == kMaxChoices) return report->Fail(who + ": has more than 64 choices");
    if (!choices.insert(def.choices[i]).second) {
      report->Fail(absl::StrCat(who, ": the choice \"", def.choices[i], "\" is there twice"));
    }
  }
  if ((def.flags & PLUMB_ATTR_REQUIRED) != 0) return;
  if (def.def.s == nullptr || choices.count(def.def.s) == 0) {
    report->Fail(absl::StrCat(who, ": its default \"", def.def.s == nullptr ? "NULL" : def.def.s,
                              "\" is none of its choices"));
  }
}

void CheckDefinition(const plumb_attr_def& def, const std::string& who, Report* report) {
  CheckText(def.doc, who + ": its doc", report);
  if ((def.flags & ~static_cast<uint32_t>(PLUMB_ATTR_REQUIRED)) != 0) {
    report->Fail(absl::StrFormat("%s: sets unknown flags %#x", who, def.flags));
  }
  switch (def.type) {
    case PLUMB_ATTR_F64:
    case PLUMB_ATTR_I64:
      return CheckNumbers(def, who, report);
    case PLUMB_ATTR_BOOL:
      if (def.def.i != 0 && def.def.i != 1) {
        report->Fail(absl::StrFormat("%s: its default is %d, not 0 or 1", who, def.def.i));
      }
      return;
    case PLUMB_ATTR_ENUM:
      return CheckChoices(def, who, report);
    case PLUMB_ATTR_STRING:
      if (def.def.s == nullptr && (def.flags & PLUMB_ATTR_REQUIRED) == 0) {
        report->Fail(who + ": its default is NULL");
      }
      return;
    default:
      report->Fail(absl::StrFormat("%s: has the unknown type %d", who, def.type));
  }
}

// What the schema allows at its edges.
std::vector<Tried> EdgeValues(const plumb_attr_def& def) {
  std::vector<Tried> tried;
  switch (def.type) {
    case PLUMB_ATTR_F64:
    case PLUMB_ATTR_I64:
      if (std::isfinite(def.min)) tried.push_back(Number(def, def.min, "its min"));
      if (std::isfinite(def.max)) tried.push_back(Number(def, def.max, "its max"));
      break;
    case PLUMB_ATTR_BOOL:
      tried.push_back(Integer(def, 0, "false"));
      tried.push_back(Integer(def, 1, "true"));
      break;
    case PLUMB_ATTR_ENUM:
      for (size_t i = 0; def.choices[i] != nullptr; ++i) {
        tried.push_back(Word(def, def.choices[i], "a choice"));
      }
      break;
    default:
      break;
  }
  return tried;
}

// create() must take the values for some dim, and refuse others with words if at all.
void CheckTaken(const plumb_norm_plugin& norm, const AttrValues& values, const std::string& what,
                Report* report) {
  std::string refusal;
  bool taken = false;
  for (const uint32_t dim : kAttributeDims) {
    const Created created = Create(norm, dim, values, kCapacity);
    const std::string where = absl::StrFormat("create(dim=%d) with %s", dim, what);
    if (created.overran) report->Fail(where + " writes behind the end of err");
    if (created.no_instance) report->Fail(where + " answers OK without an instance");
    if (created.status == PLUMB_OK) {
      taken = true;
      continue;
    }
    const std::string answer = absl::StrCat(where, " answers ", StatusText(created.status),
                                            created.text.empty() ? "" : ": ", created.text);
    if (created.status != PLUMB_INVALID_ARGUMENT) report->Fail(answer);
    if (created.touched) report->Fail(answer + ", and *out is touched");
    if (created.text.empty()) report->Fail(answer + ", without words");
    if (refusal.empty()) refusal = answer;
  }
  if (!taken) {
    report->Fail(absl::StrCat("refused for every dim, although the schema allows it: ", refusal));
  }
}

// -- M3 -----------------------------------------------------------------------------------------

// What the schema forbids: a host never passes it.
std::vector<Tried> BadValues(const plumb_attr_def& def) {
  std::vector<Tried> bad;
  const auto number = [&](double value, const char* what) {
    bad.push_back(Number(def, value, what));
  };
  switch (def.type) {
    case PLUMB_ATTR_F64:
      number(std::nan(""), "not a number");
      number(kInf, "infinite");
      number(-kInf, "infinite");
      if (std::isfinite(def.min)) {
        number(std::nextafter(def.min, -kInf), "just below its min");
        number(def.min - std::fabs(def.min) - 1, "below its min");
      }
      if (std::isfinite(def.max)) {
        number(std::nextafter(def.max, kInf), "just above its max");
        number(def.max + std::fabs(def.max) + 1, "above its max");
      }
      break;
    case PLUMB_ATTR_I64:
      if (std::isfinite(def.min) && def.min > -9e15) {
        bad.push_back(Integer(def, static_cast<int64_t>(std::ceil(def.min)) - 1, "below its min"));
        bad.push_back(Integer(def, std::numeric_limits<int64_t>::min(), "below its min"));
      }
      if (std::isfinite(def.max) && def.max < 9e15) {
        bad.push_back(Integer(def, static_cast<int64_t>(std::floor(def.max)) + 1, "above its max"));
        bad.push_back(Integer(def, std::numeric_limits<int64_t>::max(), "above its max"));
      }
      break;
    case PLUMB_ATTR_ENUM:
      bad.push_back(Word(def, "", "none of its choices"));
      bad.push_back(Word(def, "no_such_choice", "none of its choices"));
      break;
    default:
      break;
  }
  return bad;
}

void CheckRefused(const plumb_norm_plugin& norm, const AttrValues& values, const std::string& what,
                  Report* report) {
  constexpr uint32_t kDim = 64;
  for (const size_t capacity : {kCapacity, size_t{8}, size_t{1}, size_t{0}}) {
    const Created created = Create(norm, kDim, values, capacity);
    const std::string where = absl::StrFormat("create(dim=%d) with %s", kDim, what);
    if (created.status != PLUMB_INVALID_ARGUMENT) {
      return report->Fail(absl::StrCat(where, " answers ", StatusText(created.status),
                                       ", must answer INVALID_ARGUMENT"));
    }
    if (created.touched) report->Fail(where + " fails and touches *out");
    if (created.overran) {
      report->Fail(absl::StrFormat("%s writes behind the end of err (%d bytes)", where, capacity));
    }
    if (capacity > 8 && created.text.empty()) report->Fail(where + " is refused without words");
  }
}

}  // namespace

void CheckSchema(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  std::set<std::string> names;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    if (!IsName(def.name)) {
      report->Fail(
          absl::StrFormat("the name of attribute %d is not of the form [a-z][a-z0-9_]*, at "
                          "most 63 characters",
                          i));
      continue;
    }
    const std::string who = absl::StrCat("attribute ", def.name);
    if (!names.insert(def.name).second) report->Fail(who + ": is there twice");
    CheckDefinition(def, who, report);
  }
  if (report->failed()) return;  // values from a broken schema prove nothing
  CheckTaken(norm, DefaultValues(norm), "the defaults", report);
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    for (const Tried& tried : EdgeValues(AttrOf(norm, i))) {
      AttrValues values = DefaultValues(norm);
      values[i] = tried.value;
      CheckTaken(norm, values, tried.name, report);
    }
  }
}

void CheckBadAttributes(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    if (!IsName(def.name)) continue;  // M2
    for (const Tried& tried : BadValues(def)) {
      AttrValues values = DefaultValues(norm);
      values[i] = tried.value;
      CheckRefused(norm, values, tried.name, report);
    }
  }
}

}  // namespace plumb::check
