// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/calls.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "plugins/check/malloc_hooks.h"
#include "runtime/plugin/descriptor.h"

namespace plumb::check {
namespace {

constexpr char kUntouched = 0x5a;

std::atomic<int64_t> host_logs{0};

void HostLog(void*, int32_t, const char*) { ++host_logs; }

const void* HostGetExtension(void*, const char*) { return nullptr; }

plumb_host HostOf(uint32_t heads, HostVersion version = HostVersion::kThis) {
  const uint32_t minor = version == HostVersion::kFirst   ? 0
                         : version == HostVersion::kNewer ? kNewerMinor
                                                          : PLUMB_NORM_ABI_MINOR;
  return {sizeof(plumb_host), minor, nullptr, HostLog, HostGetExtension, heads, 0};
}

// Returns a legal value for an attribute without a default.
plumb_attr_value LegalValue(const plumb_attr_def& def) {
  const double number = std::isfinite(def.min) ? def.min : std::isfinite(def.max) ? def.max : 1.0;
  plumb_attr_value value{};
  if (def.type == PLUMB_ATTR_F64) value.f = number;
  if (def.type == PLUMB_ATTR_I64) value.i = static_cast<int64_t>(std::ceil(number));
  if (def.type == PLUMB_ATTR_STRING) value.s = "";
  if (def.type == PLUMB_ATTR_ENUM) value.s = def.choices[0];
  return value;
}

const plumb_tensor_def& TensorAt(const plumb_tensor_def* array, uint32_t stride, uint32_t i) {
  const char* at = reinterpret_cast<const char*>(array) + size_t{stride} * i;
  return *reinterpret_cast<const plumb_tensor_def*>(at);
}

}  // namespace

absl::StatusOr<void*> Open(const std::string& path) {
  // dlopen would search the system's directories for a name without a slash.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  const Trace trace(Function::kLoad);
  void* library = GuardedBy(Function::kLoad, [&file] {
    return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  });
  if (library != nullptr) return library;
  const char* given = dlerror();
  absl::string_view why = given == nullptr ? "the loader gives no reason" : given;
  if (absl::ConsumePrefix(&why, file)) absl::ConsumePrefix(&why, ": ");
  return absl::FailedPreconditionError(why);
}

absl::StatusOr<plumb_norm_plugin_v1_fn> EntryOf(void* library) {
  void* entry = dlsym(library, PLUMB_NORM_ENTRY_SYMBOL);
  if (entry == nullptr) {
    return absl::FailedPreconditionError("does not export " PLUMB_NORM_ENTRY_SYMBOL);
  }
  return reinterpret_cast<plumb_norm_plugin_v1_fn>(entry);
}

const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index) {
  return Guarded(Function::kEntry, 0, [entry, index] { return entry(index); });
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

const void* ExtensionOf(const plumb_norm_plugin& norm, const char* id) {
  if (norm.get_extension == nullptr) return nullptr;
  return Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension(id); });
}

const plumb_norm_combine* CombineOf(const plumb_norm_plugin& norm) {
  const auto* extension =
      static_cast<const plumb_norm_combine*>(ExtensionOf(norm, PLUMB_EXT_COMBINE));
  return extension != nullptr && extension->combine != nullptr ? extension : nullptr;
}

const plumb_attr_def& AttrOf(const plumb_norm_plugin& norm, uint32_t i) {
  const char* at = reinterpret_cast<const char*>(norm.attrs) + size_t{norm.attr_stride} * i;
  return *reinterpret_cast<const plumb_attr_def*>(at);
}

AttributeValues DefaultValues(const plumb_norm_plugin& norm) {
  AttributeValues values;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    values.push_back((def.flags & PLUMB_ATTR_FLAG_REQUIRED) != 0 ? LegalValue(def) : def.def);
  }
  return values;
}

std::string StatusText(plumb_status status) {
  const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(status));
  return name.empty() ? absl::StrCat("status ", status) : name;
}

int64_t HostLogs() { return host_logs; }

VersionedMemory::VersionedMemory(const void* value, size_t known, size_t tail) : tail_(tail) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* map = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw CheckEnded{"the checker itself ran out of memory"};
  map_ = static_cast<char*>(map);
  mprotect(map_ + page, page, PROT_NONE);
  at_ = map_ + page - known - tail;
  std::memcpy(at_, value, known);
  std::memset(at_ + known, kUntouched, tail);
  const auto size = static_cast<uint32_t>(known + tail);
  std::memcpy(at_, &size, sizeof(size));  // struct_size is the first field of every struct
}

