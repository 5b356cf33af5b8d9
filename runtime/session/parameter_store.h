// SPDX-License-Identifier: Apache-2.0
// ParameterLayout: the offsets of the parameters in a flat buffer. Gradients and optimizer moments
// use buffers of one layout, that of the weights without the frozen ones, so that one pass over
// memory updates everything. ParameterStore:
// the persistent state of one model. It owns the weights in such a buffer, as floats or as split
// f32, or maps the files that contain them, and owns the buffers of the norms. Both are
// thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_
#define PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/file.h"
#include "runtime/compile/executable.h"
#include "runtime/formats/safetensors.h"
#include "runtime/kernels/simd/split_f32.h"
#include "runtime/model/build.h"
#include "runtime/model/parameters.h"
#include "runtime/session/narrow_weights.h"

namespace plumb {

// Offsets of parameters. Frozen ones have no elements: begin == end. A value.
struct ParameterLayout {
  struct Entry {
    std::string name;
    Shape shape;
    int64_t begin = 0;  // in elements; a multiple of 32: aligned in a buffer of bf16 too
    int64_t end = 0;
    bool is_frozen() const { return begin == end; }
  };
  std::vector<Entry> entries;  // ordered by offset
  int64_t size = 0;            // in elements, with padding

  // `frozen` has the names of frozen parameters, in the order of `parameters`.
  explicit ParameterLayout(const std::vector<ParameterSpec>& parameters,
                           const std::vector<std::string>& frozen = {});
  int64_t num_parameters() const;  // without padding

  // Binds every tensor of `buffer` that is not frozen to the value or output `prefix` + name of the
  // executable.
  absl::Status Bind(absl::string_view prefix, float* buffer, Executable* executable) const;

  // Returns the tensors of `buffer` for a file, named `prefix` + name.
  std::vector<TensorToWrite> Tensors(absl::string_view prefix, const float* buffer) const;

  // Copies the tensors `prefix` + name of a file into `buffer`. Fails with one error that lists all
  // missing, surplus (names with this prefix) and misshapen tensors, and copies nothing then.
  absl::Status Read(absl::string_view prefix, const SafetensorsFile& file, float* buffer) const;
  // Returns the error that Read would return.
  absl::Status Check(absl::string_view prefix, const SafetensorsFile& file) const;
};

// Offsets of norms' states in a flat buffer, and of the buffers in them. A value.
struct StateLayout {
  struct Entry {
    std::string name;   // name of the state
    int64_t begin = 0;  // in elements; a multiple of 32
    int64_t elements = 0;
    bool optional = false;  // programs may lack it: loads of experts
  };
  struct Buffer {
    std::string name;
    Shape shape;
    int64_t begin = 0;  // in elements
  };
  std::vector<Entry> entries;
  std::vector<Buffer> buffers;
  int64_t size = 0;  // in elements, with padding

  explicit StateLayout(const std::vector<NormStateSpec>& states);
  const Entry* Find(absl::string_view state) const;  // null: no norm has it

  // Binds every state in `data` to the executable.
  absl::Status Bind(float* data, Executable* executable) const;
};

// A model's tensor, row-major, in a file that was opened for copy-on-write.
struct TensorInFile {
  std::string name;
  std::shared_ptr<const MappedFile> file;
  std::string path;    // the file's, for messages
  int64_t offset = 0;  // in bytes, from the file's beginning
  FloatFormat format = FloatFormat::kF32;
};

// Weights of a model. Reads return exactly the f32 that were written, in either form, and a weight
// takes four bytes:
//   kF32   all weights are floats;
//   kBf16  weights that programs of this format read as bf16 are split (split_f32.h): programs read
//          the high planes in place, without a copy. Only the payload of a NaN may change.
// Programs read the weights in place; a training program writes the states. Thread-compatible.
class ParameterStore {
 public:
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states,
                 WeightFormat form = WeightFormat::kF32);  // kF32 or kBf16
  // Returns the bytes of the weights, the same in both forms.
  static int64_t Bytes(const std::vector<ParameterSpec>& parameters);
  // Maps a file: creates a store in kF32 whose weights stay in the file, which was opened for
  // copy-on-write, if they are aligned to kAlignment. Other weights and norms' states are copied.
  // The tensors are named `prefix` + name in the file. Errors: as Read.
  static absl::StatusOr<ParameterStore> Map(const std::vector<ParameterSpec>& parameters,
                                            const std::vector<NormStateSpec>& states,
                                            SafetensorsFile file, absl::string_view prefix = "");

