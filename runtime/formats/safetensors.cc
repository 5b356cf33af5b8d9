// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/safetensors_header.h"

namespace plumb {

namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors are little-endian");

constexpr size_t kLengthBytes = 8;
constexpr int64_t kCopiedBytes = int64_t{1} << 20;  // size of the copy buffer

const char* SafetensorsDType(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "I32";
}

// Returns the JSON header in `content`.
absl::StatusOr<absl::string_view> FindHeader(absl::string_view content) {
  if (content.size() < kLengthBytes) {
    return absl::DataLossError(absl::StrCat("is not a safetensors file: ", content.size(),
                                            " bytes are too few for a header length"));
  }
  uint64_t length;
  std::memcpy(&length, content.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat("is not a safetensors file: its first 8 bytes give a header of ", length,
                     " bytes, more than the ", kMaxSafetensorsHeader, " that the format allows"));
  }
  if (length > content.size() - kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat("is truncated, or not a safetensors file: the header takes ", length,
                     " bytes, the file has ", content.size() - kLengthBytes, " after its first 8"));
  }
  return content.substr(kLengthBytes, length);
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                                      MappedFile::Access access) {
  PLUMB_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, access));
  return FromMapped(std::move(file), path);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::FromMapped(MappedFile file,
                                                            const std::string& path) {
  const absl::string_view content = file.content();
  const std::string prefix = absl::StrCat(path, ": ");
  const absl::StatusOr<absl::string_view> json = FindHeader(content);
  if (!json.ok()) return Annotate(json.status(), prefix);
  const absl::string_view data = content.substr(kLengthBytes + json->size());
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(*json, static_cast<int64_t>(data.size()));
  if (!header.ok()) return Annotate(header.status(), prefix);

  SafetensorsFile result(std::move(file), path);
  result.metadata_ = std::move(header->metadata);
  result.tensors_.reserve(header->tensors.size());
  for (SafetensorsHeader::Tensor& tensor : header->tensors) {
    result.index_.emplace(tensor.name, result.tensors_.size());
    const size_t bytes = static_cast<size_t>(tensor.end - tensor.begin);
    result.tensors_.push_back({std::move(tensor.name), std::move(tensor.dtype),
                               std::move(tensor.shape),
                               data.substr(static_cast<size_t>(tensor.begin), bytes)});
  }
  return result;
}

const TensorEntry* SafetensorsFile::Find(absl::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::string_view SafetensorsFile::header() const {
  const absl::string_view content = file_.content();
  return tensors_.empty() ? content
                          : content.substr(0, static_cast<size_t>(GetOffset(tensors_.front())));
}

absl::Status SafetensorsFile::Read(absl::string_view name, const TensorType& type,
                                   void* destination) const {
  const TensorEntry* entry = Find(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const TensorEntry& tensor : tensors_) names.push_back(tensor.name);
    return absl::NotFoundError(
        absl::StrCat(path_, ": has no tensor ", QuoteName(name), DidYouMean(name, names)));
  }
  const char* dtype = SafetensorsDType(type.dtype);
  if (entry->dtype != dtype || entry->shape != type.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": tensor ", QuoteName(name), " is ", entry->dtype, entry->shape.ToString(),
        ", but the model needs ", dtype, type.shape.ToString()));
  }
  if (!entry->data.empty()) std::memcpy(destination, entry->data.data(), entry->data.size());
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsImage> SafetensorsImage::Create(
    absl::Span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  const auto [format, added] = header.metadata.emplace("format", "pt");
  if (!added && format->second != "pt") {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata \"format\" must be \"pt\", is ", QuoteName(format->second)));
  }
  for (const auto& [key, value] : header.metadata) {
    if (FindInvalidUtf8(key) || FindInvalidUtf8(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", QuoteName(key), " is not valid UTF-8"));
    }
  }

  SafetensorsImage image;
  std::set<absl::string_view> names;
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || FindInvalidUtf8(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuoteName(tensor.name), " cannot be the name of a tensor"));
    }
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors have the name ", QuoteName(tensor.name)));
    }
    const int64_t bytes = tensor.type.bytes();
    PLUMB_CHECK(bytes == 0 || tensor.data != nullptr || tensor.copy != nullptr,
                "a tensor to write has data");
    const char* const dtype =
        tensor.dtype != nullptr ? tensor.dtype : SafetensorsDType(tensor.type.dtype);
    header.tensors.push_back({tensor.name, dtype, tensor.type.shape, offset, offset + bytes});
    offset += bytes;
  }
  const std::string json = FormatSafetensorsHeader(header, static_cast<size_t>(kAlignment));
  if (json.size() > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError("the names and metadata do not fit a safetensors header");
  }
  const uint64_t length = json.size();
  image.prefix_.resize(kLengthBytes);
  std::memcpy(&image.prefix_[0], &length, kLengthBytes);
  image.prefix_ += json;
  image.tensors_.assign(tensors.begin(), tensors.end());
  image.bytes_ = static_cast<int64_t>(image.prefix_.size()) + offset;
  return image;
}

