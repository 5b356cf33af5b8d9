#include "runtime/base/cgroup.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"

namespace plumb {

void ForEachCgroup(absl::string_view membership, const std::string& mount,
                   absl::string_view controller,
                   absl::FunctionRef<void(const std::string& directory, bool v2)> visit) {
  // "hierarchy:controllers:/path", where version 2 has no controllers.
  for (const absl::string_view line : absl::StrSplit(membership, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (field.size() != 3) continue;
    const bool v2 = field[1].empty();
    bool wanted = v2;
    for (const absl::string_view c : absl::StrSplit(field[1], ',')) {
      wanted = wanted || c == controller;
    }
    if (!wanted) continue;
    const std::string root = v2 ? mount : absl::StrCat(mount, "/", controller);
    for (std::string path(absl::StripSuffix(field[2], "/"));;) {
      visit(absl::StrCat(root, path), v2);
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
}

std::vector<std::string> ShortFileWords(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 1 << 16);
  if (!text.ok()) return {};
  return absl::StrSplit(*text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

}  // namespace plumb
