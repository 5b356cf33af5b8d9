// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/located.h"

#include "runtime/base/check.h"

namespace plumb {
namespace {

// Returns the index to look up; a field that is not repeated has index 0.
int Position(int index) { return index < 0 ? 0 : index; }

}  // namespace

const textproto::Field& Located::GetField(const char* name) const {
  const textproto::Field* field = message_->Type().Find(name);
  PLUMB_CHECK(field != nullptr, "the schema has every field that is looked up");
  return *field;
}

SourceLocation Located::At(const char* field, int index) const {
  SourceLocation place{file_, 0, 0};
  if (locations_ == nullptr) return place;
  const textproto::Location location = locations_->At(GetField(field), Position(index));
  place.line = location.line;
  place.column = location.column;
  return place;
}

SourceText Located::GetText(const char* field, int index) const {
  return {message_->Get<std::string>(GetField(field), Position(index)), At(field, index)};
}

Located Located::Nested(const char* field, int index) const {
  const textproto::Field& nested = GetField(field);
  return Located(file_, message_->GetMessage(nested, Position(index)),
                 locations_ == nullptr ? nullptr : locations_->Nested(nested, Position(index)));
}

}  // namespace plumb
