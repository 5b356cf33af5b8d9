// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/family_template.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plumb/v1/model.schema.h"
#include "runtime/base/status.h"
#include "runtime/schema/located.h"
#include "runtime/schema/reader.h"
#include "runtime/zoo/model_fields.h"

namespace plumb {
namespace {

absl::StatusOr<bool> Holds(const std::optional<Expression>& when, const ConfigValues& values,
                           int64_t layer) {
  if (!when.has_value()) return true;
  PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(*when, values, layer));
  return value != 0;
}

// Sets the field at a path. A flag that is off creates no message, as does an empty text.
absl::Status SetModelField(const SourceText& path, const std::string& text, v1::Model* model) {
  if (text.empty() || FieldText(*model, path.value) == text) return absl::OkStatus();
  const absl::Status set = textproto::SetField(model, path.value, text);
  return set.ok() ? set : ErrorAt(path.place, set.message());
}

// Returns the piece with the values in its strings and computed fields.
absl::StatusOr<v1::Model> RenderPiece(const TemplateRule& rule, const ConfigValues& values,
                                      int64_t layer) {
  v1::Model piece = rule.set;
  const std::vector<StringField> strings = StringFields(&piece, Located("", piece, nullptr));
  for (size_t i = 0; i < strings.size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(std::string text, Render(rule.strings[i], values, layer));
    ReplaceString(strings[i], std::move(text));
  }
  for (const ComputedFieldRule& computed : rule.computed) {
    PLUMB_ASSIGN_OR_RETURN(const std::string text, Render(computed.text, values, layer));
    PLUMB_RETURN_IF_ERROR(SetModelField(computed.path, text, &piece));
  }
  return piece;
}

// Merges a piece into the model if its condition holds. `layer` is 0 for a piece of all layers.
absl::Status MergePiece(const TemplateRule& rule, const ConfigValues& values, int64_t layer,
                        v1::Model* model) {
  PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(rule.when, values, layer));
  if (!holds) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(const v1::Model piece, RenderPiece(rule, values, layer));
  MergeFields(piece, model);
  return absl::OkStatus();
}

// Sets the fields that have the values of scalars and words.
absl::Status SetModelFields(const Family& family, const ConfigValues& values, v1::Model* model) {
  for (const ScalarRule& rule : family.scalars) {
    if (rule.model_field.path.value.empty() || !rule.model_field.is_set_here) continue;
    const std::string& name = rule.name.value;
    PLUMB_RETURN_IF_ERROR(SetModelField(rule.model_field.path,
                                        rule.per_layer ? ExpressionByLayer(values.by_layer.at(name))
                                                       : PlainNumber(values.scalars.at(name)),
                                        model));
  }
  for (const StringVariableRule& rule : family.string_variables) {
    if (rule.model_field.path.value.empty() || !rule.model_field.is_set_here) continue;
    PLUMB_RETURN_IF_ERROR(
        SetModelField(rule.model_field.path, values.string_variables.at(rule.name.value), model));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ModelText(const Family& family, const ConfigValues& values) {
  v1::Model model;
  const std::vector<TemplateRule>& pieces = family.model;
  for (size_t begin = 0, end; begin < pieces.size(); begin = end) {
    end = begin + 1;
    if (!pieces[begin].per_layer) {
      PLUMB_RETURN_IF_ERROR(MergePiece(pieces[begin], values, 0, &model));
      continue;
    }
    while (end < pieces.size() && pieces[end].per_layer) ++end;
    for (int64_t layer = 1; layer <= values.n_layer(); ++layer) {
      for (size_t i = begin; i < end; ++i) {
        PLUMB_RETURN_IF_ERROR(MergePiece(pieces[i], values, layer, &model));
      }
    }
  }
  PLUMB_RETURN_IF_ERROR(SetModelFields(family, values, &model));
  return textproto::PrintText(model);
}

}  // namespace plumb
