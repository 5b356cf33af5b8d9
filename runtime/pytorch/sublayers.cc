// SPDX-License-Identifier: Apache-2.0
// Sublayers of CodeWriter: a class for each kind, whose forward has the statements at its points.
#include "runtime/model/sublayers.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/ops/rope.h"
#include "runtime/pytorch/writer.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Returns the code of an argument: ", window=128".
template <class Number>
std::string Argument(absl::string_view name, Number value) {
  return absl::StrCat(", ", name, "=", MarkNumber(name, value));
}

// Returns the arguments of helper `rope` after the tensor and its heads, or "" without rotation.
absl::StatusOr<std::string> RopeArguments(const PositionSpec& positions, const SublayerSite& site) {
  PLUMB_ASSIGN_OR_RETURN(const std::optional<Attrs> attrs, RopeAttrs(positions, site));
  if (!attrs.has_value()) return std::string();
  std::string code = Argument("base", attrs->GetDouble("theta"));
  if (attrs->Has("dims")) code += Argument("dims", attrs->GetInt("dims"));
  if (positions.rope_interleaved) code += ", interleaved=True";
  if (!attrs->Has("scaling")) return code;
  std::vector<std::string> frequencies;
  for (const double frequency : RopeFrequencies(*attrs)) {
    frequencies.push_back(MarkNumber("frequency", frequency));
  }
  absl::StrAppend(&code, ", frequencies=(", absl::StrJoin(frequencies, ", "), ",)");
  const double magnitude = attrs->Has("magnitude") ? attrs->GetDouble("magnitude") : 1;
  if (magnitude != 1) code += Argument("magnitude", magnitude);
  return code;
}

}  // namespace

// Writes the class of one sublayer.
class SublayerWriter {
 public:
  SublayerWriter(CodeWriter* writer, const SublayerSite& site, AtPoint at_point)
      : w_(*writer), site_(site), at_point_(at_point), d_model_(w_.model_.dims.d_model) {}

  struct Result {
    const char* of_class;
    std::string code;
  };
  // Writes forward for inputs x, or x, x_k and x_v, and returns its class and result.
  Result Write(const std::vector<std::string>& inputs) {
    const Value x{inputs.front(), d_model_};
    switch (site_.spec->kind) {
      case SublayerSpec::Kind::kAttention:
        return {"Attention", inputs.size() == 1
                                 ? Attention(x, x, x)
                                 : Attention(x, {inputs[1], d_model_}, {inputs[2], d_model_})};
      case SublayerSpec::Kind::kLinearAttention:
        return {"LinearAttention", LinearAttention(x)};
      case SublayerSpec::Kind::kExperts:
        return {"Experts", Experts(x)};
      case SublayerSpec::Kind::kMlp:
      case SublayerSpec::Kind::kConv:
        break;
    }
    const MlpSpec& mlp = site_.spec->mlp;
    return {"MLP", TokenMlp(mlp, "mlp", "", x, OrFail(EvaluateMlpWidth(mlp, site_.scope))).code};
  }

 private:
  // Code of a tensor.
  struct Value {
    std::string code;
    int64_t width;
    TensorHandle id = 0;  // of a name
  };
  // Returns a projection of `x`: "up" for example.
  using Projection =
      absl::FunctionRef<Value(const std::string& which, const Value& x, int64_t out)>;

  template <class T>
  T OrFail(absl::StatusOr<T> value) {
    w_.status_.Update(value.status());
    return value.ok() ? *std::move(value) : T();
  }

  template <class... Parts>
  void Line(const Parts&... parts) {
    w_.Line(absl::StrCat(parts...));
  }

  // Makes a parameter and returns its name in code.
  std::string Parameter(const std::string& which, const std::vector<std::string>& dims) {
    return w_.UseMember(absl::StrCat(site_.name, ".", which), ParameterCode(dims));
  }

  // Makes a projection and returns its result.
  Value Project(const std::string& which, const Value& x, int64_t out, bool bias = false) {
    const std::string name = absl::StrCat(site_.name, ".", which);
    return {w_.Call(name, LinearCode(x.width, out, bias), x.code), out};
  }

  // Writes the statements at a point for a tensor, and returns the result.
  Value RunPoint(const std::string& point, TensorHandle tensor) {
    const TensorHandle after = w_.RunPoint(point, LastName(point), tensor, at_point_);
    return {w_.Render(after).text, w_.node(after).width, after};
  }

  // Writes "name = code" and the statements at a point.
  Value Point(const std::string& point, const Value& value) {
    return RunPoint(point, w_.Let(LastName(point), value.code, value.width));
  }

