// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/plugin.h"

#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "plugins/check/state.h"
#include "plumb/ext/instance.h"
#include "runtime/base/status.h"
#include "runtime/plugin/descriptor.h"

namespace plumb::check {
namespace {

std::atomic<int64_t> host_logs{0};

void HostLog(void*, int32_t, const char*) { ++host_logs; }

const void* HostGetExtension(void*, const char*) { return nullptr; }

plumb_host MakeHost(uint32_t heads, HostVersion version = HostVersion::kThis) {
  constexpr uint32_t kNewerMinor = 7;
  const uint32_t minor = version == HostVersion::kFirst   ? 0
                         : version == HostVersion::kNewer ? kNewerMinor
                                                          : PLUMB_NORM_ABI_MINOR;
  return {sizeof(plumb_host), minor, nullptr, HostLog, HostGetExtension, heads, 0};
}

// -- Attributes -----------------------------------------------------------------------------------

// Returns the default of an attribute, or a legal value if it is required.
plumb_attr_value UsualValue(const plumb_attr_def& def) {
  if ((def.flags & PLUMB_ATTR_FLAG_REQUIRED) == 0) return def.def;
  const double number = std::isfinite(def.min) ? def.min : std::isfinite(def.max) ? def.max : 1.0;
  plumb_attr_value value{};
  if (def.type == PLUMB_ATTR_F64) value.f = number;
  if (def.type == PLUMB_ATTR_I64) value.i = static_cast<int64_t>(std::ceil(number));
  if (def.type == PLUMB_ATTR_STRING) value.s = "";
  if (def.type == PLUMB_ATTR_ENUM) value.s = def.choices[0];
  return value;
}

std::string GetText(const plumb_attr_def& def, const plumb_attr_value& value) {
  if (def.type == PLUMB_ATTR_F64) return absl::StrFormat("%s=%g", def.name, value.f);
  if (def.type == PLUMB_ATTR_I64 || def.type == PLUMB_ATTR_BOOL) {
    return absl::StrCat(def.name, "=", value.i);
  }
  return absl::StrCat(def.name, "=", value.s == nullptr ? "" : value.s);
}

// Returns all values of an attribute that are tried, without its default.
AttributeValues OtherValues(const plumb_attr_def& def) {
  const plumb_attr_value usual = UsualValue(def);
  AttributeValues values;
  std::set<double> numbers;
  const auto add = [&](double number) {
    if (number < def.min || number > def.max || !(std::abs(number) <= 1e6)) return;
    numbers.insert(number);
  };
  if (def.type == PLUMB_ATTR_F64) {
    for (const double n : {usual.f / 2, usual.f * 2, usual.f + 1, def.min, def.max}) add(n);
    if (def.max - def.min <= 10) add((def.min + def.max) / 2);
    numbers.erase(usual.f);
    for (const double number : numbers) values.push_back({number, 0, nullptr});
  } else if (def.type == PLUMB_ATTR_I64) {
    const auto i = static_cast<double>(usual.i);
    for (const double n : {2., 3., 4., 5., 8., 16., 32., 64., i + 1, i * 2}) add(n);
    for (const double bound : {def.min, def.max}) add(std::trunc(bound));
    numbers.erase(i);
    for (const double n : numbers) values.push_back({0, static_cast<int64_t>(n), nullptr});
  } else if (def.type == PLUMB_ATTR_BOOL) {
    values.push_back({0, usual.i == 0 ? 1 : 0, nullptr});
  } else if (def.type == PLUMB_ATTR_ENUM) {
    for (const char* const* choice = def.choices; *choice != nullptr; ++choice) {
      if (absl::string_view(usual.s) != *choice) values.push_back({0, 0, *choice});
    }
  }
  return values;
}

std::vector<AttributeCase> MakeCases(const plumb_norm_plugin& norm) {
  constexpr size_t kMaxCases = 150;
  AttributeValues defaults;
  std::vector<AttributeValues> others;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    defaults.push_back(UsualValue(GetAttr(norm, i)));
    others.push_back(OtherValues(GetAttr(norm, i)));
  }
  std::vector<AttributeCase> cases;
  const auto add = [&](const AttributeValues& values) {
    std::string name;
    for (uint32_t i = 0; i < norm.n_attrs; ++i) {
      const std::string text = GetText(GetAttr(norm, i), values[i]);
      if (text == GetText(GetAttr(norm, i), defaults[i])) continue;
      absl::StrAppend(&name, name.empty() ? "" : " ", text);
    }
    if (cases.size() < kMaxCases) cases.push_back({name, values});
  };
  add(defaults);
  AttributeValues all = defaults;
  for (size_t i = 0; i < others.size(); ++i) {
    AttributeValues one = defaults;
    for (const plumb_attr_value& value : others[i]) {
      all[i] = one[i] = value;
      add(one);
    }
  }
  add(all);
  for (size_t i = 0; i < others.size(); ++i) {
    for (size_t j = i + 1; j < others.size(); ++j) {
      const size_t a = others[i].size(), b = others[j].size();
      AttributeValues two = defaults;
      for (size_t k = 0; a > 0 && b > 0 && k < std::max(a, b); ++k) {
        two[i] = others[i][k % a];
        two[j] = others[j][k % b];
        add(two);
      }
    }
  }
  return cases;
}

}  // namespace

