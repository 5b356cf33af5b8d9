#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/divide.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/shared_runtime.h"
#include "runtime/session/train_session.h"
#include "runtime/session/work.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/bench_text.h"
#include "runtime/tools/model_for_data.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_directory.h"
#include "runtime/tools/run_profile.h"

namespace plumb {
namespace {

absl::StatusOr<TrainSpec> ToTrainSpec(const TrainBenchRequest& request) {
  Overrides overrides;
  std::string text, file = "bench";
  if (request.train_path.empty()) {
    // Small enough that no model diverges while it is timed.
    overrides = {{"learning_rate", "1e-5"}};
  } else {
    PLUMB_ASSIGN_OR_RETURN(text, ReadFile(request.train_path, kMaxTextBytes));
    file = request.train_path;
  }
  overrides.insert(overrides.end(), request.train_overrides.begin(), request.train_overrides.end());
  if (request.batch > 0) overrides.emplace_back("batch_size", absl::StrCat(request.batch));
  if (request.dtype == "f32") overrides.emplace_back("dtype", "F32");
  if (request.dtype == "bf16") overrides.emplace_back("dtype", "BF16");
  if (request.data_path.empty()) {
    overrides.emplace_back("data.format", "TEXT");
    overrides.emplace_back("data.vocabulary", "CHARACTERS");
    overrides.emplace_back("data.val_fraction", "0");
  }
  return ParseTrainSpec(text, file, overrides);
}

absl::StatusOr<Dataset> MakeData(const TrainBenchRequest& request, const TrainSpec& train,
                                 int64_t vocab_size, int64_t seq) {
  if (!request.data_path.empty()) return Dataset::Load(request.data_path, ToDatasetOptions(train));
  if (vocab_size == 0) {
    return absl::InvalidArgumentError(
        "vocab_size is missing, and there is no data to take it from; say one of them");
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string text,
                         RandomText(vocab_size, 8 * train.batch_size * (seq + 1), request.seed));
  return Dataset::FromContent(text, "random tokens", ToDatasetOptions(train));
}

}  // namespace

struct TrainBench::Impl {
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<Dataset> data;
  TrainSpec train;
  std::unique_ptr<TrainSession> session;
  StepProfile profile;
  std::map<int64_t, double> flops;  // of a step, by the tokens of a row

  absl::StatusOr<double> FlopsOf(int64_t tokens);
  absl::StatusOr<BenchStep> Step(StepProfile* into);
};

absl::StatusOr<double> TrainBench::Impl::FlopsOf(int64_t tokens) {
  const int64_t rows = train.batch_size * train.gradient_accumulation_steps;
  const int64_t seq = std::max<int64_t>(1, CeilDiv(tokens, rows));
  const auto [it, is_new] = flops.try_emplace(seq, 0.0);
  if (is_new) {
    BuildOptions options;
    options.seq = seq;
    PLUMB_ASSIGN_OR_RETURN(const ModelWork work, CountWork(*context, options));
    it->second = 3 * work.forward_flops * static_cast<double>(rows);
  }
  return it->second;
}

absl::StatusOr<BenchStep> TrainBench::Impl::Step(StepProfile* into) {
  using Clock = std::chrono::steady_clock;
  session->SetProfile(into);
  const Clock::time_point start = Clock::now();
  PLUMB_ASSIGN_OR_RETURN(const StepResult result,
                         OrOutOfMemory("a training step", [this] { return session->Step(); }));
  BenchStep step;
  step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  step.tokens = result.tokens;
  step.loss = result.loss;
  PLUMB_ASSIGN_OR_RETURN(step.flops, FlopsOf(result.tokens));
  return step;
}

TrainBench::TrainBench() : impl_(std::make_unique<Impl>()) {}
TrainBench::~TrainBench() = default;

absl::StatusOr<std::unique_ptr<TrainBench>> TrainBench::Open(HostRuntime* runtime, const Spec& spec,
                                                             const TrainBenchRequest& request) {
  if (!request.dtype.empty() && request.dtype != "f32" && request.dtype != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown dtype \"", request.dtype, "\"; training knows f32 and bf16"));
  }
  auto bench = std::unique_ptr<TrainBench>(new TrainBench);
  Impl& impl = *bench->impl_;
  PLUMB_ASSIGN_OR_RETURN(impl.train, ToTrainSpec(request));
  impl.train.seed = request.seed;
  ModelSpec model = spec.handle()->spec;
  if (request.seq > 0) {
    PLUMB_RETURN_IF_ERROR(model.Set("context_length", absl::StrCat(request.seq)));
  }
  // Resolved once without the data, to know how much of it is needed.
  ModelSpec sized = model;
  if (sized.vocab_size() == 0) PLUMB_RETURN_IF_ERROR(sized.Set("vocab_size", "2"));
  PLUMB_ASSIGN_OR_RETURN(impl.context,
                         capi::InternalRuntime(runtime->handle())->impl().MakeContext(sized));
  PLUMB_ASSIGN_OR_RETURN(Dataset data, MakeData(request, impl.train, model.vocab_size(),
                                                impl.context->model.dims.context_length));
  impl.data = std::make_unique<Dataset>(std::move(data));
  PLUMB_RETURN_IF_ERROR(FitVocabulary(impl.data->tokenizer(), request.data_path, &model));
  PLUMB_ASSIGN_OR_RETURN(impl.context,
                         capi::InternalRuntime(runtime->handle())->impl().MakeContext(model));
  for (const std::string& warning : impl.context->model.warnings) runtime->Warn(warning);
  PLUMB_ASSIGN_OR_RETURN(
      impl.session,
      OrOutOfMemory("the parameters, the optimizer state and the training program", [&] {
        return TrainSession::Create(impl.context.get(), impl.data.get(), impl.train,
                                    runtime->threads());
      }));
  return bench;
}

int64_t TrainBench::parameters() const {
  return impl_->session->parameters().layout().num_parameters();
}
int64_t TrainBench::batch() const { return impl_->train.batch_size; }
int64_t TrainBench::seq() const { return impl_->context->model.dims.context_length; }
std::string TrainBench::dtype() const { return DTypeName(impl_->train.dtype); }
absl::StatusOr<BenchStep> TrainBench::Step() { return impl_->Step(nullptr); }
absl::StatusOr<BenchStep> TrainBench::ProfiledStep() { return impl_->Step(&impl_->profile); }
Profile TrainBench::TakeProfile() { return ToPublic(std::exchange(impl_->profile, {})); }

}  // namespace plumb
