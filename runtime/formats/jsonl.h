// SPDX-License-Identifier: Apache-2.0
// Reader of JSONL training data, one JSON object per line. There are two forms:
//
//   {"prompt": "..", "completion": ".."}   the completion is the target
//   {"text": ".."}                         a document, all of it the target
//
// Pure functions.
#ifndef PLUMB_RUNTIME_FORMATS_JSONL_H_
#define PLUMB_RUNTIME_FORMATS_JSONL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

struct Jsonl {
  // Two texts of each document, one after the other: the prompt, empty for a text; and the
  // completion, or the text, which is never empty.
  std::vector<std::string> texts;
  std::vector<size_t> places;  // offset in the file of the key of each
};

// Parses a file; lines of white space are skipped. Errors: kInvalidArgument, with `name`, line and
// column, for the first line that has neither form.
absl::StatusOr<Jsonl> ParseJsonl(absl::string_view content, const std::string& name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_JSONL_H_
