// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/family_template.h"

#include <algorithm>
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
#include "runtime/zoo/model_values.h"
#include "runtime/zoo/tensor_names.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

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

// Sets the value at a path. A number at its end is an index of a list.
void SetKey(absl::string_view path, Json value, Json* config) {
  Json* at = config;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  size_t index;
  const bool is_index = names.size() > 1 && absl::SimpleAtoi(names.back(), &index);
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const bool is_list = is_index && i + 2 == names.size();
    at = &(*at)[names[i]];
    if (is_list ? !at->is_array() : !at->is_object()) {
      *at = is_list ? Json::array() : Json::object();
    }
  }
  (is_index ? (*at)[index] : (*at)[names.back()]) = std::move(value);
}

class Writer {
 public:
  Writer(const Family& family, ConfigValues known, Json config)
      : family_(family), known_(std::move(known)), config_(std::move(config)) {}

  absl::StatusOr<Json> Write() {
    if (!family_.model_types.empty()) config_["model_type"] = family_.model_types.front();
    if (!family_.architectures.empty()) {
      config_["architectures"] = Json::array({family_.architectures.front()});
    }
    for (const bool writes_defaults : {false, true}) {
      for (const ScalarRule& rule : family_.scalars) WriteScalar(rule, writes_defaults);
    }
    for (const StringVariableRule& rule : family_.string_variables) {
      PLUMB_RETURN_IF_ERROR(WriteStringVariable(rule));
    }
    // The values written so far decide the fields that follow.
    PLUMB_ASSIGN_OR_RETURN(const ConfigValues values,
                           ReadConfigValues(family_, config_, "the config.json of this model"));
    WriteDefaults(values);
    for (const ConfigRule& rule : family_.config) {
      PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(rule.when, values));
      if (!holds) continue;
      PLUMB_ASSIGN_OR_RETURN(const std::string text, Render(rule.json, values));
      PLUMB_ASSIGN_OR_RETURN(Json json, ParseJson(text, rule.json.text.place));
      SetKey(rule.field, std::move(json), &config_);
    }
    return std::move(config_);
  }

 private:
  static absl::StatusOr<Json> ParseJson(const std::string& text, const SourceLocation& place) {
    constexpr int kDepth = 16;
    absl::StatusOr<Json> json = ParseStrictJson(text, kDepth);
    if (!json.ok()) return ErrorAt(place, json.status().message());
    return json;
  }

  // Returns the JSON of a value, null if it has none: by the choices, or of the scalar's kind.
  static Json ScalarJson(const ScalarRule& rule, double value) {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (rule.kind == v1::Scalar::FLAG && rule.choices.empty()) return value != 0;
    if (rule.choices.empty()) {
      const bool is_whole = value == std::floor(value) && std::abs(value) < kExact;
      if (is_whole && rule.kind != v1::Scalar::NUMBER) return static_cast<int64_t>(value);
      return value;
    }
    for (const ScalarChoice& choice : rule.choices) {
      const absl::StatusOr<double> means = Evaluate(choice.value, {});
      if (!means.ok() || *means != value) continue;
      const absl::StatusOr<Json> json = ParseJson(choice.is, {});  // a flag or a number
      return json.ok() && json->is_primitive() ? *json : Json(choice.is);
    }
    return nullptr;
  }

  // Returns true if the value of a field that is null or absent is the number.
  bool Means(const std::optional<Expression>& expression, double number) const {
    if (!expression.has_value()) return false;
    const absl::StatusOr<double> value = Evaluate(*expression, known_);
    return value.ok() && *value == number;
  }

  // Returns the field that is present, since readers of this config.json know it, else the first.
  std::string ChooseField(const std::vector<std::string>& fields) {
    std::string chosen = fields.front();
    for (size_t i = fields.size(); i-- > 0;) {
      if (FindField(config_, fields[i]) != nullptr) chosen = fields[i];
    }
    for (const std::string& other : fields) {
      if (other != chosen) EraseField(other, &config_);
    }
    return chosen;
  }

  // Writes a known value. Defaults are written after all others, and create no object.
  void WriteScalar(const ScalarRule& rule, bool writes_default) {
    if (rule.fields.empty()) return;
    const auto by_layer = known_.by_layer.find(rule.name.value);
    if (by_layer != known_.by_layer.end() && !writes_default) WriteLayers(rule, by_layer->second);
    const auto known = known_.scalars.find(rule.name.value);
    if (known == known_.scalars.end()) return;
    const bool is_default = Means(rule.absent, known->second);
    if (is_default != writes_default) return;
    const std::string field = ChooseField(rule.fields);
    const size_t dot = field.rfind('.');
    if (is_default && dot != std::string::npos &&
        FindField(config_, field.substr(0, dot)) == nullptr) {
      return;
    }
    Json json = ScalarJson(rule, known->second);
    if (json.is_null()) return;  // the default
    if (known->second == 0 && json.is_number()) {
      if (Means(rule.null, 0)) {
        json = nullptr;
      } else if (is_default) {
        EraseField(field, &config_);  // 0 stands for a part that the model lacks
        return;
      }
    }
    SetKey(field, std::move(json), &config_);
  }

  void WriteLayers(const ScalarRule& rule, const std::vector<double>& values) {
    const std::string field = ChooseField(rule.fields);
    Json list = Json::array();
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string of_layer = FillTensorName(field, static_cast<int64_t>(i), 0);
      if (rule.lists_layers) {
        if (values[i] != 0) list.push_back(i);
      } else if (of_layer != field) {
        SetKey(of_layer, ScalarJson(rule, values[i]), &config_);
      } else {
        list.push_back(ScalarJson(rule, values[i]));
      }
    }
    if (FillTensorName(field, 0, 0) == field) SetKey(field, std::move(list), &config_);
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
      if (!is_there) SetKey(rule.fields.front(), ScalarJson(rule, value->second), &config_);
    }
  }

  absl::Status WriteStringVariable(const StringVariableRule& rule) {
    const auto text = known_.string_variables.find(rule.name.value);
    if (text == known_.string_variables.end() || rule.fields.empty()) return absl::OkStatus();
    const std::string field = ChooseField(rule.fields);
    if (rule.numbers) {
      PLUMB_ASSIGN_OR_RETURN(Json list, ParseJson(absl::StrCat("[", text->second, "]"), {}));
      SetKey(field, std::move(list), &config_);
      return absl::OkStatus();
    }
    const Json* now = FindField(config_, field);
    const auto means = [&text](const MappingRule& choice) {
      return choice.text.text.value == text->second;
    };
    for (const MappingRule& choice : rule.choices) {  // the present text may mean the same
      if (now != nullptr && *now == choice.is && means(choice)) return absl::OkStatus();
    }
    const auto choice = std::find_if(rule.choices.begin(), rule.choices.end(), means);
    if (choice != rule.choices.end()) SetKey(field, choice->is, &config_);
    return absl::OkStatus();
  }

  const Family& family_;
  ConfigValues known_;
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
                                    const std::map<std::string, double>& facts, const Json& config,
                                    std::vector<std::string>* unread) {
  v1::Model model;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(model_text, "model.pbtxt", &model, &locations));
  ModelValues values = ReadModelValues(family, model, facts);
  *unread = std::move(values.unread);
  return Writer(family, std::move(values.known), config).Write();
}

}  // namespace plumb