namespace {

// Allocates `buffer` if it is needed; callers reuse it for all tensors.
absl::Status ProduceTensor(const TensorToWrite& tensor, PieceSink sink, AlignedBuffer* buffer) {
  if (tensor.data != nullptr) {
    return sink(absl::string_view(static_cast<const char*>(tensor.data),
                                  static_cast<size_t>(tensor.type.bytes())));
  }
  if (buffer->size() == 0) *buffer = AlignedBuffer(kCopiedBytes);
  const int64_t size = SizeOf(tensor.type.dtype), all = tensor.type.shape.num_elements();
  for (int64_t begin = 0; begin < all; begin += kCopiedBytes / size) {
    const int64_t n = std::min(kCopiedBytes / size, all - begin);
    tensor.copy(begin, n, buffer->data());
    PLUMB_RETURN_IF_ERROR(
        sink(absl::string_view(buffer->as<const char>(), static_cast<size_t>(n * size))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SafetensorsImage::Produce(PieceSink sink) const {
  PLUMB_RETURN_IF_ERROR(sink(prefix_));
  AlignedBuffer buffer;
  for (const TensorToWrite& tensor : tensors_) {
    PLUMB_RETURN_IF_ERROR(ProduceTensor(tensor, sink, &buffer));
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensors(const std::string& path, absl::Span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata) {
  absl::StatusOr<SafetensorsImage> image = SafetensorsImage::Create(tensors, metadata);
  if (!image.ok()) return Annotate(image.status(), absl::StrCat(path, ": "));
  return WriteFileAtomically(path, [&](PieceSink sink) { return image->Produce(sink); });
}

absl::Status CheckTensorsFit(const SafetensorsFile& file, absl::Span<const WantedTensor> wanted,
                             absl::string_view prefix, absl::string_view owner) {
  std::vector<std::string> errors;
  std::set<std::string> known;
  for (const WantedTensor& tensor : wanted) {
    known.insert(tensor.name);
    const TensorEntry* found = file.Find(tensor.name);
    if (found == nullptr) {
      errors.push_back(absl::StrCat("missing: ", tensor.name, " f32", tensor.shape.ToString()));
    } else if (found->dtype != "F32" || found->shape != tensor.shape) {
      errors.push_back(absl::StrCat("misshapen: ", tensor.name, " is ", found->dtype,
                                    found->shape.ToString(), ", the model has F32",
                                    tensor.shape.ToString()));
    }
  }
  const std::vector<std::string> names(known.begin(), known.end());
  for (const TensorEntry& tensor : file.tensors()) {
    if (!absl::StartsWith(tensor.name, prefix) || known.count(tensor.name) > 0) continue;
    const bool shown = errors.size() < kShownDiagnostics;  // DidYouMean is slow
    errors.push_back(
        absl::StrCat("surplus: ", tensor.name, shown ? DidYouMean(tensor.name, names) : ""));
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": does not fit ", owner, ":\n  ",
                                                 ListDiagnostics(errors, "\n  ")));
}

}  // namespace plumb