// -- The file -------------------------------------------------------------------------------------

absl::StatusOr<void*> Open(const std::string& path) {
  // dlopen would search the system's directories for a name without a slash.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = Guarded(
      "dlopen", 0, [&file] { return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); });
  if (library != nullptr) return library;
  const char* given = dlerror();
  absl::string_view why = given == nullptr ? "the loader gives no reason" : given;
  if (absl::ConsumePrefix(&why, file)) absl::ConsumePrefix(&why, ": ");
  return absl::FailedPreconditionError(why);
}

absl::StatusOr<plumb_norm_plugin_v1_fn> Load(const std::string& path) {
  const uint64_t control = FloatControl();  // which E5 checks
  const absl::StatusOr<void*> library = Open(path);
  SetFloatControl(control);
  PLUMB_RETURN_IF_ERROR(library.status());
  void* entry = dlsym(*library, PLUMB_NORM_ENTRY_SYMBOL);
  if (entry != nullptr) return reinterpret_cast<plumb_norm_plugin_v1_fn>(entry);
  return absl::FailedPreconditionError("the file does not export " PLUMB_NORM_ENTRY_SYMBOL);
}

const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index) {
  return Guarded(PLUMB_NORM_ENTRY_SYMBOL, 0, [entry, index] { return entry(index); });
}

std::string TableProblem(const plumb_norm_plugin& table) {
  const absl::StatusOr<plumb_norm_plugin> known = ReadTable(&table);
  if (!known.ok()) return absl::StrCat("it ", known.status().message());
  // These attributes cannot be read at all; M2 reports the details.
  if (table.n_attrs > 0 && (table.attrs == nullptr || table.n_attrs > kMaxNormAttrs ||
                            table.attr_stride < sizeof(plumb_attr_def))) {
    return absl::StrCat("it ", ReadAttrSchema(table).status().message());
  }
  return "";
}

std::string Unavailable(const plumb_norm_plugin& norm) {
  if (norm.available == nullptr) return "";
  ErrorText err;
  const plumb_status status =
      Guarded("available", 0, [&] { return norm.available(err.text, sizeof(err.text)); });
  return status == PLUMB_OK ? "" : StatusText(status, std::string(err.view()));
}

const void* QueryExtension(const plumb_norm_plugin& norm, const char* id) {
  if (norm.get_extension == nullptr) return nullptr;
  return Guarded("get_extension", 0, [&] { return norm.get_extension(id); });
}

std::string StatusText(plumb_status status, const std::string& words) {
  std::string text = absl::StatusCodeToString(static_cast<absl::StatusCode>(status));
  if (text.empty()) text = absl::StrCat("status ", status);
  return absl::StrCat(text, words.empty() ? "" : ": ", words);
}

uint32_t WidestType(const plumb_norm_plugin& norm) {
  return (norm.dtypes & PLUMB_DTYPE_F64) != 0 ? PLUMB_DTYPE_F64 : PLUMB_DTYPE_F32;
}

const plumb_attr_def& GetAttr(const plumb_norm_plugin& norm, uint32_t i) {
  const char* at = reinterpret_cast<const char*>(norm.attrs) + size_t{norm.attr_stride} * i;
  return *reinterpret_cast<const plumb_attr_def*>(at);
}

const std::vector<AttributeCase>& GetCases(const plumb_norm_plugin& norm) {
  static std::map<const plumb_norm_plugin*, std::vector<AttributeCase>> made;
  std::vector<AttributeCase>& cases = made[&norm];
  if (cases.empty()) cases = MakeCases(norm);
  return cases;
}

int64_t HostLogs() { return host_logs; }

// -- Instances ------------------------------------------------------------------------------------

