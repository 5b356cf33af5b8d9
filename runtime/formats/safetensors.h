// SPDX-License-Identifier: Apache-2.0
// safetensors files: an 8-byte little-endian header length, a JSON header with the dtype, the shape
// and the data range of each tensor, then the data, back to back.
//
// The reader maps the file and validates everything in it. The writer streams from the tensors' own
// memory or from callbacks, and replaces the file atomically.
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
  std::string dtype;  // spelled like in the file: "F32", "I32", "BF16", ...
  Shape shape;
  // Bytes in the mapped file. They may be unaligned: copy them instead of casting.
  absl::string_view data;
};

// A file opened for reading. Every range was checked: it is inside the data, has the size that
// dtype and shape require, and there are no holes or overlaps. Immutable; move-only; owns the
// entries.
class SafetensorsFile {
 public:
  // Opens and checks a file. Errors name the file and the tensor: kNotFound and others from the
  // file system; kDataLoss if the file is truncated; kInvalidArgument if its header is malformed.
  static absl::StatusOr<SafetensorsFile> Open(
      const std::string& path, MappedFile::Access access = MappedFile::Access::kRead);
  // Does the same with a file that is already mapped; `path` is for messages.
  static absl::StatusOr<SafetensorsFile> FromMapped(MappedFile file, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const {
    return tensors_;
  }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* Find(absl::string_view name) const;  // nullptr if missing
  // Returns the offset in bytes of a tensor's data in the file. Requires: an entry of this file.
  int64_t GetOffset(const TensorEntry& tensor) const {
    return tensor.data.data() - file_.content().data();
  }
  // Returns all bytes before the data, which describe all tensors.
  absl::string_view header() const;

  // Copies tensor `name`, type.bytes() of it, to `destination`. Errors: kNotFound if the file has
  // no such tensor, kInvalidArgument if its dtype or shape differs.
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
  const void* data = nullptr;  // type.bytes() bytes, borrowed
  // Copies elements [begin, begin + n) to `to`. Used if `data` is null, for a tensor that is not in
  // memory in the form that the file has.
  std::function<void(int64_t begin, int64_t n, void* to)> copy = nullptr;
  // dtype that the file states, if it is not type.dtype but has elements of the same size: "F16".
  const char* dtype = nullptr;
};

// A safetensors file before it is written: the header, and references to the tensors, whose memory
// must stay valid and unchanged while the image is used.
class SafetensorsImage {
 public:
  // Creates an image with the tensors in the given order; the first one's data begins at a multiple
  // of 64 bytes. "format":"pt", which Python readers require, is added to `metadata`. Errors:
  // kInvalidArgument for a name that occurs twice, is empty, is not UTF-8 or is "__metadata__", and
  // for another "format".
  static absl::StatusOr<SafetensorsImage> Create(
      absl::Span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata);

  // Passes the content of the file to `sink` in pieces; returns the first error of `sink`. Tensors
  // with `copy` pass through a buffer of one MiB.
  absl::Status Produce(PieceSink sink) const;
  int64_t bytes() const { return bytes_; }

 private:
  std::string prefix_;  // header length and header
  std::vector<TensorToWrite> tensors_;
  int64_t bytes_ = 0;
};

absl::Status WriteSafetensors(const std::string& path, absl::Span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata = {});

struct WantedTensor {
  std::string name;
  Shape shape;  // the dtype is f32
};

// Owner of the states of an optimizer, for the errors of CheckTensorsFit.
inline constexpr char kOptimizerOfTheRecipe[] =
    "the recipe (a run continues with the frozen tensors and the optimizers that it began with)";

// Checks that a file has the tensors of `owner`. Errors: kInvalidArgument with all tensors that are
// missing or misshapen, and all surplus ones whose names begin with `prefix`.
absl::Status CheckTensorsFit(const SafetensorsFile& file, absl::Span<const WantedTensor> wanted,
                             absl::string_view prefix, absl::string_view owner = "the model");

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_SAFETENSORS_H_
