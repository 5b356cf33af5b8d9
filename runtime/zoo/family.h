// SPDX-License-Identifier: Apache-2.0
// Family: layout of the checkpoints of one family of models, as described by a .import.pbtxt file
// and its imported parts (schema plumb.v1.Import). A value, checked as far as that is possible
// without a checkpoint. config_values.h, config_keys.h, family_template.h and tensor_plan.h apply
// it.
#ifndef PLUMB_RUNTIME_ZOO_FAMILY_H_
#define PLUMB_RUNTIME_ZOO_FAMILY_H_

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plumb/v1/import.schema.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/spec/formula.h"

namespace plumb {

// Text with ${expressions}: literals[0] expressions[0] literals[1] ...
struct TextTemplate {
  SourceText text;
  std::vector<std::string> literals;  // one more than expressions
  std::vector<Expression> expressions;
};

// Errors: kInvalidArgument with a location in the text.
absl::StatusOr<TextTemplate> ParseTemplate(const SourceText& text);

// Field of the model that has the value of a scalar or word.
struct ModelField {
  SourceText path;          // "": none
  bool is_set_here = true;  // false: a piece of Family::model sets it, and this is for export
};

// Value of a scalar if the field of config.json has a certain text.
struct ScalarChoice {
  std::string is;
  Expression value;
};

struct ScalarRule {
  SourceText name;
  std::vector<std::string> fields;  // empty: `value` is set
  v1::Scalar::Kind kind = v1::Scalar::NUMBER;
  std::optional<Expression> absent, null, value, otherwise;  // null: defaults to absent
  std::optional<Expression> on_export;                       // defaults to absent
  std::vector<ScalarChoice> choices;
  bool per_layer = false;
  bool lists_layers = false;  // the field is a list of layers' numbers
  ModelField model_field;
};

struct MappingRule {
  std::string is;
  TextTemplate text;
  std::optional<Expression> when;  // for words without a field
};

struct StringVariableRule {
  SourceText name;
  std::vector<std::string> fields;
  std::optional<std::string> absent;
  std::vector<MappingRule> choices;
  ModelField model_field;
  bool numbers = false;  // the field is a list of numbers
};

// Condition on config.json, and the message for users if it holds.
struct UnsupportedRule {
  Expression when;
  TextTemplate reason;
};

struct ComputedFieldRule {
  SourceText path;
  TextTemplate text;
};

// Piece of the model's description.
struct TemplateRule {
  std::optional<Expression> when;
  v1::Model set;
  std::vector<TextTemplate> strings;  // of `set`, in the order of StringFields (model_fields.h)
  std::vector<ComputedFieldRule> computed;
  bool per_layer = false;
};

struct SliceRule {
  std::optional<Expression> groups, first;
  Expression count;
};

struct TensorRule {
  SourceText to, source;  // empty source: `fill` is set
  std::string older;      // name of the source in older files; "": the same
  bool transpose = false, depthwise = false;
  std::optional<SliceRule> rows, columns;
  std::optional<Expression> when, fill, flat_rows;
};

struct IgnoredRule {
  SourceText name;
  std::string same_as;  // "": no such condition
  std::optional<Expression> when;
  std::string reason;
  std::optional<double> value;
};

struct IrrelevantRule {
  std::vector<std::string> keys;  // * matches any text
  std::string reason;
};

struct ConfigRule {
  std::string field;
  TextTemplate json;
  std::optional<Expression> when;
};

struct Family {
  std::string file, name, doc;
  std::vector<std::string> model_types, architectures;
  std::vector<ScalarRule> scalars;  // sorted: each follows the ones that it reads
  std::vector<StringVariableRule> string_variables;
  std::vector<UnsupportedRule> unsupported, warnings;
  std::vector<TemplateRule> model;
  std::vector<std::string> prefixes;
  std::vector<TensorRule> tensors;
  std::vector<IgnoredRule> ignored;
  std::vector<ConfigRule> config;
  std::vector<IrrelevantRule> irrelevant;
};

// Returns the scalar or word with this name, or null.
template <class Rule>
const Rule* FindRule(const std::vector<Rule>& rules, const std::string& name) {
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&name](const Rule& rule) { return rule.name.value == name; });
  return found == rules.end() ? nullptr : &*found;
}

struct FamilyText {
  std::string file, text;  // text is in protobuf text format; file names it in errors
};

// Callback that finds a part by its name. Errors: kNotFound.
using PartReader = std::function<absl::StatusOr<FamilyText>(const std::string& name)>;

// Parses a family and reads its imports by `parts`. Errors: kInvalidArgument with locations, and
// those of `parts`.
absl::StatusOr<Family> ParseFamily(const FamilyText& text, const PartReader& parts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_FAMILY_H_
