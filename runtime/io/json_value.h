// JsonValue: a parsed JSON text that can be destroyed when there is no memory. nlohmann's own
// destructor allocates as much as a value has members, and ends the process where that fails.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_IO_JSON_VALUE_H_
#define PLUMB_RUNTIME_IO_JSON_VALUE_H_

#include <nlohmann/json.hpp>
#include <utility>

namespace plumb {

class JsonValue {
 public:
  explicit JsonValue(nlohmann::json value) : value_(std::move(value)) {}
  ~JsonValue() { Empty(&value_); }
  JsonValue(const JsonValue&) = delete;
  JsonValue& operator=(const JsonValue&) = delete;

  const nlohmann::json& operator*() const { return value_; }

 private:
  // Member by member, so that no destructor finds any.
  static void Empty(nlohmann::json* value) {
    if (value->is_array()) {
      auto& elements = value->get_ref<nlohmann::json::array_t&>();
      for (; !elements.empty(); elements.pop_back()) Empty(&elements.back());
    } else if (value->is_object()) {
      auto& members = value->get_ref<nlohmann::json::object_t&>();
      for (; !members.empty(); members.erase(members.begin())) Empty(&members.begin()->second);
    }
  }

  nlohmann::json value_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_IO_JSON_VALUE_H_
