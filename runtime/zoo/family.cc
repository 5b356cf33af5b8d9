// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/family.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "plumb/v1/import.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/located.h"
#include "runtime/schema/reader.h"
#include "runtime/spec/convert.h"
#include "runtime/zoo/model_fields.h"

namespace plumb {
namespace {

// Returns the expression of a field, or nullopt if the field is empty.
absl::StatusOr<std::optional<Expression>> Optional(const Located& at, const std::string& value,
                                                   const char* field) {
  if (value.empty()) return std::nullopt;
  PLUMB_ASSIGN_OR_RETURN(Expression expression, ParseExpression(at.GetText(field)));
  return expression;
}

absl::StatusOr<Expression> Required(const Located& at, const std::string& value, const char* field,
                                    const SourceLocation& place) {
  PLUMB_ASSIGN_OR_RETURN(std::optional<Expression> expression, Optional(at, value, field));
  if (!expression.has_value()) return ErrorAt(place, absl::StrCat(field, " is missing"));
  return *std::move(expression);
}

ScalarKind ToScalarKind(v1::Scalar::Kind kind) {
  switch (kind) {
    case v1::Scalar::SIZE:
      return ScalarKind::kSize;
    case v1::Scalar::COUNT:
      return ScalarKind::kCount;
    case v1::Scalar::FLAG:
      return ScalarKind::kFlag;
    default:
      return ScalarKind::kNumber;
  }
}

absl::StatusOr<ScalarRule> ReadScalar(const v1::Scalar& scalar, const Located& at,
                                      const SourceLocation& place) {
  ScalarRule rule;
  rule.name = at.GetText("name");
  if (!IsIdentifier(scalar.name())) {
    return ErrorAt(place, "a scalar's name has letters, digits and _, and begins with no digit");
  }
  rule.fields = scalar.field();
  rule.kind = ToScalarKind(scalar.kind());
  rule.lists_layers = scalar.lists_layers();
  rule.per_layer = scalar.per_layer() || rule.lists_layers;
  rule.model_field.path = at.GetText("model_field");
  PLUMB_ASSIGN_OR_RETURN(rule.absent, Optional(at, scalar.absent(), "absent"));
  PLUMB_ASSIGN_OR_RETURN(rule.null, Optional(at, scalar.null(), "null"));
  PLUMB_ASSIGN_OR_RETURN(rule.value, Optional(at, scalar.value(), "value"));
  PLUMB_ASSIGN_OR_RETURN(rule.on_export, Optional(at, scalar.on_export(), "on_export"));
  PLUMB_ASSIGN_OR_RETURN(rule.otherwise, Optional(at, scalar.otherwise(), "otherwise"));
  if (rule.fields.empty() != rule.value.has_value()) {
    return ErrorAt(place, absl::StrCat(scalar.name(), " needs either a field or a value"));
  }
  for (int i = 0; i < scalar.choice_size(); ++i) {
    const Located choice_at = at.Nested("choice", i);
    SourceText value{scalar.choice(i).value(), at.At("choice", i)};
    if (value.value.empty()) {
      value.value = "1";
    } else {
      value = choice_at.GetText("value");
    }
    PLUMB_ASSIGN_OR_RETURN(Expression expression, ParseExpression(value));
    rule.choices.push_back({scalar.choice(i).is(), std::move(expression)});
  }
  return rule;
}

absl::StatusOr<StringVariableRule> ReadStringVariable(const v1::StringVariable& word,
                                                      const Located& at,
                                                      const SourceLocation& place) {
  StringVariableRule rule;
  rule.name = at.GetText("name");
  if (!IsIdentifier(word.name())) {
    return ErrorAt(place, "a word's name has letters, digits and _, and begins with no digit");
  }
  rule.fields = word.field();
  rule.model_field.path = at.GetText("model_field");
  rule.numbers = word.numbers();
  if (!word.absent().empty()) rule.absent = word.absent();
  for (int i = 0; i < word.choice_size(); ++i) {
    const v1::Mapping& meaning = word.choice(i);
    if (rule.fields.empty() != meaning.is().empty()) {
      return ErrorAt(at.At("choice", i), rule.fields.empty()
                                             ? "a word without a field chooses by `when`"
                                             : "a word with a field chooses by `is`");
    }
    MappingRule choice;
    choice.is = meaning.is();
    const Located choice_at = at.Nested("choice", i);
    PLUMB_ASSIGN_OR_RETURN(choice.text, ParseTemplate(choice_at.GetText("text")));
    PLUMB_ASSIGN_OR_RETURN(choice.when, Optional(at.Nested("choice", i), meaning.when(), "when"));
    rule.choices.push_back(std::move(choice));
  }
  return rule;
}

absl::StatusOr<std::optional<SliceRule>> ReadSlice(const v1::Slice& part, const Located& at,
                                                   const SourceLocation& place) {
  SliceRule rule;
  PLUMB_ASSIGN_OR_RETURN(rule.groups, Optional(at, part.groups(), "groups"));
  PLUMB_ASSIGN_OR_RETURN(rule.first, Optional(at, part.first(), "first"));
  PLUMB_ASSIGN_OR_RETURN(rule.count, Required(at, part.count(), "count", place));
  return rule;
}

absl::StatusOr<TensorRule> ReadTensor(const v1::TensorMap& tensor, const Located& at,
                                      const SourceLocation& place) {
  if (tensor.to().empty()) return ErrorAt(place, "tensor: to is missing");
  if (tensor.source().empty() == tensor.fill().empty()) {
    return ErrorAt(place, absl::StrCat(tensor.to(), " needs either a source or a fill"));
  }
  TensorRule rule;
  rule.to = at.GetText("to");
  if (!tensor.source().empty()) rule.source = at.GetText("source");
  rule.older = tensor.older();
  rule.transpose = tensor.transpose();
  rule.depthwise = tensor.depthwise();
  if (tensor.has_rows()) {
    PLUMB_ASSIGN_OR_RETURN(rule.rows, ReadSlice(tensor.rows(), at.Nested("rows"), at.At("rows")));
  }
  if (tensor.has_columns()) {
    PLUMB_ASSIGN_OR_RETURN(rule.columns,
                           ReadSlice(tensor.columns(), at.Nested("columns"), at.At("columns")));
  }
  PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(at, tensor.when(), "when"));
  PLUMB_ASSIGN_OR_RETURN(rule.fill, Optional(at, tensor.fill(), "fill"));
  PLUMB_ASSIGN_OR_RETURN(rule.flat_rows, Optional(at, tensor.flat_rows(), "flat_rows"));
  return rule;
}

// Returns the index of the rule with this name; npos if there is none.
template <class Rule>
size_t IndexOf(const std::vector<Rule>& rules, const std::string& name) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].name.value == name) return i;
  }
  return std::string::npos;
}

