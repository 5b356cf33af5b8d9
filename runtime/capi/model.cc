// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/file.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/capi/trainer_file.h"
#include "runtime/formats/safetensors.h"
#include "runtime/model/init_rules.h"
#include "runtime/session/probe.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb::capi {

absl::Status ModelState::RequireWeights() const {
  if (has_weights) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model has no weights yet: plumb_model_init or plumb_model_load first");
}

const PackedWeights* ModelState::Pack(WeightFormat format) {
  const std::lock_guard<std::mutex> lock(mutex);
  Packed& of_format = packed[format];
  const int64_t now = version;
  if (of_format.weights == nullptr) {
    of_format.weights = std::make_unique<PackedWeights>(*context, format, *parameters, threads());
  } else if (of_format.version != now) {
    of_format.weights->Refresh();
  }
  of_format.version = now;
  return of_format.weights.get();
}

absl::Status ModelState::CheckTokens(const int32_t* tokens, size_t count, int32_t min) const {
  const int64_t vocabulary = vocab_size();
  for (size_t i = 0; i < count; ++i) {
    if (tokens[i] >= min && tokens[i] < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat("id ", tokens[i], " at ", i,
                                                   " is not in the vocabulary of ", vocabulary,
                                                   min < 0 ? ", nor -1" : ""));
  }
  return absl::OkStatus();
}

absl::Status ModelState::CheckInputs(const int32_t* inputs, size_t count, size_t seq) const {
  const bool pads = context->model.bidirectional;
  PLUMB_RETURN_IF_ERROR(Annotate(CheckTokens(inputs, count, pads ? -1 : 0), "inputs: "));
  for (size_t i = 0; pads && i < count; ++i) {
    if (i % seq == 0 || inputs[i - 1] >= 0 || inputs[i] < 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: id ", inputs[i], " at ", i, " comes after -1, the end of its row"));
  }
  return absl::OkStatus();
}

absl::Status CheckMemoryBudget(absl::string_view what, double bytes) {
  const MemoryLimit limit = ProcessMemoryLimit();
  if (bytes <= static_cast<double>(limit.available)) return absl::OkStatus();
  constexpr double kMiB = 1 << 20;
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s would take %.0f MiB of memory, and %.0f MiB are left (%s)", what,
                      bytes / kMiB, static_cast<double>(limit.available) / kMiB, limit.by));
}

int64_t CacheBytes(const ResolvedModel& model) {
  const ModelDims& dims = model.dims;
  const double context = static_cast<double>(dims.context_length);
  double floats = 0;
  ScalarScope scope;
  scope.dims = &dims;
  for (const std::shared_ptr<const BlockSpec>& block : model.layers) {
    ++scope.layer;
    scope.placement = block->placement.get();
    for (const SublayerSpec& sublayer : block->sublayers) {
      ++scope.sublayer;
      if (sublayer.kind == SublayerSpec::Kind::kAttention) {
        // Evaluation cannot fail for a resolved model.
        const ModelDims& own = model.DimsAt(scope.sublayer);
        const auto numbers = EvaluateAttention(sublayer.attention, scope);
        const double tokens =
            numbers.ok() ? static_cast<double>(numbers->CachedTokens(dims)) : context;
        const double tensors = sublayer.attention.keys_as_values ? 1 : 2;
        floats += tensors * tokens * static_cast<double>(own.n_kv_head) *
                  static_cast<double>(own.head_dim);
        // A cumulative decay for each token, and the state that continues it.
        if (sublayer.attention.decay) floats += (tokens + 1) * static_cast<double>(own.n_head);
      } else if (sublayer.kind == SublayerSpec::Kind::kConv) {  // inputs of the convolution
        floats += context * static_cast<double>(dims.d_model);
      } else if (sublayer.kind == SublayerSpec::Kind::kLinearAttention) {
        const LinearAttentionSpec& spec = sublayer.linear_attention;
        const auto numbers = EvaluateLinearAttention(spec, scope);
        if (!numbers.ok()) continue;
        floats += static_cast<double>(numbers->n_head) * static_cast<double>(numbers->state());
        if (!spec.conv.has_value()) continue;
        floats += static_cast<double>(ConvCacheTokens(*spec.conv, dims)) *
                  static_cast<double>(2 * numbers->keys() + numbers->values());
      }
    }
  }
  const double bytes = floats * sizeof(float);
  constexpr double kMax = 9e18;  // below 2^63
  return bytes < kMax ? static_cast<int64_t>(bytes) : std::numeric_limits<int64_t>::max();
}