Created TryCreate(const plumb_norm_plugin& norm, uint32_t dim, const AttributeValues& values,
                  const CreateOptions& options, plumb_norm_instance** kept) {
  constexpr char kUntouched = 0x5a;
  // One buffer for all calls of the thread, so that a plugin that keeps an earlier address is
  // detected.
  thread_local char err[576];
  std::memset(err, kUntouched, sizeof(err));
  const plumb_host usual = MakeHost(0);
  auto* const untouched = reinterpret_cast<plumb_norm_instance*>(&err);
  plumb_norm_instance* out = untouched;
  const size_t room = static_cast<size_t>(std::max<int64_t>(options.room, 0));
  // The values are valid only until create() returns, so they are overwritten.
  AttributeValues own = values;
  Created created;
  {
    const AllocationWatch watch(options.failing);
    created.status = Guarded("create", dim, [&] {
      return norm.create(options.host == nullptr ? &usual : options.host, dim, own.data(), &out,
                         options.room < 0 ? nullptr : err, room);
    });
    created.allocations = watch.allocations();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::fill(own.begin(), own.end(), plumb_attr_value{nan, INT64_MIN, nullptr});
    const bool is_made = created.status == PLUMB_OK && out != untouched && out != nullptr;
    if (is_made && kept == nullptr) {
      plumb_norm_layout layout{};
      layout.struct_size = sizeof(layout);
      Guarded("layout", dim, [&] { return norm.layout(out, &layout); });
      Guarded("destroy", dim, [&] { norm.destroy(out); });
    }
    if (kept != nullptr) *kept = is_made ? out : nullptr;
    created.blocks.assign(watch.blocks(), watch.blocks() + watch.n_blocks());
  }
  const auto is_touched = [](char byte) { return byte != kUntouched; };
  const bool written = std::any_of(err, err + room, is_touched);
  if (std::any_of(err + room, std::end(err), is_touched)) {
    created.problem = absl::StrCat("writes beyond the ", room, " bytes of room for a message");
  } else if (written && std::memchr(err, '\0', room) == nullptr) {
    created.problem = absl::StrCat("writes a message without a NUL into ", room, " bytes of room");
  } else if (created.status != PLUMB_OK && out != untouched) {
    created.problem = "fails and changes *out";
  } else if (created.status == PLUMB_OK && (out == untouched || out == nullptr)) {
    created.problem = "answers OK without an instance";
  }
  if (written) created.text.assign(err, strnlen(err, room));
  return created;
}

const char* GetName(Hot function) {
  constexpr const char* kNames[] = {"forward",          "backward",       "stats_partial",
                                    "stats_combine",    "stats_finalize", "residual forward",
                                    "residual backward"};
  return kNames[static_cast<size_t>(function)];
}

Instance::Instance(const plumb_norm_plugin& norm, uint32_t dim, uint32_t heads, HostVersion version)
    : norm_(norm), version_(version), host_(MakeHost(heads, version), version), dim_(dim) {}

std::unique_ptr<Instance> Instance::Create(const plumb_norm_plugin& norm, uint32_t dim,
                                           const AttributeValues& values, uint32_t heads,
                                           HostVersion version) {
  if (version == HostVersion::kFirst && norm.min_host_minor > 0) return nullptr;
  std::unique_ptr<Instance> instance(new Instance(norm, dim, heads, version));
  CreateOptions options;
  options.host = instance->host_.get();
  Created created = TryCreate(norm, dim, values, options, &instance->handle_);
  if (created.status == PLUMB_STATUS_INVALID_ARGUMENT) return nullptr;
  if (instance->handle_ == nullptr) {
    throw CheckEnded{
        absl::StrCat("create(dim=", dim, ") answers ", StatusText(created.status, created.text))};
  }
  instance->blocks_ = std::move(created.blocks);
  instance->ReadLayout();
  return instance;
}

void Instance::ReadLayout() {
  Versioned<plumb_norm_layout> layout(layout_, version_);
  const plumb_status status =
      Guarded("layout", dim_, [&] { return norm_.layout(handle_, layout.get()); });
  const bool is_kept = layout.CopyTo(&layout_);
  const std::string problem =
      status != PLUMB_OK ? " answers " + StatusText(status)
      : !is_kept         ? " writes into fields of a newer host that it cannot know"
      : n_tensors() > 0 && layout_.tensor_stride < offsetof(plumb_tensor_def, fill)
          ? absl::StrCat(" gives tensor_stride ", layout_.tensor_stride)
          : "";
  if (!problem.empty()) throw CheckEnded{absl::StrCat("layout(dim=", dim_, ")", problem)};
}

Instance::~Instance() {
  if (handle_ == nullptr) return;
  // A destructor must not throw. An exception of destroy() ends the process, and the trace names
  // it.
  TracedCall traced;
  traced.function = "destroy";
  traced.call.dim = dim_;
  const Trace trace(traced);
  norm_.destroy(handle_);
}

const plumb_tensor_def& Instance::tensor(uint32_t i) const {
  const bool is_param = i < layout_.n_params;
  const plumb_tensor_def* tensors = is_param ? layout_.params : layout_.buffers;
  const size_t offset = size_t{layout_.tensor_stride} * (is_param ? i : i - layout_.n_params);
  const char* at = reinterpret_cast<const char*>(tensors) + offset;
  return *reinterpret_cast<const plumb_tensor_def*>(at);
}

