// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/export_run.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/convert/import_files.h"
#include "runtime/convert/import_run.h"
#include "runtime/convert/zoo.h"
#include "runtime/formats/safetensors.h"
#include "runtime/formats/strict_json.h"
#include "runtime/schema/reader.h"
#include "runtime/tokenizer/library_json.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/train/checkpoint/staged_directory.h"
#include "runtime/train/import_json.h"
#include "runtime/train/init_from_run.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_model.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family_template.h"
#include "runtime/zoo/peft_adapter.h"
#include "runtime/zoo/tensor_plan.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Number of tokens in the compared graphs: enough for every op to appear.
constexpr int64_t kComparedTokens = 8;

absl::StatusOr<std::vector<std::string>> ListGraph(const api::Model& model) {
  const int64_t seq = std::min(kComparedTokens, model.Info().context_length);
  PLUMB_ASSIGN_OR_RETURN(const std::string graph, ExplainModel(model, "graph", 1, seq));
  return absl::StrSplit(graph, '\n');
}

// Returns a line of a graph without the numbers of its values, which change with any difference.
std::string WithoutNumbers(absl::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    text += line[i];
    if (line[i] != '%') continue;
    while (i + 1 < line.size() && line[i + 1] >= '0' && line[i + 1] <= '9') ++i;
  }
  return text;
}

// Returns the values of config.json. Fails unless the model that the family makes of it has the
// same graph as `model`, and therefore the same weights.
absl::StatusOr<ConfigValues> ValuesOfSameModel(HostRuntime* runtime, const Family& family,
                                               const api::Model& model, const Json& config,
                                               bool with_sizes) {
  PLUMB_ASSIGN_OR_RETURN(ConfigValues values,
                         ReadConfigValues(family, config, "the config.json of this model"));
  PLUMB_ASSIGN_OR_RETURN(const api::Model of_family, MakeModel(runtime, family, values));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> own, ListGraph(model));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> other, ListGraph(of_family));
  if (own == other) {
    if (!with_sizes) return values;
    // The graph of a model with a rotary embedding does not contain the context length.
    PLUMB_ASSIGN_OR_RETURN(const auto described, DescribeModel(model));
    PLUMB_ASSIGN_OR_RETURN(const auto expected, DescribeModel(of_family));
    if (described["dims"] == expected["dims"]) return values;
    return absl::InvalidArgumentError("config.json has other sizes");
  }
  size_t at = 0;
  while (at < own.size() && at < other.size() && own[at] == other[at]) ++at;
  const auto line = [at](const std::vector<std::string>& graph) {
    return at < graph.size() && !graph[at].empty() ? WithoutNumbers(graph[at])
                                                   : std::string("nothing more");
  };
  return absl::InvalidArgumentError(absl::StrCat(
      family.name,
      " cannot express this model: what it would compute differs, first in\n  this model: ",
      line(own), "\n  ", family.name, ":",
      std::string(family.name.size() < 10 ? 10 - family.name.size() : 0, ' '), " ", line(other)));
}

// Returns the dimensions, and the attributes that have the same value in all norms of the layers.
std::map<std::string, double> GetFacts(const nlohmann::ordered_json& description) {
  std::map<std::string, double> facts;
  std::set<std::string> differ;
  for (const auto& group : description["layers"]) {
    // "slot norm: rms_norm(affine=true, eps=1e-05)[32]"
    for (const std::string slot : group["norms"]) {
      const size_t open = slot.find('('), close = slot.rfind(')');
      if (open == std::string::npos || close == std::string::npos || close < open) continue;
      const std::string attributes = slot.substr(open + 1, close - open - 1);
      for (const absl::string_view attribute : absl::StrSplit(attributes, ", ")) {
        const std::pair<std::string, std::string> parts = absl::StrSplit(attribute, '=');
        double value;
        if (!absl::SimpleAtod(parts.second, &value)) continue;
        const std::string name = absl::StrCat("norm_attr.", parts.first);
        const auto [at, added] = facts.emplace(name, value);
        if (!added && at->second != value) differ.insert(name);
      }
    }
  }
  for (const std::string& name : differ) facts.erase(name);
  for (const auto& [name, value] : description["dims"].items()) facts[name] = value;
  return facts;
}

