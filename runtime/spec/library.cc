// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/library.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

// Limits for recursion. A longer chain is assumed to be made by a program to exhaust the stack.
constexpr size_t kMaxImportDepth = 64;
constexpr size_t kMaxExtendsDepth = 64;

// Returns the path of an import: "./lib.pbtxt" is shown as the user wrote it, "lib.pbtxt".
std::string ImportPath(const std::string& importer, const std::string& import) {
  const std::string directory = ParentDirectory(importer);
  return directory == "." ? import : JoinPath(directory, import);
}

// Returns one name for a file, however its path is spelled.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::string canonical = std::filesystem::weakly_canonical(path, error).string();
  return error ? path : canonical;
}

// Returns true if the name is no path, since names become file names of shipped placements.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

absl::Status BadName(const Located& at, const char* field, int index, const std::string& name) {
  return ErrorAt(at.At(field, index), absl::StrCat(field, ": \"", name,
                                                   "\" is not a name; use "
                                                   "letters, digits, \"_\", \"-\" and \".\""));
}

}  // namespace

template <class Message>
absl::Status NameTable::AddNames(const Message& message, const Located& at) {
  // The first file that defines a name wins. Within one file a name may be defined only once.
  std::set<std::string> norms, placements;
  for (int i = 0; i < message.norm_size(); ++i) {
    const std::string& name = message.norm(i).name();
    if (!IsPlainName(name)) return BadName(at, "norm", i, name);
    if (!norms.insert(name).second) {
      return ErrorAt(at.At("norm", i), absl::StrCat("norm \"", name, "\" is defined twice"));
    }
    norms_.insert({name, NormEntry{&message.norm(i), at.Nested("norm", i)}});
  }
  for (int i = 0; i < message.placement_size(); ++i) {
    const std::string& name = message.placement(i).name();
    if (!IsPlainName(name)) return BadName(at, "placement", i, name);
    if (!placements.insert(name).second) {
      return ErrorAt(at.At("placement", i),
                     absl::StrCat("placement \"", name, "\" is defined twice"));
    }
    placements_.insert({name, PlacementEntry{&message.placement(i), at.Nested("placement", i)}});
  }
  return absl::OkStatus();
}

absl::StatusOr<const NameTable::File*> NameTable::ParseLibrary(const std::string& path,
                                                               const std::string& text) {
  File& file = files_.emplace_back();
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, path, &file.message, &file.locations));
  return &file;
}

template <class Message>
absl::Status NameTable::ReadImports(const Message& message, const Located& at,
                                    std::vector<std::string>* stack) {
  for (int i = 0; i < message.import_size(); ++i) {
    if (message.import(i).empty())
      return ErrorAt(at.At("import", i), "import: names no file; write import: \"FILE.pbtxt\"");
    const std::string path = ImportPath(at.file(), message.import(i));
    const std::string canonical = Canonical(path);
    const bool cycle =
        std::any_of(stack->begin(), stack->end(),
                    [&canonical](const std::string& s) { return Canonical(s) == canonical; });
    if (cycle) {
      return ErrorAt(
          at.At("import", i),
          absl::StrCat("a cycle of imports: ", absl::StrJoin(*stack, " -> "), " -> ", path));
    }
    if (stack->size() > kMaxImportDepth) {
      return ErrorAt(at.At("import", i), "imports nest too deeply");
    }
    if (!imported_.insert(canonical).second) continue;
    const absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
    if (!text.ok()) {
      return ErrorAt(at.At("import", i), absl::StrCat("import: ", text.status().message()));
    }
    PLUMB_ASSIGN_OR_RETURN(const File* file, ParseLibrary(path, *text));
    const Located here(path, file->message, &file->locations);
    PLUMB_RETURN_IF_ERROR(AddNames(file->message, here));
    stack->push_back(path);
    PLUMB_RETURN_IF_ERROR(ReadImports(file->message, here, stack));
    stack->pop_back();
  }
  return absl::OkStatus();
}

absl::Status NameTable::AddModel(const ModelProto& model) {
  const Located at = model.located();
  PLUMB_RETURN_IF_ERROR(AddNames(model.message, at));
  std::vector<std::string> stack = {model.file};
  return ReadImports(model.message, at, &stack);
}

const NameTable::NormEntry* NameTable::FindNorm(const std::string& name) const {
  const auto it = norms_.find(name);
  return it == norms_.end() ? nullptr : &it->second;
}

