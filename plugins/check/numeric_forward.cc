// N1: forward against the equations of the norm's name. Where plumb has no equations for the id,
// f32 against f64 is all that can be said.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/references.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kForwardRows = 21;  // for statistics over rows: three chunks
const uint32_t kForwardDims[] = {8, 15, 64, 100};

// Of the largest number of a row.
double Tolerance(uint32_t dtype) { return dtype == PLUMB_F64 ? 1e-9 : 5e-5; }

// What the reference sees of the coming call.
ReferenceCall CallOf(const NormRun& run, const AttributeCase& c, bool train) {
  const Instance& instance = run.instance();
  ReferenceCall call;
  call.rows = run.rows();
  call.dim = run.dim();
  call.x = run.x.Values();
  call.train = train;
  for (uint32_t i = 0; i < instance.norm().n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(instance.norm(), i);
    call.attributes[def.name] =
        def.type == PLUMB_ATTR_F64 ? c.values[i].f : static_cast<double>(c.values[i].i);
  }
  for (uint32_t i = 0; i < run.params.size(); ++i) {
    call.parameters[instance.param(i).name] = run.params[i].Values();
  }
  for (uint32_t i = 0; i < run.buffers.size(); ++i) {
    call.buffers[instance.buffer(i).name] = run.buffers[i].Values();
  }
  return call;
}

// Forward with `train`, against the equations.
std::string CompareCall(NormRun* run, const AttributeCase& c, bool train, Reference reference) {
  const ReferenceResult must = reference(CallOf(*run, c, train));
  run->Forward(train);
  const double tolerance = Tolerance(run->dtype());
  const std::vector<double> y = run->y.Values();
  std::string text = FirstDeviation("y", y, must.y, run->dim(), tolerance, 1e-12);
  for (uint32_t i = 0; i < run->buffers.size() && text.empty(); ++i) {
    const char* name = run->instance().buffer(i).name;
    const auto it = must.buffers.find(name);
    if (it == must.buffers.end()) continue;
    text = FirstDeviation(name, run->buffers[i].Values(), it->second, run->buffers[i].width(),
                          tolerance, tolerance);
  }
  return text;
}

std::string CompareWithReference(const Instance& instance, const AttributeCase& c, uint32_t dtype,
                                 uint64_t seed, Reference reference) {
  NormRun run(instance, dtype, kForwardRows, seed);
  // Evaluation last: with the statistics that two calls of training left, where there are such.
  for (const bool train : {true, true, false}) {
    const std::string text = CompareCall(&run, c, train, reference);
    if (text.empty()) continue;
    return absl::StrCat(run.Name(), c.is_default() ? "" : " ", c.name,
                        train ? ": " : ", in evaluation: ", text);
  }
  return "";
}

std::string CompareTypes(const Instance& instance, const AttributeCase& c, uint64_t seed) {
  NormRun f32(instance, PLUMB_F32, kForwardRows, seed),
      f64(instance, PLUMB_F64, kForwardRows, seed);
  for (const bool train : {true, false}) {
    f32.Forward(train);
    f64.Forward(train);
    const std::string text =
        FirstDeviation("y", f32.y.Values(), f64.y.Values(), f32.dim(), 1e-3, 1e-4);
    if (!text.empty()) {
      return absl::StrCat(f32.Name(), c.is_default() ? "" : " ", c.name, ": ", text, " as in f64");
    }
  }
  return "";
}

// Attributes and parameters that the equations do not know: "attribute \"power\"".
std::string Unknown(const plumb_norm_plugin& norm, const ReferenceNames& names) {
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const char* name = AttrOf(norm, i).name;
    if (names.attributes.count(name) == 0) return absl::StrCat("attribute \"", name, "\"");
  }
  return "";
}

std::string UnknownParameter(const Instance& instance, const ReferenceNames& names) {
  for (uint32_t i = 0; i < instance.layout().n_params; ++i) {
    const char* name = instance.param(i).name;
    if (names.parameters.count(name) == 0) return absl::StrCat("parameter \"", name, "\"");
  }
  return "";
}

}  // namespace

void CheckForward(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  const Reference reference = ReferenceOf(norm.id);
  const bool both_types = (norm.dtypes & PLUMB_F64) != 0;
  if (reference == nullptr) {
    if (!both_types) {
      return report->Skip("there are no equations for this id, and no f64 to compare f32 with");
    }
    report->Note("there are no equations for this id: f32 was compared with f64");
  } else {
    const std::string unknown = Unknown(norm, NamesOf(norm.id));
    if (!unknown.empty()) {
      return report->Fail(absl::StrCat(unknown, " is none of ", norm.id, "'s"));
    }
  }
  bool any = false;
  for (const AttributeCase& c : AttributeCases(norm)) {
    std::vector<uint32_t> dims(std::begin(kForwardDims), std::end(kForwardDims));
    if (!c.is_default()) dims = {8, 64};
    if (!any) dims.insert(dims.end(), {1, 2, 4, 16, 32, 128, 768});
    size_t done = 0;
    for (const uint32_t dim : dims) {
      std::string refusal;
      if (done >= std::size(kForwardDims)) break;
      const auto instance = TryInstance(norm, dim, c.values, &refusal);
      if (instance == nullptr) continue;
      any = true;
      ++done;
      std::string text;
      if (reference == nullptr) {
        text = CompareTypes(*instance, c, subject.seed);
      } else {
        const std::string unknown = UnknownParameter(*instance, NamesOf(norm.id));
        if (!unknown.empty()) {
          return report->Fail(absl::StrCat(unknown, " is none of ", norm.id, "'s"));
        }
        for (const uint32_t dtype : {uint32_t{PLUMB_F64}, uint32_t{PLUMB_F32}}) {
          if ((norm.dtypes & dtype) == 0 || !text.empty()) continue;
          text = CompareWithReference(*instance, c, dtype, subject.seed, reference);
        }
      }
      if (!text.empty()) return report->Fail(text);
    }
  }
  if (!any) report->Fail("create refuses every dim that was tried");
}

}  // namespace plumb::check