  // Maps tensors of any files. f32 matrices that are aligned for floats stay in the file; 16-bit
  // matrices stay there until their f32 are requested; vectors are copied. Norms' buffers get their
  // initial values. Errors: kInvalidArgument that lists tensors that are missing, surplus, or
  // beyond the end of their file.
  static absl::StatusOr<ParameterStore> MapEach(const std::vector<ParameterSpec>& parameters,
                                                const std::vector<NormStateSpec>& states,
                                                absl::Span<const TensorInFile> tensors,
                                                int threads);

  const ParameterLayout& layout() const { return layout_; }
  // Returns true if the entry is split. Requires split() or floats() to match this form.
  bool is_split(size_t entry) const { return is_split_[entry]; }
  SplitF32 split(size_t entry) const;
  float* floats(size_t entry) const;
  // Returns true if the entry is stored in a file in 16 bits; narrow_bf16 returns its bf16 there,
  // as programs read it, else null.
  bool is_narrow(size_t entry) const { return narrow_ != nullptr && narrow_->has(entry); }
  uint16_t* narrow_bf16(size_t entry) const;
  // Updates narrow_bf16 from the f32. Call it after floats were written, before programs read it.
  void RenewNarrow(size_t entry) const;

  // Reads or writes elements [begin, begin + n) of an entry of either form, as floats, on the
  // calling thread.
  void Read(size_t entry, int64_t begin, int64_t n, float* to) const;
  void Write(size_t entry, int64_t begin, int64_t n, const float* from) const;

  bool is_mapped() const { return file_.has_value() || !files_.empty(); }
  // Returns all weights of a store in kF32, in the layout. Requires: not mapped.
  float* data() const;
  // Returns the memory of the weights, then of the norms' states. Requires: not mapped.
  std::vector<absl::Span<std::byte>> Storage() const;
  int64_t bytes() const { return buffer_.size(); }  // weights only

  const StateLayout& states() const { return states_; }
  float* state_data() const { return state_buffer_.as<float>(); }  // [states().size]

  // Returns parameters, then norms' buffers, for a file, in f32, named `prefix` + name. Requires:
  // the store is not moved while they are in use.
  std::vector<TensorToWrite> Tensors(absl::string_view prefix = "") const;
  // Copies all of them from a file. Errors: as ParameterLayout::Read.
  absl::Status Read(const SafetensorsFile& file, absl::string_view prefix = "") const;
  // Copies those of them that are in a file. Returns the others, and the file's other tensors whose
  // names begin with `prefix`: "missing: NAME", "surplus: NAME". Errors: kInvalidArgument for
  // misshapen tensors; nothing is copied then.
  absl::StatusOr<std::vector<std::string>> ReadKnown(const SafetensorsFile& file,
                                                     absl::string_view prefix) const;
  // Returns the error that Read would return.
  absl::Status Check(const SafetensorsFile& file, absl::string_view prefix) const;

 private:
  struct Mapped {};
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states, SafetensorsFile file,
                 absl::string_view prefix, Mapped);
  // Creates a store for MapEach, which fills at_.
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states,
                 const std::vector<const TensorInFile*>& tensors);
  // Returns the entry's data in the file if they are aligned, else null.
  float* InFile(size_t entry, absl::string_view prefix) const;

  ParameterLayout layout_;
  StateLayout states_;
  WeightFormat form_;
  std::vector<bool> is_split_;            // indexed by entry
  absl::optional<SafetensorsFile> file_;  // set if made by Map; else files_ is
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::unique_ptr<NarrowWeights> narrow_;  // 16-bit entries
  AlignedBuffer buffer_, state_buffer_;    // in a mapped store: what is not read from the file
  std::vector<float*> at_;                 // indexed by entry: first element, or high plane
  std::vector<uint16_t*> low_;             // indexed by entry; null: not split
};

// Draws all initial values; `parameters` and `states` are those of the store. Errors: those of
// norms that initialize their values themselves.
absl::Status DrawParameters(const std::vector<ParameterSpec>& parameters,
                            const std::vector<NormStateSpec>& states, uint64_t seed, int threads,
                            const ParameterStore& store);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_
