// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

using plumb::capi::Guard;
using plumb::capi::NullArgument;

plumb_status plumb_spec_from_file(const char* path, plumb_spec** spec, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    if (spec == nullptr) return NullArgument("spec");
    absl::StatusOr<plumb::ModelSpec> read = plumb::ModelSpec::FromFile(path);
    if (!read.ok()) return read.status();
    *spec = new plumb_spec{*std::move(read)};
    return absl::OkStatus();
  });
}

plumb_status plumb_spec_from_text(const char* text, const char* name, plumb_spec** spec,
                                  plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (text == nullptr) return NullArgument("text");
    if (spec == nullptr) return NullArgument("spec");
    absl::StatusOr<plumb::ModelSpec> read =
        plumb::ModelSpec::FromText(text, name == nullptr ? "model" : name);
    if (!read.ok()) return read.status();
    *spec = new plumb_spec{*std::move(read)};
    return absl::OkStatus();
  });
}

plumb_status plumb_spec_set(plumb_spec* spec, const char* field, const char* value,
                            plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (spec == nullptr) return NullArgument("spec");
    if (field == nullptr) return NullArgument("field");
    if (value == nullptr) return NullArgument("value");
    return spec->spec.Set(field, value);
  });
}

plumb_status plumb_spec_text(const plumb_spec* spec, char** text, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (spec == nullptr) return NullArgument("spec");
    return plumb::capi::WriteText(spec->spec.ToText(), text);
  });
}

void plumb_spec_free(plumb_spec* spec) { delete spec; }
