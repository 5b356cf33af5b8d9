// SPDX-License-Identifier: Apache-2.0
#include "tests/model/random_placement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

class Writer {
 public:
  explicit Writer(uint64_t seed) : stream_(seed, "random placement") {}

  std::string Model() {
    gated_ = Chance(3);
    std::string text =
        absl::StrCat("n_layer: ", 1 + Below(3), " n_head: 2 n_kv_head: ", 1 + Below(2),
                     " d_model: 8 d_ff: \"12\" vocab_size: 5 context_length: 4\n",
                     Chance(2) ? "positions { kind: ROPE }\n" : "",
                     gated_ ? "mlp { gated: true }\n" : "", "placement {\n  name: \"p\"\n");
    Declarations();
    wiring_ = static_cast<Wiring>(Below(4));
    const std::string sublayers = Sublayers();
    Body();
    Insides();
    if (Chance(3)) Damage(&lines_[Below(lines_.size())]);
    for (const std::string& line : lines_) absl::StrAppend(&text, "  ", line, "\n");
    absl::StrAppend(&text, "}\nblock { placement: \"p\" norm: \"",
                    Pick({"rms_norm", "layer_norm", "none"}), "\"", sublayers, " }\n");
    return text;
  }

 private:
  // Wiring of the layers, beyond the residual stream.
  enum class Wiring { kPlain, kSecondStream, kManyStreams, kAllLayers };

  size_t Below(size_t n) { return stream_.Below(draw_++, n); }
  bool Chance(size_t one_in) { return Below(one_in) == 0; }
  std::string Pick(const std::vector<std::string>& choices) {
    return choices[Below(choices.size())];
  }

  void Add(const std::string& field, const std::string& statement) {
    lines_.push_back(absl::StrCat(field, ": \"", statement, "\""));
  }

  void Declarations() {
    if (Chance(2)) Add("let", absl::StrCat("c = ", Number(2, false)));
    has_let_ = !lines_.empty();
    lines_.push_back(absl::StrCat("learned { name: \"g\" init: 0.5",
                                  Chance(2) ? " per_channel: true" : "", " }"));
    lines_.push_back(absl::StrCat("learned { name: \"w\" index: \"k = 0..3\" init_expression: \"",
                                  Pick({"k == 1", "1 / (k + 1)", "k"}), "\" }"));
    if (Chance(3))
      lines_.push_back("learned { name: \"r\" index: \"i = 0..1\" index: \"j = 0..1\" init: 0 }");
    has_square_ = lines_.back().find("\"r\"") != std::string::npos;
    lines_.push_back("linear { name: \"proj\" }");
    lines_.push_back(absl::StrCat("linear { name: \"mix\" out: \"", Pick({"1", "n_head", "4"}),
                                  "\" bias: true bias_init: \"-1\" }"));
    // Every declaration must be used.
    used_ = absl::StrCat("0.1 * (g * proj(x) * mix(x) * w[0]", has_square_ ? " + r[1, 0] * x" : "",
                         has_let_ ? " + c * x" : "", ")");
  }