// Adds a rule. It replaces an imported rule of the same name; two rules of one file must differ.
template <class Rule>
absl::Status AddNamed(Rule rule, std::set<std::string>* own, std::vector<Rule>* rules) {
  const std::string& name = rule.name.value;
  if (!own->insert(name).second || name == "layer" || name == "head") {
    return ErrorAt(rule.name.place, absl::StrCat("the name ", name, " is taken; choose another"));
  }
  const size_t at = IndexOf(*rules, name);
  if (at == std::string::npos) {
    rules->push_back(std::move(rule));
  } else {
    (*rules)[at] = std::move(rule);
  }
  return absl::OkStatus();
}

absl::StatusOr<UnsupportedRule> ReadUnsupported(const v1::Unsupported& refusal, const Located& at,
                                                const SourceLocation& place) {
  UnsupportedRule rule;
  PLUMB_ASSIGN_OR_RETURN(rule.when, Required(at, refusal.when(), "when", place));
  PLUMB_ASSIGN_OR_RETURN(rule.reason, ParseTemplate(at.GetText("reason")));
  return rule;
}

absl::StatusOr<ComputedFieldRule> ReadComputedField(const v1::ComputedField& computed,
                                                    const Located& at, const SourceLocation& place,
                                                    const v1::Model& set) {
  if (computed.model_field().empty()) return ErrorAt(place, "computed: model_field is missing");
  ComputedFieldRule rule;
  rule.path = at.GetText("model_field");
  const auto found = textproto::FindField(set, rule.path.value);
  if (!found.ok()) return ErrorAt(rule.path.place, found.status().message());
  PLUMB_ASSIGN_OR_RETURN(rule.text, ParseTemplate(at.GetText("text")));
  return rule;
}

