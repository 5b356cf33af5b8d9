// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/family.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

// Message of a family's file, and its location.
struct Placed : Located {
  SourceLocation place;
};

// Reads an expression; the field may be empty.
absl::Status ReadOptional(const Located& at, const char* field, std::optional<Expression>* to) {
  const SourceText text = at.GetText(field);
  if (text.value.empty()) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(*to, ParseExpression(text));
  return absl::OkStatus();
}

absl::Status ReadRequired(const Placed& at, const char* field, Expression* to) {
  const SourceText text = at.GetText(field);
  if (text.value.empty()) return ErrorAt(at.place, absl::StrCat(field, " is missing"));
  PLUMB_ASSIGN_OR_RETURN(*to, ParseExpression(text));
  return absl::OkStatus();
}

absl::Status ReadTemplate(const Located& at, const char* field, TextTemplate* to) {
  PLUMB_ASSIGN_OR_RETURN(*to, ParseTemplate(at.GetText(field)));
  return absl::OkStatus();
}

// Adds the rules in a field, each by the Read of its type.
template <class Message, class Rule>
absl::Status ReadEach(const Located& at, const char* field, const std::vector<Message>& messages,
                      std::vector<Rule>* rules) {
  for (int i = 0; i < static_cast<int>(messages.size()); ++i) {
    PLUMB_RETURN_IF_ERROR(Read(messages[static_cast<size_t>(i)],
                               Placed{at.Nested(field, i), at.At(field, i)},
                               &rules->emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status Read(const v1::Choice& choice, const Placed& at, ScalarChoice* rule) {
  rule->is = choice.is();
  const SourceText one{"1", at.place};
  PLUMB_ASSIGN_OR_RETURN(rule->value,
                         ParseExpression(choice.value().empty() ? one : at.GetText("value")));
  return absl::OkStatus();
}

absl::Status Read(const v1::Scalar& scalar, const Placed& at, ScalarRule* rule) {
  rule->name = at.GetText("name");
  if (!IsIdentifier(scalar.name())) {
    return ErrorAt(at.place, "a scalar's name has letters, digits and _, and begins with no digit");
  }
  rule->fields = scalar.field();
  if (scalar.kind() != v1::Scalar::KIND_UNSPECIFIED) rule->kind = scalar.kind();
  rule->lists_layers = scalar.lists_layers();
  rule->per_layer = scalar.per_layer() || rule->lists_layers;
  rule->model_field.path = at.GetText("model_field");
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "absent", &rule->absent));
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "null", &rule->null));
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "value", &rule->value));
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "on_export", &rule->on_export));
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "otherwise", &rule->otherwise));
  if (rule->fields.empty() != rule->value.has_value()) {
    return ErrorAt(at.place, absl::StrCat(scalar.name(), " needs either a field or a value"));
  }
  return ReadEach(at, "choice", scalar.choice(), &rule->choices);
}

absl::Status Read(const v1::Mapping& mapping, const Placed& at, MappingRule* rule) {
  rule->is = mapping.is();
  PLUMB_RETURN_IF_ERROR(ReadTemplate(at, "text", &rule->text));
  return ReadOptional(at, "when", &rule->when);
}

absl::Status Read(const v1::StringVariable& word, const Placed& at, StringVariableRule* rule) {
  rule->name = at.GetText("name");
  if (!IsIdentifier(word.name())) {
    return ErrorAt(at.place, "a word's name has letters, digits and _, and begins with no digit");
  }
  rule->fields = word.field();
  rule->model_field.path = at.GetText("model_field");
  rule->numbers = word.numbers();
  if (!word.absent().empty()) rule->absent = word.absent();
  for (int i = 0; i < word.choice_size(); ++i) {
    if (rule->fields.empty() != word.choice(i).is().empty()) {
      return ErrorAt(at.At("choice", i), rule->fields.empty()
                                             ? "a word without a field chooses by `when`"
                                             : "a word with a field chooses by `is`");
    }
  }
  return ReadEach(at, "choice", word.choice(), &rule->choices);
}

absl::Status ReadSlice(const Placed& at, std::optional<SliceRule>* to) {
  SliceRule& rule = to->emplace();
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "groups", &rule.groups));
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "first", &rule.first));
  return ReadRequired(at, "count", &rule.count);
}

absl::Status Read(const v1::TensorMap& tensor, const Placed& at, TensorRule* rule) {
  if (tensor.to().empty()) return ErrorAt(at.place, "tensor: to is missing");
  if (tensor.source().empty() == tensor.fill().empty()) {
    return ErrorAt(at.place, absl::StrCat(tensor.to(), " needs either a source or a fill"));
  }
  rule->to = at.GetText("to");
  if (!tensor.source().empty()) rule->source = at.GetText("source");
  rule->older = tensor.older();
  rule->transpose = tensor.transpose();
  rule->depthwise = tensor.depthwise();
  if (tensor.has_rows()) {
    PLUMB_RETURN_IF_ERROR(ReadSlice({at.Nested("rows"), at.At("rows")}, &rule->rows));
  }
  if (tensor.has_columns()) {
    PLUMB_RETURN_IF_ERROR(ReadSlice({at.Nested("columns"), at.At("columns")}, &rule->columns));
  }
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "when", &rule->when));
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "fill", &rule->fill));
  return ReadOptional(at, "flat_rows", &rule->flat_rows);
}