// Update of a weight by an adapter. Refers to tensors of the model.
struct WeightUpdate {
  std::string weight;
  LowRankUpdate update;
};

using Tensors = std::map<std::string, api::TensorView<float>>;

absl::StatusOr<Tensors> GetTensors(api::Model* model) {
  Tensors tensors;
  for (size_t i = 0; i < model->TensorCount(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(const auto tensor, ToStatus(model->Tensor(i)));
    tensors.emplace(tensor.name, tensor);
  }
  return tensors;
}

// Reads the updates from the model's description; none if it has no adapter. Errors:
// kInvalidArgument if the adapter does anything else.
absl::StatusOr<std::vector<WeightUpdate>> ReadUpdates(api::Model* model,
                                                      const nlohmann::ordered_json& description) {
  PLUMB_ASSIGN_OR_RETURN(const Tensors tensors, GetTensors(model));
  std::vector<WeightUpdate> updates;
  for (const std::string line : description["adapter"]) {
    // "layers.0.attention.q.weight += 2 * UP.weight * DOWN.weight"
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double scale;
    if (words.size() != 7 || words[1] != "+=" || !absl::SimpleAtod(words[2], &scale)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the adapter does not only add scale * b(a(input)) to the result of a projection, as ",
          "wide as that, so that it can be neither merged nor exported: ", line));
    }
    const auto &up = tensors.at(words[4]).data, &down = tensors.at(words[6]).data;
    const auto& shape = tensors.at(words[0]).shape;
    const int64_t in = shape[1];
    updates.push_back(
        {words[0],
         {up.data(), down.data(), shape[0], static_cast<int64_t>(down.size()) / in, in, scale}});
  }
  return updates;
}

// Returns the run with its model without the adapter, whose updates are added to the weights.
absl::StatusOr<RunModel> MergeAdapter(RunModel* run) {
  v1::Model message;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(run->text, "model.pbtxt", &message, &locations));
  *message.mutable_adapter() = v1::Placement();
  PLUMB_ASSIGN_OR_RETURN(api::Model merged, ToStatus(run->model.Merge()));
  return RunModel{run->run, run->checkpoint, run->step, textproto::PrintText(message),
                  std::move(merged)};
}

// Returns the names in `names` whose tensors differ between `a` and `b`, or are not in both.
std::vector<std::string> ListDifferent(const Tensors& names, const Tensors& a, const Tensors& b) {
  std::vector<std::string> different;
  for (const auto& [name, unused] : names) {
    const auto x = a.find(name), y = b.find(name);
    if (x == a.end() || y == b.end() || x->second.data.size() != y->second.data.size() ||
        std::memcmp(x->second.data.data(), y->second.data.data(),
                    x->second.data.size() * sizeof(float)) != 0) {
      different.push_back(name);
    }
  }
  return different;
}

// Fails unless the weights of `merged`, which has none of the adapter's, are in `adapted` those
// that the run began with: else the adapter without them is another model.
absl::Status CheckOnlyAdapterChanged(HostRuntime* runtime, RunModel* adapted, RunModel* merged) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(adapted->run, ": ", why,
                     ", so that its adapter alone is not the model; drop --adapter to "
                     "merge it into the weights, or train with --set train.import=lora, which "
                     "keeps the others"));
  };
  PLUMB_ASSIGN_OR_RETURN(const std::string json,
                         ReadFile(JoinPath(adapted->run, "run.json"), kMaxTextBytes));
  PLUMB_ASSIGN_OR_RETURN(const InitSource init, GetInit(json));
  if (init.run.empty()) return refuse("the run began with random weights");
  absl::StatusOr<RunModel> base = OpenRunModel(runtime, init.weights, /*average=*/false);
  if (!base.ok()) {
    return Annotate(base.status(), absl::StrCat("the weights that ", adapted->run,
                                                " began with, which the adapter belongs to: "));
  }
  PLUMB_ASSIGN_OR_RETURN(const Tensors before, GetTensors(&base->model));
  PLUMB_ASSIGN_OR_RETURN(const Tensors after, GetTensors(&adapted->model));
  PLUMB_ASSIGN_OR_RETURN(const Tensors wanted, GetTensors(&merged->model));
  const std::vector<std::string> changed = ListDifferent(wanted, before, after);
  if (changed.empty()) return absl::OkStatus();
  return refuse(absl::StrCat(changed.size(), " of ", wanted.size(),
                             " weights have changed besides the adapter (the first is ", changed[0],
                             ")"));
}

