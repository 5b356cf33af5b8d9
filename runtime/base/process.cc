// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/process.h"

#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <climits>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace plumb {

std::string ProcessorName() {
  const std::string text = ReadSystemFile("/proc/cpuinfo");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

std::string LibcVersion() {
  char version[64] = "";
  const size_t size = confstr(_CS_GNU_LIBC_VERSION, version, sizeof(version));
  return size > 0 && size <= sizeof(version) ? version : "";
}

std::string HugePages() {
  // The file contains, for example, "always [madvise] never".
  const std::string text = ReadSystemFile("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return text.substr(begin + 1, end - begin - 1);
}

std::string CurrentDirectory() {
  char path[PATH_MAX];
  return getcwd(path, sizeof(path)) != nullptr ? path : "";
}

int64_t StackLimit() {
  struct rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) != 0) return -1;
  constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  if (stack.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return static_cast<int64_t>(std::min<rlim_t>(stack.rlim_cur, kUnlimited));
}

std::vector<std::string> MappedLibraries() {
  std::vector<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        // The name of the program itself is empty.
        if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
          static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &files);
  return files;
}

FloatingPoint CallersFloatingPoint() {
  FloatingPoint found;
  switch (std::fegetround()) {
    case FE_UPWARD:
      found.rounding = "upward";
      break;
    case FE_DOWNWARD:
      found.rounding = "downward";
      break;
    case FE_TOWARDZERO:
      found.rounding = "toward zero";
      break;
    default:
      found.rounding = "nearest";
  }
#if defined(__SSE2__)
  constexpr unsigned kDenormalsAreZero = 1u << 6, kFlushToZero = 1u << 15;
  found.flush_to_zero = (_mm_getcsr() & kFlushToZero) != 0;
  found.denormals_are_zero = (_mm_getcsr() & kDenormalsAreZero) != 0;
#endif
  return found;
}

std::vector<std::pair<std::string, std::string>> Environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::pair<absl::string_view, absl::string_view> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    variables.emplace_back(variable.first, variable.second);
  }
  return variables;
}

}  // namespace plumb
