// SPDX-License-Identifier: Apache-2.0
// A program that mpi_test.sh runs under a launcher. All ranks make every check that does not depend
// on the rank.
//
//   mpirun -n N mpi_ranks LIBRARY messages|large|abort|error
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/ranks/launch.h"

namespace plumb {
namespace {

absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(absl::StrCat("not so: ", what));
}

char TestByte(int from, int to, int i, size_t k) {
  return static_cast<char>(from * 31 + to * 7 + i * 3 + static_cast<int>(k % 1021));
}

// Sends from every rank to every rank, including itself, in an order that depends on the seed, as
// in tests/ranks/local_ranks_test.cc.
absl::Status AllToAll(Communicator* ranks, uint32_t seed) {
  const int me = ranks->rank(), size = ranks->size();
  constexpr int kMessages = 3;
  std::mt19937 sizes(seed), order(seed * 100 + me);
  std::vector<size_t> bytes(size * size * kMessages);
  for (size_t& each : bytes)
    each = sizes() % 4 == 0 ? 0 : sizes() % (sizes() % 2 == 0 ? 200 : 200000);
  struct One {
    int peer;
    bool send;
    int at;
    std::vector<char> data;
    Communicator::Transfer transfer;
  };
  std::vector<One> all;
  for (int i = 0; i < kMessages; ++i) {
    std::vector<std::pair<int, bool>> round;
    for (int peer = 0; peer < size; ++peer) {
      round.push_back({peer, true});
      round.push_back({peer, false});
    }
    std::shuffle(round.begin(), round.end(), order);
    for (const auto& [peer, send] : round) all.push_back({peer, send, i, {}, {}});
  }
  for (One& each : all) {
    const int from = each.send ? me : each.peer, to = each.send ? each.peer : me;
    each.data.resize(bytes[(from * size + to) * kMessages + each.at]);
    for (size_t k = 0; each.send && k < each.data.size(); ++k)
      each.data[k] = TestByte(from, to, each.at, k);
    auto transfer = each.send
                        ? ranks->StartSend(to, kTagStudy, each.data.data(), each.data.size())
                        : ranks->StartReceive(from, kTagStudy, each.data.data(), each.data.size());
    PLUMB_RETURN_IF_ERROR(transfer.status());
    each.transfer = *transfer;
  }
  std::shuffle(all.begin(), all.end(), order);
  for (One& each : all) {
    if (order() % 2 == 0) {
      PLUMB_RETURN_IF_ERROR(ranks->Wait(&each.transfer));
    } else {
      for (bool over = false; !over;) {
        PLUMB_ASSIGN_OR_RETURN(over, ranks->Test(&each.transfer));
      }
    }
    for (size_t k = 0; !each.send && k < each.data.size(); ++k) {
      PLUMB_RETURN_IF_ERROR(
          Expect(each.data[k] == TestByte(each.peer, me, each.at, k), "its bytes"));
    }
  }
  return ranks->Barrier();
}

absl::Status ProbeReportsSize(Communicator* ranks) {
  if (ranks->rank() != 0) {
    const std::string text(ranks->rank() * 10, 'x');
    return Send(ranks, 0, kTagGradientSums, text.data(), text.size());
  }
  for (int seen = 1; seen < ranks->size();) {
    PLUMB_ASSIGN_OR_RETURN(auto message, ranks->Probe(kTagGradientSums));
    if (!message.has_value()) continue;
    PLUMB_RETURN_IF_ERROR(Expect(message->bytes == size_t(message->from) * 10, "the probed size"));
    std::string text(message->bytes, '\0');
    PLUMB_RETURN_IF_ERROR(
        Receive(ranks, message->from, kTagGradientSums, text.data(), text.size()));
    ++seen;
  }
  PLUMB_ASSIGN_OR_RETURN(auto none, ranks->Probe(kTagGradientSums));
  return Expect(!none.has_value(), "no message is left");
}

absl::Status Messages(Communicator* ranks) {
  for (uint32_t seed = 0; seed < 30; ++seed) PLUMB_RETURN_IF_ERROR(AllToAll(ranks, seed));
  for (int root = 0; root < ranks->size(); ++root) {
    std::string text = absl::StrCat("of ", ranks->rank());
    PLUMB_RETURN_IF_ERROR(Broadcast(ranks, root, &text));
    PLUMB_RETURN_IF_ERROR(Expect(text == absl::StrCat("of ", root), "broadcast"));
  }
  PLUMB_ASSIGN_OR_RETURN(const auto texts, AllGather(ranks, absl::StrCat(ranks->rank())));
  for (int rank = 0; rank < ranks->size(); ++rank) {
    PLUMB_RETURN_IF_ERROR(Expect(texts[rank] == absl::StrCat(rank), "gathered texts"));
  }
  PLUMB_RETURN_IF_ERROR(ProbeReportsSize(ranks));
  // Receives have another size than the message, smaller and larger.
  const int next = (ranks->rank() + 1) % ranks->size();
  const int previous = (ranks->rank() + ranks->size() - 1) % ranks->size();
  for (const size_t bytes : {size_t{3}, size_t{5}}) {
    char sent[4] = "abc", received[8];
    PLUMB_ASSIGN_OR_RETURN(auto send, ranks->StartSend(next, kTagStudy, sent, sizeof(sent)));
    const absl::Status wrong = Receive(ranks, previous, kTagStudy, received, bytes);
    PLUMB_RETURN_IF_ERROR(
        Expect(wrong.code() == absl::StatusCode::kInternal, "a wrong size is an error"));
    PLUMB_RETURN_IF_ERROR(ranks->Wait(&send));
  }
  return absl::OkStatus();
}

// Sends one message whose size does not fit in an int.
absl::Status Large(Communicator* ranks) {
  const size_t bytes = (size_t{1} << 31) + 12345;
  std::vector<char> data(bytes);
  if (ranks->rank() == 0) {
    for (size_t k = 0; k < bytes; k += 4093) data[k] = TestByte(0, 1, 0, k);
    data[bytes - 1] = 77;
    return Send(ranks, 1, kTagGradientSums, data.data(), bytes);
  }
  if (ranks->rank() != 1) return absl::OkStatus();
  for (;;) {
    PLUMB_ASSIGN_OR_RETURN(auto message, ranks->Probe(kTagGradientSums));
    if (!message.has_value()) continue;
    PLUMB_RETURN_IF_ERROR(Expect(message->bytes == bytes, "the probed size"));
    break;
  }
  PLUMB_RETURN_IF_ERROR(Receive(ranks, 0, kTagGradientSums, data.data(), bytes));
  for (size_t k = 0; k < bytes - 1; k += 4093) {
    PLUMB_RETURN_IF_ERROR(Expect(data[k] == TestByte(0, 1, 0, k), "its bytes"));
  }
  return Expect(data[bytes - 1] == 77, "its last byte");
}

absl::Status Run(Communicator* ranks, const std::string& what) {
  if (what == "messages") return Messages(ranks);
  if (what == "large") return Large(ranks);
  if (what == "abort") {
    int number = 0;
    if (ranks->rank() == ranks->size() - 1) ranks->Abort(42);
    return Receive(ranks, ranks->size() - 1, kTagControl, &number, sizeof(number));
  }
  return absl::InvalidArgumentError("messages, large or abort");
}

int Main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto ranks = JoinByMpi(argv[1]);
  if (!ranks.ok()) {
    std::fprintf(stderr, "%s\n", std::string(ranks.status().message()).c_str());
    return 1;
  }
  const absl::Status status = Run(ranks->get(), argv[2]);
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", (*ranks)->rank(), status.ToString().c_str());
    (*ranks)->Abort(1);
  }
  if ((*ranks)->rank() == 0) std::printf("%d ranks: %s\n", (*ranks)->size(), argv[2]);
  return 0;
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) { return plumb::Main(argc, argv); }