  // Does so for a projection, unless statements replace it.
  Value ProjectAt(const char* point, const Value& x, int64_t out, bool bias) {
    const std::string name = LastName(point);
    if (!site_.projects(point)) return RunPoint(point, w_.AddNode("None", {}, name, 1));
    return Point(point, Project(name, x, out, bias));
  }

  std::string Attention(const Value& of_q, const Value& of_k, const Value& of_v) {
    const AttentionSpec& spec = site_.spec->attention;
    const ModelDims& d = *site_.scope.dims;
    const int64_t q_width = d.n_head * d.head_dim, kv_width = d.n_kv_head * d.head_dim;
    Value q = ProjectAt("attention.q", of_q, q_width, spec.qkv_bias);
    Value k = ProjectAt("attention.k", of_k, kv_width, spec.qkv_bias);
    Value v;
    if (!spec.keys_as_values) v = ProjectAt("attention.v", of_v, kv_width, spec.qkv_bias);
    const std::string rope = OrFail(RopeArguments(w_.model_.positions, site_));
    const auto rotate = [&](const char* point, const Value& x, const std::string& heads) {
      if (rope.empty()) return RunPoint(point, x.id);
      return Point(point, {absl::StrCat("rope(", x.code, ", ", heads, rope, ")"), x.width});
    };
    q = rotate("attention.q_rot", q, MarkNumber("n_head", d.n_head));
    k = rotate("attention.k_rot", k, MarkNumber("n_kv_head", d.n_kv_head));
    if (spec.keys_as_values) v = k;
    std::string decay;
    if (spec.decay) decay = ProjectAt("attention.decay", of_k, d.n_head, false).code;
    const std::string context = Attend(q.code, k.code, v.code, decay);
    const Value attended = Point("attention.context", {context, q_width});
    return Point("attention.o", Project("o", attended, d_model_, spec.out_bias)).code;
  }

  // Writes the lines up to the context and returns its code, [batch, seq, width].
  std::string Attend(const std::string& q, const std::string& k, const std::string& v,
                     const std::string& decay) {
    const AttentionSpec& spec = site_.spec->attention;
    const ModelDims& d = *site_.scope.dims;
    const AttentionNumbers numbers = OrFail(EvaluateAttention(spec, site_.scope));
    const double alibi = OrFail(EvaluateAlibi(w_.model_.positions, site_.scope));
    const std::string scale = MarkNumber("scale", numbers.scale);
    std::string kv_heads = absl::StrCat(", ", MarkNumber("n_kv_head", d.n_kv_head));
    if (d.n_kv_head < d.n_head) kv_heads += Argument("group", d.n_head / d.n_kv_head);
    Line("q = heads(", q, ", ", MarkNumber("n_head", d.n_head), ")");
    Line("k = heads(", k, kv_heads, ")");
    Line("v = ", v == k ? "k" : absl::StrCat("heads(", v, kv_heads, ")"));
    const bool is_plain = numbers.score_cap == 0 && !spec.sinks && decay.empty() && alibi == 0;
    const std::string merge = ".transpose(1, 2).flatten(2)";
    // 0 is no window, so that layers with and without one can have one class.
    const std::string visible = absl::StrCat("visible(q", Argument("window", numbers.window), ")");
    if (is_plain) {
      return absl::StrCat(
          "F.scaled_dot_product_attention(q, k, v, ",
          numbers.window > 0 ? absl::StrCat("attn_mask=", visible) : "is_causal=True",
          ", scale=", scale, ")", merge);
    }
    Line("scores = ", scale, " * (q @ k.mT)");
    if (numbers.score_cap > 0) {
      const std::string cap = MarkNumber("cap", numbers.score_cap);
      Line("scores = ", cap, " * torch.tanh(scores / ", cap, ")");
    }
    if (alibi > 0) Line("scores = scores - alibi(q, ", MarkNumber("slope", alibi), ")");
    if (!decay.empty()) {
      Line("decays = ", decay, ".cumsum(1).mT");
      Line("scores = scores + decays[..., None] - decays[..., None, :]");
    }
    Line("scores = scores.masked_fill(~", visible, ", -math.inf)");
    if (!spec.sinks) return absl::StrCat("(torch.softmax(scores, -1) @ v)", merge);
    Line("sink = ", Parameter("sink", {MarkNumber("n_head", d.n_head)}),
         "[:, None, None].expand(*scores.shape[:-1], 1)");
    Line("weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]");
    return absl::StrCat("(weights @ v)", merge);
  }

