// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/batch_inputs.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/status.h"
#include "runtime/model/build.h"

namespace plumb {
namespace {

constexpr int64_t kInt = sizeof(int32_t);

}  // namespace

int64_t BatchInputs::Bytes(const ResolvedModel& model, int64_t rows, int64_t max_seq) {
  return (model.token_types > 0 ? 4 : 3) * rows * max_seq * kInt +
         (model.bidirectional ? rows * kInt : 0);
}

BatchInputs::BatchInputs(const ResolvedModel& model, int64_t rows, int64_t max_seq)
    : rows_(rows),
      tokens_(rows * max_seq * kInt),
      positions_(tokens_.size()),
      targets_(tokens_.size()),
      types_(model.token_types > 0 ? tokens_.size() : 0),
      lengths_(model.bidirectional ? rows * kInt : 0) {}

void BatchInputs::Set(const BatchIds& ids, int64_t seq) {
  const int64_t n = rows_ * seq;
  const auto bytes = static_cast<size_t>(n * kInt);
  std::transform(ids.tokens, ids.tokens + n, tokens_.as<int32_t>(),
                 [](int32_t token) { return std::max(token, 0); });
  std::memcpy(positions_.data(), ids.positions, bytes);
  std::memcpy(targets_.data(), ids.targets, bytes);
  if (types_.size() > 0 && ids.types != nullptr) {
    std::memcpy(types_.data(), ids.types, bytes);
  } else if (types_.size() > 0) {
    std::memset(types_.data(), 0, bytes);
  }
  for (int64_t row = 0; lengths_.size() > 0 && row < rows_; ++row) {
    int64_t length = seq;
    while (length > 1 && ids.tokens[row * seq + length - 1] < 0) --length;
    lengths_.as<int32_t>()[row] = static_cast<int32_t>(length);
  }
}

absl::Status BatchInputs::Bind(Executable* executable) const {
  PLUMB_RETURN_IF_ERROR(executable->Bind("tokens", tokens_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("positions", positions_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("targets", targets_.data()));
  if (types_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind(kTypesInput, types_.data()));
  if (lengths_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind(kLengthsInput, lengths_.data()));
  return absl::OkStatus();
}

int64_t BatchInputs::bytes() const {
  return tokens_.size() + positions_.size() + targets_.size() + types_.size() + lengths_.size();
}

}  // namespace plumb
