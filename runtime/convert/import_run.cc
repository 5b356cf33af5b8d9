// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/import_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/client/model.h"
#include "runtime/convert/import_files.h"
#include "runtime/convert/zoo.h"
#include "runtime/train/checkpoint/staged_directory.h"
#include "runtime/train/import_json.h"
#include "runtime/train/run_directory.h"
#include "runtime/zoo/config_keys.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family_template.h"
#include "runtime/zoo/peft_adapter.h"
#include "runtime/zoo/quantized_weights.h"
#include "runtime/zoo/tensor_plan.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Data of a tensor's sources while its elements are copied in order. A source that is computed is
// in memory from its first element to its last.
struct SourceData {
  std::vector<std::string> computed;
  std::vector<absl::string_view> data;

  explicit SourceData(size_t count) : computed(count), data(count) {}
};

// Copies elements [begin, begin + n) of plumb's tensor.
void CopyElements(const PlannedTensor& tensor, int64_t size, int64_t begin, int64_t n, void* to,
                  SourceData* sources) {
  const size_t count = tensor.sources.size();
  const int64_t each = tensor.piece.shape.num_elements() / static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t first = static_cast<int64_t>(i) * each;
    if (first >= begin + n || first + each <= begin || !sources->data[i].empty()) continue;
    sources->data[i] = tensor.sources[i]->Data(&sources->computed[i]);
  }
  CopyPiece(tensor.piece, tensor.sources[0]->entry->shape, sources->data, size, begin, n,
            static_cast<char*>(to));
  for (size_t i = 0; i < count && static_cast<int64_t>(i + 1) * each <= begin + n; ++i) {
    sources->data[i] = {};
    std::string().swap(sources->computed[i]);
  }
}

// Returns the tensors that need another layout; they are converted while they are written.
std::vector<TensorToWrite> TensorsToWrite(const TensorPlan& plan, bool copy_all) {
  std::vector<TensorToWrite> tensors;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (!copy_all && MappedOffset(tensor) >= 0) continue;
    const bool is_f32 = tensor.dtype == "F32";
    TensorToWrite write;
    write.name = tensor.piece.name;
    write.type = {is_f32 ? DType::kF32 : DType::kBF16, tensor.piece.shape};
    write.dtype = tensor.dtype.c_str();
    if (tensor.piece.fill.has_value()) {
      const auto value = static_cast<float>(*tensor.piece.fill);
      write.copy = [value](int64_t /*begin*/, int64_t n, void* to) {
        std::fill_n(static_cast<float*>(to), n, value);
      };
    } else {
      const auto sources = std::make_shared<SourceData>(tensor.sources.size());
      write.copy = [&tensor, sources, size = SizeOf(write.type.dtype)](int64_t begin, int64_t n,
                                                                       void* to) {
        CopyElements(tensor, size, begin, n, to, sources.get());
      };
    }
    tensors.push_back(std::move(write));
  }
  return tensors;
}

ImportReport MakeReport(const Family& family, const TensorPlan& plan, bool copy_all) {
  ImportReport report;
  report.family = family.name;
  report.family_file = family.file;
  std::set<std::string> dtypes;
  for (const PlannedTensor& tensor : plan.tensors) {
    const int64_t n = tensor.piece.shape.num_elements();
    const int64_t bytes = n * (tensor.dtype == "F32" ? 4 : 2);
    report.parameters += n;
    (!copy_all && MappedOffset(tensor) >= 0 ? report.mapped_bytes : report.written_bytes) += bytes;
    if (!tensor.sources.empty()) dtypes.insert(tensor.dtype);
  }
  report.tensors = static_cast<int64_t>(plan.tensors.size());
  report.dtypes.assign(dtypes.begin(), dtypes.end());
  for (const TensorPlan::Ignored& ignored : plan.ignored) {
    report.ignored.push_back(ignored.tensor->entry->name);
  }
  return report;
}

// Writes the run. Returns the special tokens in its files.
absl::StatusOr<SpecialTokens> WriteRun(const ImportRequest& request, const Family& family,
                                       const ImportedConfig& config, const std::string& model,
                                       const CheckpointDirectory& checkpoint,
                                       const TensorPlan& plan) {
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ToStatus(api::Spec::FromText(model, "the model")));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<StagedDirectory> staged,
                         StagedDirectory::Create(request.out));
  const std::string& run = staged->path();
  const std::vector<TensorToWrite> tensors = TensorsToWrite(plan, request.copy);
  if (!tensors.empty()) {
    PLUMB_RETURN_IF_ERROR(WriteSafetensors(JoinPath(run, kImportedWeights), tensors,
                                           {{"plumb", api::Version()}, {"family", family.name}}));
  }
  PLUMB_RETURN_IF_ERROR(CopyTokenizerFiles(request.directory, run));
  PLUMB_ASSIGN_OR_RETURN(SpecialTokens special,
                         KeepSpecialTokens(run, checkpoint.config(), GetVocabSize(spec)));
  PLUMB_ASSIGN_OR_RETURN(const std::string json,
                         ImportJson(family, config, checkpoint, plan, request.copy));
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(run, kImportFile), json));
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(RunModelPath(run), model));
  PLUMB_RETURN_IF_ERROR(staged->Commit());
  return special;
}

