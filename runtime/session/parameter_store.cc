// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/parameter_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/divide.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"

namespace plumb {
namespace {

// Elements in a cache line of bf16, the smallest type that a buffer of such a layout has.
constexpr int64_t kElementsPerLine = kAlignment / static_cast<int64_t>(sizeof(uint16_t));

int64_t WholeLines(int64_t elements) { return RoundUp(elements, kElementsPerLine); }

// Block size, in elements, of conversions between forms: a megabyte of floats.
constexpr int64_t kBlock = int64_t{1} << 18;

// Calls body(begin, n, buffer) for blocks [begin, begin + n) of [0, all); `buffer` holds n floats.
template <class Body>
void ForEachBlock(int64_t all, const Body& body) {
  const AlignedBuffer buffer(std::min(all, kBlock) * SizeOf(DType::kF32));
  for (int64_t begin = 0; begin < all; begin += kBlock) {
    body(begin, std::min(kBlock, all - begin), buffer.as<float>());
  }
}

struct TensorToRead {
  std::string name;
  Shape shape;
  float* to;
  const ParameterStore* store = nullptr;  // used if `to` is null: reads into its `entry`
  size_t entry = 0;
};

// Converts `bytes` of a file, at any alignment, to a split entry.
void ReadInBlocks(absl::string_view bytes, const ParameterStore& store, size_t entry) {
  const ParameterLayout::Entry& at = store.layout().entries[entry];
  ForEachBlock(at.end - at.begin, [&](int64_t begin, int64_t n, float* buffer) {
    std::memcpy(buffer, bytes.data() + begin * SizeOf(DType::kF32),
                static_cast<size_t>(n * SizeOf(DType::kF32)));
    store.Write(entry, begin, n, buffer);
  });
}

absl::Status CheckTensors(const std::vector<TensorToRead>& tensors, absl::string_view prefix,
                          const SafetensorsFile& file) {
  std::vector<WantedTensor> wanted;
  for (const TensorToRead& tensor : tensors) wanted.push_back({tensor.name, tensor.shape});
  return CheckTensorsFit(file, wanted, prefix);
}

// Copies tensors that were checked.
absl::Status CopyTensors(const std::vector<TensorToRead>& tensors, const SafetensorsFile& file) {
  for (const TensorToRead& tensor : tensors) {
    if (tensor.to == nullptr) {
      ReadInBlocks(file.Find(tensor.name)->data, *tensor.store, tensor.entry);
      continue;
    }
    const void* const from = file.Find(tensor.name)->data.data();
    if (from == tensor.to) continue;  // it stays in the file
    PLUMB_RETURN_IF_ERROR(file.Read(tensor.name, F32(tensor.shape), tensor.to));
  }
  return absl::OkStatus();
}

absl::Status ReadTensors(const std::vector<TensorToRead>& tensors, absl::string_view prefix,
                         const SafetensorsFile& file) {
  PLUMB_RETURN_IF_ERROR(CheckTensors(tensors, prefix, file));
  return CopyTensors(tensors, file);
}

std::vector<TensorToRead> GetTensors(const ParameterLayout& layout, absl::string_view prefix,
                                     float* buffer) {
  std::vector<TensorToRead> tensors;
  for (const ParameterLayout::Entry& entry : layout.entries) {
    tensors.push_back({absl::StrCat(prefix, entry.name), entry.shape,
                       buffer == nullptr ? nullptr : buffer + entry.begin});
  }
  return tensors;
}

std::vector<TensorToRead> GetTensors(const ParameterStore& store, absl::string_view prefix) {
  std::vector<TensorToRead> tensors = GetTensors(store.layout(), prefix, nullptr);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!store.is_split(i)) tensors[i].to = store.floats(i);
    tensors[i].store = &store;
    tensors[i].entry = i;
  }
  for (const StateLayout::Buffer& buffer : store.states().buffers) {
    tensors.push_back(
        {absl::StrCat(prefix, buffer.name), buffer.shape, store.state_data() + buffer.begin});
  }
  return tensors;
}

