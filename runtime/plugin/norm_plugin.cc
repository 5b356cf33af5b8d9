// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/norm_plugin.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/plugin/elf_note.h"
#include "runtime/plugin/guarded_call.h"

namespace plumb {
namespace {

void LogFromPlugin(void* context, int32_t, const char* message) {
  if (message == nullptr) return;
  std::fprintf(stderr, "%s: %s\n", static_cast<const NormPlugin*>(context)->id().c_str(), message);
}

const void* NoExtension(void*, const char*) { return nullptr; }

}  // namespace

std::string NormPlugin::code_file() const {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(table_.create), &info) == 0) return "";
  // The name of the program itself may be relative to a directory that was left.
  const std::unique_ptr<char, decltype(&std::free)> path(realpath(info.dli_fname, nullptr),
                                                         &std::free);
  return path != nullptr ? path.get() : "/proc/self/exe";
}

absl::StatusOr<std::unique_ptr<NormPlugin>> NormPlugin::Create(const plumb_norm_plugin* table,
                                                               std::string path) {
  const std::string file = path.empty() ? "norm linked into the host" : path;
  absl::StatusOr<plumb_norm_plugin> known = ReadTable(table);
  // Names the norm in messages if its id can be read.
  std::string id;
  if (table != nullptr && PLUMB_HAS(plumb_norm_plugin, table, id)) {
    id = ReadText(table->id, "its id", kMaxNormIdLength).value_or("");
  }
  const std::string where =
      IsNormId(id) ? absl::StrCat(file, ": norm \"", id, "\" ") : absl::StrCat(file, ": a norm ");
  if (!known.ok()) return Annotate(known.status(), where);
  if (!IsNormId(id)) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, "has no proper id: [a-z][a-z0-9_]*(.[a-z0-9_]+)*, at most ",
                     kMaxNormIdLength, " characters"));
  }

  std::unique_ptr<NormPlugin> plugin(new NormPlugin());
  plugin->table_ = *known;
  plugin->id_ = std::move(id);
  plugin->path_ = std::move(path);
  if (!plugin->path_.empty()) plugin->file_hash_ = Sha256OfFile(plugin->path_);
  for (size_t i = 0; i < plugin->records_.size(); ++i) {
    plugin->records_[i] = {kNormFunctionNames[i], plugin->id_.c_str(), plugin->path_.c_str()};
  }
  const struct {
    const char* text;
    const char* what;
    std::string* to;
  } texts[] = {{known->version, "has a version that", &plugin->version_},
               {known->vendor, "has a vendor that", &plugin->vendor_},
               {known->license, "has a license that", &plugin->license_},
               {known->doc, "has a doc that", &plugin->doc_}};
  for (const auto& text : texts) {
    absl::StatusOr<std::string> read = ReadText(text.text, text.what, kMaxNormTextLength);
    if (!read.ok()) return Annotate(read.status(), where);
    *text.to = *std::move(read);
  }
  absl::StatusOr<std::vector<NormAttrSpec>> attrs = ReadAttrSchema(*known);
  if (!attrs.ok()) return Annotate(attrs.status(), where);
  plugin->attrs_ = *std::move(attrs);
  plugin->host_ = {
      sizeof(plumb_host), PLUMB_NORM_ABI_MINOR, plugin.get(), LogFromPlugin, NoExtension, 0, 0};

  if (known->available != nullptr) {
    ErrorText error;
    plumb_status code = PLUMB_OK;
    PLUMB_RETURN_IF_ERROR(Annotate(
        Guarded("available", [&] { code = known->available(error.text, sizeof(error.text)); }),
        where));
    if (code != PLUMB_OK) {
      return absl::FailedPreconditionError(
          absl::StrCat(where, "is not available here: ", FromPlugin(code, error.view()).message()));
    }
  }
  absl::StatusOr<plumb_norm_residual> residual = ReadResidual(*known);
  if (!residual.ok()) return Annotate(residual.status(), where);
  plugin->residual_ = *residual;
  absl::StatusOr<plumb_norm_combine> combine = ReadCombine(*known);
  if (!combine.ok()) return Annotate(combine.status(), where);
  plugin->combine_ = *combine;
  absl::StatusOr<plumb_norm_instance_extensions> of_instance = ReadInstanceExtensions(*known);
  if (!of_instance.ok()) return Annotate(of_instance.status(), where);
  plugin->of_instance_ = *of_instance;
  return plugin;
}

}  // namespace plumb
