// SPDX-License-Identifier: Apache-2.0
// plumb describe: shows the meaning of a model's text without running it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/figures.h"
#include "cli/output.h"
#include "runtime/base/file.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "runtime/client/recipe.h"

namespace plumb::cli {
namespace {

struct DescribeFlags {
  std::string model;
  std::vector<std::string> settings;
  std::string train, data;
  int64_t batch = 0;  // 0: not given
  int64_t ranks = 1;
  RunFormat format;
  bool json = false;
  std::string svg;     // "-": stdout
  int64_t layer = -1;  // -1: not given
};

void AppendLines(const char* indent, const Json& lines, std::string* text) {
  for (const std::string line : lines) absl::StrAppend(text, indent, line, "\n");
}

// Appends the distinct Jacobians, of which a deep model may have one a layer.
void AppendJacobians(const Json& jacobians, std::string* text) {
  constexpr size_t kMaxShown = 6;
  for (size_t i = 0; i < std::min(kMaxShown, jacobians.size()); ++i) {
    const std::vector<int64_t> layers = jacobians[i]["layers"];
    absl::StrAppend(text, "    Jacobian");
    if (jacobians.size() > 1) {
      absl::StrAppend(text, layers.size() == 1 ? " of layer " : " of layers ", RangesText(layers));
    }
    absl::StrAppend(text, ": ", jacobians[i]["jacobian"].get<std::string>(), "\n");
  }
  if (jacobians.size() > kMaxShown) {
    absl::StrAppend(text, "    ", jacobians.size() - kMaxShown,
                    " more Jacobians, of other layers: see --json\n");
  }
}

void AppendGroup(const Json& group, std::string* text) {
  const int64_t first = group["first"], last = group["last"];
  const std::string doc = group["doc"];
  const bool one = first == last;
  absl::StrAppend(text, one ? "  layer " : "  layers ", first, one ? "" : absl::StrCat("..", last),
                  ": ", group["placement"].get<std::string>());
  if (!doc.empty()) absl::StrAppend(text, " (", doc, ")");
  absl::StrAppend(text, "\n");
  AppendLines("    ", group["equations"], text);
  AppendLines("    ", group["scalars"], text);
  AppendLines("    slot ", group["norms"], text);
  AppendJacobians(group["jacobians"], text);
}

constexpr char kLayers[] = "layers.";

// Line of the table: one tensor, or the same tensor of several layers.
struct Line {
  const Json* tensor;           // the first one
  std::vector<int64_t> layers;  // empty: outside the layers
  std::string rest;             // "attention.q.weight"
  int64_t elements = 0;         // sum over the layers
};

// Splits "layers.3.attention.q.weight" into 3 and "attention.q.weight".
bool SplitLayer(absl::string_view name, int64_t* layer, std::string* rest) {
  if (!absl::StartsWith(name, kLayers)) return false;
  name.remove_prefix(sizeof(kLayers) - 1);
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dot), layer)) return false;
  *rest = std::string(name.substr(dot + 1));
  return true;
}

std::vector<Line> Collapse(const Json& tensors) {
  using Key = std::tuple<std::string, Json, Json, Json, Json>;
  std::map<Key, size_t> line_of;
  std::vector<Line> lines;
  for (const Json& tensor : tensors) {
    Line line{&tensor, {}, "", tensor["elements"]};
    int64_t layer = 0;
    if (!SplitLayer(tensor["name"].get<std::string>(), &layer, &line.rest)) {
      lines.push_back(std::move(line));
      continue;
    }
    const Key key{line.rest, tensor["shape"], tensor["dtype"], tensor["init"], tensor["role"]};
    const auto [it, is_new] = line_of.emplace(key, lines.size());
    if (is_new) {
      line.layers = {layer};
      lines.push_back(std::move(line));
    } else {
      lines[it->second].layers.push_back(layer);
      lines[it->second].elements += tensor["elements"].get<int64_t>();
    }
  }
  return lines;
}

