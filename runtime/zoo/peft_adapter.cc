// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/safetensors.h"
#include "runtime/formats/strict_json.h"
#include "runtime/zoo/tensor_names.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kAdapterConfig[] = "adapter_config.json";
constexpr char kAdapterWeights[] = "adapter_model.safetensors";
constexpr char kPrefix[] = "base_model.model.";

// Keys that are read below, or that do not change what a trained adapter computes: its tensors
// have the names of the modules, and the orientation of a matrix follows from the family.
constexpr char kKnownKeys[] =
    "alpha_pattern auto_mapping base_model_name_or_path bias eva_config exclude_modules "
    "fan_in_fan_out inference_mode init_lora_weights layers_pattern layers_to_transform lora_alpha "
    "lora_dropout megatron_core modules_to_save peft_type peft_version qalora_group_size r "
    "rank_pattern revision runtime_config target_modules task_type use_rslora";

// Returns true for null, false and what is empty: values by which a setting is off.
bool IsOff(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

struct AdapterConfig {
  double alpha = 0;
  int64_t rank = 0;
  bool use_rslora = false;
  Json alpha_pattern = Json::object(), rank_pattern = Json::object();
  std::vector<std::string> saved;  // modules_to_save, and "bias" if biases were trained
};

// Returns the names and numbers of a pattern, or adds an error.
Json ReadPattern(const Json& config, absl::string_view key, std::vector<std::string>* errors) {
  const Json* found = FindMember(config, key);
  if (found == nullptr || found->is_null()) return Json::object();
  const auto is_plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  };
  for (const auto& [name, value] : found->items()) {
    if (value.is_number() && std::all_of(name.begin(), name.end(), is_plain)) continue;
    errors->push_back(absl::StrCat(key, ": ", QuoteName(name), ": ", value.dump(),
                                   " is read only with the name of a module, and a number"));
  }
  return *found;
}

AdapterConfig ReadConfig(const Json& config, std::vector<std::string>* errors) {
  AdapterConfig read;
  const auto refuse = [errors](auto... words) { errors->push_back(absl::StrCat(words...)); };
  const std::set<std::string> known = absl::StrSplit(kKnownKeys, ' ');
  for (const auto& [key, value] : config.items()) {
    if (known.count(key) > 0 || IsOff(value)) continue;
    refuse(QuoteName(key),
           ": plumb does not read this key, which may change what the adapter does");
  }
  if (const std::string type = TextMember(config, "peft_type"); type != "LORA") {
    refuse("peft_type is ", QuoteName(type), "; only LORA is merged");
  }
  // Other ways to draw the first weights, such as PiSSA, change the model's own weights as well.
  const Json* init = FindMember(config, "init_lora_weights");
  if (init != nullptr && !init->is_boolean() && *init != "gaussian" && *init != "eva" &&
      *init != "orthogonal") {
    refuse("init_lora_weights is ", init->dump(), ", which may change the weights that it adapts");
  }
  const Json *alpha = FindMember(config, "lora_alpha"), *rank = FindMember(config, "r"),
             *rslora = FindMember(config, "use_rslora");
  read.rank = rank == nullptr ? 0 : AsInt64(*rank).value_or(0);
  if (read.rank < 1) refuse("r is not a whole number from 1");
  if (alpha == nullptr || !alpha->is_number()) {
    refuse("lora_alpha is not a number");
  } else {
    read.alpha = alpha->get<double>();
  }
  read.use_rslora = rslora != nullptr && *rslora == true;
  read.alpha_pattern = ReadPattern(config, "alpha_pattern", errors);
  read.rank_pattern = ReadPattern(config, "rank_pattern", errors);
  if (const Json* saved = FindMember(config, "modules_to_save"); saved != nullptr) {
    for (const Json& name : *saved) {
      if (name.is_string()) read.saved.push_back(name.get<std::string>());
    }
  }
  const std::string bias = TextMember(config, "bias");
  if (bias == "all" || bias == "lora_only") read.saved.emplace_back("bias");
  return read;
}

// Returns the tensor in f32.
std::vector<float> Widen(const TensorEntry& entry, absl::string_view data) {
  std::vector<float> values(static_cast<size_t>(entry.shape.num_elements()));
  if (entry.dtype == "F32") {
    std::memcpy(values.data(), data.data(), data.size());
  } else {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(ElementAt(entry.dtype, data, static_cast<int64_t>(i)));
    }
  }
  return values;
}

