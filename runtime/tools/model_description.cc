#include "runtime/tools/model_description.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

// Takes the text event by event, without a tree of values: a deep model has many of them, and a
// tree may have to end the process when it is taken apart without memory.
//
// Depths: 1, the description; 2, one of its objects or lists; 3, a run of layers or a tensor in
// such a list; 4, a list in that.
class DescriptionReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  ModelDescription read;
  std::string mistake;

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (depth_ == 1 && key_ == "tied") read.tied = value;
    if (depth_ == 1 && key_ == "bidirectional") read.bidirectional = value;
    return true;
  }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t& value) override {
    if (std::string* const text = TextAt()) *text = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    mistake = absl::StrCat("the model's description is not JSON at byte ", position);
    return false;
  }

 private:
  bool Enter() {
    ++depth_;
    if (depth_ == 2) section_ = key_;
    if (depth_ == 4) list_ = key_;
    if (depth_ != 3) return true;
    if (section_ == "layers") read.layers.emplace_back();
    if (section_ == "tensors") read.tensors.emplace_back();
    if (section_ == "buffers") read.buffers.emplace_back();
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  // The tensor that is read; null outside of any.
  TensorInfo* Tensor() {
    return section_ == "tensors"   ? &read.tensors.back()
           : section_ == "buffers" ? &read.buffers.back()
                                   : nullptr;
  }

  // Where a text goes; null: nowhere.
  std::string* TextAt() {
    const auto one_more = [](std::vector<std::string>* texts) { return &texts->emplace_back(); };
    if (depth_ == 1) {
      return key_ == "name"             ? &read.name
             : key_ == "positions"      ? &read.positions
             : key_ == "identity_route" ? &read.identity_route
                                        : nullptr;
    }
    if (depth_ == 2) {
      return section_ == "begin" ? one_more(&read.begin)
             : section_ == "end" ? one_more(&read.end)
                                 : nullptr;
    }
    if (section_ == "layers") {
      LayerGroupInfo& group = read.layers.back();
      if (depth_ == 4) {
        return list_ == "equations" ? one_more(&group.equations)
               : list_ == "scalars" ? one_more(&group.scalars)
               : list_ == "norms"   ? one_more(&group.norms)
                                    : nullptr;
      }
      return key_ == "placement"  ? &group.placement
             : key_ == "doc"      ? &group.doc
             : key_ == "jacobian" ? &group.jacobian
                                  : nullptr;
    }
    TensorInfo* const tensor = Tensor();
    if (tensor == nullptr || depth_ != 3) return nullptr;
    return key_ == "name"    ? &tensor->name
           : key_ == "dtype" ? &tensor->dtype
           : key_ == "init"  ? &tensor->init
           : key_ == "role"  ? &tensor->role
                             : nullptr;
  }

  bool Number(int64_t value) {
    if (depth_ == 2 && section_ == "dims") read.dims.emplace_back(key_, value);
    if (depth_ == 4 && list_ == "shape") {
      if (TensorInfo* const tensor = Tensor()) tensor->shape.push_back(value);
    }
    if (int64_t* const number = NumberAt()) *number = value;
    return true;
  }
  // Where a number goes; null: nowhere, or to the end of a list.
  int64_t* NumberAt() {
    if (depth_ == 1) {
      return key_ == "norm_sites"          ? &read.norm_sites
             : key_ == "token_types"       ? &read.token_types
             : key_ == "init_rules"        ? &read.init_rules
             : key_ == "norms_before_head" ? &read.norms_before_head
                                           : nullptr;
    }
    if (depth_ == 2 && section_ == "totals") {
      return key_ == "parameters"          ? &read.parameters
             : key_ == "active_parameters" ? &read.active_parameters
             : key_ == "buffer_elements"   ? &read.buffer_elements
             : key_ == "weight_bytes"      ? &read.weight_bytes
             : key_ == "cache_bytes"       ? &read.cache_bytes
                                           : nullptr;
    }
    if (depth_ != 3) return nullptr;
    if (section_ == "layers") {
      return key_ == "first"  ? &read.layers.back().first
             : key_ == "last" ? &read.layers.back().last
                              : nullptr;
    }
    return Tensor() != nullptr && key_ == "elements" ? &Tensor()->elements : nullptr;
  }

  int depth_ = 0;
  std::string section_, list_, key_;  // of depths 2 and 4, and the last one
};

}  // namespace

absl::StatusOr<ModelDescription> ReadDescription(const std::string& json) {
  DescriptionReader reader;
  if (!nlohmann::json::sax_parse(json, &reader)) return absl::InternalError(reader.mistake);
  return std::move(reader.read);
}

}  // namespace plumb
