// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/convert.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_backend.h"
#include "runtime/spec/scalar.h"

namespace plumb {
namespace {

constexpr size_t kMaxStatements = 64;  // a longer section is assumed to be generated in error

absl::StatusOr<std::vector<Statement>> ToStatements(const std::vector<std::string>& lines,
                                                    const Located& at, const char* field,
                                                    const std::string& section) {
  std::vector<Statement> statements;
  if (lines.size() > kMaxStatements) {
    return ErrorAt(at.At(field, 0), absl::StrCat(section, " has ", lines.size(),
                                                 " statements; at most ", kMaxStatements));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(Statement statement,
                           ParseStatement(at.GetText(field, static_cast<int>(i)), section));
    statements.push_back(std::move(statement));
  }
  return statements;
}

// Returns the field's expression, or that of `fallback` if the field is empty.
absl::StatusOr<Expression> ToExpression(const Located& at, const char* field,
                                        const std::string& fallback) {
  SourceText text = at.GetText(field);
  if (text.value.empty()) text.value = fallback;
  return ParseExpression(text);
}

// Returns the field's expression, or nullopt if the field is empty.
absl::StatusOr<std::optional<Expression>> OptionalExpression(const Located& at, const char* field) {
  const SourceText text = at.GetText(field);
  if (text.value.empty()) return std::optional<Expression>();
  PLUMB_ASSIGN_OR_RETURN(Expression expression, ParseExpression(text));
  return std::optional<Expression>(std::move(expression));
}

// Returns the name in op `act`, "" for the identity.
const char* ActivationName(v1::Mlp::Activation activation) {
  switch (activation) {
    case v1::Mlp::RELU:
      return "relu";
    case v1::Mlp::GELU:
      return "gelu";
    case v1::Mlp::SILU:
      return "silu";
    case v1::Mlp::NONE:
      return "";
    default:
      return "gelu_tanh";
  }
}

// Evaluates a table's width. `what` begins the error message.
absl::StatusOr<int64_t> EvaluateWidth(const Expression& expression, absl::string_view what,
                                      const ScalarScope& scope) {
  constexpr double kMaxWidth = 1 << 24;
  PLUMB_ASSIGN_OR_RETURN(const double width, EvaluateScalar(expression, scope));
  if (width >= 1 && width <= kMaxWidth && width == std::floor(width)) {
    return static_cast<int64_t>(width);
  }
  return ErrorInText(expression.text, expression.root.offset,
                     absl::StrCat(what, " ", width, " is not a whole number in 1..",
                                  static_cast<int64_t>(kMaxWidth)));
}

// Returns the built-in meaning of a name that a let, a learned value or a projection would take, or
// "" if the name is free.
std::string ReservedAs(const std::string& name) {
  if (IsBuiltInScalar(name)) return "a scalar of the language";
  if (IsFunction(name)) return "a function of the language";
  if (name == "step") return "the training step";
  if (name == "position") return "the position of a token";
  if (name == "input") return "a sublayer's input";
  if (name == "x") return "the residual stream";
  if (name == "f") return "the sublayer";
  return "";
}

// Replaces the base's statements if `lines` has any.
absl::Status Override(const std::vector<std::string>& lines, const Located& at, const char* field,
                      std::vector<Statement>* statements) {
  if (lines.empty()) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(*statements, ToStatements(lines, at, field, field));
  return absl::OkStatus();
}

absl::Status AddLets(const v1::Placement& message, const Located& at, PlacementSpec* spec) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<Statement> lets,
                         ToStatements(message.let(), at, "let", "let"));
  std::set<std::string> own;
  for (Statement& let : lets) {
    if (let.condition.has_value()) {
      return ErrorInText(let.text, let.condition->offset,
                         "a let has no condition; put the condition on a statement");
    }
    if (!let.index.empty() || let.range.has_value()) {
      return ErrorInText(let.text, let.range.has_value() ? let.range->offset : 0,
                         "a let is one number; an indexed one is written as an expression of the "
                         "index where it is used");
    }
    if (const std::string taken = ReservedAs(let.target); !taken.empty()) {
      return ErrorInText(
          let.text, 0,
          absl::StrCat("\"", let.target, "\" is ", taken, "; a let needs a name of its own"));
    }
    if (!own.insert(let.target).second) {
      return ErrorInText(let.text, 0, absl::StrCat("\"", let.target, "\" is already defined"));
    }
    spec->own_names.insert(let.target);
    // A let replaces the base's let of the same name in place, so that the lets after it see the
    // new value.
    const auto base = std::find_if(spec->lets.begin(), spec->lets.end(),
                                   [&let](const Statement& s) { return s.target == let.target; });
    if (base != spec->lets.end()) {
      *base = std::move(let);
    } else {
      spec->lets.push_back(std::move(let));
    }
  }
  return absl::OkStatus();
}

