// SPDX-License-Identifier: Apache-2.0
// State of a trainer between steps, tensor by tensor and as a file, its number of steps and
// learning rate.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/trainer_file.h"
#include "runtime/capi/trainer_handle.h"

namespace plumb::capi {
namespace {

constexpr int64_t kMaxSteps = int64_t{1} << 53;

absl::StatusOr<const TensorToWrite*> FindState(const plumb_trainer& trainer, int32_t kind,
                                               int64_t i) {
  PLUMB_RETURN_IF_ERROR(CheckBetweenSteps(trainer));
  if (kind != PLUMB_STATE_MODEL && kind != PLUMB_STATE_OPTIMIZER) {
    return absl::InvalidArgumentError(absl::StrCat("kind: there is no state of kind ", kind));
  }
  const std::vector<TensorToWrite>& tensors = trainer.state[kind];
  if (static_cast<size_t>(i) < tensors.size()) return &tensors[static_cast<size_t>(i)];
  return absl::OutOfRangeError(
      absl::StrCat("there is no tensor ", i, " of this kind: there are ", tensors.size()));
}

// Returns the tensor; fails unless its elements [begin, begin + count) exist.
absl::StatusOr<const TensorToWrite*> FindElements(const plumb_trainer& trainer, int32_t kind,
                                                  int64_t i, int64_t begin, int64_t count) {
  PLUMB_ASSIGN_OR_RETURN(const TensorToWrite* const tensor, FindState(trainer, kind, i));
  const int64_t elements = tensor->type.num_elements();
  if (begin < 0 || count < 0 || begin > elements || count > elements - begin) {
    return absl::OutOfRangeError(
        absl::StrCat(tensor->name, ": has ", elements, " elements, not ", count, " from ", begin));
  }
  return tensor;
}

// Returns writable data: the const of TensorToWrite is for files, and the trainer owns the memory.
float* GetData(const TensorToWrite& tensor) {
  return static_cast<float*>(const_cast<void*>(tensor.data));
}

}  // namespace
}  // namespace plumb::capi

using plumb::TensorToWrite;
using plumb::capi::Call;
using plumb::capi::GetData;
using plumb::capi::NullArgument;

plumb_status plumb_trainer_save(const plumb_trainer* trainer, const char* path,
                                plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckBetweenSteps(*trainer));
    return plumb::capi::SaveTrainer(*trainer->session,
                                    trainer->model->context->model.self_contained_text, path);
  });
}

plumb_status plumb_trainer_load(plumb_trainer* trainer, const char* path, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    const plumb::capi::ModelState& model = *trainer->model;
    std::string difference;
    PLUMB_RETURN_IF_ERROR(plumb::capi::LoadTrainer(path, model.context->model.self_contained_text,
                                                   trainer->session.get(), &difference));
    trainer->has_gradients = false;
    ++trainer->model->version;
    if (!difference.empty()) {
      model.runtime->Warn(absl::StrCat(path, ": was saved with another model: ", difference));
    }
    return absl::OkStatus();
  });
}

plumb_status plumb_trainer_check(const plumb_trainer* trainer, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckBetweenSteps(*trainer));
    return trainer->session->CheckFinite();
  });
}

int64_t plumb_trainer_state_count(const plumb_trainer* trainer, int32_t kind) {
  if (trainer == nullptr || (kind != PLUMB_STATE_MODEL && kind != PLUMB_STATE_OPTIMIZER)) return 0;
  return static_cast<int64_t>(trainer->state[kind].size());
}

plumb_status plumb_trainer_state(const plumb_trainer* trainer, int32_t kind, int64_t i,
                                 plumb_tensor* tensor, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const TensorToWrite* const found,
                           plumb::capi::FindState(*trainer, kind, i));
    return plumb::capi::CopyOut(
        plumb::capi::TensorAt(found->name, found->type.shape, GetData(*found)), "tensor", tensor);
  });
}

plumb_status plumb_trainer_read_state(const plumb_trainer* trainer, int32_t kind, int64_t i,
                                      int64_t begin, int64_t count, float* to,
                                      plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (to == nullptr) return NullArgument("to");
    PLUMB_ASSIGN_OR_RETURN(const TensorToWrite* const found,
                           plumb::capi::FindElements(*trainer, kind, i, begin, count));
    if (found->data == nullptr) {
      found->copy(begin, count, to);
    } else {
      std::copy_n(GetData(*found) + begin, count, to);
    }
    return absl::OkStatus();
  });
}

plumb_status plumb_trainer_write_state(plumb_trainer* trainer, int32_t kind, int64_t i,
                                       int64_t begin, int64_t count, const float* from,
                                       plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (from == nullptr) return NullArgument("from");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    PLUMB_ASSIGN_OR_RETURN(const TensorToWrite* const found,
                           plumb::capi::FindElements(*trainer, kind, i, begin, count));
    if (found->data == nullptr) {  // a matrix in bf16; weights come first
      trainer->model->parameters->Write(i, begin, count, from);
    } else {
      std::copy_n(from, count, GetData(*found) + begin);
    }
    ++trainer->model->version;
    return absl::OkStatus();
  });
}

plumb_status plumb_trainer_set_steps(plumb_trainer* trainer, int64_t steps, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    if (steps < 0 || steps > plumb::capi::kMaxSteps) {
      return absl::InvalidArgumentError(absl::StrCat("steps: cannot be ", steps));
    }
    trainer->session->ResumeAt(steps);
    return absl::OkStatus();
  });
}

double plumb_trainer_learning_rate(const plumb_trainer* trainer) {
  return trainer == nullptr ? 0 : trainer->session->NextLearningRate();
}

plumb_status plumb_trainer_scale_learning_rate(plumb_trainer* trainer, double scale,
                                               plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    if (!std::isfinite(scale) || scale < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("scale: must be zero or positive, is ", scale));
    }
    trainer->session->ScaleLearningRate(scale);
    return absl::OkStatus();
  });
}

plumb_status plumb_trainer_share_states(plumb_trainer* trainer, int32_t (*use)(void* user),
                                        void* user, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    if (use == nullptr) return NullArgument("use");
    PLUMB_RETURN_IF_ERROR(
        plumb::capi::CheckNotInCall(trainer->busy || trainer->shares_states, "trainer"));
    const plumb::capi::InCall shares_states(&trainer->shares_states);
    PLUMB_RETURN_IF_ERROR(trainer->session->ShareStates([&]() -> absl::Status {
      if (use(user) == 0) return absl::OkStatus();
      return absl::CancelledError("the callback of plumb_trainer_share_states failed");
    }));
    ++trainer->model->version;
    return absl::OkStatus();
  });
}
