#include "runtime/zoo/family.h"

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "plumb/v1/import.schema.h"
#include "runtime/base/status.h"
#include "runtime/textproto/located.h"
#include "runtime/textproto/reader.h"

namespace plumb {
namespace {

bool IsName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

// The expression of a field, if it is there.
absl::StatusOr<std::optional<Expression>> Optional(const Located& at, const std::string& value,
                                                   const char* field) {
  if (value.empty()) return std::nullopt;
  PLUMB_ASSIGN_OR_RETURN(Expression expression, ParseExpression(at.TextOf(field)));
  return expression;
}

absl::StatusOr<Expression> Required(const Located& at, const std::string& value, const char* field,
                                    const Place& place) {
  PLUMB_ASSIGN_OR_RETURN(std::optional<Expression> expression, Optional(at, value, field));
  if (!expression.has_value()) return ErrorAt(place, absl::StrCat(field, " is missing"));
  return *std::move(expression);
}

absl::StatusOr<TextTemplate> ParseTemplate(const Text& text) {
  TextTemplate parsed;
  parsed.text = text;
  size_t at = 0;
  for (;;) {
    const size_t begin = text.value.find("${", at);
    parsed.literals.push_back(
        text.value.substr(at, begin == std::string::npos ? begin : begin - at));
    if (begin == std::string::npos) return parsed;
    const size_t end = text.value.find('}', begin);
    if (end == std::string::npos) return ErrorInText(text, begin, "${ without a }");
    PLUMB_ASSIGN_OR_RETURN(
        Expression expression,
        ParseExpression({text.value.substr(begin + 2, end - begin - 2), text.place}));
    parsed.expressions.push_back(std::move(expression));
    at = end + 1;
  }
}

absl::StatusOr<ScalarRule> ReadScalar(const v1::Scalar& scalar, const Located& at,
                                      const Place& place) {
  ScalarRule rule;
  rule.name = at.TextOf("name");
  if (!IsName(scalar.name())) {
    return ErrorAt(place, "a scalar's name has letters, digits and _, and begins with no digit");
  }
  rule.fields = scalar.field();
  rule.kind = static_cast<ScalarKind>(scalar.kind());
  rule.per_layer = scalar.per_layer();
  rule.from_model = scalar.from_model();
  PLUMB_ASSIGN_OR_RETURN(rule.absent, Optional(at, scalar.absent(), "absent"));
  PLUMB_ASSIGN_OR_RETURN(rule.value, Optional(at, scalar.value(), "value"));
  PLUMB_ASSIGN_OR_RETURN(rule.otherwise, Optional(at, scalar.otherwise(), "otherwise"));
  if (rule.fields.empty() != rule.value.has_value()) {
    return ErrorAt(place, absl::StrCat(scalar.name(), " needs either a field or a value"));
  }
  for (int i = 0; i < scalar.choice_size(); ++i) {
    const Located choice_at = at.Nested("choice", i);
    Text value{scalar.choice(i).value(), at.At("choice", i)};
    if (value.value.empty()) {
      value.value = "1";
    } else {
      value = choice_at.TextOf("value");
    }
    PLUMB_ASSIGN_OR_RETURN(Expression expression, ParseExpression(value));
    rule.choices.push_back({scalar.choice(i).is(), std::move(expression)});
  }
  return rule;
}

absl::StatusOr<WordRule> ReadWord(const v1::Word& word, const Located& at, const Place& place) {
  WordRule rule;
  rule.name = at.TextOf("name");
  if (!IsName(word.name())) {
    return ErrorAt(place, "a word's name has letters, digits and _, and begins with no digit");
  }
  rule.fields = word.field();
  rule.from_model = word.from_model();
  if (!word.absent().empty()) rule.absent = word.absent();
  for (int i = 0; i < word.choice_size(); ++i) {
    const v1::Meaning& meaning = word.choice(i);
    if (rule.fields.empty() != meaning.is().empty()) {
      return ErrorAt(at.At("choice", i), rule.fields.empty()
                                             ? "a word without a field chooses by `when`"
                                             : "a word with a field chooses by `is`");
    }
    WordChoice choice{meaning.is(), meaning.text(), std::nullopt};
    PLUMB_ASSIGN_OR_RETURN(choice.when, Optional(at.Nested("choice", i), meaning.when(), "when"));
    rule.choices.push_back(std::move(choice));
  }
  return rule;
}

absl::StatusOr<std::optional<PartRule>> ReadPart(const v1::Part& part, const Located& at,
                                                 const Place& place) {
  PartRule rule;
  PLUMB_ASSIGN_OR_RETURN(rule.groups, Optional(at, part.groups(), "groups"));
  PLUMB_ASSIGN_OR_RETURN(rule.first, Optional(at, part.first(), "first"));
  PLUMB_ASSIGN_OR_RETURN(rule.count, Required(at, part.count(), "count", place));
  return rule;
}

absl::StatusOr<TensorRule> ReadTensor(const v1::TensorMap& tensor, const Located& at,
                                      const Place& place) {
  if (tensor.to().empty()) return ErrorAt(place, "tensor: to is missing");
  if (tensor.source().empty() == tensor.fill().empty()) {
    return ErrorAt(place, absl::StrCat(tensor.to(), " needs either a source or a fill"));
  }
  TensorRule rule;
  rule.to = at.TextOf("to");
  if (!tensor.source().empty()) rule.source = at.TextOf("source");
  rule.older = tensor.older();
  rule.transpose = tensor.transpose();
  if (tensor.has_rows()) {
    PLUMB_ASSIGN_OR_RETURN(rule.rows, ReadPart(tensor.rows(), at.Nested("rows"), at.At("rows")));
  }
  if (tensor.has_columns()) {
    PLUMB_ASSIGN_OR_RETURN(rule.columns,
                           ReadPart(tensor.columns(), at.Nested("columns"), at.At("columns")));
  }
  PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(at, tensor.when(), "when"));
  PLUMB_ASSIGN_OR_RETURN(rule.fill, Optional(at, tensor.fill(), "fill"));
  PLUMB_ASSIGN_OR_RETURN(rule.flat_rows, Optional(at, tensor.flat_rows(), "flat_rows"));
  return rule;
}

absl::Status ReadRules(const v1::Import& message, const Located& at, Family* family) {
  std::set<std::string> names;
  for (int i = 0; i < message.scalar_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        ScalarRule rule, ReadScalar(message.scalar(i), at.Nested("scalar", i), at.At("scalar", i)));
    if (!names.insert(rule.name.value).second || rule.name.value == "layer") {
      return ErrorAt(rule.name.place, absl::StrCat("the name ", rule.name.value, " is taken"));
    }
    family->scalars.push_back(std::move(rule));
  }
  if (names.count("n_layer") == 0) return ErrorAt(at.At("family"), "no scalar is called n_layer");
  for (int i = 0; i < message.word_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(WordRule rule,
                           ReadWord(message.word(i), at.Nested("word", i), at.At("word", i)));
    if (!names.insert(rule.name.value).second) {
      return ErrorAt(rule.name.place, absl::StrCat("the name ", rule.name.value, " is taken"));
    }
    family->words.push_back(std::move(rule));
  }
  for (int i = 0; i < message.refuse_size(); ++i) {
    const Located in = at.Nested("refuse", i);
    RefusalRule rule;
    PLUMB_ASSIGN_OR_RETURN(rule.when,
                           Required(in, message.refuse(i).when(), "when", at.At("refuse", i)));
    PLUMB_ASSIGN_OR_RETURN(rule.reason, ParseTemplate(in.TextOf("reason")));
    family->refusals.push_back(std::move(rule));
  }
  for (int i = 0; i < message.model_size(); ++i) {
    const Located in = at.Nested("model", i);
    LinesRule rule;
    PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(in, message.model(i).when(), "when"));
    for (int j = 0; j < message.model(i).line_size(); ++j) {
      PLUMB_ASSIGN_OR_RETURN(TextTemplate line, ParseTemplate(in.TextOf("line", j)));
      rule.lines.push_back(std::move(line));
    }
    family->model.push_back(std::move(rule));
  }
  return absl::OkStatus();
}