std::vector<std::string> ToCells(const Line& line) {
  const Json& tensor = *line.tensor;
  std::string name = tensor["name"];
  std::string shape =
      absl::StrCat("[", absl::StrJoin(tensor["shape"].get<std::vector<int64_t>>(), ", "), "]");
  if (!line.layers.empty()) name = absl::StrCat(kLayers, RangesText(line.layers), ".", line.rest);
  if (line.layers.size() > 1) absl::StrAppend(&shape, " x ", line.layers.size());
  return {name, shape, tensor["role"], tensor["init"], WithCommas(line.elements)};
}

// Returns lines such as "  layers.0..7.attention.q.weight  [16, 16] x 8  uniform(-0.25, 0.25)
// 2,048", ordered by each line's first tensor; the same tensor of several layers is one line.
std::string TensorTable(const Json& tensors) {
  std::vector<std::vector<std::string>> rows;
  for (const Line& line : Collapse(tensors)) rows.push_back(ToCells(line));
  return AlignColumns(rows, "llllr", "  ");
}

// Returns the description as text. `updates` is null unless a recipe was given.
std::string ToText(const Json& model, const TrainingMemory& memory, const std::string* updates) {
  const auto list = [](const Json& dims) {
    std::vector<std::string> words;
    for (const auto& [name, value] : dims.items()) {
      words.push_back(absl::StrCat(name, " ", value.get<int64_t>()));
    }
    return absl::StrJoin(words, ", ");
  };
  const Json& totals = model["totals"];
  const int64_t token_types = model["token_types"], norms = model["norms_before_head"];
  const int64_t parameters = totals["parameters"], active = totals["active_parameters"];
  const std::string route = model["identity_route"];
  const Json& buffers = model["buffers"];
  std::string text = absl::StrCat(model["name"].get<std::string>(), "\n  ", list(model["dims"]),
                                  "\n  positions ", model["positions"].get<std::string>(), ", ",
                                  model["tied"] ? "head tied to the embedding" : "head of its own");
  if (token_types > 0) absl::StrAppend(&text, ", ", token_types, " token types");
  if (model["bidirectional"]) absl::StrAppend(&text, ", bidirectional");
  absl::StrAppend(&text, "\n\n");

  absl::StrAppend(&text, "equations\n");
  AppendLines("  ", model["begin"], &text);
  for (const Json& group : model["layers"]) AppendGroup(group, &text);
  AppendLines("  ", model["end"], &text);
  absl::StrAppend(&text, "\nroutes\n  identity route from embedding to head: ", route);
  if (route != "none") {
    absl::StrAppend(&text, " to the last layer, then ",
                    norms == 0 ? "no norm" : Count(norms, "norm"));
  }
  absl::StrAppend(&text, "\n  ", Count(model["norm_sites"], "norm"),
                  " applied in a forward pass\n\n");

  absl::StrAppend(&text, "tensors\n", TensorTable(model["tensors"]), "\n");
  if (!buffers.empty()) absl::StrAppend(&text, "buffers\n", TensorTable(buffers), "\n");
  absl::StrAppend(&text, Count(parameters, "parameter"), " in ", Count(totals["tensors"], "tensor"),
                  "\n");
  if (active < parameters) {
    absl::StrAppend(&text, Count(active, "parameter"),
                    " active: those of the experts that a token takes, and all others\n");
  }
  if (!buffers.empty()) {
    absl::StrAppend(&text, Count(totals["buffer_elements"], "number"), " in ",
                    Count(static_cast<int64_t>(buffers.size()), "buffer"),
                    ", statistics that norms keep from training (not parameters)\n");
  }
  absl::StrAppend(&text, "KV cache of a sequence: ", Bytes(totals["cache_bytes"]), "\n");
  if (updates != nullptr) absl::StrAppend(&text, "\n", *updates);
  absl::StrAppend(&text, "\n", MemoryTable(memory));
  return text;
}

