// SPDX-License-Identifier: Apache-2.0
// The data flow of a model, as a picture shows it: a small graph for what stands before the layers,
// for each kind of layer, and for what stands behind them. Values: copy, compare, print.
#ifndef PLUMB_RUNTIME_PICTURE_FLOW_H_
#define PLUMB_RUNTIME_PICTURE_FLOW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plumb {

enum class FlowKind {
  kEnter,      // a stream as it comes in at the top; in "begin", the embedding
  kLeave,      // a stream as it goes on at the bottom; in "end", the head
  kEarlier,    // an indexed name that an earlier layer or section has set
  kKeep,       // an indexed name that is set here and read elsewhere
  kNorm,       // label: its slot
  kSublayer,   // label: its name; marks: what is done inside
  kAdd,        // sum of its inputs, each with its coefficient, and of `constant`
  kMultiply,   // elementwise product of its inputs
  kGain,       // product with a learned value, the label: "gamma", "tanh(gate)"
  kFunction,   // of its inputs, elementwise, or over an index ("softmax")
  kLinear,     // a projection, the label
  kParameter,  // a learned value that is not a factor
};

std::string NumberText(double value);  // "0.333": three digits

// The values that a number takes in the layers that a picture stands for.
struct FlowNumber {
  double low = 1, high = 1;
  std::string name;  // of the `let` that has this value in all of them, or ""
  bool Is(double value) const { return low == value && high == value; }
  void Add(const FlowNumber& other);  // its values too
  std::string ToString() const;       // "alpha", "0.5", "0.29 … 1"
};

// Of a name with an index, "h[0..3]".
struct FlowIndex {
  int64_t first = 0, last = 0;
  std::string text;  // of the layers that a picture stands for, "0..layer - 1"; "": the numbers
};

struct FlowEdge {
  int from = 0;  // index of a node; edges point backwards
  FlowNumber coefficient;
  std::string label;       // "q" of attention's three inputs; a learned factor, "w[2]"
  bool is_weight = false;  // the label is a factor
  std::string place;       // of that learned value: "layers.3.attention"
};

struct FlowNode {
  FlowKind kind = FlowKind::kAdd;
  std::string label;
  std::vector<FlowEdge> inputs;
  FlowNumber constant{0, 0, ""};
  std::vector<std::string> marks;  // "q = q_norm(q)"
  std::optional<FlowIndex> index;  // of streams and names
  std::string place;               // of its parameters, which another place has others of
  std::string Name() const;        // the label with the index
};

// Nodes in the order of the data: an input comes before what reads it.
struct FlowSection {
  std::string title;  // "layers 0..11: pre"; empty before and behind the layers
  std::vector<FlowNode> nodes;
  std::string ToString() const;  // a node a line: "3 add <- 0, 0.5 * 2"
};

struct FlowPicture {
  std::string name;                   // the model's
  std::vector<std::string> streams;   // "x" and those that live beside it, as lines of the picture
  std::vector<FlowSection> sections;  // begin, kinds of layers, end
  std::string ToString() const;
};

// "embedding" where a picture begins, "head" where it ends.
inline constexpr char kEmbeddingLabel[] = "embedding";
inline constexpr char kHeadLabel[] = "head";

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_FLOW_H_
