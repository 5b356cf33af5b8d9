// SPDX-License-Identifier: Apache-2.0
// Rules M1, M2 and M4, and the extensions of M5: the declarations of a norm. The host's own readers
// decide what a table, a schema and a layout must satisfy (runtime/plugin/descriptor.h).
#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/calls.h"
#include "plugins/check/cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rules.h"
#include "runtime/base/utf8.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

// -- M1 -------------------------------------------------------------------------------------------

// Returns the ids of the file's notes for this major version, which are the ids that a host finds.
std::set<std::string> IdsOfNotes(const std::string& path) {
  std::set<std::string> ids;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return ids;
  const absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd);
  close(fd);
  if (!notes.ok()) return ids;
  for (const NormNote& note : *notes) {
    if (note.abi_major == PLUMB_NORM_ABI_MAJOR) ids.insert(note.id);
  }
  return ids;
}

void CheckTexts(const plumb_norm_plugin& table, const std::string& who, Report* report) {
  struct Text {
    const char* what;
    const char* text;
    bool wanted;
  };
  for (const Text& each :
       {Text{"id", table.id, true}, Text{"name", table.name, false},
        Text{"version", table.version, true}, Text{"vendor", table.vendor, false},
        Text{"license", table.license, false}, Text{"doc", table.doc, true}}) {
    const std::string what = absl::StrCat(who, ": its ", each.what);
    const absl::StatusOr<std::string> text = ReadText(each.text, what, kMaxNormTextLength);
    if (!text.ok()) {
      report->Fail(std::string(text.status().message()));
    } else if (FindInvalidUtf8(*text)) {
      report->Fail(what + " is not UTF-8");
    } else if (each.wanted && absl::StripAsciiWhitespace(*text).empty()) {
      report->Fail(what + " is missing");
    } else if (each.text == table.id && !IsNormId(*text)) {
      report->Fail(absl::StrCat(what, " \"", *text,
                                "\" is not of the form [a-z][a-z0-9_]*(\\.[a-z0-9_]+)*, at most 63 "
                                "characters"));
    }
  }
}

// -- M2 -------------------------------------------------------------------------------------------

// Value of one attribute, and its name in messages.
struct Tried {
  plumb_attr_value value;
  std::string name;  // "eps = 0.001 (its max)"
};

// Returns values at the bounds of the schema, all of which it allows.
std::vector<Tried> EdgeValues(const plumb_attr_def& def) {
  std::vector<Tried> tried;
  const auto number = [&](double value, const char* what) {
    if (def.type == PLUMB_ATTR_I64 && std::abs(value) > 9e18) return;
    const bool whole = def.type != PLUMB_ATTR_F64;
    tried.push_back({{whole ? 0 : value, whole ? static_cast<int64_t>(value) : 0, nullptr},
                     absl::StrFormat("%s = %.17g (%s)", def.name, value, what)});
  };
  const bool whole = def.type == PLUMB_ATTR_I64;
  if (whole || def.type == PLUMB_ATTR_F64) {
    if (std::isfinite(def.min)) number(whole ? std::ceil(def.min) : def.min, "its min");
    if (std::isfinite(def.max)) number(whole ? std::floor(def.max) : def.max, "its max");
  } else if (def.type == PLUMB_ATTR_BOOL) {
    number(0, "false");
    number(1, "true");
  } else if (def.type == PLUMB_ATTR_ENUM) {
    for (size_t i = 0; def.choices[i] != nullptr; ++i) {
      tried.push_back({{0, 0, def.choices[i]},
                       absl::StrFormat("%s = \"%s\" (a choice)", def.name, def.choices[i])});
    }
  }
  return tried;
}

constexpr uint32_t kTriedDims[] = {64, 768, 4096, 1, 2, 3, 7, 8, 16, 100, 1000};

// Fails unless create() accepts the values for some dim.
void CheckTaken(const plumb_norm_plugin& norm, const AttributeValues& values,
                const std::string& what, Report* report) {
  std::string refusal;
  for (const uint32_t dim : kTriedDims) {
    const Created created = TryCreate(norm, dim, values.data());
    if (created.status == PLUMB_OK) return;
    if (refusal.empty()) {
      refusal = absl::StrFormat("create(dim=%d) with %s answers %s%s%s", dim, what,
                                StatusText(created.status), created.text.empty() ? "" : ": ",
                                created.text);
    }
  }
  report->Fail(absl::StrCat("refused for every dim, although the schema allows it: ", refusal));
}