char* GetData(const TensorInFile& tensor) {
  // Copy-on-write: writing to the pages does not change the file.
  return const_cast<char*>(tensor.file->content().data()) + tensor.offset;
}

// Returns true if programs can read the tensor in the file. Norms' vectors are copied, because
// their plugins may require alignment.
bool StaysInFile(const ParameterSpec& parameter, const TensorInFile& tensor) {
  if (!parameter.is_matrix() || parameter.role != ParameterSpec::Role::kWeight) return false;
  return reinterpret_cast<uintptr_t>(GetData(tensor)) %
             static_cast<uintptr_t>(SizeOf(tensor.format)) ==
         0;
}

// Returns the tensor of each entry. Fails if tensors are missing or surplus.
absl::StatusOr<std::vector<const TensorInFile*>> FindEntries(
    const ParameterLayout& layout, absl::Span<const TensorInFile> tensors) {
  absl::flat_hash_map<std::string, const TensorInFile*> by_name;
  std::vector<std::string> errors;
  for (const TensorInFile& tensor : tensors) {
    if (!by_name.emplace(tensor.name, &tensor).second) {
      errors.push_back(absl::StrCat("given twice: ", tensor.name));
    }
  }
  std::vector<const TensorInFile*> found;
  for (const ParameterLayout::Entry& entry : layout.entries) {
    const auto at = by_name.find(entry.name);
    if (at == by_name.end()) {
      errors.push_back(absl::StrCat("missing: ", entry.name, entry.shape.ToString()));
      continue;
    }
    const TensorInFile& tensor = *at->second;
    const auto size = static_cast<int64_t>(tensor.file->content().size());
    const int64_t bytes = (entry.end - entry.begin) * SizeOf(tensor.format);
    if (tensor.offset < 0 || bytes > size || tensor.offset > size - bytes) {
      errors.push_back(absl::StrCat("beyond the end of ", tensor.path, ": ", entry.name,
                                    entry.shape.ToString()));
    }
    found.push_back(&tensor);
    by_name.erase(at);
  }
  for (const TensorInFile& tensor : tensors) {
    if (by_name.count(tensor.name) == 0) continue;
    by_name.erase(tensor.name);
    errors.push_back(absl::StrCat("surplus: ", tensor.name));
  }
  if (errors.empty()) return found;
  return absl::InvalidArgumentError(absl::StrCat("the tensors in files do not fit the model:\n  ",
                                                 ListDiagnostics(errors, "\n  ")));
}

}  // namespace

ParameterLayout::ParameterLayout(const std::vector<ParameterSpec>& parameters,
                                 const std::vector<std::string>& frozen) {
  size_t left_out = 0;
  for (const ParameterSpec& parameter : parameters) {
    const bool is_frozen = left_out < frozen.size() && frozen[left_out] == parameter.name;
    if (is_frozen) ++left_out;
    const int64_t n = is_frozen ? 0 : parameter.shape.num_elements();
    entries.push_back({parameter.name, parameter.shape, size, size + n});
    size += WholeLines(n);
  }
}

int64_t ParameterLayout::num_parameters() const {
  int64_t n = 0;
  for (const Entry& entry : entries) n += entry.end - entry.begin;
  return n;
}

absl::Status ParameterLayout::Bind(absl::string_view prefix, float* buffer,
                                   Executable* executable) const {
  for (const Entry& entry : entries) {
    if (entry.is_frozen()) continue;
    PLUMB_RETURN_IF_ERROR(executable->Bind(absl::StrCat(prefix, entry.name), buffer + entry.begin));
  }
  return absl::OkStatus();
}

std::vector<TensorToWrite> ParameterLayout::Tensors(absl::string_view prefix,
                                                    const float* buffer) const {
  std::vector<TensorToWrite> tensors;
  for (const Entry& entry : entries) {
    tensors.push_back({absl::StrCat(prefix, entry.name), F32(entry.shape), buffer + entry.begin});
  }
  return tensors;
}

absl::Status ParameterLayout::Read(absl::string_view prefix, const SafetensorsFile& file,
                                   float* buffer) const {
  return ReadTensors(GetTensors(*this, prefix, buffer), prefix, file);
}

