// SPDX-License-Identifier: Apache-2.0
// plumb bench: measures how fast a model trains, reads a prompt and decodes on this machine,
// compared with the machine's own speed, which is measured in the same rounds.

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/bench/bench.h"
#include "cli/command.h"
#include "cli/figures.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/ranks/launch.h"

namespace plumb::cli {
namespace {

// Approximate duration of a round that takes more than one step.
constexpr double kRoundSeconds = 0.25;
constexpr int kWarmUpSteps = 3;
constexpr double kWarmUpSeconds = 0.3;  // long enough to compile for the documents' various lengths
constexpr int kMachineRuns = 3;         // the fastest run counts

struct BenchFlags {
  std::string model, data, train, only;
  std::string dtype, weights = "f32";
  std::vector<std::string> settings;
  int64_t batch = 0, seq = 0, vocab = 0;
  int64_t prompt = 512, tokens = 64, sequences = 1;
  int64_t rounds = 7;
  std::optional<uint64_t> seed;
  bool profile = false, json = false, quiet = false;
};

// Read bandwidth, measured in between the measurement that it is compared with: the bandwidth of
// shared memory varies twofold from moment to moment, so both must average over the same time.
class ReadsBetween {
 public:
  static constexpr double kBetweenReads = 0.05;  // seconds of measurement

  explicit ReadsBetween(MachineSpeed* machine) : machine_(machine) {}

  // Measures the bandwidth, unless less than kBetweenReads has been spent since the last time.
  absl::Status Turn() {
    if (reads_ > 0 && spent_ < kBetweenReads) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(const double speed, machine_->Measure(api::Speed::kRead));
    seconds_a_byte_ += 1 / speed;
    ++reads_;
    spent_ = 0;
    return absl::OkStatus();
  }
  void Spend(double seconds) { spent_ += seconds; }

  // Requires: Turn() was called.
  double speed() const { return reads_ / seconds_a_byte_; }

 private:
  MachineSpeed* const machine_;
  double spent_ = 0, seconds_a_byte_ = 0;
  int reads_ = 0;
};

std::vector<std::string> Passes() { return {"train", "prompt", "decode"}; }

// State shared by the measurements.
struct Bench {
  const BenchFlags& options;
  HostRuntime* runtime;
  ModelSource model;
  StatusLine progress;  // name of the current measurement
  const Interrupts& interrupts;

