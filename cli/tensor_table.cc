#include "cli/tensor_table.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

constexpr char kLayers[] = "layers.";

// A line of the table: one tensor, or the same one of several layers.
struct Line {
  const TensorInfo* tensor;     // the first
  std::vector<int64_t> layers;  // empty: outside the layers
  std::string rest;             // "attention.q.weight"
  int64_t elements = 0;         // of all of them
};

// "layers.3.attention.q.weight" -> 3, "attention.q.weight".
bool SplitLayer(absl::string_view name, int64_t* layer, std::string* rest) {
  if (!absl::StartsWith(name, kLayers)) return false;
  name.remove_prefix(sizeof(kLayers) - 1);
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dot), layer)) return false;
  *rest = std::string(name.substr(dot + 1));
  return true;
}

// "0..7", "0,2,4", "0..2,5".
std::string Ranges(const std::vector<int64_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (i > 0) absl::StrAppend(&text, ",");
    absl::StrAppend(&text, layers[i]);
    if (end - i > 1) absl::StrAppend(&text, "..", layers[end - 1]);
    i = end;
  }
  return text;
}

std::vector<Line> Collapse(const std::vector<TensorInfo>& tensors) {
  using Key = std::tuple<std::string, std::vector<int64_t>, std::string, std::string, std::string>;
  std::map<Key, size_t> line_of;
  std::vector<Line> lines;
  for (const TensorInfo& tensor : tensors) {
    Line line{&tensor, {}, "", tensor.elements};
    int64_t layer = 0;
    if (!SplitLayer(tensor.name, &layer, &line.rest)) {
      lines.push_back(std::move(line));
      continue;
    }
    const Key key{line.rest, tensor.shape, tensor.dtype, tensor.init, tensor.role};
    const auto [it, is_new] = line_of.emplace(key, lines.size());
    if (is_new) {
      line.layers = {layer};
      lines.push_back(std::move(line));
    } else {
      lines[it->second].layers.push_back(layer);
      lines[it->second].elements += tensor.elements;
    }
  }
  return lines;
}

using Cells = std::array<std::string, 5>;

Cells ToCells(const Line& line) {
  const TensorInfo& tensor = *line.tensor;
  std::string name = tensor.name;
  std::string shape = ShapeText(tensor.shape);
  if (!line.layers.empty()) name = absl::StrCat(kLayers, Ranges(line.layers), ".", line.rest);
  if (line.layers.size() > 1) absl::StrAppend(&shape, " x ", line.layers.size());
  return {name, shape, tensor.role, tensor.init, WithCommas(line.elements)};
}

}  // namespace

std::string TensorTable(const std::vector<TensorInfo>& tensors) {
  std::vector<Cells> rows;
  for (const Line& line : Collapse(tensors)) rows.push_back(ToCells(line));
  std::array<size_t, 5> width = {};
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(width[i] - row[i].size(), ' ');
      const bool is_number = i + 1 == row.size();
      absl::StrAppend(&text, "  ", is_number ? padding : "", row[i], is_number ? "\n" : padding);
    }
  }
  return text;
}

}  // namespace plumb::cli
