// SPDX-License-Identifier: Apache-2.0
// plumb tokenize: converts text to tokens and back, with the tokenizers of published models.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/convert/tokenize.h"

namespace plumb::cli {
namespace {

struct TokenizeFlags {
  std::string tokenizer;
  std::string file = "-";
  std::string out, layout;
  bool plain = false, post_process = false, skip_special = false, pieces = false;
  bool json = false, quiet = false;
  int64_t top = 20;
};

TokenizeOptions ToOptions(const TokenizeFlags& flags) {
  return {/*finds_added=*/!flags.plain, flags.post_process};
}

double Ratio(int64_t a, int64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

// Prints the tokens as they are produced: as words, as lines of text, or as a JSON list.
absl::Status PrintTokens(const TokenizeFlags& flags, const Tokenizer& tokenizer,
                         TokenizeProgressLine* progress) {
  bool first = true;
  const auto sink = [&](absl::Span<const int32_t> tokens) {
    std::string text;
    for (const int32_t token : tokens) {
      if (flags.pieces) {
        absl::StrAppend(&text, token, "\t", tokenizer.TokenText(token), "\n");
      } else {
        absl::StrAppend(&text, first ? "" : flags.json ? ", " : " ", token);
      }
      first = false;
    }
    return PrintResult(text);
  };
  if (flags.json) {
    PLUMB_RETURN_IF_ERROR(PrintResult("{\"tokens\": ["));
  }
  const auto show = [&](const auto& now) { return progress->Show(now); };
  PLUMB_RETURN_IF_ERROR(EncodeFile(tokenizer, flags.file, ToOptions(flags), sink, show).status());
  progress->End();
  if (flags.json) return PrintResult("]}\n");
  return flags.pieces || first ? absl::OkStatus() : PrintResult("\n");
}

absl::StatusOr<int> EncodeText(const TokenizeFlags& flags) {
  if (flags.pieces && flags.json) {
    return absl::InvalidArgumentError(
        "--pieces and --json exclude each other; --json prints only ids");
  }
  if (flags.out.empty() && !flags.layout.empty()) {
    return absl::InvalidArgumentError("--layout needs --out, whose layout it sets");
  }
  PLUMB_RETURN_IF_ERROR(CheckOutputFiles({{"--out", flags.out}},
                                         {{"TOKENIZER", flags.tokenizer}, {"FILE", flags.file}}));
  PLUMB_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.tokenizer));
  TokenizeProgressLine progress(flags.quiet || flags.out.empty());
  if (flags.out.empty()) {
    return ExitOk(PrintTokens(flags, tokenizer, &progress));
  }
  PLUMB_ASSIGN_OR_RETURN(
      const TokenizeProgress done,
      WriteTokens(tokenizer, flags.file, ToOptions(flags), flags.layout, flags.out,
                  [&](const auto& now) { return progress.Show(now); }));
  progress.End();
  return ExitOk(
      flags.json ? PrintJson({{"out", flags.out}, {"tokens", done.tokens}, {"bytes", done.bytes}})
                 : PrintResult(absl::StrCat(flags.out, ": ", Count(done.tokens, "token"), " of ",
                                            Count(done.bytes, "byte"), "\n")));
}

absl::StatusOr<int> DecodeIds(const TokenizeFlags& flags) {
  PLUMB_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.tokenizer));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         ReadIds(tokenizer, flags.file, flags.layout));
  const absl::StatusOr<std::string> text = DecodeTokens(tokenizer, ids, !flags.skip_special);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(flags.file, ": ", text.status().message()));
  }
  return ExitOk(!flags.out.empty() ? WriteFileAtomically(flags.out, *text)
                : flags.json       ? PrintJson({{"text", *text}})
                                   : PrintSample(*text));
}

// Number of occurrences of each token in a file.
struct Statistics {
  TokenizeProgress done;
  std::vector<int64_t> counts;
  double seconds = 0;
};

absl::StatusOr<Statistics> Measure(const TokenizeFlags& flags, const Tokenizer& tokenizer) {
  Statistics found;
  found.counts.resize(static_cast<size_t>(tokenizer.vocab_size()));
  TokenizeProgressLine progress(flags.quiet);
  const auto start = std::chrono::steady_clock::now();
  PLUMB_ASSIGN_OR_RETURN(found.done, EncodeFile(
                                         tokenizer, flags.file, ToOptions(flags),
                                         [&](absl::Span<const int32_t> tokens) {
                                           for (const int32_t token : tokens)
                                             ++found.counts[static_cast<size_t>(token)];
                                           return absl::OkStatus();
                                         },
                                         [&](const auto& now) { return progress.Show(now); }));
  progress.End();
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return found;
}

absl::StatusOr<int> CountTokens(const TokenizeFlags& flags) {
  PLUMB_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.tokenizer));
  PLUMB_ASSIGN_OR_RETURN(const Statistics found, Measure(flags, tokenizer));
  const TokenizeProgress& done = found.done;
  return ExitOk(
      flags.json
          ? PrintJson({{"tokens", done.tokens}, {"bytes", done.bytes}, {"seconds", found.seconds}})
          : PrintResult(absl::StrFormat("%s, %s, %.3f bytes a token\n", Count(done.tokens, "token"),
                                        Count(done.bytes, "byte"),
                                        Ratio(done.bytes, done.tokens))));
}

