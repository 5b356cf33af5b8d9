// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/bench/bench.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/train/trained_model.h"

namespace plumb {

struct DecodeBench::Impl {
  std::optional<api::Model> model;
  std::optional<api::Session> session;
  int64_t batch = 1, context_length = 0, weight_bytes = 0;
  // Tokens to feed to each sequence, context_length each. The sequences differ, since equal ones
  // would share their prompts.
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> next;
  bool profiles = false;
  int64_t profiled_steps = 0;       // each may consist of several passes
  std::map<int64_t, double> flops;  // forward pass over one sequence, by tokens

  absl::StatusOr<double> CountFlops(int64_t n);
  absl::Status Profiles(bool on);
  absl::Status Feed(int64_t n);
  absl::StatusOr<BenchStep> Step(int64_t n);
};

absl::StatusOr<double> DecodeBench::Impl::CountFlops(int64_t n) {
  const auto [it, is_new] = flops.try_emplace(n, 0.0);
  if (is_new) {
    PLUMB_ASSIGN_OR_RETURN(const api::Work work, ToStatus(model->Work(api::Pass::kFeed, n)));
    it->second = work.flops;
  }
  return it->second;
}

absl::Status DecodeBench::Impl::Profiles(bool on) {
  if (on == profiles) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(ToStatus(session->Profile(on)));
  profiles = on;
  profiled_steps = 0;
  return absl::OkStatus();
}

// A single token is fed to all sequences in one pass; several tokens take one pass per sequence.
absl::Status DecodeBench::Impl::Feed(int64_t n) {
  const auto begin = static_cast<size_t>(session->Length(0));
  if (n > 1) {
    for (int64_t b = 0; b < batch; ++b) {
      const std::vector<int32_t>& all = tokens[static_cast<size_t>(b)];
      PLUMB_RETURN_IF_ERROR(ToStatus(
          session->Feed(static_cast<int32_t>(b), {all.data() + begin, static_cast<size_t>(n)})));
    }
    return absl::OkStatus();
  }
  next.clear();
  for (const std::vector<int32_t>& each : tokens) next.push_back(each[begin]);
  return ToStatus(session->FeedBatch(next));
}

absl::StatusOr<BenchStep> DecodeBench::Impl::Step(int64_t n) {
  using Clock = std::chrono::steady_clock;
  const int64_t begin = session->Length(0);
  if (n < 1 || begin + n > context_length) {
    return absl::OutOfRangeError(
        absl::StrCat(n, " tokens after ", begin, " are more than context_length ", context_length));
  }
  BenchStep step;
  const Clock::time_point start = Clock::now();
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the tokens of a pass", [&] { return Feed(n); }));
  step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (profiles) ++profiled_steps;
  step.tokens = n * batch;
  PLUMB_ASSIGN_OR_RETURN(step.flops, CountFlops(n));
  step.flops *= static_cast<double>(batch);
  return step;
}

DecodeBench::DecodeBench() : impl_(std::make_unique<Impl>()) {}
DecodeBench::~DecodeBench() = default;

absl::StatusOr<std::unique_ptr<DecodeBench>> DecodeBench::Open(HostRuntime* runtime,
                                                               const ModelSource& model,
                                                               const DecodeBenchRequest& request) {
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, model.Parse());
  if (GetVocabSize(spec) == 0) {
    return absl::InvalidArgumentError("vocab_size is missing; set it with --vocab N");
  }
  auto bench = std::unique_ptr<DecodeBench>(new DecodeBench);
  Impl& impl = *bench->impl_;
  PLUMB_ASSIGN_OR_RETURN(impl.model, CreateModel(runtime, spec));
  const api::ModelInfo info = impl.model->Info();
  impl.context_length = info.context_length;
  PLUMB_ASSIGN_OR_RETURN(const api::Weights weights, ParseWeights(request.weights));
  constexpr int64_t kMaxSequences = 64;  // limit of plumb_session
  if (request.batch < 1 || request.batch > kMaxSequences) {
    return absl::InvalidArgumentError(absl::StrCat("the sequences of a batch must be 1 to ",
                                                   kMaxSequences, ", not ", request.batch));
  }
  impl.batch = request.batch;
  const api::SessionOptions options = {static_cast<int32_t>(request.batch), weights};
  PLUMB_ASSIGN_OR_RETURN(const api::Work work,
                         ToStatus(impl.model->Work(api::Pass::kFeed, 1, weights)));
  impl.weight_bytes = work.weight_bytes;
  PLUMB_RETURN_IF_ERROR(
      OrOutOfMemory("the parameters", [&] { return impl.model->Init(request.seed); }));
  PLUMB_ASSIGN_OR_RETURN(impl.session, OrOutOfMemory("the weights and the KV cache", [&] {
                           return api::Session::Create(*impl.model, options);
                         }));
  const auto vocab_size = static_cast<uint64_t>(info.vocab_size);
  for (int64_t b = 0; b < request.batch; ++b) {
    const RngStream stream(request.seed, "bench-tokens", static_cast<uint64_t>(b));
    impl.tokens.emplace_back();
    for (int64_t i = 0; i < impl.context_length; ++i) {
      impl.tokens.back().push_back(
          static_cast<int32_t>(stream.Below(static_cast<uint64_t>(i), vocab_size)));
    }
  }
  return bench;
}

int64_t DecodeBench::batch() const { return impl_->batch; }
int64_t DecodeBench::context_length() const { return impl_->context_length; }
int64_t DecodeBench::weight_bytes() const { return impl_->weight_bytes; }

absl::Status DecodeBench::Reset() {
  for (int32_t b = 0; b < static_cast<int32_t>(impl_->batch); ++b) {
    PLUMB_RETURN_IF_ERROR(ToStatus(impl_->session->Truncate(b, 0)));
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchStep> DecodeBench::Feed(int64_t n) {
  PLUMB_RETURN_IF_ERROR(impl_->Profiles(false));
  return impl_->Step(n);
}
absl::StatusOr<BenchStep> DecodeBench::ProfiledFeed(int64_t n) {
  PLUMB_RETURN_IF_ERROR(impl_->Profiles(true));
  return impl_->Step(n);
}
absl::StatusOr<Profile> DecodeBench::TakeProfile() {
  Profile profile = ToProfile(impl_->session->ProfileRows());
  profile.steps = impl_->profiled_steps;
  PLUMB_RETURN_IF_ERROR(impl_->Profiles(false));
  return profile;
}

absl::StatusOr<double> MachineSpeed::Measure(api::Speed speed) {
  if (!runtime_.has_value()) {
    api::RuntimeOptions options;
    options.threads = threads_;
    PLUMB_ASSIGN_OR_RETURN(runtime_, ToStatus(api::Runtime::Create(options)));
  }
  return OrOutOfMemory("the operands of the measurement",
                       [&] { return runtime_->MeasureSpeed(speed); });
}

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "VmHWM:")) continue;
    return 1024 * std::strtoll(line.c_str() + sizeof("VmHWM:"), nullptr, 10);  // "VmHWM:  12 kB"
  }
  return 0;
}

bool ResetPeakMemory() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";
  return static_cast<bool>(clear.flush());
}

}  // namespace plumb
