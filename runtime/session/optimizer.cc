#include "runtime/session/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr char kFirst[] = "m.", kSecond[] = "v.";

}  // namespace

Optimizer::Optimizer(const std::vector<ParameterSpec>& parameters, UpdatePlan plan,
                     const ParameterStore& store)
    : plan_(std::move(plan)),
      layout_(parameters),
      m_(layout_.size * SizeOf(DType::kF32)),
      v_(layout_.size * SizeOf(DType::kF32)),
      squares_(plan_.clips.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterUpdate& update = plan_.parameters[i];
    const AdamWGroup group = {static_cast<float>(update.beta1), static_cast<float>(update.beta2),
                              static_cast<float>(update.eps), 1};
    const size_t clip = static_cast<size_t>(update.clip_group);
    size_t g = 0;
    while (g < groups_.size() && (groups_[g].beta1 != group.beta1 || groups_[g].eps != group.eps ||
                                  groups_[g].beta2 != group.beta2 || clip_of_group_[g] != clip)) {
      ++g;
    }
    if (g == groups_.size()) {
      groups_.push_back(group);
      clip_of_group_.push_back(clip);
    }
    AdamWSegment segment;
    segment.begin = layout_.entries[i].begin;
    segment.end = layout_.entries[i].end;
    segment.weight_decay = static_cast<float>(update.weight_decay);
    segment.lr_scale = static_cast<float>(update.lr_scale);
    segment.lr_offset = static_cast<float>(update.lr_offset);
    segment.is_split = store.is_split(i);
    segment.group = static_cast<int32_t>(g);
    segments_.push_back(segment);
  }
}

int64_t Optimizer::StateBytes(const std::vector<ParameterSpec>& parameters,
                              const UpdatePlan& /*plan*/) {
  return 2 * ParameterLayout(parameters).size * SizeOf(DType::kF32);
}

void Optimizer::SetGradScales(const Gradients& gradients, int threads) {
  const bool is_one_group = squares_.size() == 1;  // whose norm the caller knows
  if (!is_one_group) {
    std::fill(squares_.begin(), squares_.end(), 0.0);
    for (size_t i = 0; i < layout_.entries.size(); ++i) {
      const ParameterLayout::Entry& entry = layout_.entries[i];
      squares_[static_cast<size_t>(plan_.parameters[i].clip_group)] +=
          SumOfSquares(gradients.sums + entry.begin, entry.end - entry.begin, threads);
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t group = clip_of_group_[g];
    const double bound = plan_.clips[group];
    const double norm = is_one_group ? gradients.norm : std::sqrt(squares_[group]) * gradients.mean;
    // As torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a tiny norm from dividing.
    const double clip = bound > 0 ? std::min(1.0, bound / (norm + 1e-6)) : 1.0;
    groups_[g].grad_scale = static_cast<float>(gradients.mean * clip);
  }
}

void Optimizer::Update(const Gradients& gradients, double learning_rate, int64_t step,
                       const ParameterStore& store, int threads) {
  SetGradScales(gradients, threads);
  AdamWUpdate(segments_, {static_cast<float>(learning_rate), step, groups_},
              {gradients.sums, store.raw_storage(), m_.as<float>(), v_.as<float>()}, threads);
}

std::vector<TensorToWrite> Optimizer::Tensors() const {
  std::vector<TensorToWrite> tensors = layout_.Tensors(kFirst, m_.as<float>());
  for (TensorToWrite& tensor : layout_.Tensors(kSecond, v_.as<float>())) {
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::Status Optimizer::Read(const SafetensorsFile& file) const {
  PLUMB_RETURN_IF_ERROR(layout_.Read(kFirst, file, m_.as<float>()));
  return layout_.Read(kSecond, file, v_.as<float>());
}

absl::Status Optimizer::Check(const SafetensorsFile& file) const {
  PLUMB_RETURN_IF_ERROR(layout_.Check(kFirst, file));
  return layout_.Check(kSecond, file);
}

std::vector<Optimizer::State> Optimizer::StatesOf(size_t parameter) const {
  const ParameterLayout::Entry& entry = layout_.entries[parameter];
  const int64_t n = entry.end - entry.begin;
  return {{"Adam's first moment", m_.as<float>() + entry.begin, n},
          {"Adam's second moment", v_.as<float>() + entry.begin, n}};
}

}  // namespace plumb