// Assembles the tensors of the checkpoint from those of the model.
class Assembly {
 public:
  Assembly(const api::Model& model, std::vector<TensorPiece> pieces)
      : model_(model), pieces_(std::move(pieces)) {}

  absl::StatusOr<std::vector<TensorToWrite>> Tensors() {
    std::vector<std::string> order;
    std::vector<std::string> errors;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const TensorPiece& piece = pieces_[i];
      if (piece.fill.has_value() && !IsFilled(i)) {
        errors.push_back(absl::StrCat(piece.name, " is trained, and the checkpoint has it as ",
                                      *piece.fill, " everywhere"));
      }
      for (size_t number = 0; number < piece.sources.size(); ++number) {
        std::vector<Part>& parts = sources_[piece.sources[number]];
        if (parts.empty()) order.push_back(piece.sources[number]);
        parts.push_back({i, static_cast<int64_t>(number)});
      }
    }
    if (!errors.empty()) return absl::InvalidArgumentError(ListDiagnostics(errors));
    std::vector<TensorToWrite> tensors;
    for (const std::string& name : order) tensors.push_back(ToWrite(name));
    return tensors;
  }

  // Returns the updates as PEFT's matrices A and B, and their configuration in `config`. Those of
  // the parts of a fused matrix become one, whose rank is the sum of theirs. Requires:
  // Tensors().ok().
  absl::StatusOr<std::vector<TensorToWrite>> PeftTensors(const std::vector<WeightUpdate>& updates,
                                                         Json* config) const {
    std::vector<TensorToWrite> tensors;
    *config = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"base_model_name_or_path", nullptr},
               {"inference_mode", true}};
    for (const auto& [name, parts] : sources_) {
      const bool transposed = pieces_[parts[0].piece].transpose;
      const int64_t out = GetShape(parts)[transposed ? 1 : 0];
      std::vector<float> a;
      std::vector<TensorPiece> b;  // parts of B, [out, rank] even if the checkpoint has [in, out]
      std::vector<std::vector<float>> up;
      double scale = 0;
      int64_t rank = 0;
      for (const Part& part : parts) {
        for (const auto& [weight, update] : updates) {
          const TensorPiece& piece = pieces_[part.piece];
          if (weight != piece.name) continue;
          if (piece.stacked() || !piece.columns.all()) {
            return absl::InvalidArgumentError(
                absl::StrCat(name, ": PEFT updates all columns only; drop --adapter to merge"));
          }
          if (scale == 0) scale = update.scale;
          const double factor = scale == 0 ? 0 : update.scale / scale;
          a.insert(a.end(), update.down, update.down + update.rank * update.in);
          up.emplace_back(update.up, update.up + update.out * update.rank);
          for (float& value : up.back()) value = static_cast<float>(value * factor);
          TensorPiece& rows = b.emplace_back();
          rows.shape = {update.out, update.rank};
          rows.rows = piece.rows;
          rows.columns = {1, rank, update.rank};
          rank += update.rank;
        }
      }
      if (rank == 0) continue;
      std::vector<float> whole(static_cast<size_t>(out * rank));
      for (size_t i = 0; i < b.size(); ++i) {
        ScatterPiece(b[i], {out, rank}, 0, up[i].data(), whole.data());
      }
      const std::string module(absl::StripSuffix(name, ".weight"));
      const auto add = [&](const char* which, const Shape& shape,
                           const std::vector<float>& values) {
        tensors.push_back({absl::StrCat("base_model.model.", module, which), F32(shape), nullptr,
                           [values](int64_t begin, int64_t n, void* to) {
                             std::memcpy(to, values.data() + begin, static_cast<size_t>(n) * 4);
                           }});
      };
      add(".lora_A.weight", {rank, static_cast<int64_t>(a.size()) / rank}, a);
      add(".lora_B.weight", {out, rank}, whole);
      (*config)["target_modules"].push_back(module);
      (*config)["fan_in_fan_out"] = transposed;
      (*config)["rank_pattern"][module] = (*config)["r"] = rank;
      (*config)["alpha_pattern"][module] = (*config)["lora_alpha"] =
          scale * static_cast<double>(rank);
    }
    return tensors;
  }

 private:
  struct Part {
    size_t piece;
    int64_t number;  // index among its sources
  };

  const float* GetData(size_t piece) const {
    const auto tensor = model_.Tensor(piece);
    return tensor.ok() ? tensor->data.data() : nullptr;
  }

  bool IsFilled(size_t piece) const {
    const float* const data = GetData(piece);
    const auto value = static_cast<float>(*pieces_[piece].fill);
    return std::all_of(data, data + pieces_[piece].shape.num_elements(),
                       [value](float each) { return each == value; });
  }

  // Returns the length that an axis of the source needs, if the piece has `own` elements of it.
  static int64_t Length(int64_t own, const AxisSlice& part) {
    return part.all() ? own : part.groups * (part.first + part.count);
  }

  // Returns the shape of a source: the smallest that has the elements of all its parts.
  Shape GetShape(const std::vector<Part>& parts) const {
    int64_t rows = 0, columns = 0;
    for (const Part& part : parts) {
      const TensorPiece& piece = pieces_[part.piece];
      const MatrixDims own = GetDims(piece.shape);
      int64_t down = Length(own.rows, piece.rows), across = Length(own.columns, piece.columns);
      if (piece.transpose) std::swap(down, across);
      rows = std::max(rows, down);
      columns = std::max(columns, across);
    }
    const TensorPiece& piece = pieces_[parts[0].piece];
    const MatrixDims own = GetDims(piece.shape);
    if (piece.flat_rows > 0) {
      return {piece.flat_rows, piece.shape.num_elements() / piece.flat_rows};
    }
    if (piece.shape.rank() == 1) return {rows};
    if (piece.depthwise) return {rows, 1, columns};
    if (piece.shape.rank() == 3 && !piece.stacked()) return {own.batch, rows, columns};
    return {rows, columns};
  }

  TensorToWrite ToWrite(const std::string& name) const {
    const std::vector<Part>& parts = sources_.at(name);
    TensorToWrite write;
    write.name = name;
    write.type = F32(GetShape(parts));
    const TensorPiece& first = pieces_[parts[0].piece];
    if (!first.stacked() && !first.transpose && !first.depthwise && first.rows.all() &&
        first.columns.all()) {
      write.data = GetData(parts[0].piece);
      return write;
    }
    // Tensors are written one after the other, so each is assembled when its first element is read.
    auto whole = std::make_shared<std::vector<float>>();
    write.copy = [this, &parts, shape = write.type.shape, whole](int64_t begin, int64_t n,
                                                                 void* to) {
      const int64_t all = shape.num_elements();
      if (begin == 0) {
        whole->assign(static_cast<size_t>(all), 0.0f);
        for (const Part& part : parts) {
          ScatterPiece(pieces_[part.piece], shape, part.number, GetData(part.piece), whole->data());
        }
      }
      std::memcpy(to, whole->data() + begin, static_cast<size_t>(n) * sizeof(float));
      if (begin + n == all) std::vector<float>().swap(*whole);
    };
    return write;
  }

  const api::Model& model_;
  const std::vector<TensorPiece> pieces_;
  std::map<std::string, std::vector<Part>> sources_;
};