absl::StatusOr<TemplateRule> ReadPiece(const v1::Template& piece, const Located& at,
                                       const SourceLocation& place) {
  if (!piece.has_set() && piece.computed_size() == 0) {
    return ErrorAt(place, "model: set is missing");
  }
  TemplateRule rule;
  PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(at, piece.when(), "when"));
  rule.set = piece.set();
  rule.per_layer = piece.per_layer();
  for (const StringField& string : StringFields(&rule.set, at.Nested("set"))) {
    PLUMB_ASSIGN_OR_RETURN(TextTemplate text, ParseTemplate(string.text));
    rule.strings.push_back(std::move(text));
  }
  for (int i = 0; i < piece.computed_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(ComputedFieldRule computed,
                           ReadComputedField(piece.computed(i), at.Nested("computed", i),
                                             at.At("computed", i), rule.set));
    rule.computed.push_back(std::move(computed));
  }
  return rule;
}

absl::Status ReadRules(const v1::Import& message, const Located& at, Family* family) {
  std::set<std::string> own;
  for (int i = 0; i < message.scalar_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        ScalarRule rule, ReadScalar(message.scalar(i), at.Nested("scalar", i), at.At("scalar", i)));
    PLUMB_RETURN_IF_ERROR(AddNamed(std::move(rule), &own, &family->scalars));
  }
  for (int i = 0; i < message.word_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        StringVariableRule rule,
        ReadStringVariable(message.word(i), at.Nested("word", i), at.At("word", i)));
    PLUMB_RETURN_IF_ERROR(AddNamed(std::move(rule), &own, &family->string_variables));
  }
  for (int i = 0; i < message.refuse_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        UnsupportedRule rule,
        ReadUnsupported(message.refuse(i), at.Nested("refuse", i), at.At("refuse", i)));
    family->unsupported.push_back(std::move(rule));
  }
  for (int i = 0; i < message.warn_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        UnsupportedRule rule,
        ReadUnsupported(message.warn(i), at.Nested("warn", i), at.At("warn", i)));
    family->warnings.push_back(std::move(rule));
  }
  for (int i = 0; i < message.model_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(TemplateRule rule,
                           ReadPiece(message.model(i), at.Nested("model", i), at.At("model", i)));
    family->model.push_back(std::move(rule));
  }
  for (int i = 0; i < message.irrelevant_size(); ++i) {
    const v1::IrrelevantKey& irrelevant = message.irrelevant(i);
    if (irrelevant.reason().empty()) {
      return ErrorAt(at.At("irrelevant", i), "irrelevant: reason is missing");
    }
    family->irrelevant.push_back({irrelevant.key(), irrelevant.reason()});
  }
  return absl::OkStatus();
}

// Removes rules for tensors to which the file has rules of its own: these replace imported ones.
void RemoveReplaced(const v1::Import& message, std::vector<TensorRule>* rules) {
  std::set<std::string> own;
  for (const v1::TensorMap& tensor : message.tensor()) own.insert(tensor.to());
  rules->erase(
      std::remove_if(rules->begin(), rules->end(),
                     [&own](const TensorRule& rule) { return own.count(rule.to.value) > 0; }),
      rules->end());
}

absl::Status ReadTensors(const v1::Import& message, const Located& at, Family* family) {
  for (const std::string& prefix : message.prefix()) family->prefixes.push_back(prefix);
  RemoveReplaced(message, &family->tensors);
  for (int i = 0; i < message.tensor_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        TensorRule rule, ReadTensor(message.tensor(i), at.Nested("tensor", i), at.At("tensor", i)));
    family->tensors.push_back(std::move(rule));
  }
  for (int i = 0; i < message.ignore_size(); ++i) {
    const Located in = at.Nested("ignore", i);
    const v1::Ignored& ignored = message.ignore(i);
    if (ignored.name().empty()) return ErrorAt(at.At("ignore", i), "ignore: name is missing");
    IgnoredRule rule{in.GetText("name"), ignored.same_as(), std::nullopt, ignored.reason(),
                     std::nullopt};
    PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(in, ignored.when(), "when"));
    if (ignored.has_value()) rule.value = ignored.value();
    family->ignored.push_back(std::move(rule));
  }
  for (int i = 0; i < message.config_size(); ++i) {
    const Located in = at.Nested("config", i);
    ConfigRule rule;
    rule.field = message.config(i).field();
    PLUMB_ASSIGN_OR_RETURN(rule.json, ParseTemplate(in.GetText("json")));
    PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(in, message.config(i).when(), "when"));
    family->config.push_back(std::move(rule));
  }
  return absl::OkStatus();
}