// Fails if create() refuses the values for some dim in another way than the contract says: with
// INVALID_ARGUMENT, *out unchanged, and a message as long as there is room for.
void CheckRefusal(const plumb_norm_plugin& norm, const AttributeValues& values,
                  const std::string& what, Report* report) {
  for (const uint32_t dim : kTriedDims) {
    if (TryCreate(norm, dim, values.data()).status == PLUMB_OK) continue;
    for (const int64_t room : {512, 8, 1, 0, -1}) {
      CreateOptions options;
      options.room = room;
      const Created created = TryCreate(norm, dim, values.data(), options);
      const std::string where = absl::StrFormat("create(dim=%d) with %s", dim, what);
      if (created.status != PLUMB_STATUS_INVALID_ARGUMENT) {
        return report->Fail(absl::StrCat(where, " answers ", StatusText(created.status),
                                         ", and must answer OK or INVALID_ARGUMENT"));
      }
      if (!created.problem.empty()) report->Fail(absl::StrCat(where, " ", created.problem));
      if (room > 8 && created.text.empty()) report->Fail(where + " is refused without a message");
    }
    return;  // other dims would report the same
  }
}

// Returns everything that an instance lays out and computes, as text to compare. x: rows of usual
// size, small and large ones, zeros, and rows of both signs.
std::string Fingerprint(const Instance& instance) {
  std::string text = TextOfLayout(instance);
  for (const int64_t kind : {0, 2, 5}) {
    Point point = *ParsePoint("dim=1,rows=8,to=8");
    point[kDim] = instance.dim();
    point[kX] = kind;
    NormRun run(instance, WidestType(instance.norm()), point[kRows], 1);
    const Operands operands = OperandsAt(instance, point);
    AssignTo(operands, &run);
    run.Forward(/*train=*/true);
    run.Backward();
    std::vector<double> y = run.y.Values();
    run.Forward(/*train=*/false);
    Outcome outcome = run.Results();
    for (const Tensor& tensor : outcome.Tensors()) {
      y.insert(y.end(), tensor.values->begin(), tensor.values->end());
    }
    text.append(reinterpret_cast<const char*>(y.data()), y.size() * sizeof(y[0]));
  }
  return text;
}

// Warns of attributes, and of a second input, that change nothing. A text may be a name.
void CheckEffects(const plumb_norm_plugin& norm, Report* report) {
  const AttributeValues defaults = DefaultValues(norm);
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    int tried = 0;
    bool has_effect = def.type == PLUMB_ATTR_STRING;
    for (const AttributeCase& each : CasesOf(norm)) {
      const bool is_other = std::memcmp(&each.values[i], &defaults[i], sizeof(defaults[i])) != 0;
      for (const uint32_t dim : {12u, 16u, 64u, 768u}) {
        if (has_effect || !is_other || tried >= 40) break;
        AttributeValues values = each.values;
        const auto with = TryInstance(norm, dim, values);
        values[i] = defaults[i];
        const auto without = with == nullptr ? nullptr : TryInstance(norm, dim, values);
        if (without == nullptr) continue;
        ++tried;
        has_effect = Fingerprint(*with) != Fingerprint(*without);
        if (!has_effect) break;
      }
    }
    if (tried > 0 && !has_effect) {
      report->Warn(absl::StrCat("attribute ", def.name, " changes no output, gradient or layout"));
    }
  }
  if ((norm.flags & PLUMB_NORM_TWO_INPUTS) == 0) return;
  if (ExtensionOf(norm, PLUMB_EXT_RESIDUAL) != nullptr) {
    report->Fail(PLUMB_EXT_RESIDUAL " is offered, which is for norms of one input");
  }
  const std::unique_ptr<Instance> instance = FirstInstance(norm, {17, 16, 64, 8, 1});
  Point point = *ParsePoint("dim=1,rows=6,to=6");
  point[kDim] = instance->dim();
  Operands operands = OperandsAt(*instance, point);
  const std::vector<double> y = PlainY(*instance, point, PLUMB_DTYPE_F32, operands);
  operands.x2 = operands.x;
  if (PlainY(*instance, point, PLUMB_DTYPE_F32, operands) == y) {
    report->Warn("y does not change with x2, at the default attributes");
  }
}