// Changes of one tensor of the model, which this computes in f32.
struct Change {
  const TensorEntry *a = nullptr, *b = nullptr;  // matrices of LoRA, or both null
  const TensorEntry* whole = nullptr;            // replaces the tensor, or null
  std::string module;                            // name of the module with a and b
  double scale = 0;
  bool transposed = false;  // the tensor is [in, out], as of an embedding
  CheckpointTensor base;
  std::shared_ptr<const SafetensorsFile> file;  // owns the other tensors

  std::string operator()() const {
    std::string buffer;
    std::vector<float> weight =
        whole != nullptr ? Widen(*whole, whole->data) : Widen(*base.entry, base.Data(&buffer));
    if (a != nullptr) {
      const std::vector<float> down = Widen(*a, a->data), up = Widen(*b, b->data);
      LowRankUpdate{up.data(), down.data(), b->shape[0], a->shape[0], a->shape[1], scale}.AddTo(
          weight.data(), transposed);
    }
    const auto* const bytes = reinterpret_cast<const char*>(weight.data());
    return std::string(bytes, weight.size() * sizeof(float));
  }
};

class Merger {
 public:
  Merger(const Family& family, absl::Span<const TensorPiece> pieces,
         CheckpointDirectory* checkpoint, std::shared_ptr<const SafetensorsFile> file)
      : family_(family), checkpoint_(checkpoint), file_(std::move(file)) {
    bool has_head = false;
    for (const TensorPiece& piece : pieces) {
      has_head = has_head || piece.name == "head.weight";
      for (const std::string& source : piece.sources) {
        if (piece.transpose) transposed_.insert(Short(source));
        if (piece.name == "embedding.token.weight") tied_ = Short(source);
      }
    }
    if (has_head) tied_.clear();
  }

  // Merges all tensors of the file, or adds errors.
  void Run(const AdapterConfig& config, std::vector<std::string>* errors) {
    errors_ = errors;
    for (const TensorEntry& entry : file_->tensors()) AddTensor(entry);
    for (const std::string& module : config.saved) {
      if (std::none_of(changes_.begin(), changes_.end(), [&module](const auto& change) {
            return change.second.whole != nullptr &&
                   absl::StrContains(absl::StrCat(".", change.first, "."),
                                     absl::StrCat(".", module, "."));
          })) {
        Refuse(module, " was trained as a whole, and is not in the file");
      }
    }
    std::vector<CheckpointTensor> tensors = checkpoint_->tensors();
    for (CheckpointTensor& tensor : tensors) {
      const auto change = changes_.find(Short(tensor.entry->name));
      if (change == changes_.end()) continue;
      Apply(change->first, change->second, config, &tensor);
      changes_.erase(change);
    }
    for (const auto& [name, unused] : changes_) {
      Refuse(QuoteName(name), ": the checkpoint has no such tensor to adapt");
    }
    if (errors_->empty()) checkpoint_->SetTensors(std::move(tensors));
  }

 private:
  template <typename... Words>
  void Refuse(const Words&... words) {
    errors_->push_back(absl::StrCat(words...));
  }

  std::string Short(absl::string_view name) const {
    return std::string(WithoutPrefix(name, family_.prefixes));
  }

