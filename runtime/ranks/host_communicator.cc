// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/host_communicator.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

class HostCommunicator : public Communicator {
 public:
  explicit HostCommunicator(const plumb_communicator& host)
      : host_(host), name_(host.host == nullptr ? "" : host.host) {}

  int rank() const override { return host_.rank; }
  int size() const override { return host_.size; }
  std::string host() const override { return name_; }

  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override {
    Transfer transfer;
    const plumb_status code =
        host_.start_send(host_.context, to, tag, data, bytes, &transfer.handle);
    if (code != PLUMB_OK) return Failure(code, absl::StrCat("sending to rank ", to));
    return transfer;
  }

  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override {
    Transfer transfer;
    const plumb_status code =
        host_.start_receive(host_.context, from, tag, data, bytes, &transfer.handle);
    if (code != PLUMB_OK) return Failure(code, absl::StrCat("receiving from rank ", from));
    return transfer;
  }

  absl::StatusOr<bool> Test(Transfer* transfer) override {
    if (transfer->handle == nullptr) return true;
    int32_t over = 0;
    const plumb_status code = host_.test(host_.context, transfer->handle, &over);
    if (code != PLUMB_OK || over != 0) transfer->handle = nullptr;
    if (code != PLUMB_OK) return Failure(code, "a message");
    return over != 0;
  }

  absl::Status Wait(Transfer* transfer) override {
    if (transfer->handle == nullptr) return absl::OkStatus();
    const plumb_status code = host_.wait(host_.context, std::exchange(transfer->handle, nullptr));
    return code == PLUMB_OK ? absl::OkStatus() : Failure(code, "a message");
  }

  absl::StatusOr<std::optional<Message>> Probe(int tag) override {
    int32_t found = 0, from = 0;
    size_t bytes = 0;
    const plumb_status code = host_.probe(host_.context, tag, &found, &from, &bytes);
    if (code != PLUMB_OK) return Failure(code, "looking for messages");
    if (found == 0) return std::optional<Message>();
    return std::optional<Message>(Message{from, bytes});
  }

  absl::Status Barrier() override {
    const plumb_status code = host_.barrier(host_.context);
    return code == PLUMB_OK ? absl::OkStatus() : Failure(code, "the barrier");
  }

  void Abort(int code) override { host_.abort(host_.context, code); }

 private:
  absl::Status Failure(plumb_status code, const std::string& what) const {
    const char* const said = host_.error == nullptr ? nullptr : host_.error(host_.context);
    return absl::Status(static_cast<absl::StatusCode>(code),
                        said != nullptr ? said : absl::StrCat(what, " failed"));
  }

  const plumb_communicator host_;
  const std::string name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> FromHost(const plumb_communicator& host) {
  plumb_communicator known;
  std::memset(&known, 0, sizeof(known));
  std::memcpy(&known, &host, host.struct_size < sizeof(known) ? host.struct_size : sizeof(known));
  if (known.size > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator: size is ", known.size, ", more than ", kMaxRanks,
                     " ranks; set it to the number of processes of the job"));
  }
  if (known.size < 1 || known.rank < 0 || known.rank >= known.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator: rank ", known.rank, " of ", known.size));
  }
  if (known.start_send == nullptr || known.start_receive == nullptr || known.test == nullptr ||
      known.wait == nullptr || known.probe == nullptr || known.barrier == nullptr ||
      known.abort == nullptr) {
    return absl::InvalidArgumentError(
        "communicator: a function is NULL; only `error` may be (is struct_size set?)");
  }
  return std::make_unique<HostCommunicator>(known);
}

// Implements the functions of a plumb_communicator whose context is a ForHost.
struct ForHostCalls {
  static plumb_status Result(void* context, const absl::Status& status) {
    static_cast<ForHost*>(context)->error_ = std::string(status.message());
    return static_cast<plumb_status>(status.raw_code());
  }
  static Communicator* Ranks(void* context) { return static_cast<ForHost*>(context)->ranks_; }

  static plumb_status Started(void* context, const absl::StatusOr<Communicator::Transfer>& started,
                              void** transfer) {
    if (!started.ok()) return Result(context, started.status());
    *transfer = started->handle;
    return PLUMB_OK;
  }
  static plumb_status StartSend(void* context, int32_t to, int32_t tag, const void* data,
                                size_t size, void** transfer) {
    return Started(context, Ranks(context)->StartSend(to, tag, data, size), transfer);
  }
  static plumb_status StartReceive(void* context, int32_t from, int32_t tag, void* data,
                                   size_t size, void** transfer) {
    return Started(context, Ranks(context)->StartReceive(from, tag, data, size), transfer);
  }
  static plumb_status Test(void* context, void* transfer, int32_t* over) {
    Communicator::Transfer mine{transfer};
    const absl::StatusOr<bool> is_over = Ranks(context)->Test(&mine);
    if (!is_over.ok()) return Result(context, is_over.status());
    *over = *is_over ? 1 : 0;
    return PLUMB_OK;
  }
  static plumb_status Wait(void* context, void* transfer) {
    Communicator::Transfer mine{transfer};
    return Result(context, Ranks(context)->Wait(&mine));
  }
  static plumb_status Probe(void* context, int32_t tag, int32_t* found, int32_t* from,
                            size_t* size) {
    const auto message = Ranks(context)->Probe(tag);
    if (!message.ok()) return Result(context, message.status());
    *found = message->has_value() ? 1 : 0;
    if (message->has_value()) {
      *from = (*message)->from;
      *size = (*message)->bytes;
    }
    return PLUMB_OK;
  }
  static plumb_status Barrier(void* context) { return Result(context, Ranks(context)->Barrier()); }
  static void Abort(void* context, int32_t code) { Ranks(context)->Abort(code); }
  static const char* Error(void* context) {
    const std::string& error = static_cast<ForHost*>(context)->error_;
    return error.empty() ? nullptr : error.c_str();
  }
};

ForHost::ForHost(Communicator* ranks) : ranks_(ranks), host_name_(ranks->host()) {
  host_.struct_size = sizeof(host_);
  host_.context = this;
  host_.rank = ranks->rank();
  host_.size = ranks->size();
  host_.host = host_name_.c_str();
  host_.start_send = ForHostCalls::StartSend;
  host_.start_receive = ForHostCalls::StartReceive;
  host_.test = ForHostCalls::Test;
  host_.wait = ForHostCalls::Wait;
  host_.probe = ForHostCalls::Probe;
  host_.barrier = ForHostCalls::Barrier;
  host_.abort = ForHostCalls::Abort;
  host_.error = ForHostCalls::Error;
}

}  // namespace plumb
