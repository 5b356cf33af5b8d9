// SPDX-License-Identifier: Apache-2.0
// safetensors files: an 8-byte little-endian header length, a JSON header that gives each tensor a
// dtype, a shape and a range of the data, then the data, back to back.
//
// The reader maps the file and trusts nothing in it; the writer streams from the tensors' own
// memory, or a piece at a time from whoever knows them, and replaces the file atomically.
#ifndef PLUMB_RUNTIME_FORMATS_SAFETENSORS_H_
#define PLUMB_RUNTIME_FORMATS_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/file.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

struct TensorEntry {
  std::string name;
  std::string dtype;  // as the file spells it: "F32", "I32", "BF16", ...
  Shape shape;
  // In the mapped file. May lie at any address: copy it out instead of casting.
  absl::string_view data;
};

// A file opened for reading. Every range was checked: inside the data, of the size that dtype and
// shape require, without holes and overlaps. Immutable; move-only; the entries live as long as it.
class SafetensorsFile {
 public:
  // Errors name the file and the tensor: NotFound and the like from the file system, DataLoss when
  // the content is not a whole safetensors file, InvalidArgument when its header breaks the format.
  static absl::StatusOr<SafetensorsFile> Open(
      const std::string& path, MappedFile::Access access = MappedFile::Access::kRead);
  // The same over a file that is already mapped; `path` is for messages.
  static absl::StatusOr<SafetensorsFile> FromMapped(MappedFile file, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const {
    return tensors_;
  }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* Find(absl::string_view name) const;  // nullptr when missing
  // Of one of this file's tensors: where its data begin, in bytes from the file's beginning.
  int64_t OffsetOf(const TensorEntry& tensor) const {
    return tensor.data.data() - file_.content().data();
  }
  // What stands before the data: all that says which tensors there are, and where.
  absl::string_view header() const;

  // Copies tensor `name` to `destination`, type.bytes() of it. NotFound when the file has no such
  // tensor, InvalidArgument when its dtype or shape is another.
  absl::Status Read(absl::string_view name, const TensorType& type, void* destination) const;

 private:
  SafetensorsFile(MappedFile file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  MappedFile file_;
  std::string path_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string, size_t> index_;
};

struct TensorToWrite {
  std::string name;
  TensorType type;
  const void* data = nullptr;  // type.bytes() of it, borrowed
  // For a tensor that does not stand anywhere as the file has it (`data` is null): copies its
  // elements [begin, begin + n) to `to`.
  std::function<void(int64_t begin, int64_t n, void* to)> copy = nullptr;
  // What the file calls elements of type.dtype's size, where it is not that dtype: "F16".
  const char* dtype = nullptr;
};

// A safetensors file before it is written: its header, and where the tensors are, which must stay
// as they are for as long as the image is used.
class SafetensorsImage {
 public:
  // Tensors lie in the given order, the first at a multiple of 64 bytes. `metadata` is written with
  // "format":"pt" added, which readers of the Python world insist on. InvalidArgument for a name
  // that comes twice, is empty, is not UTF-8 or is "__metadata__", and for another "format".
  static absl::StatusOr<SafetensorsImage> Create(
      absl::Span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata);

  // Gives the file to `sink`, piece after piece; ends with its first error. What must be copied
  // goes through a buffer of one megabyte.
  absl::Status Produce(PieceSink sink) const;
  int64_t bytes() const { return bytes_; }
  // What stands before the data.
  absl::string_view header() const { return prefix_; }

 private:
  std::string prefix_;  // header length and header
  std::vector<TensorToWrite> tensors_;
  int64_t bytes_ = 0;
};

// Gives the data of one tensor to `sink`, as SafetensorsImage::Produce does.
absl::Status ProduceTensor(const TensorToWrite& tensor, PieceSink sink);

absl::Status WriteSafetensors(const std::string& path, absl::Span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata = {});

struct WantedTensor {
  std::string name;
  Shape shape;  // of f32
};

// Checks that a file has the tensors of a model. Errors: kInvalidArgument with all that is missing,
// misshapen, or surplus among the names in the file that begin with `prefix`.
absl::Status CheckTensorsFit(const SafetensorsFile& file, absl::Span<const WantedTensor> wanted,
                             absl::string_view prefix);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_SAFETENSORS_H_
