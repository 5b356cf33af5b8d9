// SPDX-License-Identifier: Apache-2.0
// ParameterLayout: the offsets of the parameters in a flat buffer. Gradients and optimizer moments
// use buffers of the same layout, so that one pass over memory updates everything. ParameterStore:
// the persistent state of one model: its weights in such a buffer, as floats or as split f32, and
// the buffers of its norms in another; or its weights where they lie in a file.
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
  // The error that Read would give.
  absl::Status Check(absl::string_view prefix, const SafetensorsFile& file) const;
};

// The offsets of norms' states in a flat buffer, and of the buffers in them. A value.
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

// The form of a store for programs of `format`: the one that they read in place, if there is one.
inline WeightFormat FormToKeep(WeightFormat format) {
  return format == WeightFormat::kBf16 ? WeightFormat::kBf16 : WeightFormat::kF32;
}

// Where one of a model's tensors lies, row-major, in a file that was opened for copying on write.
struct TensorInFile {
  std::string name;
  std::shared_ptr<const MappedFile> file;
  std::string path;    // of the file, for messages
  int64_t offset = 0;  // in bytes, from its beginning
  FloatFormat format = FloatFormat::kF32;
};

// Thread-compatible. Weights are f32 to the bit, and take four bytes each (but those whose low
// planes lie on another rank), in either form:
//   kF32   all are floats;
//   kBf16  those that programs of this format read as bf16 are split (split_f32.h): such programs
//          read the high planes in place, and no copy is kept. Only the payload of a NaN may
//          change.
// Programs read the weights in place; a training program writes the states.
class ParameterStore {
 public:
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states,
                 WeightFormat form = WeightFormat::kF32,  // kF32 or kBf16
                 std::vector<bool> owned = {});
  // `owned`, of one rank of several in kBf16: the entries whose f32 it keeps; empty: all. Of others
  // that are split it has the high planes only.
  static int64_t Bytes(const std::vector<ParameterSpec>& parameters, WeightFormat form,
                       const std::vector<bool>& owned);
  // A store in kF32 whose weights stay in the file, which was opened for copying on write, where
  // they lie at a multiple of kAlignment; others are copied, as are norms' states. Errors: as Read.
  // Tensors are called `prefix` + name there.
  static absl::StatusOr<ParameterStore> Map(const std::vector<ParameterSpec>& parameters,
                                            const std::vector<NormStateSpec>& states,
                                            SafetensorsFile file, absl::string_view prefix = "");

  // The same of tensors anywhere in files. Matrices of f32 stay where they lie at an address for
  // floats; those of 16 bits until their f32 are asked for; vectors are copied. Buffers of norms
  // are what they begin with. Errors: kInvalidArgument that lists what is missing, surplus, or
  // beyond its file's end.
  static absl::StatusOr<ParameterStore> MapEach(const std::vector<ParameterSpec>& parameters,
                                                const std::vector<NormStateSpec>& states,
                                                absl::Span<const TensorInFile> tensors,
                                                int threads);

  const ParameterLayout& layout() const { return layout_; }
  // The entry's form. REQUIRES, of the other two: the entry has that form.
  bool is_split(size_t entry) const { return is_split_[entry]; }
  SplitF32 split(size_t entry) const;
  float* floats(size_t entry) const;
  // Whether the entry's f32 are here; else split(entry).low is null.
  bool is_here(size_t entry) const { return !is_split_[entry] || low_[entry] != nullptr; }
  bool is_whole() const { return owned_.empty(); }
  const std::vector<bool>& owned() const { return owned_; }
  // Whether the f32 of all entries can be read: kFailedPrecondition where some lie on other ranks,
  // which do not answer now.
  absl::Status CheckWhole() const;
  // Low planes that lie on other ranks.
  class Remote {
   public:
    virtual ~Remote() = default;
    virtual absl::Status CheckInUse() const = 0;
    virtual void ReadLow(size_t entry, int64_t begin, int64_t n, uint16_t* to) = 0;
    virtual void WriteLow(size_t entry, int64_t begin, int64_t n, const uint16_t* from) = 0;
  };
  // null: none can be reached.
  void SetRemote(Remote* remote) { remote_ = remote; }
  // Whether the entry lies in a file in 16 bits; its bf16 there, as programs read them, else null.
  bool is_narrow(size_t entry) const { return narrow_ != nullptr && narrow_->has(entry); }
  uint16_t* narrow_bf16(size_t entry) const;
  // Before programs read narrow_bf16 after floats were written to.
  void RenewNarrow(size_t entry) const;

  // Elements [begin, begin + n) of an entry of either form, as floats; on the calling thread.
  // REQUIRES, to read what is not here: CheckWhole(). Without a remote only the high plane of what
  // is not here is written.
  void Read(size_t entry, int64_t begin, int64_t n, float* to) const;
  void Write(size_t entry, int64_t begin, int64_t n, const float* from) const;

  bool is_mapped() const { return file_.has_value() || !files_.empty(); }
  // All weights of a store in kF32, in the layout. REQUIRES: it is not mapped.
  float* data() const;
  // Where entries [first, end) of a store that is not mapped lie: what programs read, side by side,
  // and, where the store is whole, the low planes, side by side too.
  std::vector<absl::Span<std::byte>> Storage(size_t first, size_t end) const;
  int64_t bytes() const { return buffer_.size(); }  // of the weights

  const StateLayout& states() const { return states_; }
  float* state_data() const { return state_buffer_.as<float>(); }  // [states().size]

  // Parameters, then buffers, for a file, in f32, under `prefix` + name. The store must stay where
  // it is.
  std::vector<TensorToWrite> Tensors(absl::string_view prefix = "") const;
  // Copies all of them from a file. As ParameterLayout::Read.
  absl::Status Read(const SafetensorsFile& file, absl::string_view prefix = "") const;
  // The error that Read would give.
  absl::Status Check(const SafetensorsFile& file, absl::string_view prefix) const;

 private:
  struct Mapped {};
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states, SafetensorsFile file,
                 absl::string_view prefix, Mapped);
  // For MapEach, which fills at_.
  ParameterStore(const std::vector<ParameterSpec>& parameters,
                 const std::vector<NormStateSpec>& states,
                 const std::vector<const TensorInFile*>& tensors);
  // Where the entry lies in the file, if that will do, else null.
  float* InFile(size_t entry, absl::string_view prefix) const;

  ParameterLayout layout_;
  StateLayout states_;
  WeightFormat form_;
  std::vector<bool> is_split_;            // by entry
  absl::optional<SafetensorsFile> file_;  // of a mapped store, or
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::unique_ptr<NarrowWeights> narrow_;  // of entries in 16 bits
  AlignedBuffer buffer_, state_buffer_;    // of a mapped store: what is not read in the file
  std::vector<float*> at_;                 // by entry: its first element, or high plane
  std::vector<uint16_t*> low_;             // by entry; null: it has none here
  std::vector<bool> owned_;                // by entry; empty: all
  Remote* remote_ = nullptr;
};

// Draws every initial value; `parameters` and `states` are those of the store. Errors: of a norm
// that writes its values itself.
absl::Status DrawParameters(const std::vector<ParameterSpec>& parameters,
                            const std::vector<NormStateSpec>& states, uint64_t seed, int threads,
                            const ParameterStore& store);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PARAMETER_STORE_H_