absl::Status ReadTensors(const v1::Import& message, const Located& at, Family* family) {
  for (int i = 0; i < message.tensor_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(
        TensorRule rule, ReadTensor(message.tensor(i), at.Nested("tensor", i), at.At("tensor", i)));
    family->tensors.push_back(std::move(rule));
  }
  for (int i = 0; i < message.ignore_size(); ++i) {
    const Located in = at.Nested("ignore", i);
    const v1::Ignored& ignored = message.ignore(i);
    if (ignored.name().empty()) return ErrorAt(at.At("ignore", i), "ignore: name is missing");
    IgnoredRule rule{in.TextOf("name"), ignored.same_as(), std::nullopt, ignored.reason()};
    PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(in, ignored.when(), "when"));
    family->ignored.push_back(std::move(rule));
  }
  for (int i = 0; i < message.config_size(); ++i) {
    const Located in = at.Nested("config", i);
    ConfigRule rule;
    rule.field = message.config(i).field();
    PLUMB_ASSIGN_OR_RETURN(rule.json, ParseTemplate(in.TextOf("json")));
    PLUMB_ASSIGN_OR_RETURN(rule.when, Optional(in, message.config(i).when(), "when"));
    family->config.push_back(std::move(rule));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Family> ParseFamily(absl::string_view text, const std::string& file) {
  v1::Import message;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, file, &message, &locations));
  const Located at(file, message, &locations);
  if (message.family().empty()) return ErrorAt({file}, "family is missing");
  if (message.model_type_size() + message.architecture_size() == 0) {
    return ErrorAt({file}, "model_type and architecture are missing: which config.json is it for?");
  }
  Family family;
  family.file = file;
  family.name = message.family();
  family.doc = message.doc();
  family.model_types = message.model_type();
  family.architectures = message.architecture();
  family.prefixes = message.prefix();
  PLUMB_RETURN_IF_ERROR(ReadRules(message, at, &family));
  PLUMB_RETURN_IF_ERROR(ReadTensors(message, at, &family));
  return family;
}

}  // namespace plumb