// -- M4 -------------------------------------------------------------------------------------------

// Returns false if the layout cannot be read.
bool CheckAnswer(const Instance& instance, const std::string& where, Report* report) {
  const plumb_norm_layout& layout = instance.layout();
  const uint32_t flags = instance.norm().flags;
  const bool cross_row = (flags & PLUMB_NORM_CROSS_ROW) != 0;
  const absl::StatusOr<NormTensors> tensors =
      ReadLayout(layout, instance.dim(), cross_row, (flags & PLUMB_NORM_TWO_INPUTS) != 0);
  if (!tensors.ok()) {
    report->Fail(absl::StrCat(where, ": it ", tensors.status().message()));
    return false;
  }
  if (layout.struct_size != sizeof(layout)) {
    report->Fail(where + ": layout() changed struct_size, which is the host's");
  }
  constexpr uint32_t kKnown = PLUMB_CONTEXT_POSITIONS | PLUMB_CONTEXT_STEP;
  if ((layout.context_wants & ~(cross_row ? 0 : kKnown)) != 0) {
    report->Fail(absl::StrCat(
        where, ": context_wants has bits that a host does not give: ", layout.context_wants));
  }
  for (uint32_t i = 0; i < layout.n_params + layout.n_buffers; ++i) {
    const plumb_tensor_def& def = instance.tensor(i);
    const std::string who = absl::StrCat(where, ": tensor ", def.name);
    if (def.doc == nullptr || def.doc[0] == '\0') report->Warn(who + " has no doc");
    if (def.reserved != 0) report->Fail(who + " has a reserved field that is not 0");
    if ((def.flags & ~uint32_t{PLUMB_PARAM_WEIGHT_DECAY}) != 0) {
      report->Fail(absl::StrFormat("%s sets unknown flags: %#x", who, def.flags));
    }
    if (def.init == PLUMB_INIT_UNIFORM && def.init_a == def.init_b) {
      report->Fail(who + " starts from a uniform distribution over an empty interval");
    }
    if (def.init != PLUMB_INIT_FILL && FillOf(instance, i) != nullptr) {
      report->Fail(who + " has a fill function, and `init` is another kind");
    }
  }
  return !report->failed();
}

}  // namespace

void CheckMetadata(const Subject& subject, Report* report) {
  const absl::StatusOr<void*> library = Open(subject.path);
  if (!library.ok()) return report->Skip("it does not load (E1)");
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = EntryOf(*library);
  if (!entry.ok()) return report->Skip("it does not load (E1)");
  std::vector<const plumb_norm_plugin*> tables;
  std::set<std::string> ids;
  for (uint32_t i = 0; i < kMaxNorms; ++i) {
    const plumb_norm_plugin* table = NormAt(*entry, i);
    if (table == nullptr) break;
    tables.push_back(table);
    const std::string who = absl::StrCat("norm ", i);
    const std::string problem = TableProblem(*table);
    if (!problem.empty()) report->Fail(absl::StrCat(who, ": ", problem));
    if (table->struct_size < sizeof(plumb_norm_plugin)) continue;
    CheckTexts(*table, who, report);
    if (table->id != nullptr && !ids.insert(table->id).second) {
      report->Fail(absl::StrCat(who, ": another norm has the id ", table->id, ", too"));
    }
  }
  if (tables.empty()) report->Fail("the file holds no norm: its entry gives NULL for index 0");
  const auto count = static_cast<uint32_t>(tables.size());
  for (const uint32_t index : {count, count + 1, 1000u, 0x7fffffffu, 0xffffffffu}) {
    if (NormAt(*entry, index) == nullptr) continue;
    report->Fail(
        absl::StrFormat("the entry gives a norm for index %d, and it has %d", index, count));
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (NormAt(*entry, i) == tables[i]) continue;
    report->Fail(
        absl::StrFormat("the entry gives another pointer when index %d is asked again", i));
  }
  const std::set<std::string> notes = IdsOfNotes(subject.path);
  for (const std::string& id : ids) {
    if (notes.count(id) > 0) continue;
    report->Fail(absl::StrCat("no note names the norm ", id, ": PLUMB_NORM_NOTE(\"", id, "\")"));
  }
  for (const std::string& note : notes) {
    if (ids.count(note) > 0) continue;
    report->Fail(absl::StrCat("a note names the norm ", note, ", which the file does not hold"));
  }
}