std::vector<std::string> NameTable::NormNames() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : norms_) names.push_back(name);
  return names;
}

std::vector<std::string> NameTable::PlacementNames() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : placements_) names.push_back(name);
  for (const std::string& directory : shipped_) {
    absl::StatusOr<std::vector<std::string>> files = ListDirectory(directory);
    if (!files.ok()) continue;
    for (absl::string_view file : *files) {
      if (absl::ConsumeSuffix(&file, ".pbtxt")) names.push_back(std::string(file));
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

absl::StatusOr<const NameTable::PlacementEntry*> NameTable::FindPlacement(
    const std::string& name, const SourceLocation& at) {
  if (const auto it = placements_.find(name); it != placements_.end()) return &it->second;
  for (const std::string& directory : shipped_) {
    std::string path = JoinPath(directory, absl::StrCat(name, ".pbtxt"));
    if (!FileExists(path)) {
      path = JoinPath(ParentDirectory(directory), absl::StrCat("adapters/", name, ".pbtxt"));
    }
    if (!IsPlainName(name) || !FileExists(path)) continue;
    PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
    PLUMB_ASSIGN_OR_RETURN(const File* file, ParseLibrary(path, text));
    PLUMB_RETURN_IF_ERROR(AddNames(file->message, Located(path, file->message, &file->locations)));
    if (const auto it = placements_.find(name); it != placements_.end()) return &it->second;
    return ErrorAt({path, 0, 0}, absl::StrCat("does not define the placement \"", name, "\""));
  }
  const std::vector<std::string> known = PlacementNames();
  if (known.empty()) {
    return ErrorAt(
        at, absl::StrCat("unknown placement \"", name, "\"\n  no placements were found in ",
                         shipped_.empty() ? "any directory" : absl::StrJoin(shipped_, ", "),
                         ": set their directories in PLUMB_PLACEMENT_PATH or in the program"));
  }
  std::string hint = DidYouMean(name, known);
  if (hint.empty() && !name.empty()) {
    std::vector<std::string> related;
    for (const std::string& other : known) {
      if (absl::StrContains(other, name)) related.push_back(other);
    }
    if (!related.empty()) hint = absl::StrCat("; names with it: ", absl::StrJoin(related, ", "));
  }
  const std::string file = absl::StrCat(name, ".pbtxt");
  if (IsPlainName(name) && FileExists(ImportPath(at.file, file))) {
    hint =
        absl::StrCat("; if it is that of the file next to the model, add import: \"", file, "\"");
  }
  return ErrorAt(
      at, absl::StrCat("unknown placement \"", name, "\"", hint,
                       "\n  plumb help placements lists the ", known.size(), " that are known",
                       "\n  plumb docs placements has their equations, and how to write another"));
}

absl::StatusOr<std::shared_ptr<const PlacementSpec>> NameTable::Build(
    const std::string& name, const SourceLocation& at, std::vector<std::string>* stack) {
  if (const auto it = built_.find(name); it != built_.end()) return it->second;
  if (std::find(stack->begin(), stack->end(), name) != stack->end()) {
    return ErrorAt(
        at, absl::StrCat("a cycle of extends: ", absl::StrJoin(*stack, " -> "), " -> ", name));
  }
  if (stack->size() > kMaxExtendsDepth) return ErrorAt(at, "extends nests too deeply");
  PLUMB_ASSIGN_OR_RETURN(const PlacementEntry* entry, FindPlacement(name, at));
  std::shared_ptr<const PlacementSpec> base;
  if (!entry->message->extends().empty()) {
    stack->push_back(name);
    PLUMB_ASSIGN_OR_RETURN(base, Build(entry->message->extends(), entry->at.At("extends"), stack));
    stack->pop_back();
  }
  PLUMB_ASSIGN_OR_RETURN(PlacementSpec spec, ToPlacement(*entry->message, entry->at, base.get()));
  used_.push_back(entry->message);
  return built_[name] = std::make_shared<const PlacementSpec>(std::move(spec));
}

absl::StatusOr<std::shared_ptr<const PlacementSpec>> NameTable::Placement(
    const std::string& name, const SourceLocation& at) {
  std::vector<std::string> stack;
  return Build(name, at, &stack);
}

}  // namespace plumb