// Returns the names that a scalar's expressions read.
std::set<std::string> NamesReadBy(const ScalarRule& rule) {
  std::set<std::string> names;
  const auto collect = [&names](const std::optional<Expression>& expression) {
    if (expression.has_value()) CollectNames(expression->root, Expr::Kind::kName, &names);
  };
  collect(rule.absent);
  collect(rule.null);
  collect(rule.value);
  collect(rule.otherwise);
  for (const ScalarChoice& choice : rule.choices) collect(choice.value);
  if (rule.per_layer) names.insert("n_layer");
  return names;
}

// Moves each scalar after the ones that it reads, and otherwise keeps the order.
absl::Status SortScalars(std::vector<ScalarRule>* scalars) {
  std::vector<ScalarRule> rest = std::move(*scalars);
  scalars->clear();
  while (!rest.empty()) {
    const auto ready = std::find_if(rest.begin(), rest.end(), [&rest](const ScalarRule& rule) {
      const std::set<std::string> names = NamesReadBy(rule);
      return std::none_of(rest.begin(), rest.end(), [&names](const ScalarRule& other) {
        return names.count(other.name.value) > 0;
      });
    });
    if (ready == rest.end()) {
      return ErrorAt(rest.front().name.place,
                     absl::StrCat(rest.front().name.value, " is computed from itself"));
    }
    scalars->push_back(std::move(*ready));
    rest.erase(ready);
  }
  return absl::OkStatus();
}

// Returns true if the piece sets the field at the path.
bool Sets(const TemplateRule& piece, const std::string& path) {
  const auto found = textproto::FindField(piece.set, path);
  if (found.ok() && found->message->Size(*found->field) > 0) return true;
  return std::any_of(
      piece.computed.begin(), piece.computed.end(),
      [&path](const ComputedFieldRule& computed) { return computed.path.value == path; });
}

// Checks the fields of the scalars or words, and notes which of them the pieces set. `taken`
// collects the paths of the others.
template <class Rule>
absl::Status ResolveModelFields(const std::vector<TemplateRule>& pieces,
                                std::set<std::string>* taken, std::vector<Rule>* rules) {
  v1::Model all;
  for (const TemplateRule& piece : pieces) MergeFields(piece.set, &all);
  for (Rule& rule : *rules) {
    const SourceText& path = rule.model_field.path;
    if (path.value.empty()) continue;
    const auto found = textproto::FindField(all, path.value);
    if (!found.ok()) return ErrorAt(path.place, found.status().message());
    rule.model_field.is_set_here =
        std::none_of(pieces.begin(), pieces.end(),
                     [&path](const TemplateRule& piece) { return Sets(piece, path.value); });
    if (rule.model_field.is_set_here && !taken->insert(path.value).second) {
      return ErrorAt(path.place,
                     absl::StrCat(path.value, " has the value of another scalar or word"));
    }
  }
  return absl::OkStatus();
}

// Reads a family and its imports, file by file.
class FamilyReader {
 public:
  explicit FamilyReader(const PartReader& parts) : parts_(parts) {}