// Fails if a let, learned value or projection of the placement, or the language, uses the name.
absl::Status CheckNameIsFree(const std::string& name, const char* what, const SourceLocation& place,
                             const PlacementSpec& spec) {
  const auto has = [&name](const auto& specs) {
    return std::any_of(specs.begin(), specs.end(),
                       [&name](const auto& other) { return other.name == name; });
  };
  std::string taken = ReservedAs(name);
  for (const Statement& let : spec.lets) {
    if (let.target == name) taken = "a let";
  }
  if (!taken.empty()) {
    return ErrorAt(place, absl::StrCat(what, " \"", name, "\": the name is that of ", taken,
                                       "; give it another"));
  }
  if (!has(spec.learned) && !has(spec.linear)) return absl::OkStatus();
  return ErrorAt(place, absl::StrCat(what, " \"", name, "\" is already defined"));
}

absl::Status AddLearned(const v1::Placement& message, const Located& at, PlacementSpec* spec) {
  for (int i = 0; i < message.learned_size(); ++i) {
    const v1::Learned& learned = message.learned(i);
    const Located here = at.Nested("learned", i);
    LearnedSpec out;
    out.name = learned.name();
    out.place = at.At("learned", i);
    if (!IsIdentifier(out.name)) {
      return ErrorAt(out.place,
                     absl::StrCat("learned: \"", out.name, "\" is not a name",
                                  absl::StrContains(out.name, "[")
                                      ? "; an index is declared with index: \"k = 0..n_layer\""
                                      : ""));
    }
    PLUMB_RETURN_IF_ERROR(CheckNameIsFree(out.name, "learned", out.place, *spec));
    if (learned.per_channel() && learned.per_head()) {
      return ErrorAt(out.place, absl::StrCat("learned \"", out.name,
                                             "\": per_channel and per_head exclude each other"));
    }
    if (learned.has_init() != learned.init_expression().empty()) {
      return ErrorAt(out.place,
                     absl::StrCat("learned \"", out.name, "\": ",
                                  learned.has_init()
                                      ? "give init or init_expression, not both"
                                      : "init is missing; give init: 0, init: 1 or another value"));
    }
    if (learned.has_init()) {
      out.init.text = {absl::StrCat(learned.init()), here.At("init")};
      out.init.root.number = learned.init();
    } else {
      PLUMB_ASSIGN_OR_RETURN(out.init, ToExpression(here, "init_expression", "0"));
    }
    out.per_channel = learned.per_channel();
    out.per_head = learned.per_head();
    if (learned.has_weight_decay()) out.weight_decay = learned.weight_decay();
    for (int k = 0; k < static_cast<int>(learned.index().size()); ++k) {
      PLUMB_ASSIGN_OR_RETURN(RangeText range, ParseRange(here.GetText("index", k)));
      if (const std::string taken = ReservedAs(range.range.variable); !taken.empty()) {
        return ErrorInText(range.text, range.range.offset,
                           absl::StrCat("\"", range.range.variable, "\" is ", taken,
                                        "; an index needs a name of its own"));
      }
      for (const RangeText& other : out.index) {
        if (other.range.variable != range.range.variable) continue;
        return ErrorInText(range.text, range.range.offset,
                           absl::StrCat("two indices are called \"", range.range.variable,
                                        "\"; give them different names"));
      }
      out.index.push_back(std::move(range));
    }
    spec->own_names.insert(out.name);
    spec->learned.push_back(std::move(out));
  }
  return absl::OkStatus();
}