  // Returns the sublayers of the block: none, which means those of the model, or kinds with their
  // fields.
  std::string Sublayers() {
    if (Chance(2)) return "";
    linear_ = Chance(2);
    experts_ = Chance(2);
    std::string text = " sublayer { ";
    if (linear_) {
      decay_ = Pick({"", "PER_HEAD", "PER_KEY", "FIXED"});
      delta_ = Chance(2);
      absl::StrAppend(&text, "linear_attention { n_head: \"2\" n_key_head: \"", Pick({"1", "2"}),
                      "\" key_dim: \"", Pick({"2", "4"}), "\" value_dim: \"4\"",
                      decay_.empty() ? "" : absl::StrCat(" decay: ", decay_),
                      delta_ ? " delta: true" : "", Chance(2) ? " conv { width: 2 }" : "", " }");
    } else {
      absl::StrAppend(
          &text, "attention { ",
          Pick({"window: \"1 + layer\"", "sinks: true", "score_cap: \"5\"", "keys_as_values: true",
                "decay: true", "bias: true", "scale: \"1 / layer\""}),
          " }");
    }
    text += " } sublayer { ";
    if (experts_) {
      absl::StrAppend(&text, "experts { n_expert: \"4\" top_k: \"2\" d_ff: \"4\" activation: ",
                      Pick({"SILU", "GELU", "NONE"}), gated_ ? " gated: true" : "", " router: ",
                      Pick({"SOFTMAX", "SOFTMAX_OF_TOP_K", "SIGMOID renormalize: true",
                            "SIGMOID n_group: \"2\" top_group: \"1\""}),
                      Pick({"", " router_bias: true", " correction: true", " shared_d_ff: \"4\"",
                            " latent: \"6\""}),
                      " }");
    } else {
      absl::StrAppend(&text, "mlp { activation: ", Pick({"RELU", "SILU", "NONE"}),
                      gated_ ? " gated: true" : "", " }");
    }
    return text + " }";
  }

  void Body() {
    const bool each = Chance(2);
    in_each_ = each;
    const std::string field = each ? "each" : "block";
    switch (wiring_) {
      case Wiring::kPlain:
        break;
      case Wiring::kSecondStream:
        Add("begin", Chance(2) ? "d = x" : "d = norm_d(x)");
        tensors_.push_back("d");
        break;
      case Wiring::kManyStreams:
        Add("begin", "h[i] = x for i = 0..1");
        tensors_.push_back("h[1]");
        break;
      case Wiring::kAllLayers:
        Add("begin", "h[0] = x");
        break;
    }
    if (wiring_ == Wiring::kManyStreams) Add(field, "x = sum(i = 0..1, w[i] * h[i])");
    if (wiring_ == Wiring::kAllLayers && Chance(2)) {
      const std::string last = each ? "sublayer - 1" : "layer - 1";
      Add(field, Chance(2) ? absl::StrCat("x = softmax(k = 0..", last, ", mix(h[k]), h[k])")
                           : absl::StrCat("x = sum(k = 0..", last, ", (k + 1) * h[k])"));
    }
    const bool local = Chance(2);
    if (local) {
      Add(field, absl::StrCat("y = ", Tensor(2)));
      tensors_.push_back("y");
    }
    if (each) {
      Add(field,
          absl::StrCat("x = ", Sum(absl::StrCat("f(", Tensor(2), ")")), local ? " + y" : ""));
    } else {
      const std::string inputs =
          Chance(4) ? absl::StrCat(Tensor(1), ", ", Tensor(1), ", ", Tensor(1)) : Tensor(2);
      Add(field,
          absl::StrCat("x = ", Sum(absl::StrCat("attention(", inputs, ")")), local ? " + y" : ""));
      Add(field, absl::StrCat("x = ", Sum(absl::StrCat("mlp(", Tensor(2), ")"))));
    }
    if (Chance(5)) Add(field, absl::StrCat("x = ", Tensor(2), " if ", Condition()));
    const std::string here = each ? "sublayer" : "layer";
    const std::string all = each ? "n_sublayer" : "n_layer";
    if (wiring_ == Wiring::kSecondStream && Chance(2)) Add(field, "d = d + x");
    if (wiring_ == Wiring::kManyStreams) {
      Add(field, Chance(2) ? "h[i] = h[1 - i] + x for i = 0..1"
                           : "h[i] = sum(j = 0..1, (i + j) * h[j]) + w[i] * x for i = 0..1");
    }
    if (wiring_ == Wiring::kAllLayers) Add(field, absl::StrCat("h[", here, "] = x"));
    tensors_ = {"x"};
    in_layer_ = false;
    std::string end = absl::StrCat("x = ", Chance(2) ? "norm(x)" : "x", " + ", used_);
    if (wiring_ == Wiring::kSecondStream) absl::StrAppend(&end, " + ", Gate(1), " * d");
    if (wiring_ == Wiring::kManyStreams) absl::StrAppend(&end, " + sum(i = 0..1, h[i])");
    if (wiring_ == Wiring::kAllLayers) {
      absl::StrAppend(&end, " + softmax(k = 0..", all, ", ", Pick({"k", "mix(h[k])", "0"}),
                      ", norm_h(h[k]))");
    }
    Add("end", end);
  }