// Returns the loss averaged over positions and over all tokens of the vocabulary as targets:
// log(sum(exp(logits))) - mean(logits). Random targets would add noise to it.
double LossOfAnyTarget(const ModelOutputs& outputs) {
  const auto vocab = static_cast<size_t>(outputs.vocab);
  double total = 0;
  for (size_t row = 0; row < outputs.logits.size(); row += vocab) {
    const float* logits = outputs.logits.data() + row;
    const double max = *std::max_element(logits, logits + vocab);
    double mean = 0, sum = 0;
    for (size_t i = 0; i < vocab; ++i) {
      mean += logits[i] / static_cast<double>(vocab);
      sum += std::exp(logits[i] - max);
    }
    total += max + std::log(sum) - mean;
  }
  const size_t rows = outputs.logits.size() / vocab;
  return total / static_cast<double>(rows);
}

// Returns a warning if the model's init rules make its first loss different from that of a uniform
// prediction; "" if it has no rules, or is too large to compute the loss in about a second.
// Overwrites the model's weights.
std::string CheckFirstLoss(const Json& description, api::Model* model) {
  constexpr int64_t kMaxParameters = int64_t{1} << 26, kMaxTokens = 32;
  constexpr double kTolerance = 0.05;
  const api::ModelInfo info = model->Info();
  if (description["init_rules"] == 0 || info.parameters > kMaxParameters) return "";
  const int64_t vocab = info.vocab_size, length = std::min(info.context_length, kMaxTokens);
  if (vocab < 2 || !model->Init(1).ok()) return "";
  const RngStream random(1, "first-loss-tokens");
  TokenBatch batch;
  batch.sequences.assign(1, std::vector<int32_t>(static_cast<size_t>(length)));
  for (size_t i = 0; i < batch.sequences[0].size(); ++i) {
    batch.sequences[0][i] = static_cast<int32_t>(random.Below(i, static_cast<uint64_t>(vocab)));
  }
  batch.targets = batch.sequences;
  // Norms over tokens have statistics only after a training step.
  const auto outputs = RunTokens(model, batch, /*with_gradients=*/!description["buffers"].empty());
  if (!outputs.ok() || outputs->logits.empty()) return "";
  const double loss = LossOfAnyTarget(*outputs);
  const double even = std::log(static_cast<double>(vocab));
  if (std::abs(loss - even) <= kTolerance * even) return "";
  return absl::StrFormat(
      "warning: with the init rules of the model the first loss is %.3g, but a uniform guess has "
      "log(%d) = %.3g, so training starts by unlearning. %s",
      loss, vocab, even,
      description["tied"] ? "The head is tied to the embedding: drop the rules for embedding.*, or "
                            "add as the last rule init { match: \"embedding.*\" normal { std: "
                            "\"log(vocab_size) / (2 * d_model)\" } }"
                          : "Drop the rules for head.*, or add as the last rule init { match: "
                            "\"head.weight\" normal { std: \"1 / sqrt(3 * d_model)\" } }");
}

absl::Status Draw(const DescribeFlags& options, const api::Model& model) {
  PLUMB_RETURN_IF_ERROR(CheckOutputFiles({{"--svg", options.svg == "-" ? "" : options.svg}},
                                         {{"MODEL", options.model}}));
  std::optional<int64_t> layer;
  if (options.layer >= 0) layer = options.layer;
  PLUMB_ASSIGN_OR_RETURN(const std::string svg, DrawModel(model, layer));
  if (options.svg == "-") return PrintResult(svg);
  const absl::Status written = WriteFileAtomically(options.svg, svg);
  if (written.ok()) PrintNote(absl::StrCat("wrote ", options.svg));
  return written;
}

// Opens the model with the vocab_size that plumb train gives it.
absl::StatusOr<api::Model> OpenToTrain(const DescribeFlags& options, const Assignments& settings,
                                       HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(api::Spec spec, ReadSpec(options.model, settings.model));
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(options.train, settings.train));
  PLUMB_RETURN_IF_ERROR(PreviewVocabulary(recipe, options.data, options.model, &spec));
  if (GetVocabSize(spec) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.model, ": vocab_size is missing; give --data FILE or --set model.vocab_size=N"));
  }
  return WithWarnings(runtime, CreateModel(runtime, spec));
}

