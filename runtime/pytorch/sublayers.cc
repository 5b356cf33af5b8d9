// SPDX-License-Identifier: Apache-2.0
// Sublayers of CodeWriter: a class for each kind, whose forward has the statements at its points.
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/model/sublayers.h"
#include "runtime/ops/rope.h"
#include "runtime/pytorch/norms.h"
#include "runtime/pytorch/writer.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

std::string Whole(absl::string_view name, int64_t value) {
  return MarkNumber(name, static_cast<double>(value));
}

// Returns true if some attention of the model has a window.
bool HasWindows(const ResolvedModel& model) {
  for (const auto& block : model.layers) {
    for (const SublayerSpec& sublayer : block->sublayers) {
      if (sublayer.attention.window.has_value()) return true;
    }
  }
  return false;
}

// Returns the code of an activation, by its name in op `act`.
absl::StatusOr<std::string> ActivationCode(const std::string& name, const std::string& x) {
  if (name.empty()) return x;
  if (name == "gelu_tanh") return absl::StrCat("F.gelu(", x, ", approximate=\"tanh\")");
  if (name == "relu" || name == "gelu" || name == "silu" || name == "softplus") {
    return absl::StrCat("F.", name, "(", x, ")");
  }
  if (name == "tanh" || name == "sigmoid" || name == "erf") {
    return absl::StrCat("torch.", name, "(", x, ")");
  }
  return absl::UnimplementedError(
      absl::StrCat("PyTorch code: the activation ", name, " is not covered"));
}

// Returns the arguments of helper `rope` after the tensor and its heads, or "" without rotation.
absl::StatusOr<std::string> RopeArguments(const PositionSpec& positions, const SublayerSite& site) {
  PLUMB_ASSIGN_OR_RETURN(const std::optional<Attrs> attrs, RopeAttrs(positions, site));
  if (!attrs.has_value()) return std::string();
  const double base = attrs->GetDouble("theta");
  std::string code = absl::StrCat("base=", MarkNumber("base", base));
  int64_t dims = attrs->GetInt("head_dim");
  if (attrs->Has("dims")) {
    dims = attrs->GetInt("dims");
    absl::StrAppend(&code, ", dims=", Whole("dims", dims));
  }
  if (positions.rope_interleaved) absl::StrAppend(&code, ", interleaved=True");
  if (!attrs->Has("scaling")) return code;
  std::vector<std::string> divisors;
  for (const double frequency : RopeFrequencies(*attrs)) {
    const double pair = static_cast<double>(divisors.size());
    const double unscaled = std::pow(base, -2 * pair / static_cast<double>(dims));
    divisors.push_back(MarkNumber("divisor", unscaled / frequency));
  }
  absl::StrAppend(&code, ", divisors=(", absl::StrJoin(divisors, ", "), ",)");
  if (attrs->Has("magnitude") && attrs->GetDouble("magnitude") != 1) {
    absl::StrAppend(&code, ", magnitude=", MarkNumber("magnitude", attrs->GetDouble("magnitude")));
  }
  return code;
}

}  // namespace

absl::StatusOr<std::string> CodeWriter::NormCode(const NormSite& site) {
  const NormPlugin& plugin = *site.norm->plugin;
  PLUMB_ASSIGN_OR_RETURN(const auto instance,
                         plugin.Instantiate(site.dim, site.norm->attrs, site.heads));
  norms_.emplace(plugin.id(), instance);
  return MakeNorm(plugin, site.norm->attrs, site.dim);
}

// Writes the class of one sublayer.
class SublayerWriter {
 public:
  SublayerWriter(CodeWriter* writer, const SublayerSite& site, AtPoint at_point)
      : w_(*writer), site_(site), at_point_(at_point), d_model_(w_.model_.dims.d_model) {}

