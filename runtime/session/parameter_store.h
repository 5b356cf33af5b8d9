// ParameterLayout: where each parameter stands in a flat buffer. ParameterStore: such a buffer with
// the weights of one model. Gradients and optimizer moments use buffers of the same layout, so that
// one pass over memory updates everything.
#ifndef PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_
#define PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/model/parameters.h"
#include "runtime/session/safetensors.h"

namespace plumb {

// A value.
struct ParameterLayout {
  struct Entry {
    std::string name;
    Shape shape;
    int64_t begin = 0;  // in elements; a multiple of 16
    int64_t end = 0;
  };
  std::vector<Entry> entries;  // in the order of the data
  int64_t size = 0;            // elements, padding included

  explicit ParameterLayout(const std::vector<ParameterSpec>& parameters);
  int64_t num_parameters() const;  // padding excluded

  // Binds every tensor of `buffer` to the executable's value or output `prefix` + name.
  absl::Status Bind(absl::string_view prefix, float* buffer, Executable* executable) const;

  // The tensors of `buffer` for a file, under `prefix` + name.
  std::vector<TensorToWrite> Tensors(absl::string_view prefix, const float* buffer) const;

  // Copies the tensors `prefix` + name of a file into `buffer`. What is missing, surplus (names
  // with this prefix) or misshapen is listed whole in one error, and nothing is copied then.
  absl::Status Read(absl::string_view prefix, const SafetensorsFile& file, float* buffer) const;
};

// Thread-compatible.
class ParameterStore {
 public:
  explicit ParameterStore(const std::vector<ParameterSpec>& parameters)
      : layout_(parameters), buffer_(layout_.size * static_cast<int64_t>(sizeof(float))) {}

  const ParameterLayout& layout() const { return layout_; }
  float* data() const { return buffer_.as<float>(); }

 private:
  ParameterLayout layout_;
  AlignedBuffer buffer_;
};

// Draws every parameter's initial values; `parameters` are those of the store.
void DrawParameters(const std::vector<ParameterSpec>& parameters, uint64_t seed, int threads,
                    const ParameterStore& store);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_
