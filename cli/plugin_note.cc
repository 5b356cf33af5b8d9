#include "cli/plugin_note.h"

#include "absl/strings/str_cat.h"
#include "cli/plugin_new.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

// As plumb_norm_note in plumb/norm_plugin.h has them, which tests/cli/plugin_note_test.sh compares.
constexpr int kAbiMajor = 1, kAbiMinor = 0;  // the least: a language has no header to be newer
constexpr size_t kIdBytes = 64;

}  // namespace

absl::StatusOr<std::string> NoteAssembly(const std::string& id) {
  PLUMB_RETURN_IF_ERROR(CheckId(id));
  return absl::StrCat("# The ELF note by which plumb finds the norm ", id,
                      ": assemble it (cc -c) and link it in.\n",
                      "  .section .note.plumb,\"a\",%note\n", "  .balign 4\n", "  .long 6, ",
                      8 + kIdBytes, ", 1\n", "  .asciz \"plumb\"\n", "  .balign 4\n", "  .long ",
                      kAbiMajor, ", ", kAbiMinor, "\n", "  .ascii \"", id, "\"\n", "  .zero ",
                      kIdBytes - id.size(), "\n", "  .section .note.GNU-stack,\"\",%progbits\n");
}

}  // namespace plumb::cli
