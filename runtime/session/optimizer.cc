// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"
#include "runtime/kernels/simd/optimizer.h"

namespace plumb {
namespace {

constexpr char kFirst[] = "m.", kSecond[] = "v.";

bool UsesMuon(const ParameterUpdate& update) { return update.optimizer == OptimizerKind::kMuon; }

// Returns the offset of each parameter's second moment in a buffer of those that AdamW updates; -1
// for the others.
std::vector<int64_t> PlaceSecondMoments(const ParameterLayout& layout, const UpdatePlan& updates,
                                        int64_t* size) {
  std::vector<int64_t> begins;
  *size = 0;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const bool has = !UsesMuon(updates.parameters[i]);
    begins.push_back(has ? *size : -1);
    const int64_t next = i + 1 < layout.entries.size() ? layout.entries[i + 1].begin : layout.size;
    if (has) *size += next - layout.entries[i].begin;
  }
  return begins;
}

// Returns the factor of a matrix's learning rate.
double ComputeScale(const MuonSpec& muon, const Shape& shape) {
  const double out = static_cast<double>(shape[0]), in = static_cast<double>(shape[1]);
  return muon.matches_adamw ? 0.2 * std::sqrt(std::max(out, in))
                            : std::sqrt(std::max(1.0, out / in));
}

}  // namespace

absl::StatusOr<OptimizerPlan> PlanOptimizer(const TrainSpec& spec, const ModelContext& context) {
  OptimizerPlan plan;
  PLUMB_ASSIGN_OR_RETURN(plan.updates, PlanUpdates(spec, context.model, context.parameters));
  plan.muon = spec.muon;
  std::vector<Shape> matrices;
  for (size_t i = 0; i < context.parameters.size(); ++i) {
    if (UsesMuon(plan.updates.parameters[i])) matrices.push_back(context.parameters[i].one());
  }
  if (!matrices.empty()) {
    PLUMB_ASSIGN_OR_RETURN(plan.newton_schulz,
                           NewtonSchulz::Create(*context.ops, matrices,
                                                static_cast<int>(spec.muon.newton_schulz_steps)));
    plan.scratch_bytes = plan.newton_schulz->bytes();
  }
  const ParameterLayout layout(context.parameters, plan.updates.frozen);
  int64_t second = 0;
  PlaceSecondMoments(layout, plan.updates, &second);
  plan.state_bytes = (layout.size + second) * SizeOf(DType::kF32);
  return plan;
}

Optimizer::Optimizer(const std::vector<ParameterSpec>& parameters, OptimizerPlan plan,
                     const ParameterStore& store)
    : plan_(std::move(plan)),
      layout_(parameters, plan_.updates.frozen),
      squares_(plan_.updates.clips.size()) {
  int64_t v = 0;
  v_begin_ = PlaceSecondMoments(layout_, plan_.updates, &v);
  m_ = AlignedBuffer(layout_.size * SizeOf(DType::kF32));
  v_ = AlignedBuffer(v * SizeOf(DType::kF32));
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!plan_.updates.parameters[i].is_frozen) states_.push_back({i, false});
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterUpdate& update = plan_.updates.parameters[i];
    const Shape shape = parameters[i].one();
    one_.push_back(shape);
    if (update.is_frozen) continue;
    if (!UsesMuon(update)) {
      states_.push_back({i, true});
      AddSegment(i, store);
      continue;
    }
    for (int64_t e = 0; e < parameters[i].count(); ++e) {
      matrices_.push_back({i, e * shape.num_elements(), shape,
                           static_cast<float>(ComputeScale(plan_.muon, shape)),
                           static_cast<size_t>(update.clip_group)});
    }
  }
  if (plan_.newton_schulz != nullptr) plan_.newton_schulz->Allocate();
}

void Optimizer::AddSegment(size_t parameter, const ParameterStore& store) {
  const ParameterUpdate& update = plan_.updates.parameters[parameter];
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
  segment.begin = layout_.entries[parameter].begin;
  segment.end = layout_.entries[parameter].end;
  segment.weight_decay = static_cast<float>(update.weight_decay);
  segment.lr_scale = static_cast<float>(update.lr_scale);
  segment.lr_offset = static_cast<float>(update.lr_offset);
  segment.is_split = store.is_split(parameter);
  if (segment.is_split) {
    segment.planes = store.split(parameter);
  } else {
    segment.floats = store.floats(parameter);
  }
  segment.group = static_cast<int32_t>(g);
  segment.v_offset = v_begin_[parameter] - segment.begin;
  segments_.push_back(segment);
}

void Optimizer::SumSquares(const Gradients& gradients, int threads) {
  std::fill(squares_.begin(), squares_.end(), 0.0);
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout_.entries[i];
    squares_[static_cast<size_t>(plan_.updates.parameters[i].clip_group)] +=
        gradients.squares != nullptr
            ? gradients.squares[i]
            : SumOfSquares(gradients.values + entry.begin, entry.end - entry.begin, threads);
  }
}

double Optimizer::ComputeClip(size_t group, const Gradients& gradients) const {
  const double bound = plan_.updates.clips[group];
  const double norm = squares_.size() == 1 ? gradients.norm : std::sqrt(squares_[group]);
  // Like torch.nn.utils.clip_grad_norm_: 1e-6 avoids a division by a tiny norm.
  return bound > 0 ? std::min(1.0, bound / (norm + 1e-6)) : 1.0;
}

