// SPDX-License-Identifier: Apache-2.0
// The plugin as a host sees it, from dlopen on: its norms, the values of their attributes, and
// instances with their hot functions. Every call is traced, and exceptions of the plugin are caught
// and named (trace.h). Thread-safe, except Versioned.
#ifndef PLUMB_PLUGINS_CHECK_PLUGIN_H_
#define PLUMB_PLUGINS_CHECK_PLUGIN_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/trace.h"
#include "plumb/ext/combine.h"
#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

// -- The file -------------------------------------------------------------------------------------

// Largest number of norms that are read from one file.
inline constexpr uint32_t kMaxNorms = 64;

// Loads the file like plumb does: RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE. Nothing is ever unloaded.
// Errors: the loader's message.
absl::StatusOr<void*> Open(const std::string& path);
// Loads the file, restores the floating-point control, and returns its entry function.
absl::StatusOr<plumb_norm_plugin_v1_fn> Load(const std::string& path);
// Returns the table of norm `index`.
const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index);
// Returns the reason why a host cannot use a table at all (missing functions, another ABI), or "".
std::string TableProblem(const plumb_norm_plugin& table);
// Returns the reason why this machine cannot run the norm, or "". This must be the first call.
std::string Unavailable(const plumb_norm_plugin& norm);
// Returns the extension `id` of the norm; null if it has none.
const void* QueryExtension(const plumb_norm_plugin& norm, const char* id);
// Returns "INVALID_ARGUMENT: words" and so on; "status 77" for a number that is no PLUMB_*
// constant.
std::string StatusText(plumb_status status, const std::string& words = "");

// Returns f64, or f32 if the norm does not offer f64.
uint32_t WidestType(const plumb_norm_plugin& norm);

// -- Attributes -----------------------------------------------------------------------------------

// Values of all attributes, in the schema's order.
using AttributeValues = std::vector<plumb_attr_value>;
// Returns attribute `i` of the schema, using the plugin's stride.
const plumb_attr_def& GetAttr(const plumb_norm_plugin& norm, uint32_t i);

struct AttributeCase {
  std::string name;  // "eps=0.5"; empty for the defaults
  AttributeValues values;
};
// Returns at most 150 sets of attributes: the defaults (for a required attribute, some legal
// value), sets that change one attribute, then sets that change two or all. create() may refuse
// some. Computed once per norm.
const std::vector<AttributeCase>& GetCases(const plumb_norm_plugin& norm);
inline const AttributeValues& DefaultValues(const plumb_norm_plugin& norm) {
  return GetCases(norm)[0].values;
}

// -- Hosts ----------------------------------------------------------------------------------------

// Version of the calling host. Structs grow at their end, so an older host's structs end where v1.0
// ended, and a newer host's have further fields that the plugin cannot know.
enum class HostVersion { kThis, kFirst, kNewer };

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

// Struct in the layout of some host version, followed by a pattern.
template <class T>
class Versioned {
 public:
  Versioned(const T& value, HostVersion host)
      : known_(host == HostVersion::kFirst ? kSizeV1<T> : sizeof(T)) {
    std::memset(bytes_, kUntouched, sizeof(bytes_));
    std::memcpy(bytes_, &value, known_);
    // struct_size is the first field of every struct.
    const auto size = static_cast<uint32_t>(host == HostVersion::kNewer ? sizeof(bytes_) : known_);
    std::memcpy(bytes_, &size, sizeof(size));
  }
  T* get() { return reinterpret_cast<T*>(bytes_); }
  // Copies the fields that the host knows. Returns false if anything was written after them.
  bool CopyTo(T* value) const {
    std::memcpy(value, bytes_, known_);
    return std::all_of(bytes_ + known_, std::end(bytes_), [](char c) { return c == kUntouched; });
  }

 private:
  static constexpr char kUntouched = 0x5a;
  const size_t known_;
  alignas(T) char bytes_[sizeof(T) + 256];
};

// Returns the number of lines that plugins have logged through the host so far.
int64_t HostLogs();

