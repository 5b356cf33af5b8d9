#include "runtime/tools/norm_files.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/io/hash.h"
#include "runtime/tools/file.h"
#include "runtime/tools/handles.h"

namespace plumb {

absl::StatusOr<std::string> NormFilesText(HostRuntime* runtime, const plumb_model* model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string norms, TextOf(plumb_model_norms, model));
  const nlohmann::json versions = nlohmann::json::parse(norms);
  std::string text;
  for (const auto& [id, version] : versions.items()) {
    PLUMB_ASSIGN_OR_RETURN(const PluginInfo plugin, runtime->DescribePlugin(id));
    absl::StrAppend(&text, id, " ", version.dump());
    if (!plugin.path.empty()) {
      PLUMB_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(plugin.path, int64_t{1} << 30));
      absl::StrAppend(&text, ", a file of hash ", HexDigits(ContentHash(bytes)));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace plumb