Json SpecialTokenIds(const SpecialTokens& special) {
  Json ids = Json::object();
  PutSpecialTokenIds(special, &ids);
  return ids;
}

// Puts the ids of the run's special tokens into config.json, null for none, since otherwise readers
// assume ids of their own. Keeps those that it has if `keeps_known`, and those that the family
// computes with, such as RoBERTa's padding, from which positions are counted.
void PutIds(const SpecialTokens& special, const Family& family, bool keeps_known, Json* config) {
  const auto is_read = [&family](const std::string& key) {
    return absl::c_any_of(family.scalars, [&key](const ScalarRule& rule) {
      return absl::c_linear_search(rule.fields, key);
    });
  };
  const Json ids = SpecialTokenIds(special);
  for (const auto& [key, value] : ids.items()) {
    if (!config->contains(key) || !(keeps_known || is_read(key))) (*config)[key] = value;
  }
}

// Returns the imported run whose tokenizer's files (with its chat template, and its defaults for
// sampling) are also those of the run: itself, or the one that it began with if that makes the same
// tokens of texts, and begins and ends them with the same ones; "" if there is none.
absl::StatusOr<std::string> FindTokenizerFiles(const std::string& run, const std::string& origin,
                                               const RunFiles& files) {
  if (IsImportedRun(run)) return run;
  if (origin == run || !IsImportedRun(origin) || !files.tokenizer.ok()) return std::string();
  PLUMB_ASSIGN_OR_RETURN(const RunFiles base, ReadRunFiles(origin, {}));
  if (!base.tokenizer.ok()) return std::string();
  PLUMB_ASSIGN_OR_RETURN(const std::string own, LibraryTokenizerJson(*files.tokenizer, false));
  PLUMB_ASSIGN_OR_RETURN(const std::string other, LibraryTokenizerJson(*base.tokenizer, false));
  const bool same = own == other && SpecialTokenIds(files.special) == SpecialTokenIds(base.special);
  return same ? origin : std::string();
}

