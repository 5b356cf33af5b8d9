// SPDX-License-Identifier: Apache-2.0
// An HTTP server that completes texts with a run of `plumb train`, for clients of OpenAI's API and
// for browsers.
//
//   embed_server RUN [--host 127.0.0.1] [--port 8080] [--requests 8] [--threads 0]
#include <httplib.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine.h"
#include "page.h"
#include "request.h"

namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = 1 << 20;  // max size of a request's body

struct Options {
  std::string run, host = "127.0.0.1";
  int port = 8080, requests = 8, threads = 0;
};

int Number(const std::string& flag, const std::string& text, int min, int max) {
  std::size_t read = 0;
  int number = min - 1;
  try {
    number = std::stoi(text, &read);
  } catch (const std::logic_error&) {  // not a number, or too large
  }
  if (read == text.size() && number >= min && number <= max) return number;
  throw std::invalid_argument(flag + " must be a number from " + std::to_string(min) + " to " +
                              std::to_string(max) + ", is \"" + text + "\"");
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) != 0 && options.run.empty()) {
      options.run = argument;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (argument == "--host") {
      options.host = value;
    } else if (argument == "--port") {
      options.port = Number(argument, value, 0, 65535);
    } else if (argument == "--requests") {
      options.requests = Number(argument, value, 1, 64);
    } else if (argument == "--threads") {
      options.threads = Number(argument, value, 0, 1024);
    } else {
      throw std::invalid_argument(argument + " is not known");
    }
  }
  if (options.run.empty())
    throw std::invalid_argument("which run? A directory that `plumb train` made");
  return options;
}

// --- Answers ------------------------------------------------------------------------------------

// Serializes JSON; replaces invalid UTF-8, which byte tokens may produce.
std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

void Answer(const ApiError& error, httplib::Response& response) {
  response.status = error.status;
  if (error.status == 429) response.set_header("Retry-After", "1");
  response.set_content(error.Json(), "application/json");
}

json Choice(std::size_t index, const std::string& text, const std::string& finish_reason) {
  return {{"index", index},
          {"text", text},
          {"logprobs", nullptr},
          {"finish_reason", finish_reason.empty() ? json() : json(finish_reason)}};
}

json Usage(const Engine::Job& job) {
  return {{"prompt_tokens", job.prompt_tokens()},
          {"completion_tokens", job.completion_tokens()},
          {"total_tokens", job.prompt_tokens() + job.completion_tokens()}};
}

// Returns {"id", "object", "created", "model"}, the first fields of each answer and each event.
json Head(const Engine& engine) {
  static std::atomic<std::uint64_t> count{0};
  return {{"id", "cmpl-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(++count)},
          {"object", "text_completion"},
          {"created", std::time(nullptr)},
          {"model", engine.name()}};
}

bool Send(httplib::DataSink& sink, const std::string& text) {
  return sink.is_writable() && sink.write(text.data(), text.size());
}

// Writes the answer in one piece. Stops if the client is gone.
bool WriteWhole(Engine::Job& job, json answer, httplib::DataSink& sink) {
  std::vector<json> choices;
  const bool done =
      job.Run([&](std::size_t index, const std::string& text, const std::string& finish_reason) {
        if (index == choices.size()) choices.push_back(Choice(index, "", ""));
        choices[index]["text"] = choices[index]["text"].get<std::string>() + text;
        if (!finish_reason.empty()) choices[index]["finish_reason"] = finish_reason;
        return sink.is_writable();
      });
  answer["choices"] = std::move(choices);
  answer["usage"] = Usage(job);
  return done && Send(sink, Dump(answer));
}

// Writes server-sent events, one for each piece of text.
bool WriteEvents(Engine::Job& job, json event, bool with_usage, httplib::DataSink& sink) {
  const auto send = [&](json choices) {
    event["choices"] = std::move(choices);
    return Send(sink, "data: " + Dump(event) + "\n\n");
  };
  const bool done =
      job.Run([&](std::size_t index, const std::string& text, const std::string& finish_reason) {
        if (text.empty() && finish_reason.empty()) return sink.is_writable();
        return send(json::array({Choice(index, text, finish_reason)}));
      });
  if (!done) return false;
  if (with_usage) {
    event["usage"] = Usage(job);
    if (!send(json::array())) return false;
  }
  return true;
}

void Complete(Engine& engine, const httplib::Request& request, httplib::Response& response) {
  // Pages of other sites cannot send this content type without a preflight request.
  if (request.get_header_value("Content-Type").rfind("application/json", 0) != 0) {
    throw ApiError(415, "invalid_request_error", "send Content-Type: application/json");
  }
  const CompletionRequest asked = CompletionRequest::Parse(request.body, engine.name());
  // Shared, since the library copies the content provider.
  const auto job = std::make_shared<std::unique_ptr<Engine::Job>>(engine.Begin(asked));
  const json head = Head(engine);
  const auto write = [job, head, asked](std::size_t, httplib::DataSink& sink) {
    bool done = false;
    try {
      done = asked.stream ? WriteEvents(**job, head, asked.include_usage, sink)
                          : WriteWhole(**job, head, sink);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "embed_server: %s\n", error.what());
      const ApiError told(500, "server_error", error.what());
      if (asked.stream) Send(sink, "data: " + told.Json() + "\n\n");
    }
    job->reset();  // before the client sees the end and may send its next request
    if (!done || (asked.stream && !Send(sink, "data: [DONE]\n\n"))) return false;
    sink.done();
    return true;
  };
  response.set_chunked_content_provider(asked.stream ? "text/event-stream" : "application/json",
                                        write);
  response.set_header("Cache-Control", "no-store");
}