  // Returns the tensor that forward returns.
  absl::StatusOr<TensorHandle> Write() {
    switch (site_.spec->kind) {
      case SublayerSpec::Kind::kAttention:
        return Attention();
      case SublayerSpec::Kind::kMlp: {
        PLUMB_ASSIGN_OR_RETURN(const int64_t d_ff, EvaluateMlpWidth(site_.spec->mlp, site_.scope));
        return TokenMlp(site_.spec->mlp, "mlp", "", d_ff);
      }
      case SublayerSpec::Kind::kLinearAttention:
        return LinearAttention();
      case SublayerSpec::Kind::kExperts:
        return Experts();
      case SublayerSpec::Kind::kConv:
        break;
    }
    return absl::InternalError("a convolution has no class of its own");
  }

  static const char* ClassName(const SublayerSpec& spec) {
    return spec.kind == SublayerSpec::Kind::kAttention         ? "Attention"
           : spec.kind == SublayerSpec::Kind::kLinearAttention ? "LinearAttention"
           : spec.kind == SublayerSpec::Kind::kExperts         ? "Experts"
                                                               : "MLP";
  }

 private:
  std::string Member(const std::string& which) {
    return w_.MemberCode(absl::StrCat(site_.name, ".", which));
  }

  // Makes a projection and returns its name in code.
  std::string Projection(const std::string& which, int64_t in, int64_t out, bool bias) {
    w_.UseMember(absl::StrCat(site_.name, ".", which),
                 absl::StrCat("nn.Linear(", Whole("d_in", in), ", ", Whole("d_out", out),
                              bias ? ")" : ", bias=False)"));
    return Member(which);
  }

  // Writes "name = code" and the statements at a point.
  absl::StatusOr<TensorHandle> Point(const std::string& point, const std::string& code,
                                     int64_t width) {
    const std::string name = LastName(point);
    return w_.RunPoint(point, name, w_.Let(name, code, width), at_point_);
  }

  // Returns the code of the tensor.
  std::string Code(TensorHandle id) { return w_.Render(id).text; }

  absl::StatusOr<TensorHandle> Projected(const char* point, const char* input, int64_t width,
                                         bool bias) {
    const std::string name = LastName(point);
    if (!site_.projects(point)) {
      return w_.RunPoint(point, name, w_.AddCode("None", 3, {}, name), at_point_);
    }
    const std::string code = absl::StrCat(Projection(name, d_model_, width, bias), "(", input, ")");
    return Point(point, code, width);
  }