  // Reads a file with the values `set` of its parameters into the family. Its parts are read first.
  absl::Status Read(const FamilyText& source, const std::map<std::string, std::string>& set,
                    int depth, v1::Import* message, Family* family) {
    PLUMB_ASSIGN_OR_RETURN(const std::string text, WithParameters(source, set));
    textproto::Locations locations;
    PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, source.file, message, &locations));
    const Located at(source.file, *message, &locations);
    for (int i = 0; i < message->import_size(); ++i) {
      PLUMB_RETURN_IF_ERROR(ReadImport(message->import(i), at.At("import", i), depth, family));
    }
    PLUMB_RETURN_IF_ERROR(ReadRules(*message, at, family));
    return ReadTensors(*message, at, family);
  }

 private:
  static constexpr int kMaxDepth = 8;
  static constexpr size_t kMaxParts = 64;

  absl::Status ReadImport(const v1::ImportedPart& import, const SourceLocation& place, int depth,
                          Family* family) {
    if (!IsIdentifier(import.part())) {
      return ErrorAt(place, "a part's name has letters, digits and _, and begins with no digit");
    }
    if (depth == kMaxDepth) {
      return ErrorAt(place, absl::StrCat("imports nest too deeply at part ", import.part(),
                                         "; does it import itself?"));
    }
    absl::StatusOr<FamilyText> source = parts_(import.part());
    if (!source.ok()) return ErrorAt(place, source.status().message());
    std::map<std::string, std::string> set;
    for (int i = 0; i < import.set_size(); ++i) set[import.set(i).name()] = import.set(i).text();
    // Two parts may import the same part.
    if (!done_.insert({import.part(), set}).second) return absl::OkStatus();
    if (done_.size() > kMaxParts) {
      return ErrorAt(place, absl::StrCat("more than ", kMaxParts, " parts are imported"));
    }
    v1::Import message;
    absl::Status read = Read(*source, set, depth + 1, &message, family);
    if (read.ok() && !message.family().empty()) {
      return ErrorAt(place, absl::StrCat(source->file, " is a family, not a part of one"));
    }
    return read;
  }

  // Returns the text with each @name@ replaced by the parameter's text.
  static absl::StatusOr<std::string> WithParameters(const FamilyText& source,
                                                    const std::map<std::string, std::string>& set) {
    v1::Import message;
    textproto::Locations locations;
    PLUMB_RETURN_IF_ERROR(textproto::ReadText(source.text, source.file, &message, &locations));
    std::vector<std::pair<std::string, std::string>> replacements;
    std::vector<std::string> known;
    for (int i = 0; i < message.parameter_size(); ++i) {
      const v1::Parameter& parameter = message.parameter(i);
      const auto at = set.find(parameter.name());
      const std::string& text = at == set.end() ? parameter.text() : at->second;
      known.push_back(parameter.name());
      // The text is inside a string literal.
      replacements.emplace_back(
          absl::StrCat("@", parameter.name(), "@"),
          absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}));
    }
    for (const auto& [name, text] : set) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      return ErrorAt({source.file}, absl::StrCat("the part has no parameter ", QuoteName(name),
                                                 DidYouMean(name, known)));
    }
    std::string text = absl::StrReplaceAll(source.text, replacements);
    if (static_cast<int64_t>(text.size()) > kMaxTextBytes) {
      return ErrorAt({source.file}, "the texts of the part's parameters are too long");
    }
    return text;
  }

  const PartReader& parts_;
  std::set<std::pair<std::string, std::map<std::string, std::string>>> done_;
};

}  // namespace

absl::StatusOr<TextTemplate> ParseTemplate(const SourceText& text) {
  TextTemplate parsed;
  parsed.text = text;
  size_t at = 0;
  for (;;) {
    const size_t begin = text.value.find("${", at);
    parsed.literals.push_back(
        text.value.substr(at, begin == std::string::npos ? begin : begin - at));
    if (begin == std::string::npos) return parsed;
    const size_t end = text.value.find('}', begin);
    if (end == std::string::npos) return ErrorInText(text, begin, "\"${\" without its \"}\"");
    PLUMB_ASSIGN_OR_RETURN(
        Expression expression,
        ParseExpression({text.value.substr(begin + 2, end - begin - 2), text.place}));
    parsed.expressions.push_back(std::move(expression));
    at = end + 1;
  }
}

absl::StatusOr<Family> ParseFamily(const FamilyText& text, const PartReader& parts) {
  v1::Import message;
  Family family;
  PLUMB_RETURN_IF_ERROR(FamilyReader(parts).Read(text, {}, 0, &message, &family));
  const SourceLocation place{text.file};
  if (message.family().empty()) return ErrorAt(place, "family is missing");
  if (message.model_type_size() + message.architecture_size() == 0) {
    return ErrorAt(place, "model_type and architecture are missing: which config.json is it for?");
  }
  if (IndexOf(family.scalars, "n_layer") == std::string::npos) {
    return ErrorAt(place, "a family needs a scalar named n_layer");
  }
  PLUMB_RETURN_IF_ERROR(SortScalars(&family.scalars));
  std::set<std::string> taken;
  PLUMB_RETURN_IF_ERROR(ResolveModelFields(family.model, &taken, &family.scalars));
  PLUMB_RETURN_IF_ERROR(ResolveModelFields(family.model, &taken, &family.string_variables));
  family.file = text.file;
  family.name = message.family();
  family.doc = message.doc();
  family.model_types = message.model_type();
  family.architectures = message.architecture();
  return family;
}

}  // namespace plumb
