// SPDX-License-Identifier: Apache-2.0
// Adapters between the C interface, plumb_communicator of plumb.h, and the C++ interface
// Communicator: FromHost wraps a host's, ForHost exposes the runtime's.
#ifndef PLUMB_RUNTIME_RANKS_HOST_COMMUNICATOR_H_
#define PLUMB_RUNTIME_RANKS_HOST_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Returns a communicator that calls the functions of `host`, which is copied; the object behind its
// context must outlive it. Errors: kInvalidArgument if a function is missing, or if rank and size
// are inconsistent or exceed kMaxRanks.
absl::StatusOr<std::unique_ptr<Communicator>> FromHost(const plumb_communicator& host);

// The plumb_communicator for `ranks`, which must outlive it. Thread class of `ranks`.
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