absl::Status ParameterLayout::Check(absl::string_view prefix, const SafetensorsFile& file) const {
  return CheckTensors(GetTensors(*this, prefix, nullptr), prefix, file);
}

StateLayout::StateLayout(const std::vector<NormStateSpec>& states) {
  for (const NormStateSpec& state : states) {
    entries.push_back({state.name, size, state.elements, !state.correction.empty()});
    for (const BufferSpec& buffer : state.buffers) {
      buffers.push_back({buffer.name, buffer.shape, size + buffer.offset});
    }
    size += WholeLines(state.elements);
  }
}

const StateLayout::Entry* StateLayout::Find(absl::string_view state) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [state](const Entry& entry) { return entry.name == state; });
  return at == entries.end() ? nullptr : &*at;
}

absl::Status StateLayout::Bind(float* data, Executable* executable) const {
  for (const Entry& entry : entries) {
    const absl::Status bound = executable->Bind(entry.name, data + entry.begin);
    if (!entry.optional || !absl::IsNotFound(bound)) PLUMB_RETURN_IF_ERROR(bound);
  }
  return absl::OkStatus();
}

ParameterStore::ParameterStore(const std::vector<ParameterSpec>& parameters,
                               const std::vector<NormStateSpec>& states, WeightFormat form)
    : layout_(parameters),
      states_(states),
      form_(form),
      buffer_(Bytes(parameters)),
      state_buffer_(states_.size * SizeOf(DType::kF32)),
      low_(parameters.size(), nullptr) {
  PLUMB_CHECK(form != WeightFormat::kInt8, "int8 does not hold weights to the bit");
  // Layout: first everything that programs read, then the low planes.
  int64_t next = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    is_split_.push_back(StoredDType(parameters[i], form) == DType::kBF16);
    at_.push_back(reinterpret_cast<float*>(buffer_.data() + next));
    next += WholeLines(parameters[i].shape.num_elements()) *
            SizeOf(is_split_[i] ? DType::kBF16 : DType::kF32);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!is_split_[i]) continue;
    low_[i] = reinterpret_cast<uint16_t*>(buffer_.data() + next);
    next += WholeLines(parameters[i].shape.num_elements()) * SizeOf(DType::kBF16);
  }
  PLUMB_CHECK(next == buffer_.size(), "the planes are as large as planned");
}

int64_t ParameterStore::Bytes(const std::vector<ParameterSpec>& parameters) {
  return ParameterLayout(parameters).size * SizeOf(DType::kF32);
}

ParameterStore::ParameterStore(const std::vector<ParameterSpec>& parameters,
                               const std::vector<NormStateSpec>& states, SafetensorsFile file,
                               absl::string_view prefix, Mapped)
    : layout_(parameters),
      states_(states),
      form_(WeightFormat::kF32),
      is_split_(parameters.size(), false),
      file_(std::move(file)),
      state_buffer_(states_.size * SizeOf(DType::kF32)),
      low_(parameters.size(), nullptr) {
  int64_t copied = 0;
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    at_.push_back(InFile(i, prefix));
    const ParameterLayout::Entry& entry = layout_.entries[i];
    if (at_[i] == nullptr) copied += WholeLines(entry.end - entry.begin);
  }
  buffer_ = AlignedBuffer(copied * SizeOf(DType::kF32));
  float* next = buffer_.as<float>();
  for (size_t i = 0; i < at_.size(); ++i) {
    if (at_[i] != nullptr) continue;
    at_[i] = next;
    next += WholeLines(layout_.entries[i].end - layout_.entries[i].begin);
  }
}

absl::StatusOr<ParameterStore> ParameterStore::Map(const std::vector<ParameterSpec>& parameters,
                                                   const std::vector<NormStateSpec>& states,
                                                   SafetensorsFile file, absl::string_view prefix) {
  ParameterStore store(parameters, states, std::move(file), prefix, Mapped());
  PLUMB_RETURN_IF_ERROR(store.Read(*store.file_, prefix));
  return store;
}

