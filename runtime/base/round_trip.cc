#include "runtime/base/round_trip.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace plumb {
namespace {

constexpr int64_t kStretches = 200, kTrips = 100;
// Threads that share a processor after all would wait for each other's time slices.
constexpr std::chrono::milliseconds kLongest(200);

using Clock = std::chrono::steady_clock;

struct Ball {
  int processor;
  alignas(128) std::atomic<int64_t> there{0};
  alignas(128) std::atomic<int64_t> back{0};
};

void PinTo(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

void* Return(void* argument) {
  Ball* const ball = static_cast<Ball*>(argument);
  PinTo(ball->processor);
  for (int64_t seen = 0; seen >= 0;) {
    const int64_t now = ball->there.load(std::memory_order_acquire);
    if (now == seen) continue;
    seen = now;
    ball->back.store(now, std::memory_order_release);
  }
  return nullptr;
}

void Throw(Ball* ball, int64_t i) {
  ball->there.store(i, std::memory_order_release);
  while (ball->back.load(std::memory_order_acquire) != i) {
  }
}

}  // namespace

double MeasureRoundTrip() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (pthread_getaffinity_np(pthread_self(), sizeof(mine), &mine) != 0) return 0;
  int processors[2], found = 0;
  for (int i = 0; i < CPU_SETSIZE && found < 2; ++i) {
    if (CPU_ISSET(i, &mine)) processors[found++] = i;
  }
  if (found < 2) return 0;

  Ball ball;
  ball.processor = processors[1];
  pthread_t thread;
  if (pthread_create(&thread, nullptr, Return, &ball) != 0) return 0;
  PinTo(processors[0]);
  int64_t trip = 0;
  Throw(&ball, ++trip);
  double best = 0;
  const Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < kStretches && Clock::now() - begin < kLongest; ++i) {
    const Clock::time_point start = Clock::now();
    for (int64_t j = 0; j < kTrips; ++j) Throw(&ball, ++trip);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / kTrips;
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  ball.there.store(-1, std::memory_order_release);
  pthread_join(thread, nullptr);
  pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine);
  return best;
}

}  // namespace plumb
