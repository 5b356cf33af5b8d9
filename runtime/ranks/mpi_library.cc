// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/mpi_library.h"

#include <dlfcn.h>

#include <cfenv>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/ranks/host_communicator.h"
#include "runtime/ranks/mpi/plumb_mpi.h"

namespace plumb {
namespace {

// Owns a plumb_communicator that libplumb-mpi.so filled.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(const plumb_communicator& host, decltype(&plumb_mpi_release) release,
                  std::unique_ptr<Communicator> ranks)
      : host_(host), release_(release), ranks_(std::move(ranks)) {}
  ~MpiCommunicator() override {
    ranks_.reset();
    release_(&host_);
  }

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::string host() const override { return ranks_->host(); }
  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override {
    return ranks_->StartSend(to, tag, data, bytes);
  }
  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override {
    return ranks_->StartReceive(from, tag, data, bytes);
  }
  absl::StatusOr<bool> Test(Transfer* transfer) override { return ranks_->Test(transfer); }
  absl::Status Wait(Transfer* transfer) override { return ranks_->Wait(transfer); }
  absl::StatusOr<std::optional<Message>> Probe(int tag) override { return ranks_->Probe(tag); }
  absl::Status Barrier() override { return ranks_->Barrier(); }
  void Abort(int code) override { ranks_->Abort(code); }

 private:
  plumb_communicator host_;
  const decltype(&plumb_mpi_release) release_;
  std::unique_ptr<Communicator> ranks_;
};

template <class Function>
bool FindFunction(void* library, const char* name, Function** function) {
  void* const address = dlsym(library, name);
  static_assert(sizeof(address) == sizeof(*function));
  std::memcpy(function, &address, sizeof(address));
  return address != nullptr;
}

absl::Status NotLoaded(const std::string& file) {
  const char* const why = dlerror();
  return absl::NotFoundError(why != nullptr ? std::string(why)
                                            : absl::StrCat(file, ": could not be loaded"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinByMpi(const std::string& file) {
  // Libraries that MPI loads may change the floating-point mode of this thread.
  std::fenv_t environment;
  std::fegetenv(&environment);
  // The library is never unloaded, because MPI leaves threads and handlers behind. It is global,
  // because the plugins of some MPI versions search for MPI's symbols there.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  decltype(&plumb_mpi_communicator) communicator = nullptr;
  decltype(&plumb_mpi_release) release = nullptr;
  if (library == nullptr || !FindFunction(library, "plumb_mpi_communicator", &communicator) ||
      !FindFunction(library, "plumb_mpi_release", &release)) {
    std::fesetenv(&environment);
    return NotLoaded(file);
  }
  plumb_communicator host;
  std::memset(&host, 0, sizeof(host));
  host.struct_size = sizeof(host);
  char problem[512] = "";
  const plumb_status code = communicator(nullptr, &host, problem, sizeof(problem));
  std::fesetenv(&environment);
  if (code != PLUMB_OK) {
    return absl::Status(static_cast<absl::StatusCode>(code), absl::StrCat(file, ": ", problem));
  }
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> ranks, FromHost(host));
  return std::make_unique<MpiCommunicator>(host, release, std::move(ranks));
}

}  // namespace plumb
