// SPDX-License-Identifier: Apache-2.0
// Between the interface of C, plumb_communicator, and that of C++: of a host's communicator for the
// runtime, and of the runtime's for plumb.h.
#ifndef PLUMB_RUNTIME_RANKS_HOST_COMMUNICATOR_H_
#define PLUMB_RUNTIME_RANKS_HOST_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// A communicator that calls the functions of `host`, which is copied; what its context points to
// must outlive it. Errors: kInvalidArgument where a function is missing or rank and size make no
// sense: for more than kMaxRanks, too.
absl::StatusOr<std::unique_ptr<Communicator>> FromHost(const plumb_communicator& host);

// `ranks` as plumb.h has it. Thread class of `ranks`, which must outlive it.
class ForHost {
 public:
  explicit ForHost(Communicator* ranks);
  ForHost(const ForHost&) = delete;
  ForHost& operator=(const ForHost&) = delete;

  const plumb_communicator* get() const { return &host_; }

 private:
  friend struct ForHostCalls;

  Communicator* const ranks_;
  const std::string host_name_;
  std::string error_;
  plumb_communicator host_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_HOST_COMMUNICATOR_H_