// Writes the tokenizer's files and generation_config.json: those of the imported run `source`, and
// generated ones where it has none or is "".
absl::Status WriteTokenizerFiles(const std::string& source, const RunFiles& files,
                                 int64_t context_length, const std::string& out) {
  if (!source.empty()) PLUMB_RETURN_IF_ERROR(CopyTokenizerFiles(source, out));
  const auto write = [&out](absl::string_view name, const std::string& text) -> absl::Status {
    const std::string path = JoinPath(out, name);
    return FileExists(path) ? absl::OkStatus() : WriteFileAtomically(path, text);
  };
  PLUMB_RETURN_IF_ERROR(write(kGenerationConfigFile, GenerationConfigJson(files.special)));
  if (!files.tokenizer.ok()) return absl::OkStatus();
  const bool begins_texts = HasDocuments(files.recipe);
  PLUMB_ASSIGN_OR_RETURN(const std::string tokenizer,
                         LibraryTokenizerJson(*files.tokenizer, begins_texts));
  PLUMB_RETURN_IF_ERROR(write("tokenizer.json", tokenizer));
  return write("tokenizer_config.json", LibraryTokenizerConfig(*files.tokenizer, context_length));
}

// Sets the type of the weights wherever config.json states one: transformers 5 writes and prefers
// "dtype", also in the parts of a model.
void StateType(const char* type, Json* config) {
  for (auto& [key, value] : config->items()) {
    if (value.is_object()) StateType(type, &value);
    if (value.is_string() && (key == "dtype" || key == "torch_dtype")) value = type;
  }
}

bool IsFile(const std::string& family) { return absl::EndsWith(family, ".pbtxt"); }

struct Target {
  Family family;
  Json config = Json::object();
  std::string origin;  // the run, or the one with whose weights it began
};

// Returns the config.json of the text model in that of a model that also reads images; null if it
// is none. Some of its keys are outside of its object.
Json TextConfig(const Json& config) {
  const Json* found = FindMember(config, "text_config");
  if (found == nullptr || TextMember(*found, "model_type").empty()) return nullptr;
  Json text = *found;
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"}) {
    const Json* outside = FindMember(config, key);
    if (outside != nullptr && !outside->is_null()) text[key] = *outside;
  }
  return text;
}