  // Writes an MLP with the points "mlp.up" and so on.
  Value Mlp(const MlpSpec& spec, const std::string& points, const Value& x, int64_t d_ff,
            Projection project) {
    const auto point = [&](const char* which, const Value& value) {
      return Point(absl::StrCat(points, ".", which), value);
    };
    Value gate;
    if (spec.gated) gate = point("gate", project("gate", x, d_ff));
    const Value up = point("up", project("up", x, d_ff));
    std::string hidden = OrFail(CallCode(spec.activation, spec.gated ? gate.code : up.code));
    if (spec.gated) absl::StrAppend(&hidden, " * ", up.code);
    return point("down", project("down", point("hidden", {hidden, d_ff}), x.width));
  }

  // Writes an MLP that all tokens use, with parameters "<prefix>up.weight" and so on.
  Value TokenMlp(const MlpSpec& spec, const std::string& points, const std::string& prefix,
                 const Value& x, int64_t d_ff) {
    return Mlp(spec, points, x, d_ff, [&](const std::string& which, const Value& in, int64_t out) {
      return Project(absl::StrCat(prefix, which), in, out, spec.bias);
    });
  }

  std::string Experts(const Value& x) {
    const ExpertsSpec& spec = site_.spec->experts;
    const ExpertsNumbers numbers = OrFail(EvaluateExperts(spec, site_.scope));
    const std::string n_expert = MarkNumber("n_expert", numbers.n_expert);
    Line("logits = ", Project("router", x, numbers.n_expert, spec.router_bias).code);
    std::string arguments;
    if (spec.correction) {
      absl::StrAppend(&arguments, ", ", Parameter("router.correction", {n_expert}), ".detach()");
    }
    if (numbers.n_group > numbers.top_group) {
      arguments += Argument("n_group", numbers.n_group) + Argument("top_group", numbers.top_group);
    }
    if (spec.renormalize) arguments += ", renormalize=True";
    if (numbers.scale != 1) arguments += Argument("scale", numbers.scale);
    Line("weights, chosen = route(logits, ", MarkNumber("top_k", numbers.top_k), ", \"",
         spec.router, "\"", arguments, ")");
    if (numbers.balance_loss > 0) {
      Line("self.balance_loss = ", MarkNumber("balance", numbers.balance_loss),
           " * balance_loss(logits, chosen)");
    }
    const Value read = numbers.latent > 0 ? Project("latent.down", x, numbers.latent) : x;
    Line("tokens = ", read.code, ".flatten(0, -2)");
    Line("routed = torch.zeros_like(tokens)");
    Line("for e in range(", n_expert, "):");
    w_.function_->indent = "    ";
    Line("token, place = (chosen == e).nonzero(as_tuple=True)");
    const auto project = [&](const std::string& which, const Value& in, int64_t out) {
      const std::string path = absl::StrCat("experts.", which), d_out = MarkNumber("d_out", out);
      std::string code = absl::StrCat(
          "F.linear(", in.code, ", ",
          Parameter(path + ".weight", {n_expert, d_out, MarkNumber("d_in", in.width)}), "[e]");
      if (spec.mlp.bias) {
        absl::StrAppend(&code, ", ", Parameter(path + ".bias", {n_expert, d_out}), "[e]");
      }
      return Value{absl::StrCat(code, ")"), out};
    };
    const Value down =
        Mlp(spec.mlp, "experts", {"tokens[token]", read.width}, numbers.d_ff, project);
    Line("routed = routed.index_add(0, token, weights[token, place, None] * ", down.code, ")");
    w_.function_->indent = "";
    Value routed{"routed.view(*x.shape[:-1], -1)", read.width};
    if (numbers.latent > 0) routed = Project("latent.up", routed, d_model_);
    if (numbers.shared_d_ff > 0) {
      const Value shared = TokenMlp(spec.mlp, "shared", "shared.", x, numbers.shared_d_ff);
      absl::StrAppend(&routed.code, " + ", shared.code);
      if (spec.shared_gate) {
        absl::StrAppend(&routed.code, " * torch.sigmoid(", Project("shared_gate", x, 1).code, ")");
      }
    }
    return routed.code;
  }