  void Insides() {
    const std::vector<std::string> points = {
        "attention.q", "attention.k",       "attention.v", "attention.q_rot", "attention.k_rot",
        "mlp.up",      "attention.context", "mlp.hidden",  "mlp.gate",        "head.logits"};
    if (linear_) LinearAttentionInsides();
    for (size_t n = Below(3); n > 0; --n) {
      const std::string point = Pick(points);
      if (point == "mlp.gate" && !gated_) continue;
      const std::string sublayer = point.substr(0, point.find('.'));
      if (sublayer == "attention" && linear_) continue;
      if (sublayer == "mlp" && experts_) {
        const std::string name = point.substr(point.find('.') + 1);
        lines_.push_back(absl::StrCat(
            "inside { point: \"", point, "\" rule: \"", name, " = ",
            Pick({absl::StrCat("relu(", name, ") ^ 2"), absl::StrCat("max(min(", name, ", 3), -3)"),
                  absl::StrCat("tanh(", name, ") * w[0]"), absl::StrCat("norm_i(", name, ")")}),
            "\" }"));
        continue;
      }
      const std::string name = point.substr(point.find('.') + 1);
      const std::string read = point == "head.logits" ? "x" : "input";
      const std::string rule =
          Pick({absl::StrCat("2 * tanh(", name, " / 2)"), absl::StrCat("norm_i(", name, ")"),
                absl::StrCat("sigmoid(mix(", read, ")) * ", name),
                absl::StrCat("max(", name, ", 0) ^ 2"),
                absl::StrCat(name, " * dot(", read, ", ", read, ") / 8"),
                absl::StrCat(name, " * dot(", read, ", proj(", read, "), 2)"),
                absl::StrCat("proj(", read, ")"),
                absl::StrCat(name, " + shift(", name, ", 1) / (1 + position)"),
                absl::StrCat(name, " + w[1]")});
      lines_.push_back(
          absl::StrCat("inside { point: \"", point, "\" rule: \"", name, " = ", rule, "\" }"));
    }
  }

  // Adds statements that make numbers of the projections of linear attention, as papers do.
  void LinearAttentionInsides() {
    const auto add = [this](const std::string& name, const std::string& value) {
      lines_.push_back(absl::StrCat("inside { point: \"linear_attention.", name, "\" rule: \"",
                                    name, " = ", value, "\" }"));
    };
    if (!decay_.empty() && Chance(2)) {
      add("decay", Pick({"-softplus(-decay) / 16", "-exp(w[0]) * softplus(decay + g)",
                         "-abs(decay) - 0.1", "min(decay, 0)"}));
    }
    if (delta_ && Chance(2))
      add("beta", Pick({"sigmoid(beta)", "0.5 + 0 * beta", "tanh(beta) ^ 2"}));
    if (Chance(2)) add("q", Pick({"silu(q)", "norm_i(q) / 2", "tanh(q)"}));
    if (Chance(2)) add("k", Pick({"silu(k)", "norm_i(k) / 2", "tanh(k)"}));
    if (Chance(2)) add("v", Pick({"silu(v)", "v * w[1]", "v * sigmoid(mix(input))"}));
    if (Chance(2))
      add("context", Pick({"proj(input) * context", "norm_i(context)", "relu(context)"}));
  }

  // Returns the residual sum with a call of the sublayer.
  std::string Sum(const std::string& call) {
    switch (Below(6)) {
      case 0:
        return absl::StrCat("norm(x + ", call, ")");
      case 1:
        return absl::StrCat("x + norm_out(", call, ")");
      case 2:
        return absl::StrCat(Tensor(1), " + ", Gate(1), " * ", call);
      case 3:
        return absl::StrCat("x + drop", Chance(2) ? "_path" : "", "(", call, ", 0.", Below(9), ")");
      case 4:
        return absl::StrCat("(1 - sigmoid(mix(x))) * x + ", call);
      default:
        return absl::StrCat("x + ", call);
    }
  }