// Returns the target family and, for a run that was imported or began with the weights of one, the
// config.json that it was imported from.
absl::StatusOr<Target> FindTarget(const HostRuntime& runtime, const ExportRequest& request,
                                  const std::string& run) {
  Target target;
  std::string name = request.family, origin = run;
  if (const auto json = ReadFile(JoinPath(run, "run.json"), kMaxTextBytes); json.ok()) {
    PLUMB_ASSIGN_OR_RETURN(const InitSource init, GetInit(*json));
    if (!init.run.empty()) origin = init.weights;
  }
  target.origin = origin;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<Family> known, ReadFamilies(runtime));
  if (IsImportedRun(origin)) {
    PLUMB_ASSIGN_OR_RETURN(ImportedFamily imported, ReadImportedFamily(origin));
    // The run has the weights of the text model only.
    Json text = TextConfig(imported.config);
    if (name.empty() && !text.is_null()) {
      absl::StatusOr<Family> family = FindFamily(known, text, "text_config");
      if (family.ok() && !family->architectures.empty()) {
        text["architectures"] = Json::array({family->architectures.front()});
        return Target{*std::move(family), std::move(text), std::move(origin)};
      }
    }
    if (name.empty()) name = imported.family;
    if (name == imported.family || IsFile(name)) target.config = std::move(imported.config);
  }
  if (IsFile(name)) {
    PLUMB_ASSIGN_OR_RETURN(target.family, ReadFamily(runtime, name));
    return target;
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run, ": does not come from an import: give the layout with --family"));
  }
  PLUMB_ASSIGN_OR_RETURN(target.family, FindFamilyNamed(known, name));
  return target;
}

// Replaces `config` by the config.json that the family derives from the model's description, and
// returns its values. Fails unless it describes the same model.
absl::StatusOr<ConfigValues> DeriveConfig(HostRuntime* runtime, const Family& family,
                                          const RunModel& run,
                                          const std::map<std::string, double>& facts,
                                          Json* config) {
  std::vector<std::string> unread;
  absl::StatusOr<Json> derived = ConfigForModel(family, run.text, facts, *config, &unread);
  const absl::StatusOr<ConfigValues> values =
      derived.ok() ? ValuesOfSameModel(runtime, family, run.model, *derived, /*with_sizes=*/false)
                   : derived.status();
  if (derived.ok()) *config = *std::move(derived);
  if (values.ok() || unread.empty()) return values;
  return absl::InvalidArgumentError(
      absl::StrCat(values.status().message(), "\n  values that ", family.name,
                   " needs and that the model does not have in this form:\n    ",
                   ListDiagnostics(unread, "\n    ")));
}

// Fails unless the import of the checkpoint in `directory` has the weights of the model, and ends
// texts with the tokens of the run. Leaves nothing in the directory.
absl::Status ReadBack(HostRuntime* runtime, const ExportRequest& request,
                      const SpecialTokens& special, const std::string& directory,
                      api::Model* model) {
  const std::string run = JoinPath(directory, "read-back");
  ImportRequest import;
  import.directory = directory;
  import.out = run;
  if (IsFile(request.family)) import.family_file = request.family;
  const auto refuse = [](absl::string_view why) {
    return absl::InternalError(absl::StrCat("the export is not what plumb imports: ", why));
  };
  const absl::StatusOr<ImportReport> imported = ImportCheckpoint(runtime, import);
  if (!imported.ok()) return refuse(imported.status().message());
  if (imported->end_tokens != special.end) return refuse("it has other end tokens");
  {
    PLUMB_ASSIGN_OR_RETURN(RunModel read, OpenRunModel(runtime, run, /*average=*/false));
    PLUMB_ASSIGN_OR_RETURN(const Tensors own, GetTensors(model));
    PLUMB_ASSIGN_OR_RETURN(const Tensors other, GetTensors(&read.model));
    const std::vector<std::string> different = ListDifferent(own, own, other);
    if (!different.empty()) return refuse(absl::StrCat(different[0], " differs"));
  }
  return RemoveTree(run);
}

