// SPDX-License-Identifier: Apache-2.0
// Batch: texts that grow together. Its thread draws a token for each of them and appends all of
// these in one pass over the weights; texts begin and end between passes. Thread-safe.
#ifndef EMBED_SERVER_BATCH_H_
#define EMBED_SERVER_BATCH_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "plumb.hpp"

class Batch {
 public:
  // Allocates the memory of `size` texts, 1 to 64, and starts the thread.
  Batch(plumb::Model& model, int size);
  // Requires: no other thread is in a function of the batch.
  ~Batch();

  // Returns a place for a text; nullopt if all are taken, or after Stop.
  std::optional<int> Take();
  // Ends the place's text, and makes the place free.
  void Release(int place);

  // Begins a text in a place, in which another one ends, if there is one. `options` are those of
  // plumb::Session::Generate. Requires: the prompt and max_tokens fit into the context; end_tokens
  // outlive the text.
  void Begin(int place, std::vector<std::int32_t> prompt, const plumb::SampleOptions& options);
  // Waits for the text's next token and returns it; nullopt at the end of the text.
  std::optional<std::int32_t> Next(int place);
  // Returns why the text ended. Errors: plumb::Code::kCancelled after Stop; those of the session.
  // Requires: Next has returned nullopt.
  plumb::Result<plumb::FinishReason> Finish(int place);

  // Ends all texts; those that begin later end at once.
  void Stop();

 private:
  enum class State { kFree, kTaken, kBegun, kRunning, kEnded };
  struct Place {
    State state = State::kFree;
    std::vector<std::int32_t> prompt;
    plumb::SampleOptions options;     // `drawn` counts the text's tokens
    std::deque<std::int32_t> tokens;  // drawn, but not yet returned by Next
    plumb::Result<plumb::FinishReason> result = plumb::FinishReason::kStop;
    std::condition_variable changed;  // `tokens` or `state`
  };

  void Run();
  // Feeds the prompt of a text that begins. Unlocks the mutex meanwhile.
  void FeedPrompt(std::int32_t place, std::unique_lock<std::mutex>* lock);
  // Draws the next token of a text. Returns -1 if the text ends with it.
  std::int32_t Draw(std::int32_t place);
  static void End(Place* place, plumb::Result<plumb::FinishReason> result);

  plumb::Session session_;  // used by the thread only
  const std::int64_t context_length_;

  std::mutex mutex_;  // guards the members below
  std::vector<Place> places_;
  std::condition_variable begun_;
  bool stopped_ = false;

  std::thread thread_;
};

#endif  // EMBED_SERVER_BATCH_H_
