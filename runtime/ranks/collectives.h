// SPDX-License-Identifier: Apache-2.0
// What all ranks of a job do together, blocking, by the messages of a communicator: every rank
// calls the same function with the same arguments where nothing else is said. Small data: names,
// numbers, texts. Stateless; thread class of the communicator.
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

// One message from one rank to another. A send returns when `data` may be changed.
absl::Status Send(Communicator* ranks, int to, int tag, const void* data, size_t bytes);
absl::Status Receive(Communicator* ranks, int from, int tag, void* data, size_t bytes);
// A text of any length (two messages).
absl::Status SendText(Communicator* ranks, int to, int tag, absl::string_view text);
absl::StatusOr<std::string> ReceiveText(Communicator* ranks, int from, int tag);

// `data` of rank `root`, to all.
absl::Status Broadcast(Communicator* ranks, int root, void* data, size_t bytes);
absl::Status Broadcast(Communicator* ranks, int root, std::string* text);

// Everyone's text in the order of ranks: at rank 0 (empty elsewhere), or everywhere.
absl::StatusOr<std::vector<std::string>> Gather(Communicator* ranks, absl::string_view text);
absl::StatusOr<std::vector<std::string>> AllGather(Communicator* ranks, absl::string_view text);
// The same for numbers: of rank 0, of rank 1 ...; ranks may have different counts.
absl::StatusOr<std::vector<double>> AllGather(Communicator* ranks, absl::Span<const double> values);

// OK if no rank has an error; else, everywhere, the error of the first rank that has one: "rank 2
// on host b: ...", with its code.
absl::Status AllOk(Communicator* ranks, const absl::Status& status);

// What is to be equal on all ranks: {"model", its hash}. Every rank has the same names.
using Fact = std::pair<std::string, std::string>;
// OK if all have the values of rank 0; else, everywhere, kFailedPrecondition with the first fact
// that differs, which ranks differ, and where: "the model differs: abc on rank 0 (host a), def on
// rank 2 (host b)".
absl::Status AllAgree(Communicator* ranks, absl::Span<const Fact> facts);

// Units of a step, for a recipe that does not say how many, of `micro_batches` micro-batches of
// `batch_size` sequences: the micro-batches themselves where each of `ranks` ranks gets one; else
// the number of units with which the busiest rank has the fewest sequences, and of several such
// numbers the smallest. 0 if the step has fewer sequences than there are ranks. No messages.
int64_t ChooseUnits(int64_t batch_size, int64_t micro_batches, int ranks);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_COLLECTIVES_H_
