#include "runtime/session/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/muon.h"
#include "runtime/kernels/simd/unit_rows.h"

namespace plumb {
namespace {

constexpr char kFirst[] = "m.", kSecond[] = "v.";

bool IsMuons(const ParameterUpdate& update) { return update.optimizer == OptimizerKind::kMuon; }

// Those that AdamW updates: what has second moments.
std::vector<ParameterSpec> AdamWParameters(const std::vector<ParameterSpec>& parameters,
                                           const UpdatePlan& updates) {
  std::vector<ParameterSpec> adamw;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!IsMuons(updates.parameters[i])) adamw.push_back(parameters[i]);
  }
  return adamw;
}

// The factor of a matrix's learning rate.
double ScaleOf(const MuonSpec& muon, const Shape& shape) {
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
    if (IsMuons(plan.updates.parameters[i])) matrices.push_back(context.parameters[i].one());
  }
  if (!matrices.empty()) {
    PLUMB_ASSIGN_OR_RETURN(plan.newton_schulz,
                           NewtonSchulz::Create(*context.ops, matrices,
                                                static_cast<int>(spec.muon.newton_schulz_steps)));
    plan.scratch_bytes = plan.newton_schulz->bytes();
  }
  const int64_t elements = ParameterLayout(context.parameters).size +
                           ParameterLayout(AdamWParameters(context.parameters, plan.updates)).size;
  plan.state_bytes = elements * SizeOf(DType::kF32);
  return plan;
}

Optimizer::Optimizer(const std::vector<ParameterSpec>& parameters, OptimizerPlan plan,
                     const ParameterStore& store)
    : plan_(std::move(plan)),
      layout_(parameters),
      v_layout_(AdamWParameters(parameters, plan_.updates)),
      m_(layout_.size * SizeOf(DType::kF32)),
      v_(v_layout_.size * SizeOf(DType::kF32)),
      squares_(plan_.updates.clips.size()) {
  size_t adamw = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterUpdate& update = plan_.updates.parameters[i];
    const Shape shape = parameters[i].one();
    one_.push_back(shape);
    if (IsMuons(update)) {
      for (int64_t e = 0; e < parameters[i].count(); ++e) {
        matrices_.push_back({i, e * shape.num_elements(), shape,
                             static_cast<float>(ScaleOf(plan_.muon, shape)),
                             static_cast<size_t>(update.clip_group)});
      }
    } else {
      AddSegment(i, v_layout_.entries[adamw++].begin, store);
    }
  }
  if (plan_.newton_schulz != nullptr) plan_.newton_schulz->Allocate();
}

void Optimizer::AddSegment(size_t parameter, int64_t v_begin, const ParameterStore& store) {
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
  segment.group = static_cast<int32_t>(g);
  segment.v_offset = v_begin - segment.begin;
  segments_.push_back(segment);
}

void Optimizer::SumSquares(const Gradients& gradients, int threads) {
  std::fill(squares_.begin(), squares_.end(), 0.0);
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout_.entries[i];
    squares_[static_cast<size_t>(plan_.updates.parameters[i].clip_group)] +=
        gradients.squares != nullptr
            ? gradients.squares[i]
            : SumOfSquares(gradients.sums + entry.begin, entry.end - entry.begin, threads);
  }
}

double Optimizer::ClipOf(size_t group, const Gradients& gradients) const {
  const double bound = plan_.updates.clips[group];
  const double norm =
      squares_.size() == 1 ? gradients.norm : std::sqrt(squares_[group]) * gradients.mean;
  // As torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a tiny norm from dividing.
  return bound > 0 ? std::min(1.0, bound / (norm + 1e-6)) : 1.0;
}

absl::Status Optimizer::Update(const Gradients& gradients, double learning_rate, int64_t step,
                               const ParameterStore& store, int threads) {
  if (squares_.size() > 1) SumSquares(gradients, threads);
  PLUMB_RETURN_IF_ERROR(UpdateMatrices(gradients, learning_rate, store, threads));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const double clip = ClipOf(clip_of_group_[g], gradients);
    groups_[g].grad_scale = static_cast<float>(gradients.mean * clip);
  }
  AdamWUpdate(segments_, {static_cast<float>(learning_rate), step, groups_},
              {gradients.sums, store.raw_storage(), m_.as<float>(), v_.as<float>()}, threads);
  Normalize(store, threads);
  return absl::OkStatus();
}

void Optimizer::Normalize(const ParameterStore& store, int threads) const {
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const UnitLength unit_length = plan_.updates.parameters[i].unit_length;
    if (unit_length == UnitLength::kNothing) continue;
    const Shape& shape = one_[i];
    const int64_t elements = layout_.entries[i].end - layout_.entries[i].begin;
    for (int64_t at = 0; at < elements; at += shape.num_elements()) {
      MatrixInPlace matrix{nullptr, {nullptr, nullptr}, shape[0], shape[1]};
      if (store.is_split(i)) {
        matrix.split = store.split(i) + at;
      } else {
        matrix.floats = store.floats(i) + at;
      }
      unit_length == UnitLength::kRows ? NormalizeRows(matrix, threads)
                                       : NormalizeColumns(matrix, threads);
    }
  }
}

absl::Status Optimizer::UpdateMatrices(const Gradients& gradients, double learning_rate,
                                       const ParameterStore& store, int threads) {
  for (const Matrix& matrix : matrices_) {
    const NewtonSchulz& newton_schulz = *plan_.newton_schulz;
    const ParameterUpdate& update = plan_.updates.parameters[matrix.parameter];
    const int64_t begin = layout_.entries[matrix.parameter].begin + matrix.offset;
    const int64_t n = matrix.shape.num_elements();
    const double clip = ClipOf(matrix.clip_group, gradients);
    const MuonMomentum momentum = {static_cast<float>(gradients.mean * clip),
                                   static_cast<float>(plan_.muon.momentum), plan_.muon.nesterov};
    UpdateMomentum(momentum, gradients.sums + begin, n, threads, m_.as<float>() + begin,
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

std::vector<TensorToWrite> Optimizer::Tensors() const {
  std::vector<TensorToWrite> tensors = layout_.Tensors(kFirst, m_.as<float>());
  for (TensorToWrite& tensor : v_layout_.Tensors(kSecond, v_.as<float>())) {
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::Status Optimizer::Read(const SafetensorsFile& file) const {
  PLUMB_RETURN_IF_ERROR(layout_.Read(kFirst, file, m_.as<float>()));
  return v_layout_.Read(kSecond, file, v_.as<float>());
}

absl::Status Optimizer::Check(const SafetensorsFile& file) const {
  PLUMB_RETURN_IF_ERROR(layout_.Check(kFirst, file));
  return v_layout_.Check(kSecond, file);
}

std::vector<Optimizer::State> Optimizer::StatesOf(size_t parameter) const {
  const ParameterLayout::Entry& entry = layout_.entries[parameter];
  const int64_t n = entry.end - entry.begin;
  const float* const m = m_.as<float>() + entry.begin;
  if (IsMuons(plan_.updates.parameters[parameter])) return {{"Muon's momentum", m, n}};
  const auto segment =
      std::find_if(segments_.begin(), segments_.end(),
                   [&entry](const AdamWSegment& s) { return s.begin == entry.begin; });
  PLUMB_CHECK(segment != segments_.end(), "AdamW updates what Muon does not");
  return {{"Adam's first moment", m, n},
          {"Adam's second moment", v_.as<float>() + entry.begin + segment->v_offset, n}};
}

}  // namespace plumb
