// Traced calls of a plugin: every call records its function and rows in memory that outlives a
// crash, and exceptions of the plugin are caught and named. Thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_CALLS_H_
#define PLUMB_PLUGINS_CHECK_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plumb/norm_plugin.h"

namespace plumb::check {

// Thrown by the functions below when the plugin let an exception out: ends the check, which then
// fails with this text. Thrown by checks too that cannot continue.
struct CheckEnded {
  std::string text;  // "exception std::bad_alloc left forward()"
};

// The attributes' defaults; for a required attribute some legal value.
std::vector<plumb_attr_value> DefaultValues(const plumb_norm_plugin& norm);

// Attribute `i` of the schema, by the plugin's stride.
const plumb_attr_def& AttrOf(const plumb_norm_plugin& norm, uint32_t i);

// "INVALID_ARGUMENT"; "status 77" for a number that is none of PLUMB_*.
std::string StatusText(plumb_status status);

// An instance, destroyed at the end of its life.
class Instance {
 public:
  // Ends the check when create or layout fail.
  Instance(const plumb_norm_plugin& norm, uint32_t dim);
  // `heads`: of the host that makes it, 0: it tells of none.
  Instance(const plumb_norm_plugin& norm, uint32_t dim, std::vector<plumb_attr_value> values,
           uint32_t heads = 0);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const plumb_norm_plugin& norm() const { return norm_; }
  const plumb_norm_instance* handle() const { return handle_; }
  const plumb_norm_layout& layout() const { return layout_; }
  uint32_t dim() const { return dim_; }
  const plumb_tensor_def& param(uint32_t i) const;  // by the plugin's stride
  const plumb_tensor_def& buffer(uint32_t i) const;
  // Parameter `i`, or buffer i - n_params.
  const plumb_tensor_def& tensor(uint32_t i) const;

 private:
  const plumb_norm_plugin& norm_;
  const plumb_host host_;
  uint32_t dim_;
  plumb_norm_instance* handle_ = nullptr;
  plumb_norm_layout layout_{};
};

// One call each of the plugin's functions. They return what the plugin returned.
plumb_status Forward(const Instance& instance, const plumb_norm_call& call, int64_t r0, int64_t r1);
plumb_status Backward(const Instance& instance, const plumb_norm_call& call, int64_t r0,
                      int64_t r1);
plumb_status StatsPartial(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                          int64_t r0, int64_t r1, void* partial);
void StatsCombine(const Instance& instance, uint32_t phase, const plumb_norm_call& call, void* acc,
                  const void* partial);
plumb_status StatsFinalize(const Instance& instance, uint32_t phase, const plumb_norm_call& call,
                           void* acc);

// How many elements a tensor has.
int64_t ElementsOf(const plumb_tensor_def& def);
// Whether the norm writes the tensor's initial values itself.
bool IsFilled(const Instance& instance, uint32_t tensor);
// The function that does; null where the plugin's definition has none.
using FillFunction = decltype(plumb_tensor_def::fill);
FillFunction FillOf(const Instance& instance, uint32_t tensor);
plumb_status Fill(const Instance& instance, const plumb_fill_call& call);

// Lines that plugins have given to that host's log so far.
int64_t HostLogs();
// A host for create(): logs are counted and forgotten, extensions are not offered.
const plumb_host& TestHost();

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CALLS_H_
