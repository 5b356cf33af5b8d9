// SPDX-License-Identifier: Apache-2.0
// Calls of a plugin, from dlopen on. Every call records its function and rows in memory that
// survives a crash (trace.h); exceptions of the plugin are caught and named. Thread-safe, except
// Instance and Versioned, which are thread-compatible.
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
#include "plumb/ext/combine.h"
#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

// Exception that ends a check, which then fails with this text. Thrown if the plugin lets an
// exception escape, and by checks that cannot continue.
struct CheckEnded {
  std::string text;  // "exception std::bad_alloc left forward()"
};

// Returns the type of the exception that is being handled, such as "std::bad_alloc".
std::string CurrentExceptionType();

template <class F>
auto GuardedBy(Function function, F call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    throw CheckEnded{"exception " + CurrentExceptionType() + " left " + NameOf(function) + "()"};
  }
}

// Calls `call` and returns its result. Throws CheckEnded if an exception escapes.
template <class F>
auto Guarded(Function function, uint32_t dim, F call) -> decltype(call()) {
  const Trace trace(function, dim);
  return GuardedBy(function, std::move(call));
}

// Does the same for a function that works on rows [r0, r1) of `operands`.
template <class F>
auto Guarded(Function function, const plumb_norm_call& operands, int64_t r0, int64_t r1, F call)
    -> decltype(call()) {
  const Trace trace(function, operands, r0, r1);
  return GuardedBy(function, std::move(call));
}

// -- The file -------------------------------------------------------------------------------------

// Largest number of norms that are read from one file.
inline constexpr uint32_t kMaxNorms = 64;

// Loads the file like plumb does: RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE. Nothing is ever unloaded.
// Errors: the loader's message.
absl::StatusOr<void*> Open(const std::string& path);
// Returns the entry function of a loaded file. Errors: it exports none.
absl::StatusOr<plumb_norm_plugin_v1_fn> EntryOf(void* library);
// Returns the table of norm `index`.
const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index);
// Returns the reason why a host cannot use a table at all (missing functions, another ABI), or "".
std::string TableProblem(const plumb_norm_plugin& table);
// Returns the extension `id` of the norm; null if it has none.
const void* ExtensionOf(const plumb_norm_plugin& norm, const char* id);
// Returns the norm's extension plumb.norm.combine; null if it has none.
const plumb_norm_combine* CombineOf(const plumb_norm_plugin& norm);

// Values of all attributes, in the schema's order.
using AttributeValues = std::vector<plumb_attr_value>;
// Returns attribute `i` of the schema, using the plugin's stride.
const plumb_attr_def& AttrOf(const plumb_norm_plugin& norm, uint32_t i);
// Returns the attributes' defaults; for a required attribute, some legal value.
AttributeValues DefaultValues(const plumb_norm_plugin& norm);

// Returns "INVALID_ARGUMENT" and so on; "status 77" for a number that is no PLUMB_* constant.
std::string StatusText(plumb_status status);

// -- Hosts ----------------------------------------------------------------------------------------

// Version of the calling host. Structs grow at their end, so an older host's structs end where v1.0
// ended, and a newer host's have further fields that the plugin cannot know.
enum class HostVersion { kThis, kFirst, kNewer };
inline constexpr uint32_t kNewerMinor = 7;

// Struct sizes of v1.0, which are frozen.
template <class T>
inline constexpr size_t kSizeV1 = 0;
template <>
inline constexpr size_t kSizeV1<plumb_host> = 32;
template <>
inline constexpr size_t kSizeV1<plumb_norm_layout> = 64;
template <>
inline constexpr size_t kSizeV1<plumb_norm_call> = 168;
template <>
inline constexpr size_t kSizeV1<plumb_residual_call> = 56;

// Memory for a struct of another version; it ends at an unreadable page.
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