absl::StatusOr<InitRule> WithArguments(
    InitRule rule, const Located& at,
    std::initializer_list<std::pair<const char*, const char*>> fields) {
  for (const auto& [field, fallback] : fields) {
    PLUMB_ASSIGN_OR_RETURN(Expression expression, ToExpression(at, field, fallback));
    rule.arguments.push_back(std::move(expression));
  }
  return rule;
}

// Converts an init rule without its match.
absl::StatusOr<InitRule> ToUnmatchedInit(const v1::Init& message, const Located& at,
                                         const SourceLocation& place) {
  using Distribution = InitRule::Distribution;
  InitRule rule;
  if (!message.scale().empty()) {
    PLUMB_ASSIGN_OR_RETURN(rule.scale, ToExpression(at, "scale", "1"));
  }
  switch (message.distribution_case()) {
    case v1::Init::kNormal:
      rule.distribution = Distribution::kNormal;
      return WithArguments(rule, at.Nested("normal"), {{"mean", "0"}, {"std", "1"}});
    case v1::Init::kTruncatedNormal:
      rule.distribution = Distribution::kTruncatedNormal;
      return WithArguments(rule, at.Nested("truncated_normal"),
                           {{"mean", "0"}, {"std", "1"}, {"cut", "2"}});
    case v1::Init::kUniform:
      rule.distribution = Distribution::kUniform;
      return WithArguments(rule, at.Nested("uniform"), {{"low", "-1"}, {"high", "1"}});
    case v1::Init::kXavierNormal:
      rule.distribution = Distribution::kXavierNormal;
      return WithArguments(rule, at.Nested("xavier_normal"), {{"gain", "1"}});
    case v1::Init::kXavierUniform:
      rule.distribution = Distribution::kXavierUniform;
      return WithArguments(rule, at.Nested("xavier_uniform"), {{"gain", "1"}});
    case v1::Init::kKaimingUniform:
      rule.distribution = Distribution::kKaimingUniform;
      return WithArguments(rule, at.Nested("kaiming_uniform"), {{"a", "sqrt(5)"}});
    case v1::Init::kConstant:
      rule.distribution = Distribution::kConstant;
      return WithArguments(rule, at.Nested("constant"), {{"value", "0"}});
    case v1::Init::DISTRIBUTION_NOT_SET:
      break;
  }
  if (!rule.scale.has_value()) {
    return ErrorAt(place,
                   "init: needs a distribution (normal, truncated_normal, uniform, xavier_normal, "
                   "xavier_uniform, "
                   "kaiming_uniform, constant), a scale, or both");
  }
  return rule;
}