// Fails with a list of all unread keys that may change what the model computes. Warns about keys
// that no family knows.
absl::Status CheckKeys(const Family& family, const ImportedConfig& config, const std::string& file,
                       HostRuntime* runtime) {
  std::vector<std::string> refused, unknown;
  for (const ConfigKey& key : config.keys) {
    if (key.use == KeyUse::kRefused) {
      refused.push_back(absl::StrCat(QuoteName(key.key), ": ", key.reason));
    }
    if (key.use == KeyUse::kUnknown) unknown.push_back(QuoteName(key.key));
  }
  if (!refused.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": keys that plumb's ", family.name, " does not read:\n  ",
        ListDiagnostics(refused, "\n  "),
        "\nthey may change what the model computes; --allow-unread KEY imports without the key"));
  }
  if (!unknown.empty()) {
    runtime->Warn(absl::StrCat(file,
                               ": keys that no family of plumb's knows, and that were not read: ",
                               ListDiagnostics(unknown, ", ")));
  }
  return absl::OkStatus();
}

// Returns the config.json without the keys that may stay unread and without the one that describes
// `quantization`, and the use of the others.
absl::StatusOr<ImportedConfig> ReadConfig(HostRuntime* runtime, const Family& family,
                                          const std::vector<Family>& families,
                                          const ImportRequest& request,
                                          const CheckpointDirectory& checkpoint,
                                          Quantization* quantization) {
  ImportedConfig config;
  config.config = checkpoint.config();
  config.allowed = request.allow_unread;
  const std::string file = checkpoint.config_path();
  for (const std::string& key : config.allowed) {
    if (EraseField(key, &config.config)) continue;
    std::vector<std::string> known;
    for (const auto& each : config.config.items()) known.push_back(each.key());
    return absl::NotFoundError(absl::StrCat(file, ": has no key ", QuoteName(key),
                                            ", which --allow-unread names",
                                            DidYouMean(key, known)));
  }
  PLUMB_ASSIGN_OR_RETURN(*quantization, ReadQuantization(config.config, file));
  if (quantization->method != Quantization::kNone) config.config.erase(kQuantization);
  config.keys = AccountForKeys(family, families, config.config);
  PLUMB_RETURN_IF_ERROR(CheckKeys(family, config, file, runtime));
  if (quantization->method != Quantization::kNone) {
    config.keys.push_back({kQuantization, KeyUse::kRead, ""});
  }
  return config;
}

// Warns about weights that are NaN or infinite, since they spread to everything computed from them.
void WarnOfNonFinite(const TensorPlan& plan, const std::string& directory, HostRuntime* runtime) {
  std::map<std::string, int64_t> counts;
  for (const PlannedTensor& tensor : plan.tensors) {
    for (const CheckpointTensor* source : tensor.sources) {
      const auto [at, added] = counts.emplace(source->entry->name, 0);
      std::string computed;
      if (added) at->second = CountNonFinite(source->entry->dtype, source->Data(&computed));
    }
  }
  std::vector<std::string> found;
  for (const auto& [name, count] : counts) {
    if (count > 0) found.push_back(absl::StrCat(QuoteName(name), " (", count, ")"));
  }
  if (found.empty()) return;
  runtime->Warn(absl::StrCat(directory, ": weights that are NaN or infinite, in ",
                             ListDiagnostics(found, ", ")));
}

absl::StatusOr<ImportReport> Import(HostRuntime* runtime, const ImportRequest& request) {
  PLUMB_RETURN_IF_ERROR(StagedDirectory::CheckFree(request.out));
  PLUMB_ASSIGN_OR_RETURN(CheckpointDirectory checkpoint,
                         CheckpointDirectory::Open(request.directory));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<Family> known, ReadFamilies(*runtime));
  absl::StatusOr<Family> family =
      request.family_file.empty() ? FindFamily(known, checkpoint.config(), checkpoint.config_path())
                                  : ReadFamily(*runtime, request.family_file);
  if (!family.ok()) return family.status();
  Quantization quantization;
  PLUMB_ASSIGN_OR_RETURN(const ImportedConfig config,
                         ReadConfig(runtime, *family, known, request, checkpoint, &quantization));
  PLUMB_ASSIGN_OR_RETURN(const ConfigValues values,
                         ReadConfigValues(*family, config.config, checkpoint.config_path()));
  for (const std::string& warning : values.warnings) {
    runtime->Warn(absl::StrCat(checkpoint.config_path(), ": ", warning));
  }
  const absl::Status opened = checkpoint.OpenWeights();
  if (absl::IsNotFound(opened)) {
    return absl::NotFoundError(absl::StrCat(opened.message(),
                                            "\nits config.json is one of plumb's ", family->name,
                                            "; only the weights are missing"));
  }
  PLUMB_RETURN_IF_ERROR(opened);
  PLUMB_RETURN_IF_ERROR(Dequantize(quantization, &checkpoint));
  PLUMB_ASSIGN_OR_RETURN(const api::Model model, MakeModel(runtime, *family, values));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<WantedTensor> wanted, TensorsOfModel(model));
  if (!request.adapter.empty()) {
    PLUMB_ASSIGN_OR_RETURN(const auto pieces, ResolvePieces(*family, values, wanted));
    PLUMB_RETURN_IF_ERROR(MergePeftAdapter(request.adapter, *family, pieces, &checkpoint));
  }
  PLUMB_ASSIGN_OR_RETURN(const TensorPlan plan, PlanTensors(*family, values, wanted, checkpoint));
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ModelText(*family, values));
  WarnOfNonFinite(plan, request.directory, runtime);
  PLUMB_ASSIGN_OR_RETURN(SpecialTokens special,
                         WriteRun(request, *family, config, text, checkpoint, plan));
  ImportReport report = MakeReport(*family, plan, request.copy);
  report.end_tokens = std::move(special.end);
  report.end_tokens_from = std::move(special.end_source);
  return report;
}

}  // namespace

absl::StatusOr<ImportReport> ImportCheckpoint(HostRuntime* runtime, const ImportRequest& request) {
  return OrOutOfMemory("the checkpoint", [&] { return Import(runtime, request); });
}

}  // namespace plumb
