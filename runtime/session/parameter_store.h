// ParameterLayout: where each parameter stands in a flat buffer. Gradients and optimizer moments
// use buffers of the same layout, so that one pass over memory updates everything. ParameterStore:
// all that is kept of one model: its weights in such a buffer, and in another the buffers of its
// norms.
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
    int64_t begin = 0;  // in elements; a multiple of 32: aligned in a buffer of bf16 too
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

// Where the states of norms stand in a flat buffer, and their buffers in them. A value.
struct StateLayout {
  struct Entry {
    std::string name;   // of the state
    int64_t begin = 0;  // in elements; a multiple of 32
    int64_t elements = 0;
  };
  struct Buffer {
    std::string name;
    Shape shape;
    int64_t begin = 0;  // in elements
  };
  std::vector<Entry> entries;
  std::vector<Buffer> buffers;
  int64_t size = 0;  // elements, padding included

  explicit StateLayout(const std::vector<NormStateSpec>& states);
  const Entry* Find(absl::string_view state) const;  // null: no norm has it

  // Binds every state of `data` to the executable's.
  absl::Status Bind(float* data, Executable* executable) const;
};

// Thread-compatible. Programs read the weights in place; a training program writes the states.
class ParameterStore {
 public:
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states)
      : layout_(parameters),
        states_(states),
        buffer_(layout_.size * static_cast<int64_t>(sizeof(float))),
        state_buffer_(states_.size * static_cast<int64_t>(sizeof(float))) {}

  const ParameterLayout& layout() const { return layout_; }
  float* data() const { return buffer_.as<float>(); }
  const StateLayout& states() const { return states_; }
  float* state_data() const { return state_buffer_.as<float>(); }  // [states().size]

  // Binds all of it to an executable of the model.
  absl::Status Bind(Executable* executable) const;
  // Parameters, then buffers, for a file.
  std::vector<TensorToWrite> Tensors() const;
  // Copies all of them from a file. As ParameterLayout::Read.
  absl::Status Read(const SafetensorsFile& file) const;

 private:
  ParameterLayout layout_;
  StateLayout states_;
  AlignedBuffer buffer_, state_buffer_;
};

// Draws every initial value; `parameters` and `states` are those of the store.
void DrawParameters(const std::vector<ParameterSpec>& parameters,
                    const std::vector<NormStateSpec>& states, uint64_t seed, int threads,
                    const ParameterStore& store);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_
