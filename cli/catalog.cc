// SPDX-License-Identifier: Apache-2.0
#include "cli/catalog.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/help.h"
#include "runtime/base/status.h"
#include "runtime/client/host_runtime.h"

namespace plumb::cli {
namespace {

void AppendParameters(const char* title, const Json& parameters, std::string* text) {
  if (!parameters.empty()) absl::StrAppend(text, title, "\n");
  for (const Json& parameter : parameters) {
    const std::string name = parameter["name"], doc = parameter["doc"];
    const double offset = parameter["offset"];
    absl::StrAppend(text, "  ", name, " ", parameter["shape"].get<std::string>(), ", initially ",
                    parameter["init"].get<std::string>());
    if (offset != 0) absl::StrAppend(text, ", used as ", offset, " + ", name);
    absl::StrAppend(text, doc.empty() ? "" : "\n    ", doc, "\n");
  }
}

// Name and description of a placement or a norm.
struct Entry {
  std::string name, about;
};

// Returns the text up to the end of its first clause; a point in "(v - k . x)" ends none.
absl::string_view FirstClause(absl::string_view text) {
  int depth = 0;  // of parentheses
  for (size_t i = 1; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    const absl::string_view two = text.substr(i, 2);
    const bool ends = (two == ". " || two == "; ") && text[i - 1] != ' ';
    if (ends && depth <= 0) return text.substr(0, i);
  }
  return text;
}

// Returns the entries in two columns, filled to the width of the terminal.
std::string Columns(const std::vector<Entry>& entries) {
  size_t column = 0;
  for (const Entry& entry : entries) column = std::max(column, entry.name.size() + 4);
  const auto columns = static_cast<size_t>(TerminalColumns(STDOUT_FILENO));
  std::string text;
  for (const Entry& entry : entries) {
    absl::StrAppend(&text, "  ", entry.name, std::string(column - 2 - entry.name.size(), ' '),
                    FillText(FirstClause(entry.about), column, columns), "\n");
  }
  return text;
}

absl::StatusOr<Json> DescribeNorm(const std::string& id, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ToStatus(runtime->api().DescribePlugin(id)));
  return Json::parse(text);
}

// Returns the ids of the norms that can be used, sorted.
std::vector<std::string> NormIds(const HostRuntime& runtime) {
  std::vector<std::string> ids;
  for (const Json& norm : ListNorms(Json::parse(runtime.DescribeJson()))) {
    const auto& id = norm["id"].get_ref<const std::string&>();
    const bool is_usable = norm["problem"].get_ref<const std::string&>().empty();
    if (is_usable && !id.empty()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::vector<Json> ListNorms(const Json& report) {
  std::vector<Json> loaded, files;
  const auto add = [&](const Json& norms) {
    for (const Json& norm : norms) {
      (norm["version"].is_null() ? files : loaded)
          .push_back({{"id", norm["id"].is_null() ? "" : norm["id"]},
                      {"path", norm["file"].is_null() ? "" : norm["file"]},
                      {"problem", norm["problem"].is_null() ? "" : norm["problem"]}});
    }
  };
  add(report["plugins"]["others"]);
  for (const Json& directory : report["plugins"]["directories"]) add(directory["norms"]);
  std::sort(loaded.begin(), loaded.end(),
            [](const Json& a, const Json& b) { return a["id"] < b["id"]; });
  loaded.insert(loaded.end(), files.begin(), files.end());
  return loaded;
}

std::string NormText(const Json& norm) {
  std::string text =
      absl::StrCat(norm["id"].get<std::string>(), " ", norm["version"].get<std::string>(), "\n");
  const std::string about = norm["doc"], path = norm["path"];
  if (!about.empty()) absl::StrAppend(&text, "  ", about, "\n");
  const auto field = [&text](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&text, "  ", name, ": ", value, "\n");
  };
  const auto list = [](const Json& words) {
    return absl::StrJoin(words.get<std::vector<std::string>>(), ", ");
  };
  field("vendor", norm["vendor"]);
  field("license", norm["license"]);
  field("file", path.empty() ? "(linked in)" : path);
  field("traits", list(norm["traits"]));
  field("element types", list(norm["dtypes"]));
  if (!norm["attributes"].empty()) absl::StrAppend(&text, "attributes\n");
  for (const Json& attribute : norm["attributes"]) {
    const std::string range = attribute["range"], doc = attribute["doc"];
    const std::string type = attribute["type"];
    absl::StrAppend(&text, "  ", attribute["name"].get<std::string>(), ": ",
                    type == "enum" ? absl::StrCat("one of ", list(attribute["choices"])) : type);
    if (!range.empty()) absl::StrAppend(&text, " ", range);
    absl::StrAppend(&text,
                    attribute["required"]
                        ? ", required"
                        : absl::StrCat(", default ", attribute["default"].get<std::string>()));
    absl::StrAppend(&text, doc.empty() ? "" : "\n    ", doc, "\n");
  }
  AppendParameters("parameters", norm["parameters"], &text);
  AppendParameters("buffers (kept from training for evaluation, not trained)", norm["buffers"],
                   &text);
  absl::StrAppend(&text, "in a model\n");
  for (const absl::string_view line :
       absl::StrSplit(norm["example"].get_ref<const std::string&>(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  return text;
}

absl::StatusOr<std::string> PlacementsHelp(const std::string& name, HostRuntime* runtime) {
  if (!name.empty()) {
    PLUMB_ASSIGN_OR_RETURN(const InstalledPlacement placement, FindPlacement(*runtime, name));
    return absl::StrCat("# ", placement.path, "\n", placement.text);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<InstalledPlacement> placements,
                         ListPlacements(*runtime));
  std::vector<Entry> entries;
  for (const InstalledPlacement& placement : placements) {
    entries.push_back({placement.name, placement.doc});
  }
  return absl::StrCat("Placements, which a model names in block { placement: \"NAME\" }:\n\n",
                      Columns(entries),
                      "\nplumb help placements NAME prints the formulas of one, and "
                      "plumb docs\nplacements shows how to write another.\n");
}

absl::StatusOr<std::string> NormsHelp(const std::string& name, HostRuntime* runtime) {
  if (!name.empty()) {
    PLUMB_ASSIGN_OR_RETURN(const Json norm, DescribeNorm(name, runtime));
    return NormText(norm);
  }
  std::vector<Entry> entries;
  for (const std::string& id : NormIds(*runtime)) {
    PLUMB_ASSIGN_OR_RETURN(const Json norm, DescribeNorm(id, runtime));
    entries.push_back({id, norm["doc"]});
  }
  return absl::StrCat("Norms, which a model names in norm { name: \"n\" plugin: \"NAME\" }:\n\n",
                      Columns(entries),
                      "\nplumb help norms NAME prints the attributes and parameters of one, and\n"
                      "plumb docs first-norm shows how to write another.\n");
}

}  // namespace plumb::cli