absl::StatusOr<WeightFormat> GetFormat(int32_t weights) {
  switch (weights) {
    case PLUMB_WEIGHTS_F32:
      return WeightFormat::kF32;
    case PLUMB_WEIGHTS_BF16:
      return WeightFormat::kBf16;
    case PLUMB_WEIGHTS_INT8:
      return WeightFormat::kInt8;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("options: there are no weights of kind ", weights));
  }
}

plumb_tensor TensorAt(const std::string& name, const Shape& shape, float* data) {
  plumb_tensor given = {};
  given.name = name.c_str();
  given.dtype = PLUMB_DTYPE_F32;
  given.rank = shape.rank();
  std::fill_n(given.shape, 4, 1);
  for (int32_t d = 0; d < given.rank; ++d) given.shape[d] = shape[d];
  given.data = data;
  return given;
}

absl::Status WriteTensor(const ModelState& model, int64_t i, float* data, plumb_tensor* tensor) {
  const std::vector<ParameterLayout::Entry>& entries = model.parameters->layout().entries;
  const ParameterLayout::Entry* const entry = FindEntry(entries, i);
  if (entry == nullptr) {
    return absl::OutOfRangeError(
        absl::StrCat("there is no tensor ", i, ": the model has ", entries.size()));
  }
  return CopyOut(TensorAt(entry->name, entry->shape, data), "tensor", tensor);
}

absl::StatusOr<std::shared_ptr<ModelState>> CreateModelState(
    const std::shared_ptr<RuntimeState>& runtime, const ModelSpec& spec) {
  auto state = std::make_shared<ModelState>();
  state->runtime = runtime;
  absl::StatusOr<std::unique_ptr<ModelContext>> context =
      runtime->runtime->impl().MakeContext(spec);
  runtime->LogWarnings();
  if (!context.ok()) return context.status();
  state->context = *std::move(context);
  if (state->vocab_size() == 0) {
    return absl::InvalidArgumentError(
        "the model has no vocab_size: set it, to that of the tokenizer for a text");
  }
  for (const std::string& warning : state->context->model.warnings) runtime->Warn(warning);
  return state;
}

namespace {

plumb_model_info GetInfo(const ModelContext& context) {
  const ModelDims& dims = context.model.dims;
  plumb_model_info given = {};
  given.n_layer = dims.n_layer;
  given.d_model = dims.d_model;
  given.n_head = dims.n_head;
  given.vocab_size = dims.vocab_size;
  given.context_length = dims.context_length;
  for (const ParameterSpec& parameter : context.parameters) {
    given.parameters += parameter.shape.num_elements();
  }
  given.weight_bytes = given.parameters * static_cast<int64_t>(sizeof(float));
  given.cache_bytes = CacheBytes(context.model);
  given.bidirectional = context.model.bidirectional ? 1 : 0;
  given.token_types = static_cast<int32_t>(context.model.token_types);
  return given;
}

// Returns the store into which weights are drawn or read. It is created once, so that pointers to
// it stay valid.
ParameterStore* GetOrCreateStore(ModelState* model) {
  if (model->parameters == nullptr) {
    model->parameters =
        std::make_unique<ParameterStore>(model->context->parameters, model->context->states);
  }
  return model->parameters.get();
}

// Fails while a trainer has states that belong to the present weights.
absl::Status RequireNoTrainer(const ModelState& model) {
  if (model.trainers == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model has a trainer, whose optimizer states belong to its weights: free it first, or "
      "write to the tensors");
}

absl::Status Load(const absl::StatusOr<SafetensorsFile>& file, ModelState* model) {
  PLUMB_RETURN_IF_ERROR(RequireNoTrainer(*model));
  PLUMB_RETURN_IF_ERROR(file.status());
  ParameterStore* const store = GetOrCreateStore(model);
  PLUMB_RETURN_IF_ERROR(store->Read(*file, WeightPrefix(*file)));
  model->has_weights = true;
  ++model->version;
  return absl::OkStatus();
}

absl::StatusOr<std::string> LoadPartial(const char* path, ModelState* model) {
  PLUMB_RETURN_IF_ERROR(RequireNoTrainer(*model));
  PLUMB_RETURN_IF_ERROR(model->RequireWeights());
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> left,
                         model->parameters->ReadKnown(file, WeightPrefix(file)));
  ++model->version;
  return absl::StrJoin(left, "\n");
}

absl::Status RequireUnused(const ModelState& model) {
  if (model.trainers == 0 && model.sessions == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "weights are mapped before the model has trainers, sessions or evaluators");
}

void ReplaceStore(ParameterStore store, ModelState* model) {
  const std::lock_guard<std::mutex> lock(model->mutex);
  model->packed.clear();
  model->parameters = std::make_unique<ParameterStore>(std::move(store));
  model->has_weights = true;
  ++model->version;
}

