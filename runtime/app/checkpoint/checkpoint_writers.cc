// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/checkpoint/checkpoint_writers.h"

#include <algorithm>
#include <random>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/app/checkpoint/checkpoint_layout.h"
#include "runtime/app/checkpoint/trainer_tensors.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/shared_file.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

constexpr char kTokenFile[] = "token";

// Returns a text that no other job or checkpoint has written.
std::string NewToken() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&token, HexDigits(random()));
  return token;
}

int64_t SizeOfAll(const std::vector<TensorToWrite>& tensors) {
  int64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) bytes += tensor.type.bytes();
  return bytes;
}

}  // namespace

// Order from rank 0. All ranks run the same program, so its bytes are sent.
struct CheckpointWriters::Order {
  int64_t state = kEnd;
  int64_t bytes = 0;  // size of the file

  static constexpr int64_t kEnd = -1;
};

CheckpointWriters::CheckpointWriters(Communicator* ranks, api::Trainer* trainer,
                                     std::string run_dir, size_t weights)
    : ranks_(ranks), trainer_(trainer), run_dir_(std::move(run_dir)), weights_(weights) {}

absl::StatusOr<int> CheckpointWriters::Begin(const std::string& staged) {
  std::string name = staged, token;
  absl::Status made;
  const bool is_first = ranks_->rank() == 0;
  const auto path = [&] {
    return JoinPath(JoinPath(JoinPath(run_dir_, kCheckpointsDirectory), name), kTokenFile);
  };
  if (is_first) {
    token = NewToken();
    made = WriteFileAtomically(path(), token);
  }
  PLUMB_RETURN_IF_ERROR(Broadcast(ranks_, 0, &name));
  PLUMB_RETURN_IF_ERROR(Broadcast(ranks_, 0, &token));
  staged_ = JoinPath(JoinPath(run_dir_, kCheckpointsDirectory), name);
  const absl::StatusOr<std::string> found =
      ReadFile(path(), static_cast<int64_t>(token.size()) + 1);
  PLUMB_ASSIGN_OR_RETURN(
      const std::vector<double> sees,
      AllGather(ranks_, std::vector<double>{found.ok() && *found == token ? 1.0 : 0.0}));
  if (is_first && made.ok()) made = RemoveTree(path());
  const auto blind = std::find(sees.begin(), sees.end(), 0.0);
  const int first = blind == sees.end() ? -1 : static_cast<int>(blind - sees.begin());
  if (first >= 0) {
    PLUMB_RETURN_IF_ERROR(made);
    return first;
  }
  PLUMB_RETURN_IF_ERROR(AllOk(ranks_, made));
  return first;
}

// Returns for each tensor the rank that writes it: of the ranks that have it, the one with the
// fewest bytes so far.
absl::StatusOr<std::vector<int>> CheckpointWriters::ShareOut(
    api::State state, const std::vector<TensorToWrite>& tensors) {
  std::string has;
  float nothing;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_first_only = state == api::State::kModel && i >= weights_ && ranks_->rank() > 0;
    has += !is_first_only && trainer_->ReadState(state, i, 0, {&nothing, 0}).ok() ? '1' : '0';
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllGather(ranks_, has));
  std::vector<int> writers;
  std::vector<int64_t> bytes(all.size(), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    int writer = -1;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (i >= all[rank].size() || all[rank][i] != '1') continue;
      if (writer < 0 || bytes[rank] < bytes[static_cast<size_t>(writer)]) {
        writer = static_cast<int>(rank);
      }
    }
    if (writer < 0) return absl::InternalError(absl::StrCat("no rank has ", tensors[i].name));
    bytes[static_cast<size_t>(writer)] += tensors[i].type.bytes();
    writers.push_back(writer);
  }
  return writers;
}

// Computes the hash of the file: the hasher's state is sent from rank to rank in the order of the
// tensors, so that the tensors need not be sent.
absl::Status CheckpointWriters::HashInOrder(const std::vector<TensorToWrite>& tensors,
                                            const std::vector<int>& writers,
                                            ContentHasher* hasher) {
  static_assert(std::is_trivially_copyable_v<ContentHasher>, "its bytes are sent unchanged");
  const auto hand_over = [&](int from, int to) -> absl::Status {
    if (from == to) return absl::OkStatus();
    if (ranks_->rank() == from) return Send(ranks_, to, kTagCheckpoint, hasher, sizeof(*hasher));
    if (ranks_->rank() != to) return absl::OkStatus();
    return Receive(ranks_, from, kTagCheckpoint, hasher, sizeof(*hasher));
  };
  int at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(hand_over(at, writers[i]));
    at = writers[i];
    if (ranks_->rank() != at) continue;
    PLUMB_RETURN_IF_ERROR(ProduceTensor(tensors[i], [hasher](absl::string_view piece) {
      hasher->Update(piece);
      return absl::OkStatus();
    }));
  }
  return hand_over(at, 0);
}

absl::StatusOr<uint64_t> CheckpointWriters::WriteParts(const Order& order, const std::string& name,
                                                       absl::string_view header) {
  const std::string path = JoinPath(staged_, name);
  const auto state = static_cast<api::State>(order.state);
  const std::vector<TensorToWrite> tensors = StateTensors(trainer_, state);
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int> writers, ShareOut(state, tensors));
  const int me = ranks_->rank();
  PLUMB_RETURN_IF_ERROR(
      AllOk(ranks_, me == 0 ? MakeSizedFile(path, header, order.bytes) : absl::OkStatus()));
  const auto write = [&](OffsetSink sink) -> absl::Status {
    int64_t begin = order.bytes - SizeOfAll(tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
      int64_t at = begin;
      begin += tensors[i].type.bytes();
      if (writers[i] != me) continue;
      PLUMB_RETURN_IF_ERROR(ProduceTensor(tensors[i], [&](absl::string_view piece) {
        const absl::Status written = sink(at, piece);
        at += static_cast<int64_t>(piece.size());
        return written;
      }));
    }
    return absl::OkStatus();
  };
  PLUMB_RETURN_IF_ERROR(AllOk(ranks_, WriteIntoFile(path, write)));
  ContentHasher hasher;
  if (me == 0) hasher.Update(header);
  PLUMB_RETURN_IF_ERROR(HashInOrder(tensors, writers, &hasher));
  return hasher.Finish();
}

absl::StatusOr<uint64_t> CheckpointWriters::Write(absl::string_view name, api::State state,
                                                  const SafetensorsImage& image) {
  Order order = {static_cast<int64_t>(state), image.bytes()};
  std::string file(name);
  PLUMB_RETURN_IF_ERROR(Broadcast(ranks_, 0, &order, sizeof(order)));
  PLUMB_RETURN_IF_ERROR(Broadcast(ranks_, 0, &file));
  return WriteParts(order, file, image.header());
}

absl::Status CheckpointWriters::End() {
  Order order;
  return Broadcast(ranks_, 0, &order, sizeof(order));
}

absl::Status CheckpointWriters::Follow() {
  PLUMB_ASSIGN_OR_RETURN(const int blind, Begin(""));
  if (blind >= 0) return absl::OkStatus();
  for (;;) {
    Order order;
    PLUMB_RETURN_IF_ERROR(Broadcast(ranks_, 0, &order, sizeof(order)));
    if (order.state == Order::kEnd) return absl::OkStatus();
    std::string name;
    PLUMB_RETURN_IF_ERROR(Broadcast(ranks_, 0, &name));
    // Rank 0 has this error as well and ends the protocol; if messages fail, so does the next one.
    WriteParts(order, name, "").status().IgnoreError();
  }
}

}  // namespace plumb
