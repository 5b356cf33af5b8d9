// SPDX-License-Identifier: Apache-2.0
// Rules M2 and M4, and the extensions of M5: the declarations of a norm. The host's own readers
// decide what a schema and a layout must satisfy (runtime/plugin/descriptor.h).
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/plugin.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "runtime/plugin/descriptor.h"

namespace plumb::check {
namespace {

// -- M2 -------------------------------------------------------------------------------------------

// Returns true if at most one attribute differs from its default, and is a choice or a bound of the
// schema. Some dim must allow such values.
bool MustBeTaken(const Norm& norm, const AttributeValues& values) {
  int changed = 0;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = GetAttr(norm, i);
    const plumb_attr_value &value = values[i], &usual = DefaultValues(norm)[i];
    const bool is_real = def.type == PLUMB_ATTR_F64, is_whole = def.type == PLUMB_ATTR_I64;
    const double number = is_real ? value.f : static_cast<double>(value.i);
    if (std::memcmp(&value, &usual, sizeof(value)) == 0) continue;
    if (++changed > 1) return false;
    if ((is_real || is_whole) && number != def.min && number != def.max) return false;
  }
  return true;
}

// Fails unless create() accepts the values for some dim, if it must, and refuses them for others as
// the contract says: with INVALID_ARGUMENT, *out unchanged, and a message.
void CheckCreate(const Norm& norm, const AttributeCase& tried, Report* report) {
  bool is_taken = false;
  std::string refusal;
  for (const uint32_t dim : {64, 768, 4096, 1, 2, 3, 7, 8, 16, 100, 1000}) {
    const Created created = TryCreate(norm, dim, tried.values);
    is_taken = is_taken || created.status == PLUMB_OK;
    // Other dims would report the same.
    if (created.status == PLUMB_OK || !refusal.empty()) continue;
    refusal = absl::StrFormat("create(dim=%d) with %s answers %s", dim,
                              tried.name.empty() ? "the defaults" : tried.name,
                              StatusText(created.status, created.text));
    if (!created.problem.empty()) report->Fail(absl::StrCat(refusal, ", and ", created.problem));
    if (created.text.empty()) report->Fail(refusal + " without a message");
    if (created.status != PLUMB_STATUS_INVALID_ARGUMENT) {
      report->Fail(refusal + ", and must answer OK or INVALID_ARGUMENT");
    }
  }
  if (is_taken || !MustBeTaken(norm, tried.values)) return;
  report->Fail("refused for every dim, although the schema allows it: " + refusal);
}

// Returns all that an instance lays out and computes, to compare: of rows of usual size, with
// zeros, and of both signs.
std::string Fingerprint(const Instance& instance) {
  std::string text = instance.LayoutText();
  for (Point point : ParsePoints("dim=1,rows=8,x=0|2|5,eval=0|1")) {
    point[kDim] = instance.dim();
    RunOptions options;
    options.dtype = WidestType(instance.norm());
    const Outcome outcome = RunAt(instance, point, OperandsAt(instance, point), options);
    for (const Tensor& tensor : outcome.Tensors()) {
      text.append(reinterpret_cast<const char*>(tensor.values->data()),
                  tensor.values->size() * sizeof(double));
    }
  }
  return text;
}

// Warns of attributes that change nothing. A text may be a name.
void CheckEffects(const Norm& norm, Report* report) {
  constexpr int kMaxTried = 40;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = GetAttr(norm, i);
    const plumb_attr_value& usual = DefaultValues(norm)[i];
    int tried = 0;
    bool has_effect = def.type == PLUMB_ATTR_STRING;
    for (const AttributeCase& each : GetCases(norm)) {
      if (std::memcmp(&each.values[i], &usual, sizeof(usual)) == 0) continue;
      for (const uint32_t dim : {12, 16, 64, 768}) {
        if (has_effect || tried >= kMaxTried) break;
        AttributeValues values = each.values;
        const std::unique_ptr<Instance> with = Instance::Create(norm, dim, values);
        values[i] = usual;
        const auto without = with == nullptr ? nullptr : Instance::Create(norm, dim, values);
        if (without == nullptr) continue;
        ++tried;
        has_effect = Fingerprint(*with) != Fingerprint(*without);
        break;
      }
    }
    if (tried > 0 && !has_effect) {
      report->Warn(absl::StrCat("attribute ", def.name, " changes no output, gradient or layout"));
    }
  }
}

// -- M4 -------------------------------------------------------------------------------------------

