#include "runtime/model/shared_layers.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plumb {
namespace {

// The layer of "layers.3.attention", and where the rest of the name begins; -1 outside of layers.
int64_t LayerOfName(const std::string& name, size_t* rest) {
  absl::string_view number = name;
  if (!absl::ConsumePrefix(&number, "layers.")) return -1;
  number = number.substr(0, number.find('.'));
  int64_t layer = 0;
  if (!absl::SimpleAtoi(number, &layer)) return -1;
  *rest = static_cast<size_t>(number.data() - name.data()) + number.size();
  return layer;
}

}  // namespace

std::string SharedLayers::NameOf(const std::string& name, bool is_weight) const {
  size_t rest = 0;
  const int64_t layer = LayerOfName(name, &rest);
  if (layer < 0) return name;
  const size_t index = static_cast<size_t>(layer);
  if (!is_weight && model_.layers[index]->own_norms) return name;
  return absl::StrCat("layers.", model_.first_layers[index], name.substr(rest));
}

}  // namespace plumb