  void Show(const char* pass, int64_t round) {
    progress.Show(absl::StrCat(pass, ": round ", round + 1, " of ", options.rounds));
  }
  bool Wants(const char* pass) const { return options.only.empty() || options.only == pass; }
};

// Returns the product whose speed is the peak for activations of this type.
api::Speed PeakProduct(const std::string& dtype) {
  return dtype == "bf16" ? api::Speed::kGemmBf16 : api::Speed::kGemmF32;
}

// Returns the fastest of some runs, to exclude other load on the machine.
template <class Measure>
absl::StatusOr<double> Best(const Measure& measure) {
  double best = 0;
  for (int i = 0; i < kMachineRuns; ++i) {
    PLUMB_ASSIGN_OR_RETURN(const double speed, measure());
    best = std::max(best, speed);
  }
  return best;
}

// Adds the machine's speed in a round; adds no share if the machine cannot run this measurement.
absl::Status AddMachine(const absl::StatusOr<double>& speed, double rate, PassFigures* figures) {
  if (absl::IsUnimplemented(speed.status())) return absl::OkStatus();
  if (!speed.ok()) return speed.status();
  figures->machine.Add(*speed);
  figures->share.Add(rate / *speed);
  return absl::OkStatus();
}

absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

TrainBenchRequest ToRequest(const BenchFlags& options, Overrides overrides) {
  TrainBenchRequest request;
  request.batch = options.batch;
  request.seq = options.seq;
  request.dtype = options.dtype;
  request.seed = options.seed.value_or(1);
  request.data_path = options.data;
  request.train_path = options.train;
  request.train_overrides = std::move(overrides);
  return request;
}

// Takes steps until everything is compiled and all memory touched. Returns the seconds of the last
// step.
absl::StatusOr<double> WarmUp(TrainBench* train, const Interrupts& interrupts) {
  double seconds = 0, last = 0;
  for (int i = 0; i < kWarmUpSteps || seconds < kWarmUpSeconds; ++i) {
    if (interrupts.requested()) return Interrupted();
    PLUMB_ASSIGN_OR_RETURN(const BenchStep step, train->Step());
    seconds += step.seconds;
    last = step.seconds;
  }
  return last;
}

absl::Status TimeTraining(const Overrides& overrides, Bench* bench, PassFigures* figures) {
  ResetPeakMemory();
  bench->progress.Show("training: preparing");
  PLUMB_ASSIGN_OR_RETURN(
      std::unique_ptr<TrainBench> opened,
      TrainBench::Open(bench->runtime, bench->model, ToRequest(bench->options, overrides)));
  TrainBench& train = *opened;
  figures->shape = absl::StrCat(train.batch(), " x ", train.seq());
  figures->dtype = train.dtype();
  PLUMB_ASSIGN_OR_RETURN(const double once, WarmUp(&train, bench->interrupts));
  figures->peak_memory = PeakMemoryBytes();
  MachineSpeed machine(*bench->runtime);  // allocates its own memory
  const int64_t steps = std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds / once), 1, 10000);
  for (int64_t round = 0; round < bench->options.rounds; ++round) {
    if (bench->interrupts.requested()) return Interrupted();
    bench->Show("training", round);
    const absl::StatusOr<double> speed =
        Best([&] { return machine.Measure(PeakProduct(train.dtype())); });
    BenchStep sum;
    for (int64_t i = 0; i < steps; ++i) {
      if (bench->interrupts.requested()) return Interrupted();
      PLUMB_ASSIGN_OR_RETURN(const BenchStep step, train.Step());
      sum.seconds += step.seconds;
      sum.tokens += step.tokens;
      sum.flops += step.flops;
    }
    figures->seconds.Add(sum.seconds / static_cast<double>(steps));
    figures->tokens_per_second.Add(static_cast<double>(sum.tokens) / sum.seconds);
    figures->rate.Add(sum.flops / sum.seconds);
    PLUMB_RETURN_IF_ERROR(AddMachine(speed, sum.flops / sum.seconds, figures));
  }
  if (!bench->options.profile) return absl::OkStatus();
  bench->progress.Show("training: profile");
  for (int64_t i = 0; i < bench->options.rounds * steps; ++i) {
    if (bench->interrupts.requested()) return Interrupted();
    PLUMB_RETURN_IF_ERROR(train.ProfiledStep().status());
  }
  PLUMB_ASSIGN_OR_RETURN(figures->profile, train.TakeProfile());
  return absl::OkStatus();
}

// Profiles the same passes that were timed: in each round `times` passes of `n` tokens from the
// start.
absl::Status ProfileFeeds(int64_t n, int64_t times, DecodeBench* decode, Bench* bench,
                          PassFigures* figures) {
  if (!bench->options.profile) return absl::OkStatus();
  bench->progress.Show(absl::StrCat(figures->name, ": profile"));
  for (int64_t round = 0; round < bench->options.rounds; ++round) {
    if (bench->interrupts.requested()) return Interrupted();
    PLUMB_RETURN_IF_ERROR(decode->Reset());
    for (int64_t i = 0; i < times; ++i) {
      PLUMB_RETURN_IF_ERROR(decode->ProfiledFeed(n).status());
    }
  }
  PLUMB_ASSIGN_OR_RETURN(Profile profile, decode->TakeProfile());
  figures->profile = std::move(profile);
  return absl::OkStatus();
}