absl::Status Optimizer::Update(const Gradients& gradients, double learning_rate, int64_t step,
                               const ParameterStore& store, int threads) {
  if (squares_.size() > 1) SumSquares(gradients, threads);
  PLUMB_RETURN_IF_ERROR(UpdateMatrices(gradients, learning_rate, store, threads));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const double clip = ComputeClip(clip_of_group_[g], gradients);
    groups_[g].grad_scale = static_cast<float>(clip);
  }
  AdamWUpdate(segments_, {static_cast<float>(learning_rate), step, groups_},
              {gradients.values, nullptr, m_.as<float>(), v_.as<float>()}, threads);
  Normalize(store, threads);
  return absl::OkStatus();
}

void Optimizer::Normalize(const ParameterStore& store, int threads) const {
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    Normalize(i, store, threads);
  }
}

void Optimizer::Normalize(size_t parameter, const ParameterStore& store, int threads) const {
  const UnitLength unit_length = plan_.updates.parameters[parameter].unit_length;
  if (unit_length == UnitLength::kNothing) return;
  const Shape& shape = one_[parameter];
  const int64_t elements = layout_.entries[parameter].end - layout_.entries[parameter].begin;
  for (int64_t at = 0; at < elements; at += shape.num_elements()) {
    MatrixInPlace matrix{nullptr, {nullptr, nullptr}, shape[0], shape[1]};
    if (store.is_split(parameter)) {
      matrix.split = store.split(parameter) + at;
    } else {
      matrix.floats = store.floats(parameter) + at;
    }
    unit_length == UnitLength::kRows ? NormalizeRows(matrix, threads)
                                     : NormalizeColumns(matrix, threads);
  }
}

absl::Status Optimizer::UpdateMatrices(const Gradients& gradients, double learning_rate,
                                       const ParameterStore& store, int threads) {
  for (const Matrix& matrix : matrices_) {
    const NewtonSchulz& newton_schulz = *plan_.newton_schulz;
    const ParameterUpdate& update = plan_.updates.parameters[matrix.parameter];
    const int64_t begin = layout_.entries[matrix.parameter].begin + matrix.offset;
    const int64_t n = matrix.shape.num_elements();
    const double clip = ComputeClip(matrix.clip_group, gradients);
    const MuonMomentum momentum = {static_cast<float>(clip),
                                   static_cast<float>(plan_.muon.momentum), plan_.muon.nesterov};
    UpdateMomentum(momentum, gradients.values + begin, n, threads, m_.as<float>() + begin,
                   newton_schulz.input());
    PLUMB_RETURN_IF_ERROR(newton_schulz.Run(matrix.shape, threads));
    const double rate = update.LearningRate(learning_rate);
    const float decay = static_cast<float>(1 - rate * update.weight_decay);
    const float step_size = static_cast<float>(rate * static_cast<double>(matrix.scale));
    if (store.is_split(matrix.parameter)) {
      StepAlong(newton_schulz.output(), decay, step_size, n, threads,
                store.split(matrix.parameter) + matrix.offset);
    } else {
      StepAlong(newton_schulz.output(), decay, step_size, n, threads,
                store.floats(matrix.parameter) + matrix.offset);
    }
  }
  return absl::OkStatus();
}

std::string Optimizer::GetName(const StateId& state) const {
  return absl::StrCat(state.is_second ? kSecond : kFirst, layout_.entries[state.parameter].name);
}

float* Optimizer::GetData(const StateId& state) const {
  return state.is_second ? v_.as<float>() + v_begin_[state.parameter]
                         : m_.as<float>() + layout_.entries[state.parameter].begin;
}

std::vector<TensorToWrite> Optimizer::Tensors() const {
  std::vector<TensorToWrite> tensors;
  for (const StateId& state : states_) {
    tensors.push_back(
        {GetName(state), F32(layout_.entries[state.parameter].shape), GetData(state)});
  }
  return tensors;
}

std::vector<absl::Span<std::byte>> Optimizer::Storage() const {
  return {{m_.data(), static_cast<size_t>(m_.size())}, {v_.data(), static_cast<size_t>(v_.size())}};
}

absl::Status Optimizer::Read(const SafetensorsFile& file) const {
  PLUMB_RETURN_IF_ERROR(Check(file));
  for (const StateId& state : states_) {
    const absl::string_view data = file.Find(GetName(state))->data;
    std::memcpy(GetData(state), data.data(), data.size());
  }
  return absl::OkStatus();
}

absl::Status Optimizer::Check(const SafetensorsFile& file) const {
  for (const bool is_second : {false, true}) {
    std::vector<WantedTensor> wanted;
    for (const StateId& state : states_) {
      if (state.is_second != is_second) continue;
      wanted.push_back({GetName(state), layout_.entries[state.parameter].shape});
    }
    PLUMB_RETURN_IF_ERROR(
        CheckTensorsFit(file, wanted, is_second ? kSecond : kFirst, kOptimizerOfTheRecipe));
  }
  return absl::OkStatus();
}

std::vector<Optimizer::State> Optimizer::GetStates(size_t parameter) const {
  if (plan_.updates.parameters[parameter].is_frozen) return {};
  const ParameterLayout::Entry& entry = layout_.entries[parameter];
  const int64_t n = entry.end - entry.begin;
  const float* const m = GetData({parameter, false});
  if (UsesMuon(plan_.updates.parameters[parameter])) return {{"Muon's momentum", m, n}};
  return {{"Adam's first moment", m, n}, {"Adam's second moment", GetData({parameter, true}), n}};
}

}  // namespace plumb