absl::StatusOr<int> Describe(const DescribeFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(Assignments settings, ParseSettings(options.settings));
  PLUMB_ASSIGN_OR_RETURN(api::Model model, OpenToTrain(options, settings, runtime.get()));
  if (!options.svg.empty()) {
    return ExitOk(Draw(options, model));
  }
  const bool has_recipe = !options.train.empty() || !settings.train.empty();
  PLUMB_ASSIGN_OR_RETURN(Json description, DescribeModel(model));
  if (options.batch > 0) settings.train.emplace_back("batch_size", absl::StrCat(options.batch));
  for (auto& setting : options.format.Settings()) settings.train.push_back(std::move(setting));
  PLUMB_ASSIGN_OR_RETURN(
      const TrainingMemory memory,
      PlanTraining(model, options.train, settings.train, static_cast<int32_t>(options.ranks)));
  PLUMB_ASSIGN_OR_RETURN(const std::string updates,
                         ExplainUpdates(model, options.train, settings.train));
  const auto* shown = has_recipe ? &updates : nullptr;
  if (options.json) {
    description["memory"] = MemoryJson(memory);
    description["updates"] = updates;
    PLUMB_RETURN_IF_ERROR(PrintJson(description));
  } else {
    PLUMB_RETURN_IF_ERROR(PrintResult(ToText(description, memory, shown)));
  }
  const std::string warning = CheckFirstLoss(description, &model);
  if (!warning.empty()) PrintNote(warning);
  return kExitOk;
}

}  // namespace

void AddDescribeCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<DescribeFlags>();
  CLI::App* app = program->add_subcommand(
      "describe", "Show a model's equations, parameters, memory and gradient routes");
  AddRequired(app, "MODEL", &options->model, "Model file (.pbtxt)");
  app->option_defaults()->group("Model");
  AddRepeated(app, "--set", "FIELD=VALUE", &options->settings,
              "Set a field of the model or the recipe, e.g. model.n_layer=4 or train.batch_size=8; "
              "repeatable");
  app->option_defaults()->group("Training");
  AddText(app, "--train", "FILE", &options->train,
          "Recipe (.pbtxt) to plan memory for; it or a --set train.* also shows how each tensor "
          "is updated. "
          "Default: the recipe's defaults");
  AddText(app, "--data", "FILE", &options->data,
          "Data of the training, from which a model without vocab_size takes it");
  AddInt(app, "--batch", &options->batch, 1, 1 << 20,
         "Sequences per micro-batch. Default: train.batch_size");
  AddInt(app, "--ranks", &options->ranks, 1, 1 << 20,
         "Number of ranks; the memory is that of one of them. Default: 1");
  AddRemoved(app, "--shard", "every rank stores all states");
  AddDType(app, &options->format.dtype);
  AddRecompute(app, &options->format.recompute);
  app->option_defaults()->group("Output");
  CLI::Option* json =
      app->add_flag("--json", options->json, "Print everything as JSON, with every single tensor");
  CLI::Option* svg =
      AddText(app, "--svg", "FILE", &options->svg,
              "Write the data flow of the blocks as SVG to this file instead; -: stdout")
          ->excludes(json);
  AddInt(app, "--layer", &options->layer, 0, std::numeric_limits<int32_t>::max(),
         "Layer to draw, from 0. Default: one of each kind")
      ->needs(svg);
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb describe pre.pbtxt --set model.n_layer=4\n"
      "  plumb describe pre.pbtxt --train train.pbtxt --batch 8 --dtype bf16\n"
      "  plumb describe pre.pbtxt --svg pre.svg\n\n"
      "plumb docs placements describes the language of formulas and its error messages.");
  RunWhenSelected(app, options, Describe, invocation);
}

}  // namespace plumb::cli