void CheckAttributes(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  const absl::StatusOr<std::vector<NormAttrSpec>> schema = ReadAttrSchema(norm);
  // Values of a broken schema prove nothing.
  if (!schema.ok()) return report->Fail(absl::StrCat("the norm ", schema.status().message()));
  for (const NormAttrSpec& spec : *schema) {
    if (spec.doc.empty()) report->Fail(absl::StrCat("attribute ", spec.name, " has no doc"));
  }
  const AttributeValues defaults = DefaultValues(norm);
  CheckTaken(norm, defaults, "the defaults", report);
  CheckRefusal(norm, defaults, "the defaults", report);
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    std::vector<Tried> all = EdgeValues(def);
    for (const Tried& tried : all) {
      AttributeValues values = defaults;
      values[i] = tried.value;
      CheckTaken(norm, values, tried.name, report);
    }
    if (def.type == PLUMB_ATTR_I64 && !std::isfinite(def.max) && !(def.min > 97)) {
      all.push_back({{0, 97, nullptr}, absl::StrCat(def.name, " = 97")});  // divides no tried dim
    }
    for (const Tried& tried : all) {
      AttributeValues values = defaults;
      values[i] = tried.value;
      CheckRefusal(norm, values, tried.name, report);
    }
  }
  if (!report->failed()) CheckEffects(norm, report);
}

void CheckLayout(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  const std::vector<AttributeCase>& cases = CasesOf(norm);
  for (const AttributeCase& each : cases) {
    const bool is_first = &each == &cases[0];
    for (const uint32_t dim : {1, 2, 3, 8, 17, 64, 768, 4096}) {
      if (!is_first && dim != 64 && dim != 768) continue;
      const std::unique_ptr<Instance> first = TryInstance(norm, dim, each.values);
      if (first == nullptr) continue;
      const std::string where = absl::StrCat("dim=", dim, is_first ? "" : " ", each.name);
      if (!CheckAnswer(*first, where, report)) return;  // other dims would report the same
      const std::string answer = TextOfLayout(*first);
      const std::string again = TextOfLayout(Instance(norm, dim, each.values));
      if (again == answer) continue;
      return report->Fail(
          absl::StrCat(where, ": two instances give two layouts: ", answer, " and ", again));
    }
  }
}

void CheckExtensions(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  std::vector<std::string> unknown = {"org.example.no_such_extension/1", "",
                                      std::string(5000, 'x')};
  for (const std::string known : {PLUMB_EXT_RESIDUAL, PLUMB_EXT_COMBINE, PLUMB_EXT_INSTANCE}) {
    const std::string name = known.substr(0, known.find('/'));
    unknown.insert(unknown.end(), {name, name + "/999", known + "0", known + "x"});
    const void* found = ExtensionOf(norm, known.c_str());
    if (ExtensionOf(norm, known.c_str()) == found) continue;
    report->Fail(
        absl::StrCat("get_extension(\"", known, "\") gives another pointer when asked again"));
  }
  for (const std::string& id : unknown) {
    if (ExtensionOf(norm, id.c_str()) == nullptr) continue;
    report->Fail(absl::StrCat("get_extension(\"", id.substr(0, 60),
                              "\") is not NULL: no such extension exists"));
  }
  const auto* residual =
      static_cast<const plumb_norm_residual*>(ExtensionOf(norm, PLUMB_EXT_RESIDUAL));
  if (residual != nullptr && KnownResidual(residual).forward == nullptr) {
    report->Fail("the extension " PLUMB_EXT_RESIDUAL " is incomplete");
  }
}

}  // namespace plumb::check