// Adds rules. They replace imported rules of the same name; two rules of one file must differ.
template <class Rule>
absl::Status AddNamed(std::vector<Rule> added, std::set<std::string>* own,
                      std::vector<Rule>* rules) {
  for (Rule& rule : added) {
    const std::string& name = rule.name.value;
    if (!own->insert(name).second || name == "layer" || name == "head") {
      return ErrorAt(rule.name.place, absl::StrCat("the name ", name, " is taken; choose another"));
    }
    const Rule* const known = FindRule(*rules, name);
    if (known == nullptr) {
      rules->push_back(std::move(rule));
    } else {
      (*rules)[static_cast<size_t>(known - rules->data())] = std::move(rule);
    }
  }
  return absl::OkStatus();
}

absl::Status Read(const v1::Unsupported& /*refusal*/, const Placed& at, UnsupportedRule* rule) {
  PLUMB_RETURN_IF_ERROR(ReadRequired(at, "when", &rule->when));
  return ReadTemplate(at, "reason", &rule->reason);
}

absl::Status Read(const v1::ComputedField& computed, const Placed& at, ComputedFieldRule* rule) {
  if (computed.model_field().empty()) {
    return ErrorAt(at.place, "computed: model_field is missing");
  }
  rule->path = at.GetText("model_field");
  return ReadTemplate(at, "text", &rule->text);
}

absl::Status Read(const v1::Template& piece, const Placed& at, TemplateRule* rule) {
  if (!piece.has_set() && piece.computed_size() == 0) {
    return ErrorAt(at.place, "model: set is missing");
  }
  PLUMB_RETURN_IF_ERROR(ReadOptional(at, "when", &rule->when));
  rule->set = piece.set();
  rule->per_layer = piece.per_layer();
  for (const StringField& string : StringFields(&rule->set, at.Nested("set"))) {
    PLUMB_ASSIGN_OR_RETURN(TextTemplate text, ParseTemplate(string.text));
    rule->strings.push_back(std::move(text));
  }
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "computed", piece.computed(), &rule->computed));
  for (const ComputedFieldRule& computed : rule->computed) {
    const auto found = textproto::FindField(rule->set, computed.path.value);
    if (!found.ok()) return ErrorAt(computed.path.place, found.status().message());
  }
  return absl::OkStatus();
}

absl::Status Read(const v1::IrrelevantKey& irrelevant, const Placed& at, IrrelevantRule* rule) {
  if (irrelevant.reason().empty()) return ErrorAt(at.place, "irrelevant: reason is missing");
  *rule = {irrelevant.key(), irrelevant.reason()};
  return absl::OkStatus();
}

absl::Status Read(const v1::Ignored& ignored, const Placed& at, IgnoredRule* rule) {
  if (ignored.name().empty()) return ErrorAt(at.place, "ignore: name is missing");
  rule->name = at.GetText("name");
  rule->same_as = ignored.same_as();
  rule->reason = ignored.reason();
  if (ignored.has_value()) rule->value = ignored.value();
  return ReadOptional(at, "when", &rule->when);
}

absl::Status Read(const v1::ConfigField& config, const Placed& at, ConfigRule* rule) {
  rule->field = config.field();
  PLUMB_RETURN_IF_ERROR(ReadTemplate(at, "json", &rule->json));
  return ReadOptional(at, "when", &rule->when);
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

// Adds the rules of a file to the family.
absl::Status ReadRules(const v1::Import& file, const Located& at, Family* family) {
  std::set<std::string> own;
  std::vector<ScalarRule> scalars;
  std::vector<StringVariableRule> words;
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "scalar", file.scalar(), &scalars));
  PLUMB_RETURN_IF_ERROR(AddNamed(std::move(scalars), &own, &family->scalars));
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "word", file.word(), &words));
  PLUMB_RETURN_IF_ERROR(AddNamed(std::move(words), &own, &family->string_variables));
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "refuse", file.refuse(), &family->unsupported));
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "warn", file.warn(), &family->warnings));
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "model", file.model(), &family->model));
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "irrelevant", file.irrelevant(), &family->irrelevant));
  family->prefixes.insert(family->prefixes.end(), file.prefix().begin(), file.prefix().end());
  RemoveReplaced(file, &family->tensors);
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "tensor", file.tensor(), &family->tensors));
  PLUMB_RETURN_IF_ERROR(ReadEach(at, "ignore", file.ignore(), &family->ignored));
  return ReadEach(at, "config", file.config(), &family->config);
}

// Returns the names that a scalar's expressions read.
std::set<std::string> NamesReadBy(const ScalarRule& rule) {
  std::set<std::string> names;
  for (const auto* expression : {&rule.absent, &rule.null, &rule.value, &rule.otherwise}) {
    if (expression->has_value()) CollectNames((*expression)->root, Expr::Kind::kName, &names);
  }
  for (const ScalarChoice& choice : rule.choices) {
    CollectNames(choice.value.root, Expr::Kind::kName, &names);
  }
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
    return ReadRules(*message, at, family);
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
  if (FindRule(family.scalars, "n_layer") == nullptr) {
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
