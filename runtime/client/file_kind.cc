// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/file_kind.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/study.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

// Returns the number of fields of the message that the text sets.
template <class Message>
int64_t KnownFields(absl::string_view text) {
  Message message;
  textproto::Locations locations;
  // Fields before the first error count, and unknown ones are skipped.
  textproto::ReadText(text, "", &message, &locations).IgnoreError();
  const auto& fields = message.Type().fields;
  return std::count_if(fields.begin(), fields.end(), [&message](const textproto::Field& field) {
    return message.Size(field) > 0;
  });
}

int64_t KnownFields(FileKind kind, absl::string_view text) {
  switch (kind) {
    case FileKind::kModel:
      return KnownFields<v1::Model>(text);
    case FileKind::kRecipe:
      return KnownFields<v1::Train>(text);
    case FileKind::kStudy:
      break;
  }
  return KnownFields<v1::Study>(text);
}

absl::string_view KindName(FileKind kind) {
  switch (kind) {
    case FileKind::kModel:
      return "model";
    case FileKind::kRecipe:
      return "recipe";
    case FileKind::kStudy:
      break;
  }
  return "study";
}

std::string HowToGive(FileKind kind, const std::string& file) {
  switch (kind) {
    case FileKind::kModel:
      return "give it as MODEL, without an option";
    case FileKind::kRecipe:
      return absl::StrCat("give it with --train ", file, ", and the model as MODEL");
    case FileKind::kStudy:
      break;
  }
  return absl::StrCat("run it with plumb compare ", file, " --out DIR");
}

}  // namespace

FileKind LikelyFileKind(FileKind expected, absl::string_view text) {
  FileKind likely = expected;
  int64_t most = KnownFields(expected, text);
  for (const FileKind kind : {FileKind::kModel, FileKind::kRecipe, FileKind::kStudy}) {
    const int64_t fields = KnownFields(kind, text);
    if (fields <= most) continue;
    likely = kind;
    most = fields;
  }
  return likely;
}

absl::Status ExplainFileKind(FileKind expected, absl::string_view text, const std::string& file,
                             const absl::Status& error) {
  const FileKind likely = LikelyFileKind(expected, text);
  if (likely == expected) return error;
  return absl::InvalidArgumentError(absl::StrCat(file, ": is a ", KindName(likely), ", not a ",
                                                 KindName(expected), "; ",
                                                 HowToGive(likely, file)));
}

}  // namespace plumb