  // Returns a tensor of d_model channels.
  std::string Tensor(int depth) {
    if (Chance(60)) return Anything(depth);
    if (depth <= 0) return tensors_[Below(tensors_.size())];
    const std::string a = Tensor(depth - 1);
    switch (Below(20)) {
      case 0:
        return absl::StrCat(a, Pick({" + ", " - "}), Tensor(depth - 1));
      case 1:
        return absl::StrCat(Number(1), " * (", a, ")");
      case 2:
        return absl::StrCat(Gate(depth - 1), " * (", a, ")");
      case 3:
        return absl::StrCat("(", a, ") / (abs(", Tensor(depth - 1), ") + 1)");
      case 4:
        return absl::StrCat(Pick({"max", "min"}), "(", a, ", ",
                            Chance(2) ? Number(1) : Tensor(depth - 1), ")");
      case 5:
        return absl::StrCat(Pick({"tanh", "sigmoid", "abs", "erf", "relu", "gelu", "gelu_tanh",
                                  "silu", "softplus", "cos", "sin"}),
                            "(", a, ")");
      case 6:
        return absl::StrCat("exp(-abs(", a, "))");
      case 7:
        return absl::StrCat(Pick({"norm", "norm_in", "norm[1]"}), "(", a, ")");
      case 8:
        return absl::StrCat("proj(", a, ")");
      case 9:
        return absl::StrCat("concat(part(", a, ", 1, 2), part(", Tensor(depth - 1), ", 0, 2))");
      case 10:
        return absl::StrCat("sum(k", depth, " = ", Below(2), "..", Below(4), ", (k", depth,
                            " + 1) * (", a, "))");
      case 11:
        return absl::StrCat("softmax(m", depth, " = 0..", Below(3), ", ", Gate(1), ", ", a, ")");
      case 12:
        return absl::StrCat("stop(", a, ")");
      case 13:
        // The bound is a number that no value takes exactly: whether a sigmoid of 20 is below 1,
        // for example, depends on rounding.
        return absl::StrCat("(", a, " ", Pick({">", "<", ">=", "<=", "==", "!="}), " 0.37 * ",
                            Number(0), " + 0.011) * (", Tensor(depth - 1), ")");
      case 14:
        return absl::StrCat("sqrt((", a, ") ^ 2 + 1)");
      case 15:
        return absl::StrCat("log(abs(", a, ") + 1)");
      case 16:
        return absl::StrCat("concat(p", depth, " = 0..1, part(", a, ", p", depth, ", 2))");
      case 17:
        return absl::StrCat("shift(", a, ", ", 1 + Below(4), ")");
      case 18:
        return absl::StrCat("floor(0.37 * (", a, ") + 0.011)");
      default:
        return a;
    }
  }

  // Returns a value of one channel, or of a few channels that divide d_model.
  std::string Gate(int depth) {
    switch (Below(11)) {
      case 9:
        return "(position / 3)";
      case 0:
        return absl::StrCat("dot(", Tensor(depth), ", ", Tensor(depth), ") / d_model");
      case 1:
        return absl::StrCat("sigmoid(mix(", Tensor(depth), "))");
      case 2:
        return "g";
      case 3:
        return absl::StrCat("w[", Below(4), "]");
      case 4:
        return "min(1, step / 100)";
      case 5:
        return absl::StrCat("part(", Tensor(depth), ", ", Below(4), ", 4)");
      case 6:
        return absl::StrCat("slice(", Tensor(depth), ", ", Below(4), " * 2, d_model / 4)");
      case 7:
        return "w[min(3, n_layer)]";
      default:
        return Number(depth);
    }
  }

