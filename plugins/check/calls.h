// SPDX-License-Identifier: Apache-2.0
// Calls of a plugin, from dlopen on. Every call records its function and rows in memory that
// outlives a crash (trace.h), and exceptions of the plugin are caught and named. Thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_CALLS_H_
#define PLUMB_PLUGINS_CHECK_CALLS_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plugins/check/trace.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

// Thrown when the plugin let an exception out: ends the check, which then fails with this text.
// Thrown by checks too that cannot continue.
struct CheckEnded {
  std::string text;  // "exception std::bad_alloc left forward()"
};

// "std::bad_alloc": the type of the exception that is being handled.
std::string CurrentExceptionType();

template <class F>
auto GuardedBy(Function function, F call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    throw CheckEnded{"exception " + CurrentExceptionType() + " left " + NameOf(function) + "()"};
  }
}

// Calls `call` and returns what it returns. Throws CheckEnded when an exception comes out.
template <class F>
auto Guarded(Function function, uint32_t dim, F call) -> decltype(call()) {
  const Trace trace(function, dim);
  return GuardedBy(function, std::move(call));
}

// The same for a function that works on rows [r0, r1) of `operands`.
template <class F>
auto Guarded(Function function, const plumb_norm_call& operands, int64_t r0, int64_t r1, F call)
    -> decltype(call()) {
  const Trace trace(function, operands, r0, r1);
  return GuardedBy(function, std::move(call));
}

// -- The file -------------------------------------------------------------------------------------

// Largest number of norms that are read from one file.
inline constexpr uint32_t kMaxNorms = 64;

// Loads the file as plumb does it: RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE. Nothing is ever unloaded.
// Error: the loader's message.
absl::StatusOr<void*> Open(const std::string& path);
// Returns the entry function of a loaded file. Error: it exports none.
absl::StatusOr<plumb_norm_plugin_v1_fn> EntryOf(void* library);
// Returns the table of norm `index`.
const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index);
// Returns why a host cannot use a table at all (functions missing, another ABI), "" if it can.
std::string TableProblem(const plumb_norm_plugin& table);
// Returns the extension `id` of the norm, null if it has none.
const void* ExtensionOf(const plumb_norm_plugin& norm, const char* id);
// Returns the norm's extension plumb.norm.combine, null if it has none.
const plumb_norm_combine* CombineOf(const plumb_norm_plugin& norm);

// Values of all attributes, in the schema's order.
using AttributeValues = std::vector<plumb_attr_value>;
// Returns attribute `i` of the schema, by the plugin's stride.
const plumb_attr_def& AttrOf(const plumb_norm_plugin& norm, uint32_t i);
// Returns the attributes' defaults; for a required attribute some legal value.
AttributeValues DefaultValues(const plumb_norm_plugin& norm);

// Returns "INVALID_ARGUMENT"; "status 77" for a number that is none of PLUMB_*.
std::string StatusText(plumb_status status);

// -- Hosts ----------------------------------------------------------------------------------------

// Version of the host that calls. Structs grow at their end, so those of an older host end where
// v1.0 ended, and those of a newer one have fields at their end that the plugin cannot know.
enum class HostVersion { kThis, kFirst, kNewer };
inline constexpr uint32_t kNewerMinor = 7;

// Sizes of v1.0, which are frozen.
template <class T>
constexpr size_t kSizeV1 = 0;
template <>
constexpr size_t kSizeV1<plumb_host> = 32;
template <>
constexpr size_t kSizeV1<plumb_norm_layout> = 64;
template <>
constexpr size_t kSizeV1<plumb_norm_call> = 168;
template <>
constexpr size_t kSizeV1<plumb_residual_call> = 56;

// Memory for a struct of another version, which ends at an unreadable page.
class VersionedMemory {
 public:
  VersionedMemory(const void* value, size_t known, size_t tail);
  ~VersionedMemory();
  VersionedMemory(const VersionedMemory&) = delete;
  VersionedMemory& operator=(const VersionedMemory&) = delete;
  void* at() const { return at_; }
  bool TailTouched() const;

 private:
  char* map_;
  char* at_;
  size_t tail_;
};

