// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <arpa/inet.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace {

using nlohmann::json;

constexpr std::size_t kMaxStops = 4;      // OpenAI's limit
constexpr std::int64_t kMaxChoices = 16;  // per request

constexpr int kMaxNested = 8;

// Parses JSON; refuses a name that occurs twice in an object, which a parser would drop, and deep
// nesting, on which copying and printing would recurse deeply.
json ParseStrictly(const std::string& body) {
  std::vector<std::set<std::string>> names;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxNested) {
      throw ApiError(400, "invalid_request_error", "the body is nested too deeply");
    }
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(parsed).second) {
      throw ApiError(400, "invalid_request_error",
                     "the body has " + parsed.dump() + " twice in one object");
    }
    return true;
  };
  try {
    return json::parse(body, check);
  } catch (const json::exception& error) {
    throw ApiError(400, "invalid_request_error",
                   std::string("the body is no JSON: ") + error.what());
  }
}

double Number(const json& value, const std::string& field, double min, double max) {
  const double number = value.is_number() ? value.get<double>() : max + 1;
  if (number >= min && number <= max) return number;
  throw BadField(field, "must be a number from " + json(min).dump() + " to " + json(max).dump());
}

std::int64_t Integer(const json& value, const std::string& field, std::int64_t min,
                     std::int64_t max) {
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max));
  if (fits && value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max) {
    return value.get<std::int64_t>();
  }
  throw BadField(field,
                 "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
}

bool Boolean(const json& value, const std::string& field) {
  if (!value.is_boolean()) throw BadField(field, "must be true or false");
  return value.get<bool>();
}

std::vector<std::string> Stops(const json& value) {
  std::vector<std::string> stops;
  for (const json& stop : value.is_array() ? value : json::array({value})) {
    if (!stop.is_string() || stop.get<std::string>().empty()) {
      throw BadField("stop", "must be a text, or some, that are not empty");
    }
    stops.push_back(stop);
  }
  if (stops.size() > kMaxStops) throw BadField("stop", "has more than 4 texts");
  return stops;
}

std::vector<std::int32_t> Ids(const json& value) {
  std::vector<std::int32_t> ids;
  for (const json& id : value) {
    const auto max = std::numeric_limits<std::int32_t>::max();
    ids.push_back(static_cast<std::int32_t>(Integer(id, "prompt", 0, max)));
  }
  return ids;
}

// Reads a string, token ids, or an array of these.
std::vector<CompletionRequest::Prompt> Prompts(const json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array() || value.empty()) {
    throw BadField("prompt", "must be a text, an array of token ids, or an array of these");
  }
  if (value[0].is_number()) return {Ids(value)};
  std::vector<CompletionRequest::Prompt> prompts;
  for (const json& prompt : value) {
    if (prompt.is_string()) {
      prompts.emplace_back(prompt.get<std::string>());
    } else if (prompt.is_array()) {
      prompts.emplace_back(Ids(prompt));
    } else {
      throw BadField("prompt", "must be a text, an array of token ids, or an array of these");
    }
  }
  return prompts;
}

void ReadStreamOptions(const json& value, CompletionRequest* request) {
  if (!value.is_object()) throw BadField("stream_options", "must be an object");
  for (const auto& [field, option] : value.items()) {
    if (field != "include_usage") throw BadField("stream_options." + field, "is not known");
    request->include_usage = Boolean(option, "stream_options.include_usage");
  }
}

// Accepts unsupported fields of OpenAI's API only with a value that has no effect.
void RefuseUnlessNeutral(const std::string& field, const json& value) {
  static const json kNeutral = {{"best_of", 1},          {"frequency_penalty", 0},
                                {"presence_penalty", 0}, {"logit_bias", json::object()},
                                {"logprobs", nullptr},   {"suffix", ""}};
  const auto known = kNeutral.find(field);
  if (known == kNeutral.end()) throw BadField(field, "is not known");
  if (value != *known) throw BadField(field, "is not supported by this server");
}

void ReadField(const std::string& field, const json& value, const std::string& model,
               CompletionRequest* request) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  if (field == "prompt") {
    request->prompts = Prompts(value);
  } else if (field == "max_tokens") {
    request->max_tokens = Integer(value, field, 0, kAny);
  } else if (field == "temperature") {
    request->temperature = Number(value, field, 0, 2);
  } else if (field == "top_p") {
    request->top_p = Number(value, field, 0, 1);
  } else if (field == "seed") {
    request->seed = static_cast<std::uint64_t>(Integer(value, field, -kAny, kAny));
  } else if (field == "stop") {
    request->stop = Stops(value);
  } else if (field == "n") {
    request->n = Integer(value, field, 1, kMaxChoices);
  } else if (field == "echo") {
    request->echo = Boolean(value, field);
  } else if (field == "stream") {
    request->stream = Boolean(value, field);
  } else if (field == "stream_options") {
    ReadStreamOptions(value, request);
  } else if (field == "user") {
    if (!value.is_string()) throw BadField(field, "must be a text");
  } else if (field == "model") {
    if (value == model) return;
    throw ApiError(404, "invalid_request_error",
                   "there is no model " + value.dump() + ": this server has \"" + model + "\"",
                   field, "model_not_found");
  } else {
    RefuseUnlessNeutral(field, value);
  }
}

std::string Lowercase(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// Returns "localhost" for "LOCALHOST:8080" and "::1" for "[::1]:8080", and "" if it is neither a
// name nor an address, with or without a port.
std::string NameOfHost(const std::string& host) {
  const bool is_bracketed = !host.empty() && host[0] == '[';
  const std::size_t end = is_bracketed ? host.find(']') : host.find(':');
  if (is_bracketed && end == std::string::npos) return "";
  const std::string rest = end == std::string::npos ? "" : host.substr(end + is_bracketed);
  const bool has_port = !rest.empty() && rest[0] == ':';
  if (rest.find_first_not_of("0123456789", has_port) != std::string::npos) return "";
  if (!rest.empty() && !has_port) return "";
  return Lowercase(is_bracketed ? host.substr(1, end - 1) : host.substr(0, end));
}

bool IsAddress(const std::string& name) {
  in6_addr address;
  return inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

bool IsHostOfServer(const std::string& host, const std::string& listens_at) {
  const std::string name = NameOfHost(host);
  if (name.empty()) return false;
  if (name == "localhost" || name == "127.0.0.1" || name == "::1") return true;
  if (name == Lowercase(listens_at)) return true;
  // Listening at all addresses: an address, unlike a name, cannot be redirected by others.
  return (listens_at == "0.0.0.0" || listens_at == "::") && IsAddress(name);
}

ApiError BadField(const std::string& field, const std::string& message) {
  return ApiError(400, "invalid_request_error", field + " " + message, field);
}

std::string ApiError::Json() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  const json error = {
      {"message", what()}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}};
  // A text that was cut may be invalid UTF-8.
  return json{{"error", error}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

CompletionRequest CompletionRequest::Parse(const std::string& body, const std::string& model) {
  const json parsed = ParseStrictly(body);
  if (!parsed.is_object()) {
    throw ApiError(400, "invalid_request_error", "the body must be an object");
  }
  CompletionRequest request;
  for (const auto& [field, value] : parsed.items()) {
    // null means "not given", except for the prompt, which is required.
    if (!value.is_null() || field == "prompt") ReadField(field, value, model, &request);
  }
  if (request.prompts.empty()) throw BadField("prompt", "is missing");
  if (static_cast<std::int64_t>(request.prompts.size()) * request.n > kMaxChoices) {
    throw BadField("n", "times the number of prompts is more than 16");
  }
  return request;
}
