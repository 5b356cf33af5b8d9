// M4: what layout() answers.
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/calls.h"
#include "plugins/check/guarded.h"
#include "plugins/check/checks.h"
#include "plugins/check/cases.h"

namespace plumb::check {
namespace {

constexpr uint32_t kLayoutDims[] = {1, 2, 3, 8, 17, 64, 768, 4096};
constexpr uint32_t kMaxTensors = 64;
constexpr uint32_t kTensorDefBytes = 80;
constexpr uint32_t kLongestStride = 4096;
constexpr uint64_t kMaxElements = uint64_t{1} << 31;
constexpr uint64_t kMaxScratch = uint64_t{64} << 20;

// All that layout() says, as text: so that two answers compare whatever their strides.
std::string Describe(const Instance& instance) {
  const plumb_norm_layout& layout = instance.layout();
  std::string text =
      absl::StrFormat("saved %d a row, %d a call, partial %d, needs %d, scratch %d + %d a row",
                      layout.saved_per_row, layout.saved_per_call, layout.partial_elems,
                      layout.backward_needs, layout.scratch_bytes, layout.scratch_bytes_per_row);
  const auto tensor = [&text](const char* kind, const plumb_tensor_def& def) {
    absl::StrAppendFormat(&text, ", %s %s [%d: %d %d %d %d] init %d %a %a lr %a flags %d offset %a",
                          kind, def.name == nullptr ? "?" : def.name, def.ndim, def.dims[0],
                          def.dims[1], def.dims[2], def.dims[3], def.init, def.init_a, def.init_b,
                          def.lr_scale, def.flags, def.offset);
  };
  for (uint32_t i = 0; i < layout.n_params; ++i) tensor("parameter", instance.param(i));
  for (uint32_t i = 0; i < layout.n_buffers; ++i) tensor("buffer", instance.buffer(i));
  return text;
}

// What can be wrong with a tensor's initial values, "" if nothing is.
std::string InitProblem(const plumb_tensor_def& def) {
  switch (def.init) {
    case PLUMB_INIT_ZEROS:
    case PLUMB_INIT_ONES:
      return "";
    case PLUMB_INIT_CONST:
      return std::isfinite(def.init_a) ? "" : "starts from a constant that is not finite";
    case PLUMB_INIT_NORMAL:
      return std::isfinite(def.init_a) && std::isfinite(def.init_b) && def.init_b >= 0
                 ? ""
                 : "starts from an impossible normal distribution";
    case PLUMB_INIT_UNIFORM:
      return std::isfinite(def.init_a) && std::isfinite(def.init_b) && def.init_a < def.init_b
                 ? ""
                 : "starts from an impossible uniform distribution";
    case PLUMB_INIT_FILL:
      return def.fill != nullptr ? "" : "is to be filled and has no fill function";
    default:
      return absl::StrCat("has the unknown initializer ", def.init);
  }
}

void CheckTensor(const plumb_tensor_def& def, const std::string& who, Report* report) {
  if (def.doc == nullptr || def.doc[0] == '\0') report->Warn(who + ": has no doc");
  if (def.ndim > 4) {
    return report->Fail(absl::StrFormat("%s: has %d dimensions; 4 is the most", who, def.ndim));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < def.ndim; ++i) {
    if (def.dims[i] == 0 || def.dims[i] > kMaxElements / elements) {
      return report->Fail(
          absl::StrFormat("%s: has the impossible size %d in dimension %d", who, def.dims[i], i));
    }
    elements *= def.dims[i];
  }
  if (const std::string problem = InitProblem(def); !problem.empty()) {
    report->Fail(absl::StrCat(who, ": ", problem));
  }
  if (!std::isfinite(def.lr_scale) || def.lr_scale < 0) {
    report->Fail(absl::StrFormat("%s: its lr_scale is %g", who, def.lr_scale));
  }
  if (!std::isfinite(def.offset))
    report->Fail(absl::StrFormat("%s: its offset is %g", who, def.offset));
  if (def.reserved != 0) report->Fail(who + ": its reserved field is not 0");
  if ((def.flags & ~static_cast<uint32_t>(PLUMB_PARAM_WEIGHT_DECAY)) != 0) {
    report->Fail(absl::StrFormat("%s: sets unknown flags %#x", who, def.flags));
  }
}

// Names and shapes of parameters and buffers. False if they cannot be read.
bool CheckTensors(const Instance& instance, const std::string& where, Report* report) {
  const plumb_norm_layout& layout = instance.layout();
  if (layout.n_params > kMaxTensors || layout.n_buffers > kMaxTensors) {
    report->Fail(absl::StrFormat("%s: %d parameters and %d buffers; the most is %d", where,
                                 layout.n_params, layout.n_buffers, kMaxTensors));
    return false;
  }
  if ((layout.n_params > 0 && layout.params == nullptr) ||
      (layout.n_buffers > 0 && layout.buffers == nullptr)) {
    report->Fail(where + ": counts tensors but gives none");
    return false;
  }
  const bool any = layout.n_params + layout.n_buffers > 0;
  if (any && (layout.tensor_stride < kTensorDefBytes || layout.tensor_stride > kLongestStride ||
              layout.tensor_stride % 8 != 0)) {
    report->Fail(absl::StrFormat("%s: tensor_stride is %d; norm ABI 1.0 has %d", where,
                                 layout.tensor_stride, kTensorDefBytes));
    return false;
  }
  std::set<std::string> names;
  for (uint32_t i = 0; i < layout.n_params + layout.n_buffers; ++i) {
    const bool is_param = i < layout.n_params;
    const plumb_tensor_def& def =
        is_param ? instance.param(i) : instance.buffer(i - layout.n_params);
    const std::string what = is_param ? "parameter" : "buffer";
    if (!IsName(def.name)) {
      report->Fail(
          absl::StrFormat("%s: the name of a %s is not of the form [a-z][a-z0-9_]*, at most "
                          "63 characters",
                          where, what));
      continue;
    }
    const std::string who = absl::StrCat(where, ": ", what, " ", def.name);
    if (!names.insert(def.name).second) report->Fail(who + ": the name is there twice");
    CheckTensor(def, who, report);
  }
  return true;
}

void CheckSizes(const Instance& instance, const std::string& where, Report* report) {
  const plumb_norm_layout& layout = instance.layout();
  const bool cross_row = (instance.norm().flags & PLUMB_NORM_CROSS_ROW) != 0;
  constexpr uint32_t kKnownWishes = PLUMB_CONTEXT_POSITIONS | PLUMB_CONTEXT_STEP;
  if ((layout.context_wants & ~kKnownWishes) != 0) {
    report->Fail(absl::StrCat(where, ": context_wants has unknown bits: ", layout.context_wants));
  }
  if (cross_row && layout.context_wants != 0) {
    report->Fail(absl::StrCat(where, ": a cross-row norm wants a context, and gets none"));
  }
  const uint64_t dim = instance.dim();
  if (layout.struct_size != sizeof(layout)) {
    report->Fail(where + ": layout() changed struct_size, which is the host's");
  }
  if (layout.saved_per_row > 16 * dim + 64) {
    report->Fail(absl::StrFormat("%s: saves %d numbers a row; the most is %d", where,
                                 layout.saved_per_row, 16 * dim + 64));
  }
  if (layout.scratch_bytes > kMaxScratch || layout.scratch_bytes_per_row > 256 * dim + 4096) {
    report->Fail(absl::StrFormat(
        "%s: asks for %d bytes of scratch and %d a row; the most is %d and "
        "%d",
        where, layout.scratch_bytes, layout.scratch_bytes_per_row, kMaxScratch, 256 * dim + 4096));
  }
  const bool two_inputs = (instance.norm().flags & PLUMB_NORM_TWO_INPUTS) != 0;
  const uint32_t operands = PLUMB_BWD_X | PLUMB_BWD_Y | (two_inputs ? PLUMB_BWD_X2 : 0);
  if ((layout.backward_needs & ~operands) != 0) {
    report->Fail(
        absl::StrFormat("%s: backward_needs has unknown bits: %#x", where, layout.backward_needs));
  }
  if (cross_row && layout.partial_elems == 0) {
    report->Fail(where + ": a cross-row norm whose partial statistic has no numbers");
  }
  if (!cross_row &&
      (layout.partial_elems != 0 || layout.n_buffers != 0 || layout.saved_per_call != 0)) {
    report->Fail(where + ": buffers or statistics of a call, without the flag CROSS_ROW");
  }
  if (layout.partial_elems > 16 * dim + 64) {
    report->Fail(absl::StrFormat("%s: a partial statistic of %d numbers; the most is %d", where,
                                 layout.partial_elems, 16 * dim + 64));
  }
}

}  // namespace

void CheckLayout(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  for (const uint32_t dim : kLayoutDims) {
    if (TryInstance(norm, dim) == nullptr) continue;
    const std::string where = absl::StrFormat("dim=%d", dim);
    const Instance first(norm, dim);
    const Instance second(norm, dim);
    CheckSizes(first, where, report);
    if (!CheckTensors(first, where, report)) return;
    if (!CheckTensors(second, where, report)) return;
    const std::string answer = Describe(first);
    if (Describe(second) != answer) {
      report->Fail(absl::StrCat(where, ": two instances give two layouts: ", answer, " and ",
                                Describe(second)));
    }
    if (report->failed()) return;  // the same again for every other dim
  }
  // What other attributes change of it.
  for (const AttributeCase& each : ExploredCases(norm)) {
    for (const uint32_t dim : {64u, 768u}) {
      const std::unique_ptr<Instance> instance = TryInstance(norm, dim, each.values);
      if (instance == nullptr) continue;
      const std::string where = absl::StrCat("dim=", dim, " ", each.name);
      CheckSizes(*instance, where, report);
      CheckTensors(*instance, where, report);
      if (report->failed()) return;
    }
  }
}

}  // namespace plumb::check
