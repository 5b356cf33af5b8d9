#include "runtime/textproto/locations.h"

namespace plumb::textproto {

Location Locations::At(const Field& field, int index) const {
  const auto found = own_.find(field.index);
  const size_t at = static_cast<size_t>(index);
  return found == own_.end() || at >= found->second.size() ? Location() : found->second[at];
}

const Locations* Locations::Nested(const Field& field, int index) const {
  const auto found = nested_.find(field.index);
  const size_t at = static_cast<size_t>(index);
  return found == nested_.end() || at >= found->second.size() ? nullptr : &found->second[at];
}

void Locations::Add(const Field& field, Location location) {
  own_[field.index].push_back(location);
}

Locations* Locations::AddNested(const Field& field) { return &nested_[field.index].emplace_back(); }

}  // namespace plumb::textproto
