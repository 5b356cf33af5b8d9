#include "runtime/session/parameter_store.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/divide.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/mistakes.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"

namespace plumb {
namespace {

// Of the smallest elements that a buffer of such a layout has, bf16.
constexpr int64_t kElementsPerLine = kAlignment / static_cast<int64_t>(sizeof(uint16_t));

int64_t WholeLines(int64_t elements) { return RoundUp(elements, kElementsPerLine); }

// Elements that are converted between forms at a time: a megabyte of floats.
constexpr int64_t kBlock = int64_t{1} << 18;

// body(begin, n, buffer) for elements [begin, begin + n) of [0, all), block by block; `buffer`
// holds n floats.
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
  const ParameterStore* store = nullptr;  // `to` is null: into its `entry`
  size_t entry = 0;
};

// Converts `bytes` of a file, at any address, to a split entry.
void ReadInBlocks(absl::string_view bytes, const ParameterStore& store, size_t entry) {
  const ParameterLayout::Entry& at = store.layout().entries[entry];
  ForEachBlock(at.end - at.begin, [&](int64_t begin, int64_t n, float* buffer) {
    std::memcpy(buffer, bytes.data() + begin * SizeOf(DType::kF32),
                static_cast<size_t>(n * SizeOf(DType::kF32)));
    store.Write(entry, begin, n, buffer);
  });
}

absl::Status ReadTensors(const std::vector<TensorToRead>& tensors, absl::string_view prefix,
                         const SafetensorsFile& file) {
  std::vector<std::string> mistakes;
  std::set<std::string> wanted;
  for (const TensorToRead& tensor : tensors) {
    wanted.insert(tensor.name);
    const TensorEntry* found = file.Find(tensor.name);
    if (found == nullptr) {
      mistakes.push_back(absl::StrCat("missing: ", tensor.name, " f32", tensor.shape.ToString()));
    } else if (found->dtype != "F32" || found->shape != tensor.shape) {
      mistakes.push_back(absl::StrCat("misshapen: ", tensor.name, " is ", found->dtype,
                                      found->shape.ToString(), ", the model has F32",
                                      tensor.shape.ToString()));
    }
  }
  const std::vector<std::string> names(wanted.begin(), wanted.end());
  for (const TensorEntry& tensor : file.tensors()) {
    if (!absl::StartsWith(tensor.name, prefix) || wanted.count(tensor.name) > 0) continue;
    const bool shown = mistakes.size() < kShownMistakes;  // suggestions take their time
    mistakes.push_back(
        absl::StrCat("surplus: ", tensor.name, shown ? DidYouMean(tensor.name, names) : ""));
  }
  if (!mistakes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": does not fit the model:\n  ", ListMistakes(mistakes, "\n  ")));
  }
  for (const TensorToRead& tensor : tensors) {
    if (tensor.to == nullptr) {
      ReadInBlocks(file.Find(tensor.name)->data, *tensor.store, tensor.entry);
      continue;
    }
    PLUMB_RETURN_IF_ERROR(file.Read(tensor.name, F32(tensor.shape), tensor.to));
  }
  return absl::OkStatus();
}

}  // namespace

ParameterLayout::ParameterLayout(const std::vector<ParameterSpec>& parameters) {
  for (const ParameterSpec& parameter : parameters) {
    const int64_t n = parameter.shape.num_elements();
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
  std::vector<TensorToRead> tensors;
  for (const Entry& entry : entries) {
    tensors.push_back({absl::StrCat(prefix, entry.name), entry.shape, buffer + entry.begin});
  }
  return ReadTensors(tensors, prefix, file);
}

StateLayout::StateLayout(const std::vector<NormStateSpec>& states) {
  for (const NormStateSpec& state : states) {
    entries.push_back({state.name, size, state.elements});
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
    PLUMB_RETURN_IF_ERROR(executable->Bind(entry.name, data + entry.begin));
  }
  return absl::OkStatus();
}

ParameterStore::ParameterStore(const std::vector<ParameterSpec>& parameters,
                               const std::vector<NormStateSpec>& states, WeightFormat form)
    : layout_(parameters),
      states_(states),
      form_(form),
      buffer_(layout_.size * SizeOf(DType::kF32)),
      state_buffer_(states_.size * SizeOf(DType::kF32)) {
  PLUMB_CHECK(form != WeightFormat::kInt8, "int8 does not hold weights to the bit");
  for (const ParameterSpec& parameter : parameters) {
    is_split_.push_back(StoredDType(parameter, form) == DType::kBF16);
  }
}

SplitF32 ParameterStore::split(size_t entry) const {
  PLUMB_CHECK(is_split(entry), "the tensor is not split");
  const ParameterLayout::Entry& at = layout_.entries[entry];
  return SplitF32In(raw_storage() + at.begin, at.end - at.begin);
}

float* ParameterStore::floats(size_t entry) const {
  PLUMB_CHECK(!is_split(entry), "the tensor is split");
  return raw_storage() + layout_.entries[entry].begin;
}

void ParameterStore::Read(size_t entry, int64_t begin, int64_t n, float* to) const {
  if (is_split(entry)) {
    JoinFloats(split(entry) + begin, n, 1, to);
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
  return raw_storage();
}

std::vector<TensorToWrite> ParameterStore::Tensors() const {
  std::vector<TensorToWrite> tensors = layout_.Tensors("", raw_storage());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_split(i)) continue;
    tensors[i].data = nullptr;
    tensors[i].copy = [this, i](int64_t begin, int64_t n, void* to) {
      Read(i, begin, n, static_cast<float*>(to));
    };
  }
  for (const StateLayout::Buffer& buffer : states_.buffers) {
    tensors.push_back({buffer.name, F32(buffer.shape), state_data() + buffer.begin});
  }
  return tensors;
}

absl::Status ParameterStore::Read(const SafetensorsFile& file) const {
  std::vector<TensorToRead> tensors;
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout_.entries[i];
    tensors.push_back({entry.name, entry.shape, is_split(i) ? nullptr : floats(i), this, i});
  }
  for (const StateLayout::Buffer& buffer : states_.buffers) {
    tensors.push_back({buffer.name, buffer.shape, state_data() + buffer.begin});
  }
  return ReadTensors(tensors, "", file);
}

void DrawParameters(const std::vector<ParameterSpec>& parameters,
                    const std::vector<NormStateSpec>& states, uint64_t seed, int threads,
                    const ParameterStore& store) {
  const ScopedNoDenormals no_denormals;  // the same weights whatever the caller's mode
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!store.is_split(i)) {
      DrawInitialValues(parameters[i], seed, threads, store.floats(i));
      continue;
    }
    ForEachBlock(parameters[i].shape.num_elements(), [&](int64_t begin, int64_t n, float* buffer) {
      DrawInitialValues(parameters[i], {begin, begin + n}, seed, threads, buffer);
      store.Write(i, begin, n, buffer);
    });
  }
  for (size_t i = 0; i < states.size(); ++i) {
    float* state = store.state_data() + store.states().entries[i].begin;
    for (const BufferSpec& buffer : states[i].buffers) {
      DrawInitialValues(buffer, seed, threads, state + buffer.offset);
    }
  }
}

}  // namespace plumb
