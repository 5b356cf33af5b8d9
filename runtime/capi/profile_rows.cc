// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/profile_rows.h"

#include "absl/strings/str_cat.h"
#include "runtime/capi/error.h"

namespace plumb::capi {

StepProfile* ProfileRows::Start() {
  profile_ = std::make_unique<StepProfile>();
  return profile_.get();
}

absl::Status ProfileRows::WriteRow(size_t i, plumb_profile_row* row) {
  if (profile_ == nullptr) {
    return absl::FailedPreconditionError("there is no profile: it was never turned on");
  }
  if (i == 0) rows_ = profile_->Rows();
  if (i > rows_.size()) return absl::OutOfRangeError(absl::StrCat("there is no row ", i));
  plumb_profile_row given = {};
  if (i == 0) {
    given.name = "step";
    given.runs = profile_->steps();
    given.seconds = profile_->seconds();
  } else {
    const StepProfile::Row& of = rows_[i - 1];
    given.name = of.name.c_str();
    given.in_graph = of.in_graph ? 1 : 0;
    given.runs = of.runs;
    given.seconds = of.seconds;
    given.flops = of.flops;
    given.bytes = of.bytes;
  }
  capi::CopyOut(given, row);
  return absl::OkStatus();
}

}  // namespace plumb::capi