  absl::StatusOr<TensorHandle> Attention() {
    const AttentionSpec& spec = site_.spec->attention;
    const ModelDims& d = *site_.scope.dims;
    const int64_t q_width = d.n_head * d.head_dim, kv_width = d.n_kv_head * d.head_dim;
    const bool three = w_.function_->own.count("x_k") > 0;
    const char *of_k = three ? "x_k" : "x", *of_v = three ? "x_v" : "x";
    PLUMB_ASSIGN_OR_RETURN(TensorHandle q, Projected("attention.q", "x", q_width, spec.qkv_bias));
    PLUMB_ASSIGN_OR_RETURN(TensorHandle k, Projected("attention.k", of_k, kv_width, spec.qkv_bias));
    TensorHandle v = 0;
    if (!spec.keys_as_values) {
      PLUMB_ASSIGN_OR_RETURN(v, Projected("attention.v", of_v, kv_width, spec.qkv_bias));
    }
    PLUMB_ASSIGN_OR_RETURN(const std::string rope, RopeArguments(w_.model_.positions, site_));
    const auto rotate = [&](const char* point, TensorHandle x,
                            const std::string& heads) -> absl::StatusOr<TensorHandle> {
      if (rope.empty()) return w_.RunPoint(point, LastName(point), x, at_point_);
      w_.helpers_.insert("rope");
      return Point(point, absl::StrCat("rope(", Code(x), ", ", heads, ", ", rope, ")"),
                   w_.node(x).width);
    };
    const std::string heads = Whole("n_head", d.n_head), kv_heads = Whole("n_kv_head", d.n_kv_head);
    PLUMB_ASSIGN_OR_RETURN(q, rotate("attention.q_rot", q, heads));
    PLUMB_ASSIGN_OR_RETURN(k, rotate("attention.k_rot", k, kv_heads));
    if (spec.keys_as_values) v = k;
    std::string decay;
    if (spec.decay) {
      PLUMB_ASSIGN_OR_RETURN(const TensorHandle logs,
                             Projected("attention.decay", of_k, d.n_head, false));
      decay = Code(logs);
    }
    PLUMB_ASSIGN_OR_RETURN(const std::string context, Attend(Code(q), Code(k), Code(v), decay));
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle attended,
                           Point("attention.context", context, q_width));
    const std::string o = Projection("o", w_.node(attended).width, d_model_, spec.out_bias);
    return Point("attention.o", absl::StrCat(o, "(", Code(attended), ")"), d_model_);
  }

  void Line(const std::string& line) { w_.Line(line); }

  // Writes the lines up to the context and returns its code, [batch, seq, width].
  absl::StatusOr<std::string> Attend(const std::string& q, const std::string& k,
                                     const std::string& v, const std::string& decay) {
    const AttentionSpec& spec = site_.spec->attention;
    const ModelDims& d = *site_.scope.dims;
    PLUMB_ASSIGN_OR_RETURN(const AttentionNumbers numbers, EvaluateAttention(spec, site_.scope));
    PLUMB_ASSIGN_OR_RETURN(const double alibi, EvaluateAlibi(w_.model_.positions, site_.scope));
    const std::string scale = MarkNumber("scale", numbers.scale);
    const auto split = [&](const char* name, const std::string& x, int64_t heads) {
      std::string line = absl::StrCat(name, " = ", x, ".unflatten(-1, (",
                                      Whole(heads == d.n_head ? "n_head" : "n_kv_head", heads),
                                      ", -1)).transpose(1, 2)");
      if (heads != d.n_head) {
        absl::StrAppend(&line, ".repeat_interleave(", Whole("group", d.n_head / heads), ", 1)");
      }
      Line(line);
    };
    split("q", q, d.n_head);
    if (v == k) {
      split("k", k, d.n_kv_head);
      Line("v = k");
    } else {
      split("k", k, d.n_kv_head);
      split("v", v, d.n_kv_head);
    }
    const bool is_plain = numbers.score_cap == 0 && !spec.sinks && decay.empty() && alibi == 0;
    const std::string merge = ".transpose(1, 2).flatten(2)";
    // 0 is no window, so that layers with and without one can have one class.
    const std::string visible =
        HasWindows(w_.model_) ? absl::StrCat("visible(q, ", Whole("window", numbers.window), ")")
                              : "visible(q)";
    if (is_plain) {
      std::string mask = "is_causal=True";
      if (numbers.window > 0) {
        w_.helpers_.insert("visible");
        mask = absl::StrCat("attn_mask=", visible);
      }
      return absl::StrCat("F.scaled_dot_product_attention(q, k, v, ", mask, ", scale=", scale, ")",
                          merge);
    }
    w_.helpers_.insert("visible");
    Line(absl::StrCat("scores = ", scale, " * (q @ k.mT)"));
    if (numbers.score_cap > 0) {
      const std::string cap = MarkNumber("cap", numbers.score_cap);
      Line(absl::StrCat("scores = ", cap, " * torch.tanh(scores / ", cap, ")"));
    }
    if (alibi > 0) {
      w_.helpers_.insert("alibi");
      Line(absl::StrCat("scores = scores - alibi(q, ", MarkNumber("slope", alibi), ")"));
    }
    if (!decay.empty()) {
      Line(absl::StrCat("decays = ", decay, ".cumsum(1).mT"));
      Line("scores = scores + decays[..., None] - decays[..., None, :]");
    }
    Line(absl::StrCat("scores = scores.masked_fill(~", visible, ", -math.inf)"));
    if (!spec.sinks) return absl::StrCat("(torch.softmax(scores, -1) @ v)", merge);
    w_.UseMember(absl::StrCat(site_.name, ".sink"),
                 absl::StrCat("nn.Parameter(torch.empty(", Whole("n_head", d.n_head), "))"));
    Line(absl::StrCat("sink = ", Member("sink"), "[:, None, None].expand(*scores.shape[:-1], 1)"));
    Line("weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]");
    return absl::StrCat("(weights @ v)", merge);
  }

  // Writes an MLP with the points "mlp.up" and so on. `project` returns the code of a projection,
  // "up" for example, of an input.
  absl::StatusOr<TensorHandle> Mlp(
      const MlpSpec& spec, const std::string& points, const std::string& x, int64_t d_ff,
      int64_t out,
      const std::function<std::string(const std::string& which, const std::string& x)>& project) {
    const auto point = [&](const char* which) { return absl::StrCat(points, ".", which); };
    std::string gate;
    if (spec.gated) {
      PLUMB_ASSIGN_OR_RETURN(const TensorHandle tensor,
                             Point(point("gate"), project("gate", x), d_ff));
      gate = Code(tensor);
    }
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle before, Point(point("up"), project("up", x), d_ff));
    PLUMB_ASSIGN_OR_RETURN(std::string hidden,
                           ActivationCode(spec.activation, spec.gated ? gate : Code(before)));
    if (spec.gated) absl::StrAppend(&hidden, " * ", Code(before));
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle after, Point(point("hidden"), hidden, d_ff));
    return Point(point("down"), project("down", Code(after)), out);
  }

  // Writes an MLP that all tokens use, with parameters "<prefix>up.weight" and so on.
  absl::StatusOr<TensorHandle> TokenMlp(const MlpSpec& spec, const std::string& points,
                                        const std::string& prefix, int64_t d_ff) {
    const auto project = [&](const std::string& which, const std::string& x) {
      const bool is_down = which == "down";
      return absl::StrCat(Projection(absl::StrCat(prefix, which), is_down ? d_ff : d_model_,
                                     is_down ? d_model_ : d_ff, spec.bias),
                          "(", x, ")");
    };
    return Mlp(spec, points, "x", d_ff, d_model_, project);
  }

  absl::StatusOr<TensorHandle> Experts() {
    const ExpertsSpec& spec = site_.spec->experts;
    PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers, EvaluateExperts(spec, site_.scope));
    w_.helpers_.insert("route");
    Line(absl::StrCat(
        "logits = ", Projection("router", d_model_, numbers.n_expert, spec.router_bias), "(x)"));
    std::string arguments =
        absl::StrCat("logits, ", Whole("top_k", numbers.top_k), ", \"", spec.router, "\"");
    if (spec.correction) {
      w_.UseMember(
          absl::StrCat(site_.name, ".router.correction"),
          absl::StrCat("nn.Parameter(torch.empty(", Whole("n_expert", numbers.n_expert), "))"));
      absl::StrAppend(&arguments, ", ", Member("router.correction"), ".detach()");
    }
    if (numbers.n_group > numbers.top_group) {
      absl::StrAppend(&arguments, ", n_group=", Whole("n_group", numbers.n_group),
                      ", top_group=", Whole("top_group", numbers.top_group));
    }
    if (spec.renormalize) absl::StrAppend(&arguments, ", renormalize=True");
    if (numbers.scale != 1) {
      absl::StrAppend(&arguments, ", scale=", MarkNumber("scale", numbers.scale));
    }
    Line(absl::StrCat("weights, chosen = route(", arguments, ")"));
    if (numbers.balance_loss > 0) {
      w_.helpers_.insert("balance_loss");
      Line(absl::StrCat("self.balance_loss = ", MarkNumber("balance", numbers.balance_loss),
                        " * balance_loss(logits, chosen)"));
    }
    const int64_t width = numbers.latent > 0 ? numbers.latent : d_model_;
    const std::string read =
        numbers.latent > 0 ? absl::StrCat(Projection("latent.down", d_model_, width, false), "(x)")
                           : "x";
    Line(absl::StrCat("tokens = ", read, ".flatten(0, -2)"));
    Line("routed = torch.zeros_like(tokens)");
    Line(absl::StrCat("for e in range(", Whole("n_expert", numbers.n_expert), "):"));
    w_.function_->indent = "    ";
    Line("token, place = (chosen == e).nonzero(as_tuple=True)");
    const auto project = [&](const std::string& which, const std::string& x) {
      const bool is_down = which == "down";
      return ExpertProjection(which, x, numbers.n_expert, is_down ? numbers.d_ff : width,
                              is_down ? width : numbers.d_ff);
    };
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle down,
                           Mlp(spec.mlp, "experts", "tokens[token]", numbers.d_ff, width, project));
    Line(absl::StrCat("routed = routed.index_add(0, token, weights[token, place, None] * ",
                      Code(down), ")"));
    w_.Flush();
    w_.function_->indent = "";
    std::string result = "routed.view(*x.shape[:-1], -1)";
    if (numbers.latent > 0) {
      result = absl::StrCat(Projection("latent.up", width, d_model_, false), "(", result, ")");
    }
    if (numbers.shared_d_ff == 0) return w_.Let("routed", result, d_model_);
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle shared,
                           TokenMlp(spec.mlp, "shared", "shared.", numbers.shared_d_ff));
    std::string added = Code(shared);
    if (spec.shared_gate) {
      absl::StrAppend(&added, " * torch.sigmoid(", Projection("shared_gate", d_model_, 1, false),
                      "(x))");
    }
    return w_.Let("routed", absl::StrCat(result, " + ", added), d_model_);
  }

  // Makes a projection of expert e and returns its code.
  std::string ExpertProjection(const std::string& which, const std::string& x, int64_t experts,
                               int64_t in, int64_t out) {
    const std::string path = absl::StrCat("experts.", which);
    const auto parameter = [&](const std::string& name, const std::string& dims) {
      w_.UseMember(
          absl::StrCat(site_.name, ".", path, ".", name),
          absl::StrCat("nn.Parameter(torch.empty(", Whole("n_expert", experts), ", ", dims, "))"));
      return absl::StrCat(Member(absl::StrCat(path, ".", name)), "[e]");
    };
    const std::string of_out = Whole("d_out", out);
    std::string code = absl::StrCat(
        "F.linear(", x, ", ", parameter("weight", absl::StrCat(of_out, ", ", Whole("d_in", in))));
    if (site_.spec->experts.mlp.bias) absl::StrAppend(&code, ", ", parameter("bias", of_out));
    return absl::StrCat(code, ")");
  }

  absl::StatusOr<TensorHandle> LinearAttention() {
    using Decay = LinearAttentionSpec::Decay;
    const LinearAttentionSpec& spec = site_.spec->linear_attention;
    PLUMB_ASSIGN_OR_RETURN(const LinearAttentionNumbers numbers,
                           EvaluateLinearAttention(spec, site_.scope));
    std::string arguments;
    if (spec.decay != Decay::kNone) {
      const int64_t width = numbers.n_head * (spec.decay == Decay::kPerKey ? numbers.key_dim : 1);
      const std::string code =
          spec.decay == Decay::kFixed
              ? absl::StrCat("x.new_zeros(*x.shape[:-1], ", Whole("n_head", width), ")")
              : absl::StrCat(Projection("decay", d_model_, width, false), "(x)");
      PLUMB_ASSIGN_OR_RETURN(const TensorHandle decay,
                             Point("linear_attention.decay", code, width));
      absl::StrAppend(&arguments, ", decay=", Code(decay));
    }
    if (spec.delta) {
      const std::string code =
          absl::StrCat(Projection("beta", d_model_, numbers.n_head, false), "(x)");
      PLUMB_ASSIGN_OR_RETURN(const TensorHandle beta,
                             Point("linear_attention.beta", code, numbers.n_head));
      absl::StrAppend(&arguments, ", beta=", Code(beta));
    }
    const auto project = [&](const char* point, int64_t width) {
      const std::string which = LastName(point);
      std::string code = absl::StrCat(Projection(which, d_model_, width, false), "(x)");
      if (spec.conv.has_value()) {
        code = absl::StrCat(
            w_.ConvCode(absl::StrCat(site_.name, ".", which, "_conv"), *spec.conv, width), "(",
            code, ")");
      }
      return Point(point, code, width);
    };
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle q, project("linear_attention.q", numbers.keys()));
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle k, project("linear_attention.k", numbers.keys()));
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle v, project("linear_attention.v", numbers.values()));
    w_.helpers_.insert("linear_attention");
    const std::string code = absl::StrCat("linear_attention(", Code(q), ", ", Code(k), ", ",
                                          Code(v), ", ", Whole("n_head", numbers.n_head), ", ",
                                          Whole("n_key_head", numbers.n_key_head), arguments, ")");
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle context,
                           Point("linear_attention.context", code, numbers.values()));
    const std::string o = Projection("o", numbers.values(), d_model_, false);
    return Point("linear_attention.o", absl::StrCat(o, "(", Code(context), ")"), d_model_);
  }

  CodeWriter& w_;
  const SublayerSite& site_;
  AtPoint at_point_;
  const int64_t d_model_;
};