// Struct in the layout of some host version.
template <class T>
class Versioned {
 public:
  Versioned(const T& value, HostVersion host) : value_(value) {
    if (host == HostVersion::kFirst) memory_.emplace(&value_, kSizeV1<T>, 0);
    if (host == HostVersion::kNewer) memory_.emplace(&value_, sizeof(T), 256);
  }
  T* get() { return memory_.has_value() ? static_cast<T*>(memory_->at()) : &value_; }
  // Returns true if anything was written after the fields of this header.
  bool TailTouched() const { return memory_.has_value() && memory_->TailTouched(); }

 private:
  T value_;
  std::optional<VersionedMemory> memory_;
};

// Returns the number of lines that plugins have logged through the host so far.
int64_t HostLogs();

// -- Instances ------------------------------------------------------------------------------------

struct CreateOptions {
  uint32_t heads = 0;   // plumb_host::heads; 0: not given
  int64_t room = 512;   // bytes for the message; negative: none, and a NULL pointer
  int64_t failing = 0;  // index of the allocation that fails, from 1; 0: none
};

// Result of create() and, if it succeeds, of layout() and destroy() after it.
struct Created {
  plumb_status status = PLUMB_OK;
  std::string text;         // text in err
  std::string problem;      // violation for any values: "writes beyond 7 bytes of room"
  int64_t allocations = 0;  // allocations in create()
  int64_t outstanding = 0;  // blocks of memory that were not freed
};
Created TryCreate(const plumb_norm_plugin& norm, uint32_t dim, const plumb_attr_value* values,
                  const CreateOptions& options = {});

// Instance of a norm; the destructor destroys it.
class Instance {
 public:
  // Ends the check if create or layout fails. `heads`: plumb_host::heads; 0: not given.
  Instance(const plumb_norm_plugin& norm, uint32_t dim, AttributeValues values, uint32_t heads = 0,
           HostVersion version = HostVersion::kThis);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const plumb_norm_plugin& norm() const { return norm_; }
  const plumb_norm_instance* handle() const { return handle_; }
  const plumb_norm_layout& layout() const { return layout_; }
  uint32_t dim() const { return dim_; }
  HostVersion version() const { return version_; }
  const plumb_tensor_def& param(uint32_t i) const;  // using the plugin's stride
  const plumb_tensor_def& buffer(uint32_t i) const;
  // Returns parameter `i`, or buffer i - n_params.
  const plumb_tensor_def& tensor(uint32_t i) const;

 private:
  const plumb_norm_plugin& norm_;
  const HostVersion version_;
  Versioned<plumb_host> host_;
  uint32_t dim_;
  plumb_norm_instance* handle_ = nullptr;
  plumb_norm_layout layout_{};
};

// Returns all numbers of a layout that every host version knows, as text to compare.
std::string TextOfLayout(const Instance& instance);

// Call one function of the plugin each, and return its status.
plumb_status Forward(const Instance& instance, const plumb_norm_call& call, int64_t r0, int64_t r1);
plumb_status Backward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                      int64_t r1);
plumb_status StatsPartial(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          int64_t r0, int64_t r1, void* partial);
// Combines with `extension` if it is not null.
plumb_status StatsCombine(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          void* acc, const void* partial,
                          const plumb_norm_combine* extension = nullptr);
plumb_status StatsFinalize(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                           void* acc);
// Calls forward or backward of the extension plumb.norm.residual.
plumb_status ResidualCall(const Instance& instance, bool is_forward,
                          const plumb_norm_residual& extension, const plumb_norm_call& call,
                          const plumb_residual_call& residual, int64_t r0, int64_t r1);

// Returns the number of elements of a tensor.
int64_t ElementsOf(const plumb_tensor_def& def);
// Returns true if the norm itself writes the tensor's initial values.
bool IsFilled(const Instance& instance, uint32_t tensor);
// Returns the function that fills the tensor; null if the plugin's definition has none.
using FillFunction = decltype(plumb_tensor_def::fill);
FillFunction FillOf(const Instance& instance, uint32_t tensor);
plumb_status Fill(const Instance& instance, const plumb_fill_call& call);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CALLS_H_