  std::string Number(int depth, bool with_let = true) {
    if (depth <= 0) {
      std::vector<std::string> names = {"n_layer", "0.5", "2", "1", "0", "n_head", "1e-3"};
      if (with_let && in_layer_) names.push_back("layer");
      if (with_let && in_layer_ && in_each_) names.push_back("sublayer");
      if (with_let && has_let_) names.push_back("c");
      return Pick(names);
    }
    const std::string a = Number(depth - 1, with_let), b = Number(depth - 1, with_let);
    switch (Below(7)) {
      case 0:
        return absl::StrCat("(", a, Pick({" + ", " - ", " * "}), b, ")");
      case 1:
        return absl::StrCat("(", a, " / (1 + abs(", b, ")))");
      case 2:
        return absl::StrCat(Pick({"sqrt", "log", "softplus", "gelu"}), "(1 + abs(", a, "))");
      case 3:
        return absl::StrCat(Pick({"min", "max"}), "(", a, ", ", b, ")");
      case 4:
        return absl::StrCat("(", a, " % 2 == ", b, ")");
      case 5:
        return absl::StrCat("(1 + abs(", a, ")) ^ -0.5");
      default:
        return a;
    }
  }

  std::string Condition() {
    return absl::StrCat(Number(1), Pick({" > ", " <= ", " == "}), Number(0),
                        Chance(3) ? absl::StrCat(Pick({" and ", " or not "}), Number(0)) : "");
  }

  // Returns an expression that may be invalid at this place.
  std::string Anything(int depth) {
    switch (Below(13)) {
      case 11:
        return absl::StrCat("shift(", Gate(0), ", ", Number(1), ")");
      case 0:
        return Number(depth);
      case 1:
        return Gate(depth);
      case 2:
        return "h[x]";
      case 3:
        return absl::StrCat("h[", Number(1), "]");
      case 4:
        return "leaky_relu(x)";
      case 5:
        return absl::StrCat("part(x, ", Number(1), ", ", Number(1), ")");
      case 6:
        return absl::StrCat("sum(k = ", Number(1), "..", Number(1), ", x)");
      case 7:
        return "f(x)";
      case 8:
        return absl::StrCat("x ^ ", Number(1));
      case 9:
        return absl::StrCat("x / ", Number(1));
      case 10:
        return absl::StrCat("concat(", Tensor(depth - 1), ", ", Gate(0), ")");
      default:
        return absl::StrCat("drop(", Gate(0), ", ", Number(1), ")");
    }
  }

  // Moves, removes or changes some characters of the quoted text in the line.
  void Damage(std::string* line) {
    constexpr char kSymbols[] = "+-*/%^()[]=<>.,0123456789xfhk ";
    const size_t open = line->find('"');
    const size_t close = line->find('"', open + 1);
    std::string text = line->substr(open + 1, close - open - 1);
    for (size_t changes = 1 + Below(3); changes > 0 && !text.empty(); --changes) {
      const size_t at = Below(text.size()), length = 1 + Below(6);
      switch (Below(5)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, 1, kSymbols[Below(sizeof kSymbols - 1)]);
          break;
        case 2:
          text[at] = kSymbols[Below(sizeof kSymbols - 1)];
          break;
        case 3:
          text.insert(at, text.substr(Below(text.size()), 4 * length));
          break;
        default:
          text.insert(
              at, Pick({"9999", "[0]", " if ", " for i = 0..9 ", "x", "1e30", "layer", "step"}));
      }
    }
    line->replace(open + 1, close - open - 1, text);
  }

  const RngStream stream_;
  uint64_t draw_ = 0;
  Wiring wiring_ = Wiring::kPlain;
  bool linear_ = false, experts_ = false, delta_ = false;
  std::string decay_;
  bool gated_ = false, has_let_ = false, has_square_ = false, in_each_ = false, in_layer_ = true;
  std::vector<std::string> lines_, tensors_ = {"x"};
  std::string used_;
};

}  // namespace

std::string RandomModel(uint64_t seed) { return Writer(seed).Model(); }

}  // namespace plumb