absl::Status TimePrompt(DecodeBench* decode, MachineSpeed* machine, Bench* bench,
                        PassFigures* figures) {
  const int64_t n = std::min(bench->options.prompt, decode->context_length());
  figures->shape = absl::StrCat(decode->batch(), " x ", n);
  for (int64_t round = -1; round < bench->options.rounds; ++round) {
    if (bench->interrupts.requested()) return Interrupted();
    if (round >= 0) bench->Show("prompt", round);
    const absl::StatusOr<double> speed =
        Best([&] { return machine->Measure(PeakProduct(bench->options.weights)); });
    PLUMB_RETURN_IF_ERROR(decode->Reset());
    PLUMB_ASSIGN_OR_RETURN(const BenchStep step, decode->Feed(n));
    if (round < 0) continue;  // compiles
    figures->seconds.Add(step.seconds);
    figures->tokens_per_second.Add(static_cast<double>(step.tokens) / step.seconds);
    figures->rate.Add(step.flops / step.seconds);
    PLUMB_RETURN_IF_ERROR(AddMachine(speed, step.flops / step.seconds, figures));
  }
  return ProfileFeeds(n, 1, decode, bench, figures);
}

absl::Status TimeDecoding(DecodeBench* decode, MachineSpeed* machine, Bench* bench,
                          PassFigures* figures) {
  const int64_t n = std::min(bench->options.tokens, decode->context_length());
  const double bytes = static_cast<double>(decode->weight_bytes());
  figures->shape = absl::StrCat(decode->batch(), " x ", n);
  for (int64_t round = -1; round < bench->options.rounds; ++round) {
    if (bench->interrupts.requested()) return Interrupted();
    if (round >= 0) bench->Show("decode", round);
    PLUMB_RETURN_IF_ERROR(decode->Reset());
    ReadsBetween reads(machine);
    BenchStep sum;
    for (int64_t i = 0; i < n; ++i) {
      if (bench->interrupts.requested()) return Interrupted();
      PLUMB_RETURN_IF_ERROR(reads.Turn());
      PLUMB_ASSIGN_OR_RETURN(const BenchStep step, decode->Feed(1));
      reads.Spend(step.seconds);
      sum.seconds += step.seconds;
      sum.tokens += step.tokens;
    }
    if (round < 0) continue;
    const double rate = bytes * static_cast<double>(n) / sum.seconds;
    figures->seconds.Add(sum.seconds / static_cast<double>(n));
    figures->tokens_per_second.Add(static_cast<double>(sum.tokens) / sum.seconds);
    figures->rate.Add(rate);
    PLUMB_RETURN_IF_ERROR(AddMachine(reads.speed(), rate, figures));
  }
  return ProfileFeeds(1, n, decode, bench, figures);
}

// Times prompt and decoding, which share the weights and the cache. A model that cannot decode can
// still be trained, so the table says so; it is an error only if the user selected decoding alone.
absl::Status TimeGeneration(Bench* bench, std::vector<PassFigures>* passes) {
  ResetPeakMemory();
  bench->progress.Show("decode: preparing");
  DecodeBenchRequest request;
  request.batch = bench->options.sequences;
  request.weights = bench->options.weights;
  request.seed = bench->options.seed.value_or(1);
  ModelSource model = bench->model;
  if (bench->options.seq > 0) {
    model.settings.emplace_back("context_length", absl::StrCat(bench->options.seq));
  }
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<DecodeBench> opened,
                         DecodeBench::Open(bench->runtime, model, request));
  DecodeBench& decode = *opened;
  const int64_t n =
      bench->Wants("prompt") ? std::min(bench->options.prompt, decode.context_length()) : 1;
  const absl::StatusOr<BenchStep> first = decode.Feed(n);
  const int64_t peak_memory = PeakMemoryBytes();
  MachineSpeed machine(*bench->runtime);  // allocates its own memory
  for (const char* pass : {"prompt", "decode"}) {
    if (!bench->Wants(pass)) continue;
    PassFigures figures;
    figures.name = pass;
    figures.dtype = bench->options.weights;
    figures.peak_memory = peak_memory;
    const bool is_prompt = figures.name == "prompt";
    figures.unit = is_prompt ? "GFLOP/s" : "GB/s";
    absl::Status status = first.status();
    if (status.ok()) {
      status = is_prompt ? TimePrompt(&decode, &machine, bench, &figures)
                         : TimeDecoding(&decode, &machine, bench, &figures);
    }
    if (!status.ok()) {
      const bool refused = absl::IsFailedPrecondition(status) && bench->options.only.empty();
      if (!refused) return status;
      figures.problem = std::string(status.message());
    }
    passes->push_back(std::move(figures));
  }
  return absl::OkStatus();
}

