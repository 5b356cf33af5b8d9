// SPDX-License-Identifier: Apache-2.0
// Data flow of a model as a picture shows it: a small graph for what precedes the layers, one per
// kind of layer, and one for what follows them. Values: copy, compare, print.
#ifndef PLUMB_RUNTIME_PICTURE_FLOW_H_
#define PLUMB_RUNTIME_PICTURE_FLOW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plumb {

enum class FlowKind {
  kEnter,      // a stream at the top of a section; in "begin", the embedding
  kLeave,      // a stream at the bottom of a section; in "end", the head
  kEarlier,    // an indexed name set in an earlier layer or section
  kKeep,       // an indexed name set here and read elsewhere
  kNorm,       // label: the slot
  kSublayer,   // label: the name; marks: statements and fields inside
  kAdd,        // sum of the inputs, each with its coefficient, and of `constant`
  kMultiply,   // elementwise product of the inputs
  kGain,       // product with a learned value, which is the label: "gamma", "tanh(gate)"
  kFunction,   // function of the inputs, elementwise or over an index ("softmax")
  kLinear,     // projection, which is the label
  kParameter,  // learned value that is not a factor
};

std::string NumberText(double value);  // "0.333": three significant digits

// Range of a number over the layers that a picture represents.
struct FlowNumber {
  double low = 1, high = 1;
  std::string name;  // name of the `let` with this value in all of these layers, or ""
  bool Is(double value) const { return low == value && high == value; }
  void Add(const FlowNumber& other);  // extends the range by that of `other`
  std::string ToString() const;       // "alpha", "0.5", "0.29 … 1"
};

// Index of a name: "h[0..3]".
struct FlowIndex {
  int64_t first = 0, last = 0;
  std::string text;  // for several layers, "0..layer - 1"; "": use the numbers
};

struct FlowEdge {
  int from = 0;  // index of an earlier node
  FlowNumber coefficient;
  // "q", "k" or "v" for attention with three inputs; "v" for a value from inside the sublayer
  // `from`, "v → hidden" if it goes into a sublayer; a learned factor, "w[2]".
  std::string label;
  bool is_weight = false;    // the label is a factor
  bool from_inside = false;  // takes a value from inside the sublayer, not its output
  std::string place;         // place of that learned value: "layers.3.attention"
};

struct FlowNode {
  FlowKind kind = FlowKind::kAdd;
  std::string label;
  std::vector<FlowEdge> inputs;
  FlowNumber constant{0, 0, ""};
  std::vector<std::string> marks;  // "q = q_norm(q)"
  std::optional<FlowIndex> index;  // for streams and names
  std::string place;               // place of the parameters, which differ between places
  std::string Name() const;        // the label with the index
};

// Graph in topological order: inputs precede their readers.
struct FlowSection {
  std::string title;  // "layers 0..11: pre"; empty before and after the layers
  std::vector<FlowNode> nodes;
  std::string ToString() const;  // one node per line: "3 add <- 0, 0.5 * 2"
};

struct FlowPicture {
  std::string name;                   // name of the model
  std::vector<std::string> streams;   // "x" and the other streams, which are lines of the picture
  std::vector<FlowSection> sections;  // begin, kinds of layers, end
  std::string ToString() const;
};

// Label of the first node, "embedding", and of the last, "head".
inline constexpr char kEmbeddingLabel[] = "embedding";
inline constexpr char kHeadLabel[] = "head";

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_FLOW_H_
