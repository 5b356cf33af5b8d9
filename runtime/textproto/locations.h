// Locations: where in a text the fields of a message stood. A value.
#ifndef PLUMB_RUNTIME_TEXTPROTO_LOCATIONS_H_
#define PLUMB_RUNTIME_TEXTPROTO_LOCATIONS_H_

#include <map>
#include <vector>

#include "runtime/textproto/schema.h"

namespace plumb::textproto {

// From 1; a column is a byte, or the way to the next multiple of 8 for a tab. 0: not in the text.
struct Location {
  int line = 0;
  int column = 0;
};

class Locations {
 public:
  // Of the field's name; of an element in a list "[...]", of the element.
  Location At(const Field& field, int index) const;
  // Of a nested message; null: not in the text.
  const Locations* Nested(const Field& field, int index) const;

  // Of the field's next element, in the order of the text.
  void Add(const Field& field, Location location);
  // Valid until the next call for this message.
  Locations* AddNested(const Field& field);

 private:
  std::map<int, std::vector<Location>> own_;  // by Field::index
  std::map<int, std::vector<Locations>> nested_;
};

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_TEXTPROTO_LOCATIONS_H_