std::string CodeWriter::ConvCode(const std::string& name, const ConvSpec& spec, int64_t channels) {
  helpers_.insert("causal_conv");
  UseMember(name, absl::StrCat("CausalConv(", Whole("channels", channels), ", ",
                               Whole("taps", spec.width), spec.bias ? ", bias=True)" : ")"));
  return MemberCode(name);
}

absl::StatusOr<TensorHandle> CodeWriter::Sublayer(const SublayerSite& site,
                                                  absl::Span<const TensorHandle> inputs,
                                                  AtPoint at_point) {
  Flush();
  if (site.spec->kind == SublayerSpec::Kind::kConv) {
    const std::string conv = ConvCode(site.name, site.spec->conv, model_.dims.d_model);
    return AddCode(absl::StrCat(conv, "($0)"), 3, {inputs[0]}, "mixed");
  }
  PythonFunction inner;
  inner.owner = site.name;
  inner.outer = function_;
  std::vector<std::string> parameters = {"x"};
  if (inputs.size() == 3) parameters = {"x", "x_k", "x_v"};
  inner.own = {parameters.begin(), parameters.end()};
  for (size_t i = inputs.size(); i-- > 0;) inner.aliases[inputs[i]] = parameters[i];
  PythonFunction* const outer = std::exchange(function_, &inner);
  ++functions_;
  absl::StatusOr<TensorHandle> result = SublayerWriter(this, site, at_point).Write();
  std::string returned = "None";
  if (result.ok()) {
    Flush();
    returned = Render(*result).text;
  }
  function_ = outer;
  ++functions_;
  PLUMB_RETURN_IF_ERROR(result.status());
  // The last line becomes the return, unless statements follow it.
  const std::string assigns = absl::StrCat(returned, " = ");
  std::string& last = inner.lines.back();
  if (last.compare(0, assigns.size(), assigns) == 0) {
    last = absl::StrCat("return ", last.substr(assigns.size()));
  } else {
    inner.lines.push_back(absl::StrCat("return ", returned));
  }

  // Names from outside that the sublayer uses are arguments.
  std::set<std::string> outside = inner.reads;
  outside.insert(inner.dicts_read.begin(), inner.dicts_read.end());
  outside.insert(inner.dicts_set.begin(), inner.dicts_set.end());
  std::vector<std::string> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) arguments.push_back(absl::StrCat("$", i));
  for (const std::string& name : outside) {
    parameters.push_back(PythonName(inner, name));
    arguments.push_back(PythonName(*outer, name));
  }
  for (const std::string& name : inner.reads) ReadOutside(outer, name);
  for (const std::string& base : inner.dicts_read) outer->dicts_read.insert(base);
  for (const std::string& base : inner.dicts_set) outer->dicts_set.insert(base);
  outer->keys_set.insert(inner.keys_set.begin(), inner.keys_set.end());

  ClassCode code;
  code.init = InitLines(inner.members);
  code.forward = absl::StrCat("def forward(self, ", absl::StrJoin(parameters, ", "), "):");
  code.body = inner.lines;
  instances_.push_back(classes_.Add(SublayerWriter::ClassName(*site.spec), std::move(code)));
  UseMember(site.name, absl::StrCat("\x03", instances_.size() - 1, "\x04"));
  return AddCode(absl::StrCat(MemberCode(site.name), "(", absl::StrJoin(arguments, ", "), ")"), 3,
                 {inputs.begin(), inputs.end()}, "output");
}

}  // namespace plumb