json ModelObject(const Engine& engine) {
  static const std::time_t created = std::time(nullptr);
  return {{"id", engine.name()}, {"object", "model"}, {"created", created}, {"owned_by", "plumb"}};
}

// Converts exceptions of a handler to answers: ApiError to its status, others, bugs of the server,
// to 500.
httplib::Server::Handler Guarded(httplib::Server::Handler handler) {
  return
      [handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
        try {
          handler(request, response);
        } catch (const ApiError& error) {
          Answer(error, response);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "embed_server: %s\n", error.what());
          Answer(ApiError(500, "server_error", error.what()), response);
        }
      };
}

// Throws for a request that is refused before its body is read.
void CheckHead(const httplib::Request& request, const std::string& listens_at) {
  const std::string host = request.get_header_value("Host");
  if (request.get_header_value_count("Host") != 1 || !IsHostOfServer(host, listens_at)) {
    throw ApiError(403, "invalid_request_error",
                   "this server is not \"" + host + "\": ask for it as localhost, or as the name " +
                       "or address that --host gives it");
  }
  // A body must have a Content-Length, which is bounded: a compressed one may become a thousand
  // times larger, and a chunked one need not end.
  if (request.has_header("Content-Encoding")) {
    throw ApiError(415, "invalid_request_error", "send the body without a Content-Encoding");
  }
  const bool has_no_body =
      request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS";
  if (request.has_header("Transfer-Encoding") ||
      (!has_no_body && !request.has_header("Content-Length"))) {
    throw ApiError(411, "invalid_request_error", "send the body with a Content-Length");
  }
}

void AddRoutes(Engine& engine, httplib::Server& server) {
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_header(
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'");
    response.set_content(kPage, "text/html; charset=utf-8");
  });
  server.Get("/v1/models", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(Dump({{"object", "list"}, {"data", json::array({ModelObject(engine)})}}),
                         "application/json");
  });
  server.Get(R"(/v1/models/(.+))",
             Guarded([&](const httplib::Request& request, httplib::Response& response) {
               if (request.matches[1] != engine.name()) {
                 throw ApiError(404, "invalid_request_error", "there is no such model", "model",
                                "model_not_found");
               }
               response.set_content(Dump(ModelObject(engine)), "application/json");
             }));
  server.Post("/v1/completions",
              Guarded([&](const httplib::Request& request, httplib::Response& response) {
                Complete(engine, request, response);
              }));
  server.Post("/v1/chat/completions", Guarded([](const httplib::Request&, httplib::Response&) {
                throw ApiError(
                    400, "invalid_request_error",
                    "this model has no chat template: it continues a text. POST /v1/completions "
                    "with \"prompt\"",
                    "messages", "no_chat_template");
              }));
  const auto wrong_method = [](const httplib::Request&, httplib::Response& response) {
    response.set_header("Allow", "POST");
    Answer(ApiError(405, "invalid_request_error", "this wants POST"), response);
  };
  server.Get("/v1/completions", wrong_method);
  server.Get("/v1/chat/completions", wrong_method);
  // Formats errors that the library answers by itself.
  server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    const std::string message = response.status == 404
                                    ? "there is nothing at " + request.method + " " + request.path
                                : response.status == 413 ? "the request has more than 1 MiB"
                                                         : "the request is not understood";
    Answer(ApiError(response.status, "invalid_request_error", message), response);
  });
}

int Serve(const Options& options) {
  // Only this thread receives Ctrl-C, in sigwait.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  Engine engine(options.run, options.requests, options.threads);
  httplib::Server server;
  server.set_payload_max_length(kMaxBytes);
  server.set_read_timeout(2, 0);
  server.set_tcp_nodelay(true);
  // The library's default options let two servers listen at one port.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  // Extra threads answer "busy" while as many requests run as may run at once, and wait for clients
  // that have sent half of a request.
  const auto workers = static_cast<std::size_t>(options.requests) + 120;
  server.new_task_queue = [workers] { return new httplib::ThreadPool(workers); };
  // So that the rest of a refused request's body is not read as the next request.
  server.set_keep_alive_max_count(1);
  server.set_pre_routing_handler([&](const httplib::Request& request, httplib::Response& response) {
    try {
      CheckHead(request, options.host);
    } catch (const ApiError& error) {
      Answer(error, response);
      return httplib::Server::HandlerResponse::Handled;
    }
    return httplib::Server::HandlerResponse::Unhandled;
  });
  AddRoutes(engine, server);

  const int port = options.port == 0 ? server.bind_to_any_port(options.host)
                   : server.bind_to_port(options.host, options.port) ? options.port
                                                                     : -1;
  if (port < 0) {
    throw std::runtime_error(options.host + ":" + std::to_string(options.port) +
                             " cannot be listened at: is another server there?");
  }
  std::thread listener([&] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::printf("http://%s:%d serves %s, %d requests at once\n", options.host.c_str(), port,
              engine.name().c_str(), options.requests);
  std::fflush(stdout);

  int signal = 0;
  sigwait(&ends, &signal);
  engine.Stop();
  server.stop();
  listener.join();
  std::printf("stopped\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  try {
    options = Parse(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr,
                 "embed_server: %s\nusage: embed_server RUN [--host 127.0.0.1] [--port 8080] "
                 "[--requests 8] [--threads 0]\n",
                 error.what());
    return 2;
  }
  try {
    return Serve(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "embed_server: %s\n", error.what());
    return 1;
  }
}
