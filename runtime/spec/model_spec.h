// SPDX-License-Identifier: Apache-2.0
// ModelSpec: model description as its author wrote it: text with locations, before any name is
// resolved. A value whose copies share the text.
#ifndef PLUMB_RUNTIME_SPEC_MODEL_SPEC_H_
#define PLUMB_RUNTIME_SPEC_MODEL_SPEC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

struct ModelProto;  // the message and its locations, see spec/convert.h

class ModelSpec {
 public:
  // Reads a file in protobuf text format, schema plumb.v1.Model. Errors have locations: all unknown
  // fields up to the first other syntax error.
  static absl::StatusOr<ModelSpec> FromFile(const std::string& path);
  // Parses `text`. `file` names it in errors, and imports are relative to it.
  static absl::StatusOr<ModelSpec> FromText(absl::string_view text, const std::string& file);

  // Sets one field by its path: Set("n_layer", "8"), Set("norm[0].attr[0].number", "1e-6").
  absl::Status Set(absl::string_view path, absl::string_view value);

  void ClearAdapter();

  std::string ToText() const;
  const std::string& file() const;
  int64_t vocab_size() const;  // 0: not set

  const ModelProto& proto() const { return *proto_; }

 private:
  explicit ModelSpec(std::shared_ptr<const ModelProto> proto) : proto_(std::move(proto)) {}
  std::shared_ptr<const ModelProto> proto_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_MODEL_SPEC_H_