absl::StatusOr<ExportReport> Export(HostRuntime* runtime, const ExportRequest& request) {
  PLUMB_RETURN_IF_ERROR(StagedDirectory::CheckFree(request.out));
  PLUMB_ASSIGN_OR_RETURN(RunModel opened, OpenRunModel(runtime, request.run, request.average));
  PLUMB_ASSIGN_OR_RETURN(const Target target, FindTarget(*runtime, request, opened.run));
  const Family& family = target.family;
  PLUMB_ASSIGN_OR_RETURN(const auto description, DescribeModel(opened.model));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<WeightUpdate> updates,
                         ReadUpdates(&opened.model, description));
  std::optional<RunModel> adapted;  // owns the tensors of `updates`
  if (!updates.empty()) {
    PLUMB_ASSIGN_OR_RETURN(RunModel merged, MergeAdapter(&opened));
    adapted = std::exchange(opened, std::move(merged));
    if (request.adapter) {
      PLUMB_RETURN_IF_ERROR(CheckOnlyAdapterChanged(runtime, &*adapted, &opened));
    }
  } else if (request.adapter) {
    return absl::InvalidArgumentError(
        absl::StrCat(opened.run, ": the model has no adapter; drop --adapter"));
  }
  const std::map<std::string, double> facts = GetFacts(description);
  Json config = target.config;
  // Fields that the description does not have, such as the factor of a scaling, are kept.
  absl::StatusOr<ConfigValues> same =
      ValuesOfSameModel(runtime, family, opened.model, config, /*with_sizes=*/true);
  if (!same.ok()) same = DeriveConfig(runtime, family, opened, facts, &config);
  PLUMB_ASSIGN_OR_RETURN(const ConfigValues values, std::move(same));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<WantedTensor> wanted, TensorsOfModel(opened.model));
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorPiece> pieces, ResolvePieces(family, values, wanted));
  Assembly assembly(opened.model, std::move(pieces));
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorToWrite> tensors, assembly.Tensors());
  PLUMB_ASSIGN_OR_RETURN(const auto constants, ConstantTensors(family, values));
  for (const auto& [name, value] : constants) {
    TensorToWrite write;  // without dimensions
    write.name = name;
    write.copy = [value = static_cast<float>(value)](int64_t /*begin*/, int64_t n, void* to) {
      std::fill_n(static_cast<float*>(to), n, value);
    };
    tensors.push_back(std::move(write));
  }

  config["torch_dtype"] = "float32";
  StateType("float32", &config);
  PLUMB_ASSIGN_OR_RETURN(const RunFiles files, ReadRunFiles(opened.run, {}));
  PLUMB_ASSIGN_OR_RETURN(const std::string tokenizer_files,
                         FindTokenizerFiles(opened.run, target.origin, files));
  PutIds(files.special, target.family, /*keeps_known=*/!tokenizer_files.empty(), &config);
  if (request.adapter) {
    PLUMB_ASSIGN_OR_RETURN(tensors, assembly.PeftTensors(updates, &config));
    if (description["bidirectional"]) config["task_type"] = nullptr;
  }
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<StagedDirectory> staged,
                         StagedDirectory::Create(request.out));
  const std::string prefix = JoinPath(staged->path(), request.adapter ? "adapter_" : "");
  PLUMB_RETURN_IF_ERROR(WriteSafetensors(absl::StrCat(prefix, "model.safetensors"), tensors));
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(
      absl::StrCat(prefix, "config.json"),
      absl::StrCat(config.dump(2, ' ', false, Json::error_handler_t::replace), "\n")));
  if (!request.adapter) {
    PLUMB_RETURN_IF_ERROR(WriteTokenizerFiles(
        tokenizer_files, files, static_cast<int64_t>(facts.at("context_length")), staged->path()));
    PLUMB_RETURN_IF_ERROR(ReadBack(runtime, request, files.special, staged->path(), &opened.model));
  }
  PLUMB_RETURN_IF_ERROR(staged->Commit());
  ExportReport report{family.name, static_cast<int64_t>(tensors.size()), 0};
  for (const TensorToWrite& tensor : tensors) report.bytes += tensor.type.bytes();
  return report;
}

}  // namespace

absl::StatusOr<ExportReport> ExportRun(HostRuntime* runtime, const ExportRequest& request) {
  return OrOutOfMemory("the weights", [&] { return Export(runtime, request); });
}

}  // namespace plumb
