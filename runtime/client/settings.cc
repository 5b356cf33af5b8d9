// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/settings.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/schema/field_names.h"

namespace plumb {
namespace {

// Returns the setting that is called `name` without its prefix, or elsewhere; "" if there is none.
std::string SettingCalled(const std::string& name) {
  if (std::string path = textproto::SettingNamedElsewhere(name); !path.empty()) return path;
  if (v1::Model().Type().Find(name) != nullptr) return absl::StrCat("model.", name);
  if (v1::Train().Type().Find(name) != nullptr) return absl::StrCat("train.", name);
  return "";
}

}  // namespace

absl::Status CheckSetting(const std::string& path) {
  const size_t dot = path.find('.');
  const std::string prefix = path.substr(0, dot);
  if (dot != std::string::npos && (prefix == "model" || prefix == "train")) {
    const std::string name = path.substr(dot + 1, path.find_first_of(".[", dot + 1) - dot - 1);
    const auto& type = prefix == "model" ? v1::Model().Type() : v1::Train().Type();
    const std::string called = SettingCalled(name);
    if (type.Find(name) != nullptr || called.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(type.name, " has no field \"", name, "\"; did you mean \"", called, "\"?"));
  }
  std::string suggestion;
  if (dot != std::string::npos) {
    suggestion = DidYouMean(prefix, {"model", "train"});
  } else if (const std::string called = SettingCalled(path); !called.empty()) {
    suggestion = absl::StrCat("; did you mean \"", called, "\"?");
  } else {
    suggestion = textproto::SuggestField(v1::Model().Type(), path);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", path, "\": a setting begins with \"model.\" or \"train.\"", suggestion));
}

absl::StatusOr<Settings> ParseSettings(const std::vector<std::string>& assignments) {
  Settings settings;
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set ", assignment, ": no \"=\"; write it like --set train.max_steps=200"));
    }
    const std::string field = assignment.substr(0, equals);
    const std::string value = assignment.substr(equals + 1);
    PLUMB_RETURN_IF_ERROR(Annotate(CheckSetting(field), absl::StrCat("--set ", assignment, ": ")));
    const bool is_of_model = absl::StartsWith(field, "model.");
    (is_of_model ? settings.model : settings.train)
        .emplace_back(field.substr(field.find('.') + 1), value);
  }
  return settings;
}

}  // namespace plumb