std::string Profiles(const std::vector<PassFigures>& passes) {
  std::string text;
  for (const PassFigures& pass : passes) {
    if (!pass.profile.has_value()) continue;
    absl::StrAppend(&text, "\n");
    if (passes.size() > 1) absl::StrAppend(&text, pass.name, ":\n");
    absl::StrAppend(&text, ProfileTable(*pass.profile));
  }
  return text;
}

// Returns the name of a given option that only training reads, or "".
std::string TrainingOption(const BenchFlags& options, const Assignments& settings) {
  if (!options.data.empty()) return "--data";
  if (!options.train.empty()) return "--train";
  if (!options.dtype.empty()) return "--dtype";
  if (options.batch > 0) return "--batch";
  return settings.train.empty() ? "" : absl::StrCat("--set train.", settings.train[0].first);
}

absl::StatusOr<int> Measure(const BenchFlags& options, const Invocation& invocation,
                            const Launch& launch) {
  if (launch.size() > 1) {
    return absl::InvalidArgumentError(
        "plumb bench measures one process; measure several ranks with mpirun plumb train");
  }
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(Assignments settings, ParseSettings(options.settings));
  const std::string unused = TrainingOption(options, settings);
  if (!unused.empty() && !options.only.empty() && options.only != "train") {
    return absl::InvalidArgumentError(
        absl::StrCat(unused, " needs training, which --only ", options.only, " excludes"));
  }
  if (options.vocab > 0) settings.model.emplace_back("vocab_size", absl::StrCat(options.vocab));
  PLUMB_ASSIGN_OR_RETURN(ModelSource model,
                         ReadModelSource(options.model, std::move(settings.model)));
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, model.Parse());
  if (GetVocabSize(spec) == 0 && (options.data.empty() || options.only != "train")) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.model, ": vocab_size is missing, and ",
        options.data.empty()
            ? "there is no data to take it from; set it with --vocab N"
            : "only training takes it from --data; set it with --vocab N, or use --only train"));
  }
  const Interrupts interrupts("the pass that is timed");
  Bench bench{options, runtime.get(), std::move(model), StatusLine(options.quiet), interrupts};
  std::vector<PassFigures> passes;
  absl::Status status;
  if (bench.Wants("train")) {
    PassFigures training;
    training.name = "training";
    training.unit = "GFLOP/s";
    status = TimeTraining(settings.train, &bench, &training);
    passes.push_back(std::move(training));
  }
  if (status.ok() && (bench.Wants("prompt") || bench.Wants("decode"))) {
    status = TimeGeneration(&bench, &passes);
  }
  bench.progress.Clear();
  PrintWarnings(runtime.get());
  if (absl::IsCancelled(status)) return kExitInterrupted;
  PLUMB_RETURN_IF_ERROR(status);
  Json json = {{"model", options.model},
               {"threads", runtime->threads()},
               {"rounds", options.rounds},
               {"passes", Json::array()}};
  for (const PassFigures& pass : passes) json["passes"].push_back(ToJson(pass));
  return ExitOk(options.json ? PrintJson(json)
                             : PrintResult(absl::StrCat(ToTable(passes), Profiles(passes))));
}

