// SPDX-License-Identifier: Apache-2.0
// Fuzzes the JSON token ids of `plumb eval --tokens` and `plumb sample --prompt-tokens`.
#include "cli/eval_tokens.h"
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

PLUMB_FUZZER(tokens) {
  const MemoryFile memory(AsText(data, size));
  const auto tokens = cli::ReadTokens(memory.path());
  PLUMB_CHECK(tokens.ok() || !tokens.status().message().empty(), "an error without words");
  const auto prompts = cli::ReadPrompts(memory.path());
  PLUMB_CHECK(prompts.ok() ? !prompts->empty() : !prompts.status().message().empty(),
              "neither a prompt nor an error with words");
}

}  // namespace
}  // namespace plumb
