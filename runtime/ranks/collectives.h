// SPDX-License-Identifier: Apache-2.0
// Blocking collective operations on small data (names, numbers, texts), built from the messages of
// a communicator. Unless stated otherwise, every rank calls the same function with the same
// arguments. Stateless; thread class of the communicator.
#ifndef PLUMB_RUNTIME_RANKS_COLLECTIVES_H_
#define PLUMB_RUNTIME_RANKS_COLLECTIVES_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Transfers one message between two ranks. Send returns when `data` may be changed.
absl::Status Send(Communicator* ranks, int to, int tag, const void* data, size_t bytes);
absl::Status Receive(Communicator* ranks, int from, int tag, void* data, size_t bytes);
// Transfers a text of any length, in two messages.
absl::Status SendText(Communicator* ranks, int to, int tag, absl::string_view text);
absl::StatusOr<std::string> ReceiveText(Communicator* ranks, int from, int tag);

// Broadcasts the data of rank `root` to all ranks. Collective.
absl::Status Broadcast(Communicator* ranks, int root, void* data, size_t bytes);
absl::Status Broadcast(Communicator* ranks, int root, std::string* text);

// Returns the texts of all ranks, ordered by rank: Gather on rank 0 (empty elsewhere), AllGather on
// every rank. Collective.
absl::StatusOr<std::vector<std::string>> Gather(Communicator* ranks, absl::string_view text);
absl::StatusOr<std::vector<std::string>> AllGather(Communicator* ranks, absl::string_view text);
// Returns the numbers of rank 0, of rank 1 ... on every rank; counts may differ. Collective.
absl::StatusOr<std::vector<double>> AllGather(Communicator* ranks, absl::Span<const double> values);

// Returns OK if no rank has an error. Otherwise every rank returns the error of the first rank that
// has one, with its code: "rank 2 on host b: ...". Collective.
absl::Status AllOk(Communicator* ranks, const absl::Status& status);

// A name and a value that must be equal on all ranks: {"model", its hash}. All ranks have the same
// names.
using Fact = std::pair<std::string, std::string>;
// Returns OK if all ranks have the same values. Otherwise every rank returns kFailedPrecondition
// with the first fact that differs, and the ranks of each value: "the model differs between ranks:
// abc on rank 0 (host a); def on rank 2 (host b)". Collective.
absl::Status AllAgree(Communicator* ranks, absl::Span<const Fact> facts);

// Returns the number of units that a step of `micro_batches` micro-batches of `batch_size`
// sequences is divided into if the recipe does not state it. If each of `ranks` ranks gets a
// micro-batch, the units are the micro-batches; else the number for which the busiest rank has the
// fewest sequences, and the smallest of several such numbers. 0 if the step has fewer sequences
// than there are ranks. Sends no messages.
int64_t ChooseUnits(int64_t batch_size, int64_t micro_batches, int ranks);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_COLLECTIVES_H_