void AddChoice(CLI::App* app, const std::string& name, std::string* value,
               const std::vector<std::string>& choices, const std::string& help) {
  app->add_option(name, *value, help)->type_name("NAME")->check([choices](const std::string& word) {
    if (std::find(choices.begin(), choices.end(), word) != choices.end()) return std::string();
    return absl::StrCat("\"", word, "\" is not one of ", absl::StrJoin(choices, ", "),
                        DidYouMean(word, choices));
  });
}

}  // namespace

void AddBenchCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<BenchFlags>();
  CLI::App* app = program->add_subcommand(
      "bench", "Measure how fast a model trains, reads prompts and decodes on this machine");
  AddRequired(app, "MODEL", &options->model, "Model file (.pbtxt)");
  app->option_defaults()->group("Model");
  AddRepeated(app, "--set", "FIELD=VALUE", &options->settings,
              "Set a field of the model or the recipe, e.g. model.n_layer=4 or train.grad_clip=0; "
              "repeatable");
  AddInt(app, "--seq,--context", &options->seq, 1, std::numeric_limits<int32_t>::max(),
         "Set the model's context_length; training uses all of it");
  AddInt(app, "--vocab", &options->vocab, 1, 1 << 20,
         "vocab_size of a model that takes it from the data");
  app->option_defaults()->group("Measurement");
  AddChoice(app, "--only", &options->only, Passes(),
            "Measure only this pass: train, prompt or decode");
  AddInt(app, "--rounds", &options->rounds, 1, 100000, "Number of measurements. Default: 7");
  AddSeed(app, &options->seed, "Seed of weights and tokens. Default: 1");
  app->option_defaults()->group("Training");
  AddInt(app, "--batch", &options->batch, 1, 1 << 20,
         "Sequences per micro-batch. Default: that of --train, or 1");
  AddChoice(app, "--dtype", &options->dtype, {"f32", "bf16"},
            "Type of activations: f32 or bf16. Default: that of --train, or f32");
  AddText(app, "--data", "FILE", &options->data, "Training data. Default: random tokens");
  AddText(app, "--train", "FILE", &options->train, "Recipe (.pbtxt), see plumb help recipe");
  app->option_defaults()->group("Prompts and decoding");
  AddInt(app, "--prompt", &options->prompt, 1, std::numeric_limits<int32_t>::max(),
         "Tokens per prompt, at most context_length. Default: 512");
  AddInt(app, "--tokens", &options->tokens, 1, std::numeric_limits<int32_t>::max(),
         "Tokens to decode into an empty context. Default: 64");
  AddInt(app, "--sequences", &options->sequences, 1, 64, "Sequences per batch. Default: 1");
  AddChoice(app, "--weights", &options->weights, {"f32", "bf16", "int8"},
            "Type of the weights in memory: f32 (default), bf16 or int8");
  for (const char* name : {"--ranks", "--link", "--fixed-batch", "--rank-grace"}) {
    AddRemoved(app, name, "measure several ranks with mpirun plumb train");
  }
  app->option_defaults()->group("Output");
  app->add_flag("--profile", options->profile, "Also print a table of the time of each pass by op");
  app->add_flag("--json", options->json, "Print the measurements as JSON");
  app->add_flag("--quiet", options->quiet, "Do not show progress on stderr");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb bench model.pbtxt --vocab 65 --batch 12\n"
      "  plumb bench gpt2.pbtxt --only decode --weights int8 --tokens 128\n\n"
      "Weights are random. Shares are relative to a large matrix product by oneDNN of the same\n"
      "type, or for decoding to a pass that only reads memory, both measured in the same rounds.\n"
      "FLOPs are 6 per weight and token (prompts: 2) plus those of attention without a mask. In "
      "the\n"
      "last layer of a prompt, only keys and values are computed and counted for all tokens.");
  app->callback([options, invocation] {
    invocation->run = [options, invocation] {
      return RunRanks(RankOptions(), "bench", *invocation,
                      [options](Launch* launch, const Invocation& own) {
                        return Measure(*options, own, *launch);
                      });
    };
  });
}

}  // namespace plumb::cli
