// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/family_template.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"
#include "runtime/schema/located.h"
#include "runtime/schema/reader.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/model_fields.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

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

// Joins consecutive groups of layers that are equal into one group that repeats.
void JoinEqualLayers(v1::Model* model) {
  const std::vector<v1::Layers> groups = model->layers();
  model->clear_layers();
  for (size_t begin = 0, end; begin < groups.size(); begin = end) {
    const std::string text = textproto::PrintText(groups[begin]);
    end = begin + 1;
    while (end < groups.size() && textproto::PrintText(groups[end]) == text) ++end;
    v1::Layers* const joined = model->add_layers();
    *joined = groups[begin];
    if (end == begin + 1) continue;
    const int each = joined->has_repeat() ? joined->repeat() : joined->block_size();
    joined->set_repeat(each * static_cast<int>(end - begin));
  }
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

void SetKey(absl::string_view path, Json value, Json* config) {
  Json* at = config;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    if (!(*at)[names[i]].is_object()) (*at)[names[i]] = Json::object();
    at = &(*at)[names[i]];
  }
  (*at)[names.back()] = std::move(value);
}

// Returns the number in the JSON type of its kind.
Json NumberJson(ScalarKind kind, double value) {
  if (kind == ScalarKind::kFlag) return value != 0;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::abs(value) < kExact && kind != ScalarKind::kNumber) {
    return static_cast<int64_t>(value);
  }
  return value;
}

// Returns the fact that a scalar has: "norm_attr.eps" for the field "norm[ln].attr[eps].number".
std::string GetFact(const ScalarRule& rule) {
  if (rule.name.value == "n_layer") return "n_layer";  // its field may be that of a group of layers
  const std::string& path = rule.model_field.path.value;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, absl::ByAnyChar("[]"));
  const bool is_attribute =
      parts.size() == 5 && parts[0] == "norm" && parts[2] == ".attr" && parts[4] == ".number";
  return is_attribute ? absl::StrCat("norm_attr.", parts[3]) : path;
}

class Writer {
 public:
  Writer(const Family& family, const v1::Model& model, const std::map<std::string, double>& facts,
         Json config)
      : family_(family), model_(model), facts_(facts), config_(std::move(config)) {}

  absl::StatusOr<Json> Write() {
    if (!family_.model_types.empty()) config_["model_type"] = family_.model_types.front();
    if (!family_.architectures.empty()) {
      config_["architectures"] = Json::array({family_.architectures.front()});
    }
    for (const ScalarRule& rule : family_.scalars) PLUMB_RETURN_IF_ERROR(WriteScalar(rule));
    for (const StringVariableRule& rule : family_.string_variables) WriteStringVariable(rule);
    // The values written so far decide the fields that follow.
    PLUMB_ASSIGN_OR_RETURN(const ConfigValues values,
                           ReadConfigValues(family_, config_, "the config.json of this model"));
    WriteDefaults(values);
    for (const ConfigRule& rule : family_.config) {
      if (rule.when.has_value()) {
        PLUMB_ASSIGN_OR_RETURN(const double holds, Evaluate(*rule.when, values));
        if (holds == 0) continue;
      }
      PLUMB_ASSIGN_OR_RETURN(const std::string text, Render(rule.json, values));
      constexpr int kDepth = 16;
      absl::StatusOr<Json> json = ParseStrictJson(text, kDepth);
      if (!json.ok()) return ErrorAt(rule.json.text.place, json.status().message());
      SetKey(rule.field, *std::move(json), &config_);
    }
    return std::move(config_);
  }

 private:
  absl::Status WriteScalar(const ScalarRule& rule) {
    if (rule.model_field.path.value.empty() || rule.fields.empty() || rule.per_layer)
      return absl::OkStatus();
    std::optional<double> value;
    if (const auto fact = facts_.find(GetFact(rule)); fact != facts_.end()) {
      value = fact->second;
    } else if (const std::optional<std::string> text =
                   FieldText(model_, rule.model_field.path.value)) {
      double number;
      // Expressions are skipped; the caller compares the two models.
      if (absl::SimpleAtod(*text, &number) && std::isfinite(number)) value = number;
    }
    if (!value.has_value()) return absl::OkStatus();
    // Keep the field name that is already used, since readers of this config.json know it.
    std::string field = rule.fields.front();
    for (size_t i = rule.fields.size(); i-- > 0;) {
      if (FindField(config_, rule.fields[i]) != nullptr) field = rule.fields[i];
    }
    for (const std::string& other : rule.fields) {
      if (other != field) Erase(other);
    }
    if (rule.choices.empty()) {
      SetKey(field, NumberJson(rule.kind, *value), &config_);
      return absl::OkStatus();
    }
    const ConfigValues none;
    for (const ScalarChoice& choice : rule.choices) {
      const absl::StatusOr<double> means = Evaluate(choice.value, none);
      if (!means.ok() || *means != *value) continue;
      const bool is_flag = choice.is == "true" || choice.is == "false";
      SetKey(field, is_flag ? Json(choice.is == "true") : Json(choice.is), &config_);
      return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // Writes values that neither config.json nor the description states, since other readers of
  // config.json may have other defaults.
  void WriteDefaults(const ConfigValues& values) {
    for (const ScalarRule& rule : family_.scalars) {
      const auto value = values.scalars.find(rule.name.value);
      if (rule.model_field.path.value.empty() || rule.fields.empty() ||
          value == values.scalars.end())
        continue;
      bool is_there = !rule.choices.empty();
      for (const std::string& field : rule.fields) {
        is_there = is_there || FindField(config_, field) != nullptr;
      }
      if (!is_there) SetKey(rule.fields.front(), NumberJson(rule.kind, value->second), &config_);
    }
  }

  void WriteStringVariable(const StringVariableRule& rule) {
    if (rule.model_field.path.value.empty() || rule.fields.empty()) return;
    const std::optional<std::string> text = FieldText(model_, rule.model_field.path.value);
    if (!text.has_value()) return;
    const Json* now = FindField(config_, rule.fields.front());
    for (const MappingRule& choice : rule.choices) {  // the present text may mean the same
      if (now != nullptr && *now == choice.is && choice.text.text.value == *text) return;
    }
    for (const MappingRule& choice : rule.choices) {
      if (choice.text.text.value != *text) continue;
      SetKey(rule.fields.front(), choice.is, &config_);
      return;
    }
  }

  void Erase(const std::string& path) {
    Json* at = &config_;
    const std::vector<std::string> names = absl::StrSplit(path, '.');
    for (size_t i = 0; i + 1 < names.size(); ++i) {
      if (!at->is_object() || !at->contains(names[i])) return;
      at = &(*at)[names[i]];
    }
    if (at->is_object()) at->erase(names.back());
  }

  const Family& family_;
  const v1::Model& model_;
  const std::map<std::string, double>& facts_;
  Json config_;
};

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
    JoinEqualLayers(&model);
  }
  PLUMB_RETURN_IF_ERROR(SetModelFields(family, values, &model));
  return textproto::PrintText(model);
}

absl::StatusOr<Json> ConfigForModel(const Family& family, absl::string_view model_text,
                                    const std::map<std::string, double>& facts,
                                    const Json& config) {
  v1::Model model;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(model_text, "model.pbtxt", &model, &locations));
  return Writer(family, model, facts, config).Write();
}

}  // namespace plumb
