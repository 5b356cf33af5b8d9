// SPDX-License-Identifier: Apache-2.0
// plumb sample: draws text from a trained model.

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/eval_tokens.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/train/trained_model.h"

namespace plumb::cli {
namespace {

struct SampleFlags {
  std::string run;
  std::string prompt, prompt_tokens;
  int64_t num = 0;  // 0: the default
  double temperature = 0.5;
  int64_t top_k = 0;
  double top_p = 1;
  std::optional<uint64_t> seed;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
  std::string weights = "f32";
  bool ema = false;
  bool json = false;
};

int64_t SamplesOfAPrompt(const SampleFlags& options) {
  return options.num > 0 ? options.num : options.prompt_tokens.empty() ? 20 : 1;
}

GenerateOptions ToGenerateOptions(const SampleFlags& options) {
  GenerateOptions generate;
  generate.prompt = options.prompt;
  generate.temperature = options.temperature;
  generate.top_k = static_cast<int>(options.top_k);
  generate.top_p = options.top_p;
  generate.seed = options.seed.value_or(1);
  generate.max_tokens = options.max_tokens;
  generate.stop_texts = options.stop;
  return generate;
}

// Draws one sample and prints it piece by piece.
absl::Status Stream(TrainedModel* model, const GenerateOptions& options) {
  bool shown = false;
  absl::Status printed;
  const auto show = [&](absl::string_view piece) {
    printed = PrintSample(std::string(piece));
    shown = true;
    return printed.ok();
  };
  const absl::StatusOr<GenerateResult> result = model->Generate(options, show);
  PLUMB_RETURN_IF_ERROR(printed);
  const absl::Status ended = shown ? PrintSample("\n") : absl::OkStatus();
  return result.ok() ? ended : result.status();
}

// Returns the ids of a sample without text. Only an end token can have ended it, and that token is
// not shown.
std::string ShownIds(const GenerateResult& result) {
  const auto end = result.ids.end() - (result.ended ? 1 : 0);
  return absl::StrJoin(result.ids.begin(), end, " ");
}

// Returns the beginnings of the samples: the text, or each list of tokens.
absl::StatusOr<std::vector<GenerateOptions>> GetPrompts(const SampleFlags& options) {
  const GenerateOptions generate = ToGenerateOptions(options);
  if (options.prompt_tokens.empty()) return std::vector<GenerateOptions>{generate};
  if (!options.prompt.empty()) {
    return absl::InvalidArgumentError(
        "--prompt and --prompt-tokens exclude each other; give one of them");
  }
  PLUMB_ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> read,
                         ReadPrompts(options.prompt_tokens));
  std::vector<GenerateOptions> prompts;
  for (std::vector<int32_t>& tokens : read) {
    prompts.push_back(generate);
    prompts.back().prompt_tokens = std::move(tokens);
  }
  return prompts;
}

absl::StatusOr<int> Sample(const SampleFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(const api::Weights weights, ParseWeights(options.weights));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<GenerateOptions> prompts, GetPrompts(options));
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TrainedModel> model,
                         WithWarnings(runtime.get(), TrainedModel::Open(runtime.get(), options.run,
                                                                        weights, options.ema)));
  const int64_t num = SamplesOfAPrompt(options);

  if (num == 1 && options.prompt_tokens.empty() && !options.json && StdoutIsTerminal()) {
    return ExitOk(WithWarnings(runtime.get(), Stream(model.get(), prompts.front())));
  }
  Json samples = Json::array();
  absl::Status printed;
  const auto show = [&](GenerateResult result) {
    if (options.json) {
      samples.push_back({{"text", std::move(result.text)},
                         {"tokens", result.tokens},
                         {"ids", std::move(result.ids)},
                         {"ended", result.ended},
                         {"seconds", result.seconds},
                         {"first_seconds", result.first_seconds}});
      return true;
    }
    // If the prompt was ids and there is no tokenizer, the sample is printed as ids.
    printed = PrintSample(absl::StrCat(result.has_text ? result.text : ShownIds(result), "\n"));
    return printed.ok();
  };
  absl::Status drawn;
  for (size_t i = 0; i < prompts.size() && printed.ok() && drawn.ok(); ++i) {
    drawn = model->GenerateMany(prompts[i], num, show);
    if (!drawn.ok() && prompts.size() > 1) {
      drawn = absl::Status(drawn.code(), absl::StrCat("prompt ", i, ": ", drawn.message()));
    }
  }
  PrintWarnings(runtime.get());
  PLUMB_RETURN_IF_ERROR(printed);
  PLUMB_RETURN_IF_ERROR(drawn);
  if (!options.json) return kExitOk;
  return ExitOk(PrintJson({{"checkpoint", model->checkpoint()},
                           {"step", model->step()},
                           {"seed", prompts.front().seed},
                           {"temperature", options.temperature},
                           {"weights", options.weights},
                           {"samples", std::move(samples)}}));
}

}  // namespace

void AddSampleCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<SampleFlags>();
  CLI::App* app = program->add_subcommand("sample", "Generate text with a trained model");
  AddRequired(app, "RUN", &options->run, "Directory of a run, or one of its checkpoints");
  app->option_defaults()->group("Model");
  app->add_option("--weights", options->weights,
                  "Type of the weights in memory: f32 (default), bf16 or int8. Fewer bits are "
                  "faster; plumb eval RUN --weights int8 measures their effect on the loss")
      ->check([](const std::string& word) {
        const absl::StatusOr<api::Weights> type = ParseWeights(word);
        return type.ok() ? std::string() : std::string(type.status().message());
      })
      ->type_name("TYPE");
  app->add_flag("--ema", options->ema,
                "Use the moving average of the weights (the recipe's ema_decay)");
  app->option_defaults()->group("Prompts");
  AddText(app, "--prompt", "TEXT", &options->prompt,
          "Text that every sample begins with. Default: none");
  AddText(app, "--prompt-tokens", "FILE", &options->prompt_tokens,
          "File of token ids that every sample begins with: JSON, [..] for one prompt, [[..], ..] "
          "for several");
  app->option_defaults()->group("Drawing");
  AddInt(app, "--num", &options->num, 1, 1000000,
         "Number of samples. Default: 20, or 1 of each prompt of --prompt-tokens");
  AddDouble(app, "--temperature", &options->temperature, 0, 1000,
            "Divisor of the logits; 0: always the most likely token. Default: 0.5");
  AddInt(app, "--top-k", &options->top_k, 0, std::numeric_limits<int32_t>::max(),
         "Draw from the N most likely tokens; 0 (default): from all");
  AddDouble(app, "--top-p", &options->top_p, 0, 1,
            "Draw from the most likely tokens whose probabilities sum to N; 1 (default): from all");
  AddSeed(app, &options->seed, "Seed of the samples. Default: 1");
  AddInt(app, "--max-tokens", &options->max_tokens, 0, std::numeric_limits<int32_t>::max(),
         "Max length of a sample in tokens; 0 (default): until an end token or the end of the "
         "context");
  app->add_option("--stop", options->stop,
                  "End each sample before this text, which is not printed; repeatable")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->option_defaults()->group("Output");
  app->add_flag("--json", options->json,
                "Print all samples as one JSON object, with the ids of the drawn tokens");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb sample runs/pre --num 5 --temperature 0.8 --seed 7\n"
      "  plumb sample runs/pre --prompt-tokens p.json --max-tokens 16 --json\n\n"
      "A sample ends at any of the model's end tokens, which are not printed: those of the\n"
      "checkpoint's generation_config.json, config.json or tokenizer_config.json (in this order),\n"
      "or data.end_token of the recipe. Each sample ends with a line break; --json separates "
      "samples\n"
      "that contain line breaks. A terminal gets control characters and bytes that are not UTF-8\n"
      "escaped (\\u{1b}, \\xff); a file or a pipe gets every byte as it is.");
  RunWhenSelected(app, options, Sample, invocation);
}

}  // namespace plumb::cli
