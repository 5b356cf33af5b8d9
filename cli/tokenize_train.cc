// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "runtime/base/status.h"
#include "runtime/convert/tokenize.h"

namespace plumb::cli {
namespace {

struct TokenizeTrainFlags {
  std::string file, out;
  int64_t vocab_size = 0, min_frequency = 2;
  std::string pattern = "gpt2";
  std::vector<std::string> special;
  bool quiet = false, json = false;
};

absl::StatusOr<int> TrainTokenizer(const TokenizeTrainFlags& flags) {
  PLUMB_RETURN_IF_ERROR(CheckOutputFiles({{"--out", flags.out}}, {{"FILE", flags.file}}));
  TokenizerTraining training;
  training.vocab_size = flags.vocab_size;
  training.min_frequency = flags.min_frequency;
  training.pattern = flags.pattern;
  if (!flags.special.empty()) training.special = flags.special;
  TokenizeProgressLine progress(flags.quiet);
  const absl::StatusOr<TrainedTokenizer> trained = TrainTokenizerFile(
      flags.file, training, flags.out, [&](const auto& now) { return progress.Show(now); });
  progress.End();
  PLUMB_RETURN_IF_ERROR(trained.status());
  return ExitOk(flags.json ? PrintJson({{"out", flags.out},
                                        {"vocab_size", trained->vocab_size},
                                        {"bytes", trained->bytes},
                                        {"distinct_pieces", trained->distinct_pieces}})
                           : PrintResult(absl::StrCat(
                                 flags.out, ": ", Count(trained->vocab_size, "token"), ", from ",
                                 Count(trained->distinct_pieces, "distinct piece"), " of ",
                                 Count(trained->bytes, "byte"), "\n")));
}

}  // namespace

void AddTokenizeTrainCommand(CLI::App* tokenize, Invocation* invocation) {
  const auto flags = std::make_shared<TokenizeTrainFlags>();
  CLI::App* app = tokenize->add_subcommand("train", "Train a byte-level BPE vocabulary on a text");
  AddRequired(app, "FILE", &flags->file, "Text file; \"-\": standard input");
  AddInt(app, "--vocab-size", &flags->vocab_size, 257, 1 << 22,
         "Number of tokens, including the 256 bytes and the special tokens")
      ->required();
  app->add_option("--out", flags->out, "Write the vocabulary to this file (tokenizer.json)")
      ->required()
      ->type_name("OUT");
  app->add_option("--pattern", flags->pattern,
                  "Pattern that splits the text into words: gpt2 (default), llama3 (the same as "
                  "GPT-4's), qwen2, or a regular expression");
  AddRepeated(app, "--special", "TEXT", &flags->special,
              "Special token, which is never split; repeatable. Default: <|endoftext|>");
  AddInt(app, "--min-frequency", &flags->min_frequency, 1, INT32_MAX,
         "Min number of occurrences of a pair that becomes a token. Default: 2");
  app->add_flag("--quiet", flags->quiet, "Do not show progress");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  app->footer("Example:\n  plumb tokenize train shakespeare.txt --vocab-size 2048 --out bpe.json");
  app->callback(
      [flags, invocation] { invocation->run = [flags] { return TrainTokenizer(*flags); }; });
}

}  // namespace plumb::cli