absl::StatusOr<ParameterStore> ParameterStore::MapEach(const std::vector<ParameterSpec>& parameters,
                                                       const std::vector<NormStateSpec>& states,
                                                       absl::Span<const TensorInFile> tensors,
                                                       int threads) {
  const ParameterLayout layout(parameters);
  PLUMB_ASSIGN_OR_RETURN(const std::vector<const TensorInFile*> by_entry,
                         FindEntries(layout, tensors));
  ParameterStore store(parameters, states, by_entry);
  std::vector<NarrowWeights::Entry> narrow(parameters.size());
  float* next = store.buffer_.as<float>();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TensorInFile& tensor = *by_entry[i];
    const int64_t n = layout.entries[i].end - layout.entries[i].begin;
    char* const data = GetData(tensor);
    if (StaysInFile(parameters[i], tensor)) {
      store.at_.push_back(tensor.format == FloatFormat::kF32 ? reinterpret_cast<float*>(data)
                                                             : nullptr);
      if (tensor.format != FloatFormat::kF32) narrow[i] = {tensor.format, data, n};
      continue;
    }
    WidenFloats(tensor.format, data, n, threads, next);
    store.at_.push_back(next);
    next += WholeLines(n);
  }
  store.narrow_ = std::make_unique<NarrowWeights>(std::move(narrow), threads);
  for (size_t i = 0; i < states.size(); ++i) {
    for (const BufferSpec& buffer : states[i].buffers) {
      PLUMB_RETURN_IF_ERROR(
          DrawInitialValues(buffer, /*seed=*/0, threads,
                            store.state_data() + store.states_.entries[i].begin + buffer.offset));
    }
  }
  return store;
}

ParameterStore::ParameterStore(const std::vector<ParameterSpec>& parameters,
                               const std::vector<NormStateSpec>& states,
                               const std::vector<const TensorInFile*>& tensors)
    : layout_(parameters),
      states_(states),
      form_(WeightFormat::kF32),
      is_split_(parameters.size(), false),
      state_buffer_(states_.size * SizeOf(DType::kF32)),
      low_(parameters.size(), nullptr) {
  int64_t copied = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!StaysInFile(parameters[i], *tensors[i])) {
      copied += WholeLines(parameters[i].shape.num_elements());
    }
    files_.push_back(tensors[i]->file);
  }
  buffer_ = AlignedBuffer(copied * SizeOf(DType::kF32));
}

uint16_t* ParameterStore::narrow_bf16(size_t entry) const {
  return is_narrow(entry) ? narrow_->bf16(entry) : nullptr;
}

void ParameterStore::RenewNarrow(size_t entry) const {
  if (is_narrow(entry)) narrow_->Renew(entry);
}

float* ParameterStore::InFile(size_t entry, absl::string_view prefix) const {
  const TensorEntry* const found = file_->Find(absl::StrCat(prefix, layout_.entries[entry].name));
  if (found == nullptr) return nullptr;
  // Copy-on-write: writing to the pages does not change the file.
  char* const data = const_cast<char*>(found->data.data());
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) return nullptr;
  return reinterpret_cast<float*>(data);
}

SplitF32 ParameterStore::split(size_t entry) const {
  PLUMB_CHECK(is_split(entry), "the tensor is not split");
  return {reinterpret_cast<uint16_t*>(at_[entry]), low_[entry]};
}

float* ParameterStore::floats(size_t entry) const {
  PLUMB_CHECK(!is_split(entry), "the tensor is split");
  if (is_narrow(entry)) return narrow_->floats(entry);
  return at_[entry];
}

void ParameterStore::Read(size_t entry, int64_t begin, int64_t n, float* to) const {
  if (is_split(entry)) {
    JoinFloats(split(entry) + begin, n, 1, to);
  } else if (is_narrow(entry)) {
    narrow_->Read(entry, begin, n, to);
  } else {
    std::copy_n(floats(entry) + begin, n, to);
  }
}

void ParameterStore::Write(size_t entry, int64_t begin, int64_t n, const float* from) const {
  if (is_split(entry)) {
    SplitFloats(from, n, 1, split(entry) + begin);
  } else {
    std::copy_n(from, n, floats(entry) + begin);
  }
}