  std::string LinearAttention(const Value& x) {
    using Decay = LinearAttentionSpec::Decay;
    const LinearAttentionSpec& spec = site_.spec->linear_attention;
    const LinearAttentionNumbers numbers = OrFail(EvaluateLinearAttention(spec, site_.scope));
    const std::string n_head = MarkNumber("n_head", numbers.n_head),
                      n_key_head = MarkNumber("n_key_head", numbers.n_key_head);
    std::string arguments;
    if (spec.decay != Decay::kNone) {
      const int64_t width = numbers.n_head * (spec.decay == Decay::kPerKey ? numbers.key_dim : 1);
      const Value zeros{absl::StrCat("x.new_zeros(*x.shape[:-1], ", n_head, ")"), width};
      const Value decay = Point("linear_attention.decay",
                                spec.decay == Decay::kFixed ? zeros : Project("decay", x, width));
      absl::StrAppend(&arguments, ", decay=", decay.code);
    }
    if (spec.delta) {
      const Value beta = Point("linear_attention.beta", Project("beta", x, numbers.n_head));
      absl::StrAppend(&arguments, ", beta=", beta.code);
    }
    const auto project = [&](const std::string& which, int64_t width) {
      Value value = Project(which, x, width);
      if (spec.conv.has_value()) {
        const std::string name = absl::StrCat(site_.name, ".", which, "_conv");
        value.code = w_.CallConv(name, *spec.conv, width, value.code);
      }
      return Point(absl::StrCat("linear_attention.", which), value).code;
    };
    const std::string q = project("q", numbers.keys()), k = project("k", numbers.keys()),
                      v = project("v", numbers.values());
    const Value context =
        Point("linear_attention.context",
              {absl::StrCat("linear_attention(", absl::StrJoin({q, k, v, n_head, n_key_head}, ", "),
                            arguments, ")"),
               numbers.values()});
    return Point("linear_attention.o", Project("o", context, d_model_)).code;
  }

  CodeWriter& w_;
  const SublayerSite& site_;
  AtPoint at_point_;
  const int64_t d_model_;
};

std::string CodeWriter::CallConv(const std::string& name, const ConvSpec& spec, int64_t channels,
                                 const std::string& x) {
  return Call(name,
              absl::StrCat("CausalConv(", MarkNumber("channels", channels), ", ",
                           MarkNumber("taps", spec.width), spec.bias ? ", bias=True)" : ")"),
              x);
}

absl::StatusOr<TensorHandle> CodeWriter::Sublayer(const SublayerSite& site,
                                                  absl::Span<const TensorHandle> inputs,
                                                  AtPoint at_point) {
  Flush();
  const int64_t d_model = model_.dims.d_model;
  if (site.spec->kind == SublayerSpec::Kind::kConv) {
    return AddNode(CallConv(site.name, site.spec->conv, d_model, "$0"), {inputs[0]}, "mixed",
                   d_model);
  }
  PythonFunction inner;
  inner.owner = site.name;
  inner.is_sublayer = true;
  std::vector<std::string> parameters = {"x", "x_k", "x_v"};
  parameters.resize(inputs.size());
  inner.own = {parameters.begin(), parameters.end()};
  for (size_t i = inputs.size(); i-- > 0;) inner.aliases[inputs[i]] = parameters[i];
  PythonFunction* const outer = std::exchange(function_, &inner);
  ++functions_;
  const auto [of_class, result] = SublayerWriter(this, site, at_point).Write(parameters);
  function_ = outer;
  ++functions_;
  PLUMB_RETURN_IF_ERROR(status_);
  // The last line becomes the return, unless statements follow it.
  absl::string_view last = inner.lines.back();
  if (absl::ConsumePrefix(&last, result + " = ")) {
    inner.lines.back() = absl::StrCat("return ", last);
  } else {
    inner.lines.push_back(absl::StrCat("return ", result));
  }

  // Names from outside that the sublayer uses are arguments.
  std::set<std::string> outside = IndexedNames(inner.sets);
  for (const std::string& name : inner.reads) {
    outer->Read(name);
    outside.insert(name.substr(0, name.find('[')));
  }
  outer->sets.insert(inner.sets.begin(), inner.sets.end());

  ClassCode code;
  code.init = InitLines(inner.members);
  code.forward = absl::StrCat("def forward(self, ", absl::StrJoin(parameters, ", "),
                              AfterCommas(outside, inner), "):");
  code.body = inner.lines;
  UseMember(site.name, "", classes_.Add(of_class, std::move(code)));
  const std::string arguments = inputs.size() == 3 ? "$0, $1, $2" : "$0";
  return AddNode(Call(site.name, "", arguments + AfterCommas(outside, *outer)),
                 {inputs.begin(), inputs.end()}, "output", d_model);
}

}  // namespace plumb
