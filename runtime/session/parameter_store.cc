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
constexpr int64_t kElementsPerLine = kAlignment / static_cast<int64_t>(sizeof(float));
}  // namespace

ParameterLayout::ParameterLayout(const std::vector<ParameterSpec>& parameters) {
  for (const ParameterSpec& parameter : parameters) {
    const int64_t n = parameter.shape.num_elements();
    entries.push_back({parameter.name, parameter.shape, size, size + n});
    size += (n + kElementsPerLine - 1) / kElementsPerLine * kElementsPerLine;
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
  std::vector<std::string> mistakes;
  std::set<std::string> wanted;
  for (const Entry& entry : entries) {
    const std::string name = absl::StrCat(prefix, entry.name);
    wanted.insert(name);
    const TensorEntry* tensor = file.Find(name);
    if (tensor == nullptr) {
      mistakes.push_back(absl::StrCat("missing: ", name, " f32", entry.shape.ToString()));
    } else if (tensor->dtype != "F32" || tensor->shape != entry.shape) {
      mistakes.push_back(absl::StrCat("misshapen: ", name, " is ", tensor->dtype,
                                      tensor->shape.ToString(), ", the model has F32",
                                      entry.shape.ToString()));
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
  for (const Entry& entry : entries) {
    PLUMB_RETURN_IF_ERROR(
        file.Read(absl::StrCat(prefix, entry.name), F32(entry.shape), buffer + entry.begin));
  }
  return absl::OkStatus();
}

void DrawParameters(const std::vector<ParameterSpec>& parameters, uint64_t seed, int threads,
                    const ParameterStore& store) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    DrawInitialValues(parameters[i], seed, threads, store.data() + store.layout().entries[i].begin);
  }
}

}  // namespace plumb
