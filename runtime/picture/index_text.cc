#include "runtime/picture/index_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

// a * layer + b, or "..." for values that are not of that form.
std::string Linear(const std::vector<int64_t>& layers, const std::vector<int64_t>& values) {
  const auto all_are = [&](int64_t a, int64_t b) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (values[i] != a * (layers[i] + 1) + b) return false;
    }
    return true;
  };
  if (all_are(0, values[0])) return absl::StrCat(values[0]);
  if (layers.size() < 2 || layers[1] == layers[0]) return "...";
  const int64_t a = (values[1] - values[0]) / (layers[1] - layers[0]);
  const int64_t b = values[0] - a * (layers[0] + 1);
  if (a == 0 || !all_are(a, b)) return "...";
  const std::string of_layer = a == 1 ? "layer" : absl::StrCat(a, " * layer");
  if (a < 0) return a == -1 ? absl::StrCat(b, " - layer") : absl::StrCat(b, " - ", -a, " * layer");
  if (b == 0) return of_layer;
  return absl::StrCat(of_layer, b < 0 ? " - " : " + ", b < 0 ? -b : b);
}

}  // namespace

std::string IndexText(const std::vector<int64_t>& layers, const std::vector<FlowIndex>& indices) {
  std::vector<int64_t> firsts, lasts;
  for (const FlowIndex& index : indices) {
    firsts.push_back(index.first);
    lasts.push_back(index.last);
  }
  const std::string first = Linear(layers, firsts), last = Linear(layers, lasts);
  if (first == last) return first;
  return first == "..." || last == "..." ? "..." : absl::StrCat(first, "..", last);
}

}  // namespace plumb
