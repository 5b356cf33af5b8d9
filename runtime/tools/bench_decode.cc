#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/shared_runtime.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/work.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_profile.h"

namespace plumb {

struct DecodeBench::Impl {
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<PackedWeights> weights;
  std::unique_ptr<DecodeSession> session;
  int64_t weight_bytes = 0;
  // To feed to a sequence: as many as the context holds. Another each, as equal ones would share
  // their prompts.
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> next;
  StepProfile profile;
  std::map<int64_t, double> flops;  // of a forward pass over one sequence, by tokens

  absl::StatusOr<double> FlopsOf(int64_t n);
  absl::Status Feed(int64_t n);
  absl::StatusOr<BenchStep> Step(int64_t n, StepProfile* into);
};

absl::StatusOr<double> DecodeBench::Impl::FlopsOf(int64_t n) {
  const auto [it, is_new] = flops.try_emplace(n, 0.0);
  if (is_new) {
    BuildOptions options;
    options.program = Program::kCached;
    options.seq = n;
    PLUMB_ASSIGN_OR_RETURN(const ModelWork work, CountWork(*context, options));
    it->second = work.forward_flops;
  }
  return it->second;
}

// A token goes to all sequences in one pass; several are a pass for each.
absl::Status DecodeBench::Impl::Feed(int64_t n) {
  const auto begin = static_cast<size_t>(session->length());
  if (n > 1) {
    for (int64_t b = 0; b < session->batch(); ++b) {
      const auto all = absl::MakeConstSpan(tokens[static_cast<size_t>(b)]);
      PLUMB_RETURN_IF_ERROR(session->Feed(b, all.subspan(begin, static_cast<size_t>(n))));
    }
    return absl::OkStatus();
  }
  next.clear();
  for (const std::vector<int32_t>& each : tokens) next.push_back(each[begin]);
  return session->FeedEach(next);
}

absl::StatusOr<BenchStep> DecodeBench::Impl::Step(int64_t n, StepProfile* into) {
  using Clock = std::chrono::steady_clock;
  const int64_t begin = session->length(), most = session->context_length();
  if (n < 1 || begin + n > most) {
    return absl::OutOfRangeError(
        absl::StrCat(n, " tokens after ", begin, " do not fit the context of ", most));
  }
  session->SetProfile(into);
  BenchStep step;
  const Clock::time_point start = Clock::now();
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the tokens of a pass", [&] { return Feed(n); }));
  step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (into != nullptr) into->EndStep(step.seconds);
  step.tokens = n * session->batch();
  PLUMB_ASSIGN_OR_RETURN(step.flops, FlopsOf(n));
  step.flops *= static_cast<double>(session->batch());
  return step;
}

DecodeBench::DecodeBench() : impl_(std::make_unique<Impl>()) {}
DecodeBench::~DecodeBench() = default;

absl::StatusOr<std::unique_ptr<DecodeBench>> DecodeBench::Open(HostRuntime* runtime,
                                                               const Spec& spec,
                                                               const DecodeBenchRequest& request) {
  if (spec.vocab_size() == 0) {
    return absl::InvalidArgumentError(
        "vocab_size is missing, and there is no data to take it from");
  }
  auto bench = std::unique_ptr<DecodeBench>(new DecodeBench);
  Impl& impl = *bench->impl_;
  PLUMB_ASSIGN_OR_RETURN(
      impl.context,
      capi::InternalRuntime(runtime->handle())->impl().MakeContext(spec.handle()->spec));
  const ModelContext& context = *impl.context;
  for (const std::string& warning : context.model.warnings) runtime->Warn(warning);
  PLUMB_ASSIGN_OR_RETURN(const WeightType type, ParseWeightType(request.weights));
  const WeightFormat format = type == WeightType::kF32    ? WeightFormat::kF32
                              : type == WeightType::kBF16 ? WeightFormat::kBf16
                                                          : WeightFormat::kInt8;
  if (request.batch < 1 || request.batch > DecodeSession::kMaxBatch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequences side by side must be 1 to ", DecodeSession::kMaxBatch, ", not ", request.batch));
  }
  BuildOptions options;
  options.program = Program::kCached;
  options.weights = format;
  PLUMB_ASSIGN_OR_RETURN(const ModelWork work, CountWork(context, options));
  impl.weight_bytes = work.weight_bytes;
  const int threads = runtime->threads();
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights and the KV cache", [&] {
    impl.parameters =
        std::make_unique<ParameterStore>(context.parameters, context.states, FormToKeep(format));
    DrawParameters(context.parameters, context.states, request.seed, threads, *impl.parameters);
    impl.weights = std::make_unique<PackedWeights>(context, format, *impl.parameters, threads);
    impl.session =
        std::make_unique<DecodeSession>(&context, impl.weights.get(), request.batch, threads);
    return absl::OkStatus();
  }));
  const auto vocab_size = static_cast<uint64_t>(context.model.dims.vocab_size);
  for (int64_t b = 0; b < request.batch; ++b) {
    const RngStream stream(request.seed, "bench-tokens", static_cast<uint64_t>(b));
    impl.tokens.emplace_back();
    for (int64_t i = 0; i < context.model.dims.context_length; ++i) {
      impl.tokens.back().push_back(
          static_cast<int32_t>(stream.Below(static_cast<uint64_t>(i), vocab_size)));
    }
  }
  return bench;
}

int64_t DecodeBench::batch() const { return impl_->session->batch(); }
int64_t DecodeBench::context_length() const { return impl_->session->context_length(); }
int64_t DecodeBench::weight_bytes() const { return impl_->weight_bytes; }
void DecodeBench::Reset() { impl_->session->Reset(); }

absl::StatusOr<BenchStep> DecodeBench::Feed(int64_t n) { return impl_->Step(n, nullptr); }
absl::StatusOr<BenchStep> DecodeBench::ProfiledFeed(int64_t n) {
  return impl_->Step(n, &impl_->profile);
}
Profile DecodeBench::TakeProfile() { return ToPublic(std::exchange(impl_->profile, {})); }

}  // namespace plumb