// Fails on a layout that the host would refuse, and on fields that it would ignore.
void CheckAnswer(const Instance& instance, const std::string& where, Report* report) {
  const plumb_norm_layout& layout = instance.layout();
  const bool cross_row = instance.Has(PLUMB_NORM_CROSS_ROW);
  const absl::StatusOr<NormTensors> tensors =
      ReadLayout(layout, instance.dim(), cross_row, instance.Has(PLUMB_NORM_TWO_INPUTS));
  if (!tensors.ok()) {
    return report->Fail(absl::StrCat(where, ": it ", tensors.status().message()));
  }
  if (layout.struct_size != sizeof(layout)) {
    report->Fail(where + ": layout() changed struct_size, which is the host's");
  }
  constexpr uint32_t kKnown = PLUMB_CONTEXT_POSITIONS | PLUMB_CONTEXT_STEP;
  if ((layout.context_wants & ~(cross_row ? 0 : kKnown)) != 0) {
    report->Fail(absl::StrCat(
        where, ": context_wants has bits that a host does not give: ", layout.context_wants));
  }
  for (uint32_t i = 0; i < instance.n_tensors(); ++i) {
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
    if (def.init != PLUMB_INIT_FILL && instance.GetFill(i) != nullptr) {
      report->Fail(who + " has a fill function, and `init` is another kind");
    }
  }
}

}  // namespace

void CheckAttributes(const Subject& subject, Report* report) {
  const Norm& norm = *subject.norm;
  const absl::StatusOr<std::vector<NormAttrSpec>> schema = ReadAttrSchema(norm);
  // Values of a broken schema prove nothing.
  if (!schema.ok()) return report->Fail(absl::StrCat("the norm ", schema.status().message()));
  for (const NormAttrSpec& spec : *schema) {
    if (spec.doc.empty()) report->Fail(absl::StrCat("attribute ", spec.name, " has no doc"));
  }
  for (const AttributeCase& each : GetCases(norm)) CheckCreate(norm, each, report);
  if (!report->failed()) CheckEffects(norm, report);
  const bool two_inputs = (norm.flags & PLUMB_NORM_TWO_INPUTS) != 0;
  if (two_inputs && QueryExtension(norm, PLUMB_EXT_RESIDUAL) != nullptr) {
    report->Fail(PLUMB_EXT_RESIDUAL " is offered, which is for norms of one input");
  }
}

void CheckLayout(const Subject& subject, Report* report) {
  const Norm& norm = *subject.norm;
  const std::vector<AttributeCase>& cases = GetCases(norm);
  for (const AttributeCase& each : cases) {
    const bool is_first = &each == &cases[0];
    for (const uint32_t dim : {1, 2, 3, 8, 17, 64, 768, 4096}) {
      if (!is_first && dim != 64 && dim != 768) continue;
      const std::unique_ptr<Instance> first = Instance::Create(norm, dim, each.values);
      if (first == nullptr) continue;
      const std::string where = absl::StrCat("dim=", dim, is_first ? "" : " ", each.name);
      CheckAnswer(*first, where, report);
      if (report->failed()) return;  // other dims would report the same
      const std::unique_ptr<Instance> second = Instance::Create(norm, dim, each.values);
      if (second != nullptr && second->LayoutText() == first->LayoutText()) continue;
      return report->Fail(where + ": two instances give two layouts, such as " +
                          first->LayoutText());
    }
  }
}

void CheckExtensions(const Norm& norm, Report* report) {
  std::vector<std::string> unknown = {"org.example.no_such_extension/1", "",
                                      std::string(5000, 'x')};
  for (const std::string known : {PLUMB_EXT_RESIDUAL, PLUMB_EXT_COMBINE, PLUMB_EXT_INSTANCE}) {
    const std::string name = known.substr(0, known.find('/'));
    unknown.insert(unknown.end(), {name, name + "/999", known + "0", known + "x"});
    if (QueryExtension(norm, known.c_str()) == QueryExtension(norm, known.c_str())) continue;
    report->Fail("get_extension gives another pointer when asked again for " + known);
  }
  for (const std::string& id : unknown) {
    if (QueryExtension(norm, id.c_str()) == nullptr) continue;
    report->Fail(absl::StrCat("get_extension(\"", id.substr(0, 60),
                              "\") is not NULL: no such extension exists"));
  }
  const void* residual = QueryExtension(norm, PLUMB_EXT_RESIDUAL);
  if (residual != nullptr && KnownResidual(residual).forward == nullptr) {
    report->Fail("the extension " PLUMB_EXT_RESIDUAL " is incomplete");
  }
}

}  // namespace plumb::check