float* ParameterStore::data() const {
  PLUMB_CHECK(form_ == WeightFormat::kF32, "some of the weights are split");
  PLUMB_CHECK(!is_mapped(), "the weights are mapped from a file");
  return buffer_.as<float>();
}

std::vector<absl::Span<std::byte>> ParameterStore::Storage() const {
  PLUMB_CHECK(!is_mapped(), "the weights are mapped from a file");
  return {{buffer_.data(), static_cast<size_t>(buffer_.size())},
          {state_buffer_.data(), static_cast<size_t>(state_buffer_.size())}};
}

std::vector<TensorToWrite> ParameterStore::Tensors(absl::string_view prefix) const {
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout_.entries[i];
    const bool converts = is_split(i) || is_narrow(i);
    tensors.push_back(
        {absl::StrCat(prefix, entry.name), F32(entry.shape), converts ? nullptr : floats(i)});
    if (!converts) continue;
    tensors[i].copy = [this, i](int64_t begin, int64_t n, void* to) {
      Read(i, begin, n, static_cast<float*>(to));
    };
  }
  for (const StateLayout::Buffer& buffer : states_.buffers) {
    tensors.push_back(
        {absl::StrCat(prefix, buffer.name), F32(buffer.shape), state_data() + buffer.begin});
  }
  return tensors;
}

absl::Status ParameterStore::Read(const SafetensorsFile& file, absl::string_view prefix) const {
  return ReadTensors(GetTensors(*this, prefix), prefix, file);
}

absl::StatusOr<std::vector<std::string>> ParameterStore::ReadKnown(const SafetensorsFile& file,
                                                                   absl::string_view prefix) const {
  std::vector<TensorToRead> known;
  std::vector<std::string> left, errors;
  absl::flat_hash_set<std::string> names;
  for (TensorToRead& tensor : GetTensors(*this, prefix)) {
    names.insert(tensor.name);
    const TensorEntry* const found = file.Find(tensor.name);
    if (found == nullptr) {
      left.push_back(absl::StrCat("missing: ", tensor.name));
      continue;
    }
    if (found->dtype != "F32" || found->shape != tensor.shape) {
      errors.push_back(absl::StrCat("misshapen: ", tensor.name, " is ", found->dtype,
                                    found->shape.ToString(), ", the model has F32",
                                    tensor.shape.ToString()));
    }
    known.push_back(std::move(tensor));
  }
  if (!errors.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": does not fit the model:\n  ",
                                                   ListDiagnostics(errors, "\n  ")));
  }
  for (const TensorEntry& tensor : file.tensors()) {
    if (!absl::StartsWith(tensor.name, prefix) || names.count(tensor.name) > 0) continue;
    left.push_back(absl::StrCat("surplus: ", tensor.name));
  }
  PLUMB_RETURN_IF_ERROR(CopyTensors(known, file));
  return left;
}

absl::Status ParameterStore::Check(const SafetensorsFile& file, absl::string_view prefix) const {
  return CheckTensors(GetTensors(*this, prefix), prefix, file);
}

absl::Status DrawParameters(const std::vector<ParameterSpec>& parameters,
                            const std::vector<NormStateSpec>& states, uint64_t seed, int threads,
                            const ParameterStore& store) {
  const ScopedNoDenormals no_denormals;  // the same weights in any floating-point mode
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!store.is_split(i)) {
      PLUMB_RETURN_IF_ERROR(DrawInitialValues(parameters[i], seed, threads, store.floats(i)));
      continue;
    }
    absl::Status status;
    ForEachBlock(parameters[i].shape.num_elements(), [&](int64_t begin, int64_t n, float* buffer) {
      if (!status.ok()) return;
      status = DrawInitialValues(parameters[i], {begin, begin + n}, seed, threads, buffer);
      store.Write(i, begin, n, buffer);
    });
    PLUMB_RETURN_IF_ERROR(status);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    float* state = store.state_data() + store.states().entries[i].begin;
    for (const BufferSpec& buffer : states[i].buffers) {
      PLUMB_RETURN_IF_ERROR(DrawInitialValues(buffer, seed, threads, state + buffer.offset));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
