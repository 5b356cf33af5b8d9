#include "plugins/check/calls.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/guarded.h"
#include "plugins/check/trace.h"

namespace plumb::check {
namespace {

// Smallest tensor definition that a plugin of any minor has.
constexpr size_t kTensorDefSizeV1 = 80;

std::atomic<int64_t> host_logs{0};

void HostLog(void*, int32_t, const char*) { ++host_logs; }

const void* HostGetExtension(void*, const char*) { return nullptr; }

// A legal value where the schema has no default.
plumb_attr_value LegalValue(const plumb_attr_def& def) {
  plumb_attr_value value{};
  const double number = std::isfinite(def.min) ? def.min : std::isfinite(def.max) ? def.max : 1.0;
  switch (def.type) {
    case PLUMB_ATTR_F64:
      value.f = number;
      break;
    case PLUMB_ATTR_I64:
      value.i = static_cast<int64_t>(std::ceil(number));
      break;
    case PLUMB_ATTR_ENUM:
      value.s = def.choices == nullptr || def.choices[0] == nullptr ? "" : def.choices[0];
      break;
    case PLUMB_ATTR_STRING:
      value.s = "";
      break;
    default:
      break;
  }
  return value;
}

}  // namespace

const plumb_attr_def& AttrOf(const plumb_norm_plugin& norm, uint32_t i) {
  const char* at = reinterpret_cast<const char*>(norm.attrs) + size_t{norm.attr_stride} * i;
  return *reinterpret_cast<const plumb_attr_def*>(at);
}

std::vector<plumb_attr_value> DefaultValues(const plumb_norm_plugin& norm) {
  std::vector<plumb_attr_value> values;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    values.push_back((def.flags & PLUMB_ATTR_REQUIRED) != 0 ? LegalValue(def) : def.def);
  }
  return values;
}

namespace {
plumb_host HostOf(uint32_t heads) {
  plumb_host host = TestHost();
  host.heads = heads;
  return host;
}
}  // namespace

Instance::Instance(const plumb_norm_plugin& norm, uint32_t dim)
    : Instance(norm, dim, DefaultValues(norm)) {}

Instance::Instance(const plumb_norm_plugin& norm, uint32_t dim,
                   std::vector<plumb_attr_value> values, uint32_t heads)
    : norm_(norm), host_(HostOf(heads)), dim_(dim) {
  char err[512] = "";
  plumb_norm_instance* handle = nullptr;
  const plumb_status created = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&host_, dim, values.data(), &handle, err, sizeof(err));
  });
  err[sizeof(err) - 1] = '\0';
  // They lived until create returned.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::fill(values.begin(), values.end(), plumb_attr_value{nan, INT64_MIN, nullptr});
  if (created != PLUMB_OK || handle == nullptr) {
    throw CheckEnded{absl::StrFormat("create(dim=%d) answers %s%s%s", dim, StatusText(created),
                                     err[0] == '\0' ? "" : ": ", err)};
  }
  handle_ = handle;
  layout_.struct_size = sizeof(layout_);
  // The destructor of an object whose constructor throws does not run.
  try {
    const plumb_status laid_out =
        Guarded(Function::kLayout, dim, [&] { return norm.layout(handle_, &layout_); });
    if (laid_out != PLUMB_OK) {
      throw CheckEnded{absl::StrFormat("layout(dim=%d) answers %s", dim, StatusText(laid_out))};
    }
    if ((layout_.n_params > 0 || layout_.n_buffers > 0) &&
        layout_.tensor_stride < kTensorDefSizeV1) {
      throw CheckEnded{absl::StrFormat("layout(dim=%d) gives tensor_stride %d; v1.0 has %d", dim,
                                       layout_.tensor_stride, kTensorDefSizeV1)};
    }
  } catch (const CheckEnded&) {
    norm.destroy(handle_);
    throw;
  }
}

Instance::~Instance() {
  // A destructor must not throw; what destroy() throws ends the process, and the trace says where.
  const Trace trace(Function::kDestroy, dim_);
  norm_.destroy(handle_);
}

namespace {
const plumb_tensor_def& TensorOf(const plumb_tensor_def* array, uint32_t stride, uint32_t i) {
  const char* at = reinterpret_cast<const char*>(array) + size_t{stride} * i;
  return *reinterpret_cast<const plumb_tensor_def*>(at);
}
}  // namespace

const plumb_tensor_def& Instance::param(uint32_t i) const {
  return TensorOf(layout_.params, layout_.tensor_stride, i);
}

const plumb_tensor_def& Instance::buffer(uint32_t i) const {
  return TensorOf(layout_.buffers, layout_.tensor_stride, i);
}

const plumb_tensor_def& Instance::tensor(uint32_t i) const {
  return i < layout_.n_params ? param(i) : buffer(i - layout_.n_params);
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

plumb_status Forward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                     int64_t r1) {
  return Guarded(Function::kForward, call, r0, r1,
                 [&] { return instance.norm().forward(instance.handle(), &call, r0, r1); });
}

plumb_status Backward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                      int64_t r1) {
  return Guarded(Function::kBackward, call, r0, r1,
                 [&] { return instance.norm().backward(instance.handle(), &call, r0, r1); });
}

plumb_status StatsPartial(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          int64_t r0, int64_t r1, void* partial) {
  return Guarded(Function::kStatsPartial, call, r0, r1, [&] {
    return instance.norm().stats_partial(instance.handle(), phase, &call, r0, r1, partial);
  });
}

void StatsCombine(const Instance& instance, uint32_t phase, const plumb_norm_call& call, void* acc,
                  const void* partial) {
  Guarded(Function::kStatsCombine, instance.dim(),
          [&] { instance.norm().stats_combine(instance.handle(), phase, &call, acc, partial); });
}

plumb_status StatsFinalize(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                           void* acc) {
  return Guarded(Function::kStatsFinalize, call, 0, call.rows, [&] {
    return instance.norm().stats_finalize(instance.handle(), phase, &call, acc);
  });
}

int64_t HostLogs() { return host_logs; }

const plumb_host& TestHost() {
  static const plumb_host host = {
      sizeof(plumb_host), PLUMB_NORM_ABI_MINOR, nullptr, HostLog, HostGetExtension, 0, 0};
  return host;
}

std::string StatusText(plumb_status status) {
  switch (status) {
    case PLUMB_OK:
      return "OK";
    case PLUMB_CANCELLED:
      return "CANCELLED";
    case PLUMB_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case PLUMB_NOT_FOUND:
      return "NOT_FOUND";
    case PLUMB_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case PLUMB_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case PLUMB_OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case PLUMB_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case PLUMB_INTERNAL:
      return "INTERNAL";
    default:
      return absl::StrCat("status ", status);
  }
}

}  // namespace plumb::check