absl::Status Map(const char* path, ModelState* model) {
  PLUMB_RETURN_IF_ERROR(RequireUnused(*model));
  PLUMB_ASSIGN_OR_RETURN(SafetensorsFile file,
                         SafetensorsFile::Open(path, MappedFile::Access::kCopyOnWrite));
  const absl::string_view prefix = WeightPrefix(file);
  const ModelContext& context = *model->context;
  PLUMB_ASSIGN_OR_RETURN(
      ParameterStore store,
      ParameterStore::Map(context.parameters, context.states, std::move(file), prefix));
  ReplaceStore(std::move(store), model);
  return absl::OkStatus();
}

absl::StatusOr<FloatFormat> FormatOfFile(const plumb_tensor_in_file& tensor) {
  switch (static_cast<uint32_t>(tensor.dtype)) {
    case PLUMB_DTYPE_F32:
      return FloatFormat::kF32;
    case PLUMB_DTYPE_BF16:
      return FloatFormat::kBf16;
    case PLUMB_DTYPE_F16:
      return FloatFormat::kF16;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.name, ": there is no dtype ", tensor.dtype, " of files"));
  }
}

absl::Status MapEach(const plumb_tensor_in_file* tensors, int64_t count, ModelState* model) {
  PLUMB_RETURN_IF_ERROR(CheckArray("tensors", tensors, count, sizeof(*tensors)));
  PLUMB_RETURN_IF_ERROR(RequireUnused(*model));
  std::map<std::string, std::shared_ptr<const MappedFile>> files;
  std::vector<TensorInFile> given;
  const size_t size = count > 0 ? tensors->struct_size : 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const auto* const at = reinterpret_cast<const char*>(tensors) + i * size;
    PLUMB_ASSIGN_OR_RETURN(const plumb_tensor_in_file tensor,
                           Complete(reinterpret_cast<const plumb_tensor_in_file*>(at)));
    if (tensor.name == nullptr) return NullArgument("name");
    if (tensor.path == nullptr) return NullArgument("path");
    PLUMB_ASSIGN_OR_RETURN(const FloatFormat format, FormatOfFile(tensor));
    std::shared_ptr<const MappedFile>& file = files[tensor.path];
    if (file == nullptr) {
      PLUMB_ASSIGN_OR_RETURN(MappedFile mapped,
                             MappedFile::Open(tensor.path, MappedFile::Access::kCopyOnWrite));
      file = std::make_shared<MappedFile>(std::move(mapped));
    }
    given.push_back({tensor.name, file, tensor.path, tensor.offset, format});
  }
  const ModelContext& context = *model->context;
  PLUMB_ASSIGN_OR_RETURN(
      ParameterStore store,
      ParameterStore::MapEach(context.parameters, context.states, given, model->threads()));
  ReplaceStore(std::move(store), model);
  return absl::OkStatus();
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;
using plumb::capi::ModelState;
using plumb::capi::NullArgument;

plumb_status plumb_model_create(plumb_runtime* runtime, const plumb_spec* spec, plumb_model** model,
                                plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (spec == nullptr) return NullArgument("spec");
    if (model == nullptr) return NullArgument("model");
    PLUMB_ASSIGN_OR_RETURN(std::shared_ptr<ModelState> made,
                           plumb::capi::CreateModelState(runtime->state, spec->spec));
    *model = new plumb_model{std::move(made)};
    return absl::OkStatus();
  });
}

void plumb_model_free(plumb_model* model) { delete model; }

plumb_status plumb_model_probe_points(const plumb_model* model, char** text, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const std::vector<plumb::ProbePoint> points,
                           plumb::ListProbePoints(*model->state->context));
    std::string names;
    for (const plumb::ProbePoint& point : points) absl::StrAppend(&names, point.FullName(), "\n");
    return plumb::capi::WriteText(names, text);
  });
}

plumb_status plumb_model_get_info(const plumb_model* model, plumb_model_info* info,
                                  plumb_error** error) {
  return Call(model, "model", error, [&] {
    return plumb::capi::CopyOut(plumb::capi::GetInfo(*model->state->context), "info", info);
  });
}

plumb_status plumb_model_init(plumb_model* model, uint64_t seed, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    ModelState& state = *model->state;
    PLUMB_RETURN_IF_ERROR(plumb::capi::RequireNoTrainer(state));
    if (state.parameters == nullptr) {
      double bytes = 0;
      for (const plumb::ParameterSpec& parameter : state.context->parameters) {
        bytes += 4 * static_cast<double>(parameter.shape.num_elements());
      }
      PLUMB_RETURN_IF_ERROR(plumb::capi::CheckMemoryBudget("the weights", bytes));
    }
    plumb::ParameterStore* const store = plumb::capi::GetOrCreateStore(&state);
    state.has_weights = false;  // until all of them are drawn
    PLUMB_RETURN_IF_ERROR(plumb::DrawParameters(state.context->parameters, state.context->states,
                                                seed, state.threads(), *store));
    state.has_weights = true;
    ++state.version;
    return absl::OkStatus();
  });
}