VersionedMemory::~VersionedMemory() {
  munmap(map_, 2 * static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

bool VersionedMemory::TailTouched() const {
  const char* end = map_ + sysconf(_SC_PAGESIZE);
  return std::any_of(end - tail_, end, [](char byte) { return byte != kUntouched; });
}

Created TryCreate(const plumb_norm_plugin& norm, uint32_t dim, const plumb_attr_value* values,
                  const CreateOptions& options) {
  // One buffer for all calls of the thread, so that a plugin that keeps an earlier address is
  // detected.
  thread_local char err[576];
  std::memset(err, kUntouched, sizeof(err));
  const plumb_host host = HostOf(options.heads);
  auto* const untouched = reinterpret_cast<plumb_norm_instance*>(&err);
  plumb_norm_instance* out = untouched;
  const size_t room = static_cast<size_t>(std::max<int64_t>(options.room, 0));
  Created created;
  {
    AllocationWatch watch;
    if (options.failing > 0) watch.FailAt(options.failing);
    created.status = Guarded(Function::kCreate, dim, [&] {
      return norm.create(&host, dim, values, &out, options.room < 0 ? nullptr : err, room);
    });
    created.allocations = watch.allocations();
    watch.FailAt(0);
    if (created.status == PLUMB_OK && out != untouched && out != nullptr) {
      plumb_norm_layout layout{};
      layout.struct_size = sizeof(layout);
      Guarded(Function::kLayout, dim, [&] { return norm.layout(out, &layout); });
      Guarded(Function::kDestroy, dim, [&] { norm.destroy(out); });
    }
    created.outstanding = watch.outstanding();
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

Instance::Instance(const plumb_norm_plugin& norm, uint32_t dim, AttributeValues values,
                   uint32_t heads, HostVersion version)
    : norm_(norm), version_(version), host_(HostOf(heads, version), version), dim_(dim) {
  char err[512] = "";
  plumb_norm_instance* handle = nullptr;
  const plumb_status created = Guarded(Function::kCreate, dim, [&] {
    return norm.create(host_.get(), dim, values.data(), &handle, err, sizeof(err));
  });
  err[sizeof(err) - 1] = '\0';
  // The attribute values are valid only until create() returns, so they are overwritten.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::fill(values.begin(), values.end(), plumb_attr_value{nan, INT64_MIN, nullptr});
  if (created != PLUMB_OK || handle == nullptr) {
    throw CheckEnded{absl::StrFormat("create(dim=%d) answers %s%s%s", dim, StatusText(created),
                                     err[0] == '\0' ? "" : ": ", err)};
  }
  handle_ = handle;
  layout_.struct_size = sizeof(layout_);
  Versioned<plumb_norm_layout> layout(layout_, version);
  // The destructor does not run if the constructor throws.
  try {
    const plumb_status laid_out =
        Guarded(Function::kLayout, dim, [&] { return norm.layout(handle_, layout.get()); });
    std::memcpy(&layout_, layout.get(),
                version == HostVersion::kFirst ? kSizeV1<plumb_norm_layout> : sizeof(layout_));
    const bool has_tensors = layout_.n_params + layout_.n_buffers > 0;
    const std::string problem =
        laid_out != PLUMB_OK   ? " answers " + StatusText(laid_out)
        : layout.TailTouched() ? " writes into fields of a newer host that it cannot know"
        : has_tensors && layout_.tensor_stride < offsetof(plumb_tensor_def, fill)
            ? absl::StrCat(" gives tensor_stride ", layout_.tensor_stride)
            : "";
    if (!problem.empty()) throw CheckEnded{absl::StrCat("layout(dim=", dim, ")", problem)};
  } catch (const CheckEnded&) {
    norm.destroy(handle_);
    throw;
  }
}

Instance::~Instance() {
  // A destructor must not throw. An exception of destroy() ends the process, and the trace names
  // it.
  const Trace trace(Function::kDestroy, dim_);
  norm_.destroy(handle_);
}

const plumb_tensor_def& Instance::param(uint32_t i) const {
  return TensorAt(layout_.params, layout_.tensor_stride, i);
}

const plumb_tensor_def& Instance::buffer(uint32_t i) const {
  return TensorAt(layout_.buffers, layout_.tensor_stride, i);
}

const plumb_tensor_def& Instance::tensor(uint32_t i) const {
  return i < layout_.n_params ? param(i) : buffer(i - layout_.n_params);
}

std::string TextOfLayout(const Instance& instance) {
  const plumb_norm_layout& l = instance.layout();
  std::string text =
      absl::StrFormat("saved %d a row, %d a call, partial %d, needs %d, scratch %d + %d a row",
                      l.saved_per_row, l.saved_per_call, l.partial_elems, l.backward_needs,
                      l.scratch_bytes, l.scratch_bytes_per_row);
  for (uint32_t i = 0; i < l.n_params + l.n_buffers; ++i) {
    const plumb_tensor_def& def = instance.tensor(i);
    absl::StrAppendFormat(&text, ", %s %s [", i < l.n_params ? "parameter" : "buffer", def.name);
    for (uint32_t d = 0; d < def.ndim; ++d) absl::StrAppend(&text, d == 0 ? "" : " ", def.dims[d]);
    absl::StrAppendFormat(&text, "] init %d %.17g %.17g lr %.17g flags %d offset %.17g", def.init,
                          def.init_a, def.init_b, def.lr_scale, def.flags, def.offset);
  }
  return text;
}

int64_t ElementsOf(const plumb_tensor_def& def) {
  int64_t size = 1;
  for (uint32_t i = 0; i < def.ndim; ++i) size *= def.dims[i];
  return size;
}

bool IsFilled(const Instance& instance, uint32_t tensor) {
  return instance.tensor(tensor).init == PLUMB_INIT_FILL && FillOf(instance, tensor) != nullptr;
}

FillFunction FillOf(const Instance& instance, uint32_t tensor) {
  constexpr size_t kEnd = offsetof(plumb_tensor_def, fill) + sizeof(FillFunction);
  return instance.layout().tensor_stride >= kEnd ? instance.tensor(tensor).fill : nullptr;
}

plumb_status Fill(const Instance& instance, const plumb_fill_call& call) {
  const FillFunction fill = FillOf(instance, call.tensor);
  return Guarded(Function::kFill, instance.dim(), [&] { return fill(instance.handle(), &call); });
}

namespace {

// Calls a hot function with the call in the layout of the instance's host.
template <class Work>
plumb_status CallHot(Function function, const Instance& instance, const plumb_norm_call& call,
                     int64_t r0, int64_t r1, const Work& work) {
  Versioned<plumb_norm_call> own(call, instance.version());
  return Guarded(function, call, r0, r1, [&] { return work(instance.handle(), own.get()); });
}

}  // namespace

plumb_status Forward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                     int64_t r1) {
  return CallHot(Function::kForward, instance, call, r0, r1, [&](auto* handle, auto* own) {
    return instance.norm().forward(handle, own, r0, r1);
  });
}

plumb_status Backward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                      int64_t r1) {
  return CallHot(Function::kBackward, instance, call, r0, r1, [&](auto* handle, auto* own) {
    return instance.norm().backward(handle, own, r0, r1);
  });
}

plumb_status StatsPartial(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          int64_t r0, int64_t r1, void* partial) {
  return CallHot(Function::kStatsPartial, instance, call, r0, r1, [&](auto* handle, auto* own) {
    return instance.norm().stats_partial(handle, phase, own, r0, r1, partial);
  });
}

plumb_status StatsCombine(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          void* acc, const void* partial, const plumb_norm_combine* extension) {
  return CallHot(Function::kStatsCombine, instance, call, 0, call.rows,
                 [&](auto* handle, auto* own) -> plumb_status {
                   if (extension != nullptr)
                     return extension->combine(handle, phase, own, acc, partial);
                   instance.norm().stats_combine(handle, phase, own, acc, partial);
                   return PLUMB_OK;
                 });
}

plumb_status StatsFinalize(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                           void* acc) {
  return CallHot(Function::kStatsFinalize, instance, call, 0, call.rows,
                 [&](auto* handle, auto* own) {
                   return instance.norm().stats_finalize(handle, phase, own, acc);
                 });
}

plumb_status ResidualCall(const Instance& instance, bool is_forward,
                          const plumb_norm_residual& extension, const plumb_norm_call& call,
                          const plumb_residual_call& residual, int64_t r0, int64_t r1) {
  Versioned<plumb_residual_call> sums(residual, instance.version());
  return CallHot(is_forward ? Function::kResidualForward : Function::kResidualBackward, instance,
                 call, r0, r1, [&](auto* handle, auto* own) {
                   const auto function = is_forward ? extension.forward : extension.backward;
                   return function(handle, own, sums.get(), r0, r1);
                 });
}

}  // namespace plumb::check