absl::Status AddLinear(const v1::Placement& message, const Located& at, PlacementSpec* spec) {
  for (int i = 0; i < message.linear_size(); ++i) {
    const v1::Linear& linear = message.linear(i);
    const Located here = at.Nested("linear", i);
    LinearSpec out;
    out.name = linear.name();
    out.place = at.At("linear", i);
    if (!IsIdentifier(out.name)) {
      return ErrorAt(out.place, absl::StrCat("linear: \"", out.name, "\" is not a name"));
    }
    PLUMB_RETURN_IF_ERROR(CheckNameIsFree(out.name, "linear", out.place, *spec));
    PLUMB_ASSIGN_OR_RETURN(out.out, ToExpression(here, "out", "d_model"));
    out.bias = linear.bias();
    if (linear.has_init()) {
      const Located init = here.Nested("init");
      if (!linear.init().match().empty()) {
        return ErrorAt(init.At("match"),
                       absl::StrCat("linear \"", out.name,
                                    "\": drop match from its init, which is for this weight only"));
      }
      PLUMB_ASSIGN_OR_RETURN(out.init, ToUnmatchedInit(linear.init(), init, here.At("init")));
    }
    if (!linear.bias_init().empty()) {
      if (!out.bias) {
        return ErrorAt(here.At("bias_init"),
                       absl::StrCat("linear \"", out.name, "\" has bias_init and no bias: true"));
      }
      PLUMB_ASSIGN_OR_RETURN(out.bias_init, ToExpression(here, "bias_init", "0"));
    }
    spec->own_names.insert(out.name);
    spec->linear.push_back(std::move(out));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsIdentifier(const std::string& name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

absl::StatusOr<PlacementSpec> ToPlacement(const v1::Placement& message, const Located& at,
                                          const PlacementSpec* base) {
  PlacementSpec spec;
  if (base != nullptr) spec = *base;
  spec.own_names.clear();
  spec.name = message.name();
  spec.doc = message.doc();
  spec.place = at.At("name");
  PLUMB_RETURN_IF_ERROR(AddLets(message, at, &spec));
  PLUMB_RETURN_IF_ERROR(AddLearned(message, at, &spec));
  PLUMB_RETURN_IF_ERROR(AddLinear(message, at, &spec));
  for (const v1::Slot& slot : message.slot()) spec.slot_per_head[slot.name()] = slot.per_head();
  PLUMB_RETURN_IF_ERROR(Override(message.begin(), at, "begin", &spec.begin));
  // A body of either kind ("each" or "block") replaces the base's body of either kind.
  if (!message.each().empty() || !message.block().empty()) {
    spec.each.clear();
    spec.block.clear();
  }
  PLUMB_RETURN_IF_ERROR(Override(message.each(), at, "each", &spec.each));
  PLUMB_RETURN_IF_ERROR(Override(message.block(), at, "block", &spec.block));
  PLUMB_RETURN_IF_ERROR(Override(message.end(), at, "end", &spec.end));
  for (int i = 0; i < message.inside_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(InsideSpec inside, ToInside(message.inside(i), at.Nested("inside", i)));
    spec.inside.push_back(std::move(inside));
  }
  for (int i = 0; i < message.init_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(InitRule rule, ToInitRule(message.init(i), at.Nested("init", i)));
    spec.init.push_back(std::move(rule));
  }
  return spec;
}

absl::StatusOr<InsideSpec> ToInside(const v1::Inside& message, const Located& at) {
  InsideSpec inside;
  inside.point = message.point();
  inside.place =
      !message.point().empty() || message.rule().empty() ? at.At("point") : at.At("rule", 0);
  if (!MayBePoint(inside.point)) return UnknownPoint(inside, {});
  if (message.rule().empty()) {
    return ErrorAt(inside.place, absl::StrCat("inside ", inside.point, " has no rule"));
  }
  PLUMB_ASSIGN_OR_RETURN(inside.statements, ToStatements(message.rule(), at, "rule",
                                                         absl::StrCat("inside ", inside.point)));
  return inside;
}

absl::StatusOr<InitRule> ToInitRule(const v1::Init& message, const Located& at) {
  if (message.match().empty()) {
    return ErrorAt(at.At("match"), "init: match is missing; it names weights, \"*\" for all");
  }
  PLUMB_ASSIGN_OR_RETURN(InitRule rule, ToUnmatchedInit(message, at, at.At("match")));
  rule.match = at.GetText("match");
  return rule;
}

absl::StatusOr<AttentionSpec> ToAttention(const v1::Attention& message, const Located& at) {
  AttentionSpec spec;
  spec.qkv_bias = message.bias() || message.qkv_bias();
  spec.out_bias = message.bias() || message.out_bias();
  PLUMB_ASSIGN_OR_RETURN(spec.scale, OptionalExpression(at, "scale"));
  PLUMB_ASSIGN_OR_RETURN(spec.score_cap, OptionalExpression(at, "score_cap"));
  PLUMB_ASSIGN_OR_RETURN(spec.window, OptionalExpression(at, "window"));
  spec.sinks = message.sinks();
  spec.keys_as_values = message.keys_as_values();
  spec.decay = message.decay();
  if (spec.decay && (spec.window || spec.score_cap || spec.sinks || spec.keys_as_values)) {
    return ErrorAt(at.At("decay"),
                   "decay: attention with a decay has neither window, score_cap, "
                   "sinks nor keys_as_values; drop them or decay");
  }
  PLUMB_ASSIGN_OR_RETURN(spec.n_head, OptionalExpression(at, "n_head"));
  PLUMB_ASSIGN_OR_RETURN(spec.n_kv_head, OptionalExpression(at, "n_kv_head"));
  PLUMB_ASSIGN_OR_RETURN(spec.head_dim, OptionalExpression(at, "head_dim"));
  return spec;
}

absl::StatusOr<MlpSpec> ToMlp(const v1::Mlp& message, const Located& at) {
  MlpSpec spec;
  spec.gated = message.gated();
  spec.bias = message.bias();
  spec.activation = ActivationName(message.activation());
  PLUMB_ASSIGN_OR_RETURN(spec.d_ff, OptionalExpression(at, "d_ff"));
  return spec;
}

absl::StatusOr<ExpertsSpec> ToExperts(const v1::Experts& message, const Located& at,
                                      const SourceLocation& place) {
  ExpertsSpec spec;
  spec.mlp.gated = message.gated();
  spec.mlp.bias = message.bias();
  spec.mlp.activation = ActivationName(message.activation());
  PLUMB_ASSIGN_OR_RETURN(spec.mlp.d_ff, OptionalExpression(at, "d_ff"));
  switch (message.router()) {
    case v1::Experts::SOFTMAX:
      spec.router = "softmax";
      break;
    case v1::Experts::SIGMOID:
      spec.router = "sigmoid";
      break;
    default:
      spec.router = "softmax_of_top_k";
  }
  if (message.n_expert().empty() || message.top_k().empty()) {
    return ErrorAt(
        place,
        absl::StrCat("experts: ", message.n_expert().empty() ? "n_expert" : "top_k",
                     " is missing; it has the form experts { n_expert: \"8\" ", "top_k: \"2\" }"));
  }
  PLUMB_ASSIGN_OR_RETURN(spec.n_expert, ToExpression(at, "n_expert", "1"));
  PLUMB_ASSIGN_OR_RETURN(spec.top_k, ToExpression(at, "top_k", "1"));
  PLUMB_ASSIGN_OR_RETURN(spec.shared_d_ff, OptionalExpression(at, "shared_d_ff"));
  PLUMB_ASSIGN_OR_RETURN(spec.latent, OptionalExpression(at, "latent"));
  PLUMB_ASSIGN_OR_RETURN(spec.balance_loss, OptionalExpression(at, "balance_loss"));
  PLUMB_ASSIGN_OR_RETURN(spec.scale, OptionalExpression(at, "scale"));
  PLUMB_ASSIGN_OR_RETURN(spec.n_group, OptionalExpression(at, "n_group"));
  PLUMB_ASSIGN_OR_RETURN(spec.top_group, OptionalExpression(at, "top_group"));
  spec.router_bias = message.router_bias();
  spec.correction = message.correction();
  spec.renormalize = message.renormalize();
  if (spec.renormalize && spec.router != "sigmoid") {
    return ErrorAt(at.At("renormalize"),
                   "renormalize is for router: SIGMOID; a softmax whose chosen weights are divided "
                   "by their sum is router: SOFTMAX_OF_TOP_K");
  }
  spec.shared_gate = message.shared_gate();
  if (spec.shared_gate && !spec.shared_d_ff.has_value()) {
    return ErrorAt(at.At("shared_gate"),
                   "shared_gate: there is no shared expert; shared_d_ff: \"WIDTH\" makes one");
  }
  return spec;
}

absl::StatusOr<ConvSpec> ToConv(const v1::Conv& message, const Located& at) {
  constexpr int64_t kMaxWidth = 256;
  ConvSpec spec;
  if (message.has_width()) spec.width = message.width();
  if (spec.width < 1 || spec.width > kMaxWidth) {
    return ErrorAt(at.At("width"),
                   absl::StrCat("width: ", spec.width, " is not in 1..", kMaxWidth));
  }
  spec.bias = message.bias();
  return spec;
}

absl::StatusOr<LinearAttentionSpec> ToLinearAttention(const v1::LinearAttention& message,
                                                      const Located& at) {
  using Decay = LinearAttentionSpec::Decay;
  LinearAttentionSpec spec;
  PLUMB_ASSIGN_OR_RETURN(spec.n_head, OptionalExpression(at, "n_head"));
  PLUMB_ASSIGN_OR_RETURN(spec.n_key_head, OptionalExpression(at, "n_key_head"));
  PLUMB_ASSIGN_OR_RETURN(spec.key_dim, OptionalExpression(at, "key_dim"));
  PLUMB_ASSIGN_OR_RETURN(spec.value_dim, OptionalExpression(at, "value_dim"));
  switch (message.decay()) {
    case v1::LinearAttention::PER_HEAD:
      spec.decay = Decay::kPerHead;
      break;
    case v1::LinearAttention::PER_KEY:
      spec.decay = Decay::kPerKey;
      break;
    case v1::LinearAttention::FIXED:
      spec.decay = Decay::kFixed;
      break;
    default:
      spec.decay = Decay::kNone;
  }
  spec.delta = message.delta();
  if (message.has_conv()) {
    PLUMB_ASSIGN_OR_RETURN(spec.conv, ToConv(message.conv(), at.Nested("conv")));
  }
  return spec;
}

absl::StatusOr<int64_t> ToEmbeddingWidth(const Located& model, const ScalarScope& scope) {
  PLUMB_ASSIGN_OR_RETURN(const Expression width, ToExpression(model, "embedding_width", "d_model"));
  return EvaluateWidth(width, "embedding_width:", scope);
}

absl::StatusOr<TokenTable> ToTokenTable(const v1::Embedding& message, const Located& at,
                                        const SourceLocation& place, const ScalarScope& scope) {
  TokenTable table;
  table.name = message.name();
  table.place = message.name().empty() ? place : at.At("name");
  if (!IsIdentifier(table.name)) {
    return ErrorAt(table.place, absl::StrCat("embedding: \"", table.name, "\" is not a name"));
  }
  if (const std::string taken = ReservedAs(table.name); !taken.empty()) {
    return ErrorAt(table.place, absl::StrCat("embedding \"", table.name, "\": the name is that of ",
                                             taken, "; give it another"));
  }
  PLUMB_ASSIGN_OR_RETURN(const Expression expression, ToExpression(at, "width", "d_model"));
  PLUMB_ASSIGN_OR_RETURN(
      table.width,
      EvaluateWidth(expression, absl::StrCat("embedding \"", table.name, "\": width"), scope));
  table.per_layer = message.per_layer();
  return table;
}

absl::StatusOr<NormAttrs> ToNormAttrs(const v1::Norm& message, const Located& at) {
  NormAttrs attrs;
  for (int i = 0; i < message.attr_size(); ++i) {
    const v1::Attribute& attr = message.attr(i);
    NormAttrValue value;
    switch (attr.value_case()) {
      case v1::Attribute::kNumber:
        value = attr.number();
        break;
      case v1::Attribute::kFlag:
        value = attr.flag();
        break;
      case v1::Attribute::kText:
        value = attr.text();
        break;
      case v1::Attribute::VALUE_NOT_SET:
        return ErrorAt(
            at.At("attr", i),
            absl::StrCat("attr \"", attr.name(), "\" has no value; give number, flag or text"));
    }
    if (!attrs.insert({attr.name(), std::move(value)}).second) {
      return ErrorAt(at.At("attr", i), absl::StrCat("attr \"", attr.name(), "\" is given twice"));
    }
  }
  return attrs;
}

}  // namespace plumb
