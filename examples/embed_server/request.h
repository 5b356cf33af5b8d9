// SPDX-License-Identifier: Apache-2.0
// Validated requests of OpenAI's completions API, and errors for the client.
#ifndef EMBED_SERVER_REQUEST_H_
#define EMBED_SERVER_REQUEST_H_

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

// Exception for an answer other than 200.
struct ApiError : std::runtime_error {
  ApiError(int status_code, std::string error_type, const std::string& message,
           std::string parameter = "", std::string error_code = "")
      : std::runtime_error(message),
        status(status_code),
        type(std::move(error_type)),
        param(std::move(parameter)),
        code(std::move(error_code)) {}

  // Returns {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}.
  std::string Json() const;

  int status;
  std::string type, param, code;
};

// Returns true if the Host header of a request ("localhost:8080", "[::1]") names a server that
// listens at `listens_at`. Protects from DNS rebinding: a page of another site whose name resolves
// to this machine sends that site's name.
bool IsHostOfServer(const std::string& host, const std::string& listens_at);

// Returns the error for an invalid field.
ApiError BadField(const std::string& field, const std::string& message);

struct CompletionRequest {
  // Parses the body of POST /v1/completions. Throws ApiError for invalid JSON, an unknown field, a
  // wrong type or range, and features of OpenAI's API that a plumb model lacks. `model` is the name
  // of the served model.
  static CompletionRequest Parse(const std::string& body, const std::string& model);

  using Prompt = std::variant<std::string, std::vector<std::int32_t>>;  // text, or token ids
  std::vector<Prompt> prompts;
  std::optional<std::int64_t> max_tokens;
  double temperature = 1, top_p = 1;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::int64_t n = 1;
  bool echo = false, stream = false, include_usage = false;
};

#endif  // EMBED_SERVER_REQUEST_H_