absl::StatusOr<int> ShowStatistics(const TokenizeFlags& flags) {
  PLUMB_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.tokenizer));
  PLUMB_ASSIGN_OR_RETURN(const Statistics found, Measure(flags, tokenizer));
  std::vector<int32_t> order;
  for (size_t token = 0; token < found.counts.size(); ++token) {
    if (found.counts[token] > 0) order.push_back(static_cast<int32_t>(token));
  }
  const auto count = [&](int32_t token) { return found.counts[static_cast<size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return count(a) > count(b); });
  const size_t shown = std::min(order.size(), static_cast<size_t>(flags.top));
  const TokenizeProgress& done = found.done;
  Json list = Json::array();
  std::string text = absl::StrFormat(
      "tokenizer        %s\ntext             %s\ntokens           %s (%.3f bytes each)\n"
      "vocabulary used  %s of %s\n",
      tokenizer.Description(), Count(done.bytes, "byte"), WithCommas(done.tokens),
      Ratio(done.bytes, done.tokens), WithCommas(static_cast<int64_t>(order.size())),
      WithCommas(tokenizer.vocab_size()));
  for (size_t i = 0; i < shown; ++i) {
    const std::string name = tokenizer.TokenText(order[i]);
    list.push_back({{"token", order[i]}, {"text", name}, {"count", count(order[i])}});
    absl::StrAppendFormat(&text, "%12s  %5.2f %%  %6d  \"%s\"\n", WithCommas(count(order[i])),
                          100 * Ratio(count(order[i]), done.tokens), order[i], name);
  }
  return ExitOk(flags.json ? PrintJson({{"tokenizer", tokenizer.Description()},
                                        {"vocab_size", tokenizer.vocab_size()},
                                        {"bytes", done.bytes},
                                        {"tokens", done.tokens},
                                        {"vocabulary_used", order.size()},
                                        {"most_frequent", list}})
                           : PrintResult(text));
}

using Flags = std::shared_ptr<TokenizeFlags>;

CLI::App* AddCommand(CLI::App* app, const Flags& flags, const char* name, const char* what,
                     const char* file, absl::StatusOr<int> (*run)(const TokenizeFlags&),
                     Invocation* invocation) {
  CLI::App* command = app->add_subcommand(name, what);
  AddRequired(command, "TOKENIZER", &flags->tokenizer,
              "A tokenizer.json, or a directory or run with a tokenizer.json or with vocab.json "
              "and merges.txt");
  command->add_option("FILE", flags->file, file)->type_name("");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->callback(
      [flags, run, invocation] { invocation->run = [flags, run] { return run(*flags); }; });
  return command;
}

void AddTextOptions(CLI::App* command, const Flags& flags) {
  command->add_flag("--plain", flags->plain,
                    "Read the names of special and added tokens as plain text");
  command->add_flag("--post-process", flags->post_process,
                    "Add the tokens that the tokenizer puts around a text, such as [CLS]");
  command->add_flag("--quiet", flags->quiet, "Do not show progress");
}

}  // namespace

void AddTokenizeCommand(CLI::App* program, Invocation* invocation) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* app = program->add_subcommand("tokenize", "Turn text into tokens and back");
  app->require_subcommand(1);
  app->footer(
      "Example:\n"
      "  plumb tokenize count gpt2/tokenizer.json shakespeare.txt\n"
      "  plumb tokenize encode gpt2/ shakespeare.txt --out shakespeare.bin\n"
      "  plumb tokenize train shakespeare.txt --vocab-size 2048 --out bpe.json");
  const char* text = "Text file. Default: \"-\", standard input";
  CLI::App* encode =
      AddCommand(app, flags, "encode", "Print a text's tokens, or write them to a file", text,
                 EncodeText, invocation);
  AddTextOptions(encode, flags);
  encode->add_flag("--pieces", flags->pieces, "Print one line per token, with its text");
  AddText(encode, "--out", "OUT", &flags->out,
          "Write a token file, which plumb train takes as data");
  encode->add_option("--layout", flags->layout,
                     "Layout of the token file: uint16 (nanoGPT), uint32 or llm.c. "
                     "Default: uint16 if the vocabulary fits");
  encode->footer("Example:\n  echo \"Hello world\" | plumb tokenize encode gpt2/ --pieces");

  CLI::App* decode = AddCommand(app, flags, "decode", "Print the text of tokens",
                                "File of token ids: a JSON list, or numbers separated by blanks. "
                                "Default: \"-\", standard input",
                                DecodeIds, invocation);
  decode->add_option("--layout", flags->layout,
                     "Read FILE as a token file of this layout: uint16, uint32 or llm.c");
  decode->add_flag("--skip-special", flags->skip_special, "Skip special tokens");
  AddText(decode, "--out", "OUT", &flags->out, "Write the text to this file");
  decode->footer("Example:\n  echo 15496 995 | plumb tokenize decode gpt2/");

  CLI::App* count =
      AddCommand(app, flags, "count", "Count a text's tokens", text, CountTokens, invocation);
  AddTextOptions(count, flags);
  count->footer("Example:\n  plumb tokenize count gpt2/ shakespeare.txt --json");

  CLI::App* stats = AddCommand(app, flags, "stats", "Show which tokens a text has", text,
                               ShowStatistics, invocation);
  AddTextOptions(stats, flags);
  AddInt(stats, "--top", &flags->top, 0, 1 << 20,
         "Number of tokens to list, the most frequent first. Default: 20");
  stats->footer("Example:\n  plumb tokenize stats gpt2/ shakespeare.txt --top 50");

  AddTokenizeTrainCommand(app, invocation);
}

}  // namespace plumb::cli