std::string Instance::LayoutText() const {
  const plumb_norm_layout& l = layout_;
  std::string text =
      absl::StrFormat("saved %d a row, %d a call, partial %d, needs %d, scratch %d + %d a row",
                      l.saved_per_row, l.saved_per_call, l.partial_elems, l.backward_needs,
                      l.scratch_bytes, l.scratch_bytes_per_row);
  for (uint32_t i = 0; i < n_tensors(); ++i) {
    const plumb_tensor_def& def = tensor(i);
    absl::StrAppendFormat(&text, ", %s %s [", i < l.n_params ? "parameter" : "buffer", def.name);
    for (uint32_t d = 0; d < def.ndim; ++d) absl::StrAppend(&text, d == 0 ? "" : " ", def.dims[d]);
    absl::StrAppendFormat(&text, "] init %d %.17g %.17g lr %.17g flags %d offset %.17g", def.init,
                          def.init_a, def.init_b, def.lr_scale, def.flags, def.offset);
  }
  return text;
}

plumb_status Instance::Call(Hot function, const plumb_norm_call& call, int64_t r0, int64_t r1,
                            const HotArguments& more) const {
  Versioned<plumb_norm_call> versioned(call, version_);
  Versioned<plumb_residual_call> versioned_sums(more.sums, version_);
  const plumb_norm_call* own = versioned.get();
  const plumb_residual_call* sums = versioned_sums.get();
  const uint32_t phase = more.phase;
  return Guarded({GetName(function), call, r0, r1}, [&] {
    switch (function) {
      case Hot::kForward:
        return norm_.forward(handle_, own, r0, r1);
      case Hot::kBackward:
        return norm_.backward(handle_, own, r0, r1);
      case Hot::kStatsPartial:
        return norm_.stats_partial(handle_, phase, own, r0, r1, more.acc);
      case Hot::kStatsCombine:
        if (more.combine != nullptr) {
          return more.combine->combine(handle_, phase, own, more.acc, more.partial);
        }
        norm_.stats_combine(handle_, phase, own, more.acc, more.partial);
        return plumb_status{PLUMB_OK};
      case Hot::kStatsFinalize:
        return norm_.stats_finalize(handle_, phase, own, more.acc);
      case Hot::kResidualForward:
        return more.residual->forward(handle_, own, sums, r0, r1);
      case Hot::kResidualBackward:
        return more.residual->backward(handle_, own, sums, r0, r1);
    }
    return plumb_status{PLUMB_STATUS_INTERNAL};
  });
}

const plumb_norm_residual* Instance::Residual() const {
  // If a norm has an answer for every extension, its answers are meaningless; M5 fails it.
  if (Has(PLUMB_NORM_CROSS_ROW | PLUMB_NORM_TWO_INPUTS) ||
      QueryExtension(norm_, "org.example.no_such_extension/1") != nullptr) {
    return nullptr;
  }
  const auto* of_instance =
      static_cast<const plumb_norm_instance_extensions*>(QueryExtension(norm_, PLUMB_EXT_INSTANCE));
  const void* found = QueryExtension(norm_, PLUMB_EXT_RESIDUAL);
  if (of_instance != nullptr && of_instance->get != nullptr) {
    found = Guarded("get_extension", dim_,
                    [&] { return of_instance->get(handle_, PLUMB_EXT_RESIDUAL); });
  }
  const bool is_whole = KnownResidual(found).forward != nullptr;
  return is_whole ? static_cast<const plumb_norm_residual*>(found) : nullptr;
}

const plumb_norm_combine* Instance::Combine() const {
  const auto* found =
      static_cast<const plumb_norm_combine*>(QueryExtension(norm_, PLUMB_EXT_COMBINE));
  return found != nullptr && found->combine != nullptr ? found : nullptr;
}

Instance::FillFunction Instance::GetFill(uint32_t i) const {
  constexpr size_t kEnd = offsetof(plumb_tensor_def, fill) + sizeof(FillFunction);
  return layout_.tensor_stride >= kEnd ? tensor(i).fill : nullptr;
}

bool Instance::IsFilled(uint32_t i) const {
  return tensor(i).init == PLUMB_INIT_FILL && GetFill(i) != nullptr;
}

plumb_status Instance::Fill(const plumb_fill_call& call) const {
  return Guarded("fill", dim_, [&] { return GetFill(call.tensor)(handle_, &call); });
}

int64_t CountElements(const plumb_tensor_def& def) {
  int64_t size = 1;
  for (uint32_t i = 0; i < def.ndim; ++i) size *= def.dims[i];
  return size;
}

}  // namespace plumb::check