plumb_status plumb_model_load(plumb_model* model, const char* path, char** left,
                              plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    if (left == nullptr) {
      return plumb::capi::Load(plumb::SafetensorsFile::Open(path), model->state.get());
    }
    PLUMB_ASSIGN_OR_RETURN(const std::string names,
                           plumb::capi::LoadPartial(path, model->state.get()));
    return plumb::capi::WriteText(names, left);
  });
}

plumb_status plumb_model_map(plumb_model* model, const char* path, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    return plumb::capi::Map(path, model->state.get());
  });
}

plumb_status plumb_model_map_tensors(plumb_model* model, const plumb_tensor_in_file* tensors,
                                     int64_t count, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    return plumb::capi::MapEach(tensors, count, model->state.get());
  });
}

plumb_status plumb_model_load_memory(plumb_model* model, const void* data, size_t size,
                                     plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckArray("data", data, static_cast<int64_t>(size), 1));
    const absl::string_view content(static_cast<const char*>(data), size);
    return plumb::capi::Load(plumb::SafetensorsFile::FromMapped(plumb::MappedFile::Borrow(content),
                                                                "the weights in memory"),
                             model->state.get());
  });
}

plumb_status plumb_model_save(const plumb_model* model, const char* path, const char* tensors,
                              plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    PLUMB_RETURN_IF_ERROR(model->state->RequireWeights());
    std::vector<plumb::TensorToWrite> saved = model->state->parameters->Tensors();
    if (tensors != nullptr) {
      const auto differs = [&](const plumb::TensorToWrite& tensor) {
        return !plumb::MatchesPattern(tensors, tensor.name);
      };
      saved.erase(std::remove_if(saved.begin(), saved.end(), differs), saved.end());
      if (saved.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensors: no tensor of the model matches \"", tensors, "\""));
      }
    }
    return plumb::WriteSafetensors(
        path, saved,
        {{"plumb", plumb::PlumbVersion()}, {"model", model->state->context->model.name}});
  });
}

void plumb_model_changed(plumb_model* model) {
  if (model != nullptr) ++model->state->version;
}

int64_t plumb_model_tensor_count(const plumb_model* model) {
  return model == nullptr ? 0 : static_cast<int64_t>(model->state->context->parameters.size());
}

int64_t plumb_model_find_tensor(const plumb_model* model, const char* name) {
  if (model == nullptr || name == nullptr) return -1;
  const std::vector<plumb::ParameterSpec>& all = model->state->context->parameters;
  const auto at = std::find_if(all.begin(), all.end(), [name](const plumb::ParameterSpec& each) {
    return each.name == name;
  });
  return at == all.end() ? -1 : at - all.begin();
}

plumb_status plumb_model_read_tensor(const plumb_model* model, int64_t i, int64_t begin,
                                     int64_t count, float* to, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (to == nullptr) return NullArgument("to");
    const ModelState& state = *model->state;
    PLUMB_RETURN_IF_ERROR(state.RequireWeights());
    const auto* const entry = plumb::capi::FindEntry(state.parameters->layout().entries, i);
    const int64_t elements = entry == nullptr ? 0 : entry->end - entry->begin;
    if (entry == nullptr || begin < 0 || count < 0 || begin > elements ||
        count > elements - begin) {
      return absl::OutOfRangeError(
          absl::StrCat("tensor ", i, " has ", elements, " elements, not ", count, " from ", begin));
    }
    if (count > 0) state.parameters->Read(static_cast<size_t>(i), begin, count, to);
    return absl::OkStatus();
  });
}

plumb_status plumb_model_tensor(const plumb_model* model, int64_t i, plumb_tensor* tensor,
                                plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    const ModelState& state = *model->state;
    PLUMB_RETURN_IF_ERROR(state.RequireWeights());
    const auto* const entry = plumb::capi::FindEntry(state.parameters->layout().entries, i);
    const auto index = static_cast<size_t>(i);
    if (entry != nullptr && state.parameters->is_split(index)) {
      return absl::FailedPreconditionError(
          absl::StrCat(entry->name,
                       ": is stored in two planes, since the model was trained in bf16; "
                       "plumb_model_read_tensor copies it"));
    }
    return plumb::capi::WriteTensor(
        state, i, entry != nullptr ? state.parameters->floats(index) : nullptr, tensor);
  });
}
