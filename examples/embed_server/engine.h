// SPDX-License-Identifier: Apache-2.0
// Engine: completes texts with a run of `plumb train`, several requests at once. Owns the batch in
// which their texts grow. Thread-safe once it is constructed.
#ifndef EMBED_SERVER_ENGINE_H_
#define EMBED_SERVER_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch.h"
#include "plumb.hpp"
#include "request.h"

class Engine {
 public:
  // Loads a run. Throws plumb::Error or std::runtime_error for a directory without a complete run.
  Engine(const std::string& run_directory, int requests, int threads);

  const std::string& name() const { return name_; }

  // A request that has a place in the batch and fits into the context. It is created before the
  // answer begins, so that errors have their own HTTP status. The destructor releases the place.
  class Job {
   public:
    // Receives more of a choice's text, and why it ended or "". Returns false if the client is
    // gone.
    using Tell = std::function<bool(std::size_t choice, const std::string& text,
                                    const std::string& finish_reason)>;
    // Draws all choices, one after the other. Returns false if the callback did or the server shuts
    // down.
    bool Run(const Tell& tell);

    std::int64_t prompt_tokens() const;
    std::int64_t completion_tokens() const { return completion_tokens_; }

    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

   private:
    friend class Engine;
    Job(Engine* engine, const CompletionRequest& request);
    void Encode();
    bool RunChoice(std::size_t prompt, std::size_t choice, const Tell& tell);

    Engine* const engine_;
    const CompletionRequest request_;
    std::vector<std::vector<std::int32_t>> prompts_;
    // Limit of each prompt; nullopt: until the context is full.
    std::vector<std::optional<std::int64_t>> max_tokens_;
    std::uint64_t seed_;
    std::int64_t completion_tokens_ = 0;
    std::optional<int> place_;
  };
  // Begins a request. Throws ApiError: 400 if it does not fit, 429 if all places are taken.
  std::unique_ptr<Job> Begin(const CompletionRequest& request);

  // Ends all running and future jobs. Any thread.
  void Stop() { batch_->Stop(); }

 private:
  std::vector<std::int32_t> GetTokens(const std::string& text) const;

  std::string name_;
  std::unique_ptr<plumb::Tokenizer> tokenizer_;
  plumb::TokenizerInfo special_tokens_;
  std::int64_t context_length_ = 0;
  bool has_documents_ = false;  // trained on documents, which begin with a token
  std::unique_ptr<Batch> batch_;
};

#endif  // EMBED_SERVER_ENGINE_H_