// -- Instances ------------------------------------------------------------------------------------

struct CreateOptions {
  const plumb_host* host = nullptr;  // null: this host, without heads
  int64_t room = 512;                // bytes for the message; negative: none, and a NULL pointer
  int64_t failing = 0;               // index of the allocation that fails, from 1; 0: none
};

// Result of create() and, if it succeeds, of layout() and destroy() after it.
struct Created {
  plumb_status status = PLUMB_OK;
  std::string text;           // text in err
  std::string problem;        // violation for any values: "writes beyond 7 bytes of room"
  int64_t allocations = 0;    // allocations in create()
  std::vector<Block> blocks;  // memory that was not freed
};
// If `kept` is not null, leaves the instance there, without layout() and destroy().
Created TryCreate(const plumb_norm_plugin& norm, uint32_t dim, const AttributeValues& values,
                  const CreateOptions& options = {}, plumb_norm_instance** kept = nullptr);

// Hot functions.
enum class Hot {
  kForward,
  kBackward,
  kStatsPartial,
  kStatsCombine,
  kStatsFinalize,
  kResidualForward,
  kResidualBackward
};
const char* GetName(Hot function);  // "forward"

// Arguments that only some hot functions have.
struct HotArguments {
  uint32_t phase = PLUMB_PHASE_FORWARD;
  void* acc = nullptr;                          // result of stats_partial; acc of the others
  const void* partial = nullptr;                // second operand of stats_combine
  const plumb_norm_combine* combine = nullptr;  // null: the table's stats_combine
  const plumb_norm_residual* residual = nullptr;
  plumb_residual_call sums = {};
};

// Instance of a norm; the destructor destroys it. Immutable.
class Instance {
 public:
  // Returns null if create() answers INVALID_ARGUMENT, because a norm may refuse a dim, or a host.
  // Ends the check if create or layout fails otherwise. `heads`: plumb_host::heads; 0: not given.
  static std::unique_ptr<Instance> Create(const plumb_norm_plugin& norm, uint32_t dim,
                                          const AttributeValues& values, uint32_t heads = 0,
                                          HostVersion version = HostVersion::kThis);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const plumb_norm_plugin& norm() const { return norm_; }
  bool Has(uint32_t flag) const { return (norm_.flags & flag) != 0; }
  const plumb_norm_layout& layout() const { return layout_; }
  uint32_t dim() const { return dim_; }
  const std::vector<Block>& blocks() const { return blocks_; }  // its memory
  uint32_t n_tensors() const { return layout_.n_params + layout_.n_buffers; }
  // Returns parameter `i`, or buffer i - n_params, using the plugin's stride.
  const plumb_tensor_def& tensor(uint32_t i) const;
  // Returns all numbers of the layout that every host version knows, as text to compare.
  std::string LayoutText() const;

  // Calls a hot function of the plugin.
  plumb_status Call(Hot function, const plumb_norm_call& call, int64_t r0, int64_t r1,
                    const HotArguments& more = {}) const;

  // Returns the extension; null if the instance does not offer it.
  const plumb_norm_residual* Residual() const;
  const plumb_norm_combine* Combine() const;

  // Returns the function that fills tensor `i`; null if the plugin's definition has none.
  using FillFunction = decltype(plumb_tensor_def::fill);
  FillFunction GetFill(uint32_t i) const;
  // Returns true if the norm itself writes the tensor's initial values.
  bool IsFilled(uint32_t i) const;
  plumb_status Fill(const plumb_fill_call& call) const;

 private:
  Instance(const plumb_norm_plugin& norm, uint32_t dim, uint32_t heads, HostVersion version);
  void ReadLayout();

  const plumb_norm_plugin& norm_;
  const HostVersion version_;
  Versioned<plumb_host> host_;
  const uint32_t dim_;
  plumb_norm_instance* handle_ = nullptr;
  std::vector<Block> blocks_;
  plumb_norm_layout layout_{};
};

// Returns the number of elements of a tensor.
int64_t CountElements(const plumb_tensor_def& def);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PLUGIN_H_
