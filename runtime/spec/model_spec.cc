// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/model_spec.h"

#include <utility>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/schema/reader.h"
#include "runtime/spec/convert.h"

namespace plumb {

absl::StatusOr<ModelSpec> ModelSpec::FromFile(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
  return FromText(text, path);
}

absl::StatusOr<ModelSpec> ModelSpec::FromText(absl::string_view text, const std::string& file) {
  auto proto = std::make_shared<ModelProto>();
  proto->file = file;
  auto locations = std::make_shared<textproto::Locations>();
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, file, &proto->message, locations.get()));
  proto->locations = std::move(locations);
  return ModelSpec(std::move(proto));
}

absl::Status ModelSpec::Set(absl::string_view path, absl::string_view value) {
  auto changed = std::make_shared<ModelProto>(*proto_);
  PLUMB_RETURN_IF_ERROR(textproto::SetField(&changed->message, path, value));
  proto_ = std::move(changed);
  return absl::OkStatus();
}

void ModelSpec::ClearAdapter() {
  auto changed = std::make_shared<ModelProto>(*proto_);
  *changed->message.mutable_adapter() = v1::Placement();
  proto_ = std::move(changed);
}

std::string ModelSpec::ToText() const { return textproto::PrintText(proto_->message); }

const std::string& ModelSpec::file() const { return proto_->file; }

int64_t ModelSpec::vocab_size() const { return proto_->message.vocab_size(); }

}  // namespace plumb
