#include "runtime/session/parameter_store.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"

namespace plumb {
namespace {

// Of the smallest elements that a buffer of such a layout has, bf16.
constexpr int64_t kElementsPerLine = kAlignment / static_cast<int64_t>(sizeof(uint16_t));

int64_t WholeLines(int64_t elements) {
  return (elements + kElementsPerLine - 1) / kElementsPerLine * kElementsPerLine;
}

struct TensorToRead {
  std::string name;
  Shape shape;
  float* to;
};

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
    mistakes.push_back(absl::StrCat("surplus: ", tensor.name, DidYouMean(tensor.name, names)));
  }
  if (!mistakes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": does not fit the model:\n  ",
                                                   absl::StrJoin(mistakes, "\n  ")));
  }
  for (const TensorToRead& tensor : tensors) {
    PLUMB_RETURN_IF_ERROR(file.Read(tensor.name, F32(tensor.shape), tensor.to));
  }
  return absl::OkStatus();
}

void AddParameters(const ParameterLayout& layout, absl::string_view prefix, float* buffer,
                   std::vector<TensorToRead>* tensors) {
  for (const ParameterLayout::Entry& entry : layout.entries) {
    tensors->push_back({absl::StrCat(prefix, entry.name), entry.shape, buffer + entry.begin});
  }
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
  AddParameters(*this, prefix, buffer, &tensors);
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

absl::Status ParameterStore::Bind(Executable* executable) const {
  PLUMB_RETURN_IF_ERROR(layout_.Bind("", data(), executable));
  return states_.Bind(state_data(), executable);
}

std::vector<TensorToWrite> ParameterStore::Tensors() const {
  std::vector<TensorToWrite> tensors = layout_.Tensors("", data());
  for (const StateLayout::Buffer& buffer : states_.buffers) {
    tensors.push_back({buffer.name, F32(buffer.shape), state_data() + buffer.begin});
  }
  return tensors;
}

absl::Status ParameterStore::Read(const SafetensorsFile& file) const {
  std::vector<TensorToRead> tensors;
  AddParameters(layout_, "", data(), &tensors);
  for (const StateLayout::Buffer& buffer : states_.buffers) {
    tensors.push_back({buffer.name, buffer.shape, state_data() + buffer.begin});
  }
  return ReadTensors(tensors, "", file);
}

void DrawParameters(const std::vector<ParameterSpec>& parameters,
                    const std::vector<NormStateSpec>& states, uint64_t seed, int threads,
                    const ParameterStore& store) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    DrawInitialValues(parameters[i], seed, threads, store.data() + store.layout().entries[i].begin);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    float* state = store.state_data() + store.states().entries[i].begin;
    for (const BufferSpec& buffer : states[i].buffers) {
      DrawInitialValues(buffer, seed, threads, state + buffer.offset);
    }
  }
}

}  // namespace plumb