// A struct as a host of some version lays it out.
template <class T>
class Versioned {
 public:
  Versioned(const T& value, HostVersion host) : value_(value) {
    if (host == HostVersion::kFirst) memory_.emplace(&value_, kSizeV1<T>, 0);
    if (host == HostVersion::kNewer) memory_.emplace(&value_, sizeof(T), 256);
  }
  T* get() { return memory_.has_value() ? static_cast<T*>(memory_->at()) : &value_; }
  // Returns true if anything was written behind the fields that this header has.
  bool TailTouched() const { return memory_.has_value() && memory_->TailTouched(); }

 private:
  T value_;
  std::optional<VersionedMemory> memory_;
};

// Number of lines that plugins have given to the host's log so far.
int64_t HostLogs();

// -- Instances ------------------------------------------------------------------------------------

struct CreateOptions {
  uint32_t heads = 0;      // of the host, 0: it tells of none
  int64_t room = 512;      // bytes for the message; negative: none, and NULL
  int64_t failing = 0;     // number of the allocation that fails; 0: none
};

// Result of create() and, where it succeeds, of layout() and destroy() after it.
struct Created {
  plumb_status status = PLUMB_OK;
  std::string text;     // of err
  std::string problem;  // what is wrong whatever the values are: "writes beyond 7 bytes of room"
  int64_t allocations = 0;  // of create
  int64_t outstanding = 0;  // blocks of memory that were not freed
};
Created TryCreate(const plumb_norm_plugin& norm, uint32_t dim, const plumb_attr_value* values,
                  const CreateOptions& options = {});

// An instance, destroyed at the end of its life.
class Instance {
 public:
  // Ends the check when create or layout fail. `heads`: of the host that makes it, 0: none.
  Instance(const plumb_norm_plugin& norm, uint32_t dim, AttributeValues values,
           uint32_t heads = 0, HostVersion version = HostVersion::kThis);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const plumb_norm_plugin& norm() const { return norm_; }
  const plumb_norm_instance* handle() const { return handle_; }
  const plumb_norm_layout& layout() const { return layout_; }
  uint32_t dim() const { return dim_; }
  HostVersion version() const { return version_; }
  const plumb_tensor_def& param(uint32_t i) const;  // by the plugin's stride
  const plumb_tensor_def& buffer(uint32_t i) const;
  // Parameter `i`, or buffer i - n_params.
  const plumb_tensor_def& tensor(uint32_t i) const;

 private:
  const plumb_norm_plugin& norm_;
  const HostVersion version_;
  Versioned<plumb_host> host_;
  uint32_t dim_;
  plumb_norm_instance* handle_ = nullptr;
  plumb_norm_layout layout_{};
};

// Returns every number of a layout that hosts of all versions know, as text to compare.
std::string TextOfLayout(const Instance& instance);

// One call each of the plugin's functions. They return what the plugin returned.
plumb_status Forward(const Instance& instance, const plumb_norm_call& call, int64_t r0, int64_t r1);
plumb_status Backward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                      int64_t r1);
plumb_status StatsPartial(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          int64_t r0, int64_t r1, void* partial);
// Combines by `extension` if it is not null.
plumb_status StatsCombine(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          void* acc, const void* partial,
                          const plumb_norm_combine* extension = nullptr);
plumb_status StatsFinalize(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                           void* acc);
// Forward and backward of the extension plumb.norm.residual.
plumb_status ResidualForward(const Instance& instance, const plumb_norm_residual& extension,
                             const plumb_norm_call& call, const plumb_residual_call& residual,
                             int64_t r0, int64_t r1);
plumb_status ResidualBackward(const Instance& instance, const plumb_norm_residual& extension,
                              const plumb_norm_call& call, const plumb_residual_call& residual,
                              int64_t r0, int64_t r1);

// Returns the number of elements of a tensor.
int64_t ElementsOf(const plumb_tensor_def& def);
// True if the norm writes the tensor's initial values itself.
bool IsFilled(const Instance& instance, uint32_t tensor);
// Returns the function that does; null where the plugin's definition has none.
using FillFunction = decltype(plumb_tensor_def::fill);
FillFunction FillOf(const Instance& instance, uint32_t tensor);
plumb_status Fill(const Instance& instance, const plumb_fill_call& call);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CALLS_H_
