// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <algorithm>
#include <utility>

Batch::Batch(plumb::Model& model, int size)
    : session_(plumb::Session::Create(model, {size}).value()),
      context_length_(model.Info().context_length),
      places_(static_cast<std::size_t>(size)),
      thread_([this] { Run(); }) {}

Batch::~Batch() {
  Stop();
  thread_.join();
}

std::optional<int> Batch::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return std::nullopt;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].state != State::kFree) continue;
    places_[i].state = State::kTaken;
    return static_cast<int>(i);
  }
  return std::nullopt;
}

void Batch::Release(int place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  places_[static_cast<std::size_t>(place)].state = State::kFree;
}

void Batch::Begin(int place, std::vector<std::int32_t> prompt,
                  const plumb::SampleOptions& options) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Place& text = places_[static_cast<std::size_t>(place)];
  text.state = State::kBegun;
  text.prompt = std::move(prompt);
  text.options = options;
  text.tokens.clear();
  begun_.notify_one();
}

std::optional<std::int32_t> Batch::Next(int place) {
  std::unique_lock<std::mutex> lock(mutex_);
  Place& text = places_[static_cast<std::size_t>(place)];
  text.changed.wait(
      lock, [&] { return stopped_ || text.state == State::kEnded || !text.tokens.empty(); });
  if (stopped_ || text.tokens.empty()) return std::nullopt;
  const std::int32_t token = text.tokens.front();
  text.tokens.pop_front();
  return token;
}

plumb::Result<plumb::FinishReason> Batch::Finish(int place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return plumb::Error(plumb::Code::kCancelled, "the batch was stopped");
  return places_[static_cast<std::size_t>(place)].result;
}

void Batch::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  begun_.notify_one();
  for (Place& place : places_) place.changed.notify_all();
}

void Batch::End(Place* place, plumb::Result<plumb::FinishReason> result) {
  place->state = State::kEnded;
  place->result = std::move(result);
  place->changed.notify_all();
}

void Batch::FeedPrompt(std::int32_t place, std::unique_lock<std::mutex>* lock) {
  Place& text = places_[static_cast<std::size_t>(place)];
  text.state = State::kRunning;
  const std::vector<std::int32_t> prompt = std::move(text.prompt);
  lock->unlock();
  session_.Truncate(place, 0).value();
  const plumb::Result<void> fed = session_.Feed(place, prompt);
  lock->lock();
  if (!fed && text.state == State::kRunning) End(&text, fed.error());
}

std::int32_t Batch::Draw(std::int32_t place) {
  Place& text = places_[static_cast<std::size_t>(place)];
  plumb::SampleOptions options = text.options;
  options.max_tokens = 1;  // the token is drawn, but not appended
  std::int32_t token = -1;
  const auto drawn = session_.Generate(place, options, [&](std::int32_t next) {
    token = next;
    return plumb::Next::kGoOn;
  });
  if (!drawn || *drawn == plumb::FinishReason::kStop) {
    End(&text, drawn);
    return -1;
  }
  text.tokens.push_back(token);
  text.changed.notify_all();
  if (++text.options.drawn == text.options.max_tokens) {
    End(&text, plumb::FinishReason::kLength);
  } else if (text.options.max_tokens == 0 && session_.Length(place) == context_length_) {
    End(&text, plumb::FinishReason::kContext);
  }
  return text.state == State::kRunning ? token : -1;
}

void Batch::Run() {
  std::vector<std::int32_t> next(places_.size());
  std::unique_lock<std::mutex> lock(mutex_);
  const auto grows = [](const Place& place) {
    return place.state == State::kBegun || place.state == State::kRunning;
  };
  for (;;) {
    begun_.wait(lock,
                [&] { return stopped_ || std::any_of(places_.begin(), places_.end(), grows); });
    if (stopped_) return;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const auto place = static_cast<std::int32_t>(i);
      if (places_[i].state == State::kBegun) FeedPrompt(place, &lock);
      next[i] = places_[i].state == State::kRunning ? Draw(place) : -1;
      // A pass needs room for a token in every place.
      if (next[i] < 0) session_.Truncate(place, 0).value();
    }
    if (*std::max_element(next.begin(), next.end()) < 0) continue;
    lock.unlock();
    const plumb::Result<void> fed = session_.FeedBatch(next);
    lock.lock();
    for (std::size_t i = 0; !fed && i < places_.size(); ++i) {
      if (places_[i].state == State::kRunning) End(&places_[i], fed.error());
    }
  }
}