  void AddTensor(const TensorEntry& entry) {
    absl::string_view name = entry.name;
    if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16") {
      return Refuse(QuoteName(name), " is ", entry.dtype, "; F32, BF16 and F16 are read");
    }
    if (!absl::ConsumePrefix(&name, kPrefix)) {
      return Refuse(QuoteName(name), ": its name does not begin with ", kPrefix);
    }
    const bool is_a = absl::ConsumeSuffix(&name, ".lora_A.weight") ||
                      absl::ConsumeSuffix(&name, ".lora_embedding_A");
    const bool is_b = absl::ConsumeSuffix(&name, ".lora_B.weight") ||
                      absl::ConsumeSuffix(&name, ".lora_embedding_B");
    if (absl::StrContains(name, "lora_")) {
      return Refuse(QuoteName(entry.name), " is not a matrix A or B");
    }
    if (!is_a && !is_b) {
      const std::string own = absl::StrReplaceAll(name, {{".base_layer.", "."}});
      const TensorEntry*& whole = changes_[Short(own)].whole;
      if (whole != nullptr) Refuse(QuoteName(entry.name), " is in the file twice");
      whole = &entry;
      return;
    }
    Change& change = changes_[Short(absl::StrCat(name, ".weight"))];
    (is_a ? change.a : change.b) = &entry;
    change.module = std::string(name);
    change.transposed = absl::StrContains(entry.name, ".lora_embedding_");
  }

  // Makes `tensor` one that is computed, or adds errors. `name`: its name without a prefix.
  void Apply(const std::string& name, Change change, const AdapterConfig& config,
             CheckpointTensor* tensor) {
    const TensorEntry& entry = *tensor->entry;
    const auto misfit = [&](const TensorEntry& adapter) {
      Refuse(QuoteName(adapter.name), " is ", adapter.shape.ToString(), ", and ",
             QuoteName(entry.name), " ", entry.shape.ToString());
    };
    if (name == tied_) {
      return Refuse(QuoteName(entry.name),
                    " is the embedding and the head, and PEFT changes one of the two");
    }
    if (change.whole != nullptr && change.whole->shape != entry.shape) return misfit(*change.whole);
    if ((change.a == nullptr) != (change.b == nullptr)) {
      return Refuse(change.module, ": one of the matrices A and B is missing");
    }
    if (change.a != nullptr) {
      change.transposed = change.transposed || transposed_.count(name) > 0;
      const Shape &a = change.a->shape, &b = change.b->shape;
      if (a.rank() != 2 || b.rank() != 2 || b[1] != a[0]) return misfit(*change.b);
      if (entry.shape != (change.transposed ? Shape{a[1], b[0]} : Shape{b[0], a[1]})) {
        return misfit(*change.a);
      }
      change.scale = Scale(change.module, a[0], config);
    }
    change.base = *tensor;
    change.file = file_;
    tensor->computed_from = absl::StrCat(entry.name, " and ", file_->path());
    tensor->compute = change;
    tensor->entry = std::make_shared<TensorEntry>(
        TensorEntry{entry.name, "F32", entry.shape, absl::string_view()});
  }

  // Returns the scale of a module whose adapter has this rank.
  double Scale(const std::string& module, int64_t rank, const AdapterConfig& config) {
    if (InPattern(config.rank_pattern, module, static_cast<double>(config.rank)) !=
        static_cast<double>(rank)) {
      Refuse(module, ": its matrices have a rank of ", rank, ", which r and rank_pattern deny");
    }
    const double alpha = InPattern(config.alpha_pattern, module, config.alpha);
    return alpha / (config.use_rslora ? std::sqrt(rank) : static_cast<double>(rank));
  }

  // Returns the number of a module, which a pattern names by the end of its name, or `absent`.
  double InPattern(const Json& pattern, const std::string& module, double absent) {
    std::set<double> found;
    for (const auto& [name, value] : pattern.items()) {
      if (absl::EndsWith(absl::StrCat(".", module), absl::StrCat(".", name))) {
        found.insert(value.get<double>());
      }
    }
    // The first of the file would count.
    if (found.size() > 1) Refuse(module, ": several names of a pattern fit, with other numbers");
    return found.empty() ? absent : *found.begin();
  }

  const Family& family_;
  CheckpointDirectory* const checkpoint_;
  const std::shared_ptr<const SafetensorsFile> file_;
  std::set<std::string> transposed_;  // matrices [in, out], as of GPT-2
  std::string tied_;                  // the embedding if it is the head too, else ""
  std::map<std::string, Change> changes_;
  std::vector<std::string>* errors_ = nullptr;
};

}  // namespace

void LowRankUpdate::AddTo(float* weight, bool transposed) const {
  std::vector<double> row(static_cast<size_t>(in));
  for (int64_t o = 0; o < out; ++o) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = double{up[o * rank + r]};
      for (int64_t i = 0; i < in; ++i) {
        row[static_cast<size_t>(i)] += factor * double{down[r * in + i]};
      }
    }
    for (int64_t i = 0; i < in; ++i) {
      float& value = weight[transposed ? i * out + o : o * in + i];
      value = static_cast<float>(double{value} + scale * row[static_cast<size_t>(i)]);
    }
  }
}

absl::Status MergePeftAdapter(const std::string& directory, const Family& family,
                              absl::Span<const TensorPiece> pieces,
                              CheckpointDirectory* checkpoint) {
  PLUMB_ASSIGN_OR_RETURN(const Json json, ReadJsonInside(directory, kAdapterConfig));
  PLUMB_ASSIGN_OR_RETURN(const std::string weights, PathInside(directory, kAdapterWeights));
  PLUMB_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(weights));
  const auto file = std::make_shared<const SafetensorsFile>(std::move(opened));
  std::vector<std::string> errors;
  const AdapterConfig config = ReadConfig(json, &errors);
  if (file->tensors().empty()) errors.emplace_back("there are no tensors");
  if (errors.empty()) Merger(family, pieces, checkpoint, file).Run(config, &errors);
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      directory, ": the adapter cannot be merged:\n  ", ListDiagnostics(errors, "\n  "),
      "\nPEFT's merge_and_unload() may be able to; import what it saves"));
}

}  // namespace plumb
