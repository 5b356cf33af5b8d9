// SPDX-License-Identifier: Apache-2.0
// Measures norms relative to memory bandwidth: plumb's layer_norm and rms_norm compared with
// oneDNN's layer normalization and with a memcpy of equally many bytes, forward and backward, in
// and out of cache; the residual addition fused and separate; and the cost of one row through the
// ABI. bytes_per_second counts each operand once. bench/norm_peers.py interleaves the same cases
// with PyTorch's.
//
//   norm_benchmark [Google Benchmark's flags]
//   norm_benchmark --outside [--json]
//                             prints a table: norms that others could write, the shipped ones, a
//                             hand-written RMSNorm (`limit`: the best that is possible), and memcpy
//   norm_benchmark --serve    reads cases from standard input, one per line:
//                             "BY NORM PASS DTYPE ROWS DIM THREADS RUNS"; answers with the
//                             nanoseconds of a run, or "none"
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/norm_benchmark_cases.h"
#include "runtime/base/aligned_buffer.h"

namespace {

using plumb::NormCase;

std::string NameOf(const NormCase& c) {
  std::ostringstream name;
  name << c.pass << "/" << c.dtype << "/" << c.rows << "x" << c.dim << "/threads:" << c.threads
       << "/" << c.by;
  if (c.by != "memcpy") name << ":" << c.norm;
  return name.str();
}

void Measure(benchmark::State& state, const NormCase& c) {
  const std::function<void()> run = plumb::MakeNormCase(c);
  if (!run) return state.SkipWithError("no such case here");
  run();
  for (auto _ : state) run();
  state.SetBytesProcessed(plumb::BytesOf(c) * static_cast<int64_t>(state.iterations()));
}

void RegisterCases() {
  struct By {
    const char *by, *norm;
  };
  const By all[] = {
      {"memcpy", "-"}, {"plumb", "layer_norm"}, {"plumb", "rms_norm"}, {"onednn", "layer_norm"}};
  for (const char* pass : {"forward", "backward", "add_forward", "add_then_forward"}) {
    const bool plain = pass[0] != 'a';
    for (const char* dtype : {"f32", "bf16"}) {
      if (pass == std::string("add_then_forward") && dtype == std::string("bf16")) continue;
      for (const int64_t rows : {8192, 256}) {
        for (const int threads : {1, 2}) {
          for (const By& by : all) {
            if (by.by == std::string("onednn") && !plain) continue;
            const NormCase c{by.by, by.norm, pass, dtype, rows, 768, threads};
            benchmark::RegisterBenchmark(NameOf(c).c_str(), [c](benchmark::State& state) {
              Measure(state, c);
            })->UseRealTime();
          }
        }
      }
    }
  }
}

// Times a forward call through the plugin's table for no row (the cost of a call), for one, and
// for 64.
void OneRow(benchmark::State& state, const char* id) {
  const int64_t rows = state.range(0), dim = state.range(1);
  const plumb::OneNorm norm = plumb::LoadNorm(id, dim);
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(float));
  const plumb::AlignedBuffer x(64 * row_bytes), y(64 * row_bytes), weights(row_bytes);
  for (int64_t i = 0; i < 64 * dim; ++i) x.as<float>()[i] = static_cast<float>(i % 61) - 30;
  const std::vector<const void*> params(norm.layout.n_params, weights.data());
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  call.flags = row_bytes % 64 == 0 ? uint32_t{PLUMB_CALL_ALIGNED64} : 0;
  call.dtype = PLUMB_DTYPE_F32;
  call.dim = static_cast<uint32_t>(dim);
  call.rows = 64;
  call.x = x.data();
  call.y = y.data();
  call.x_pitch = call.y_pitch = row_bytes;
  call.params = params.data();
  for (auto _ : state) {
    benchmark::DoNotOptimize(norm.plugin->forward(norm.instance, &call, 0, rows));
    benchmark::ClobberMemory();
  }
  norm.plugin->destroy(norm.instance);
}
BENCHMARK_CAPTURE(OneRow, layer_norm, "layer_norm")
    ->ArgNames({"rows", "dim"})
    ->ArgsProduct({{0, 1, 64}, {16, 768}});
BENCHMARK_CAPTURE(OneRow, rms_norm, "rms_norm")
    ->ArgNames({"rows", "dim"})
    ->ArgsProduct({{0, 1, 64}, {16, 768}});

// Returns the mean nanoseconds of `runs` consecutive runs.
double Nanoseconds(const std::function<void()>& run, int64_t runs) {
  run();  // warm-up: operands in cache if they fit, threads awake
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < runs; ++i) run();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / static_cast<double>(runs);
}

int Serve() {
  std::map<std::string, std::function<void()>> cases;
  std::string line;
  while (std::getline(std::cin, line)) {
    NormCase c;
    int64_t runs = 1;
    std::istringstream words(line);
    if (!(words >> c.by >> c.norm >> c.pass >> c.dtype >> c.rows >> c.dim >> c.threads >> runs) ||
        c.threads < 1 || runs < 1) {
      std::cout << "none" << std::endl;
      continue;
    }
    const std::string name = NameOf(c);
    if (cases.count(name) == 0) cases[name] = plumb::MakeNormCase(c);
    const std::function<void()>& run = cases[name];
    if (!run) {
      std::cout << "none" << std::endl;
      continue;
    }
    std::cout << Nanoseconds(run, runs) << std::endl;
  }
  return 0;
}

struct Compared {
  const char *title, *norm;  // norm: the name of the plugin file
};
constexpr Compared kCompared[] = {{"template", "my_norm"},         {"tutorial", "mix_norm"},
                                  {"outside", "outside_rms_norm"}, {"shipped", "rms_norm"},
                                  {"limit", "limit_rms_norm"},     {"layer_norm", "layer_norm"}};
constexpr size_t kOutside = 2, kShipped = 3, kLimit = 4;

// Returns true if `got` equals `expected` up to the order of sums and the last place of bf16.
bool Agree(const std::string& what, const std::vector<float>& expected,
           const std::vector<float>& got, float relative) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i < got.size() &&
        std::abs(got[i] - expected[i]) <= relative * std::abs(expected[i]) + 3e-5f) {
      continue;
    }
    std::cerr << what << "[" << i << "] is "
              << (i < got.size() ? std::to_string(got[i]) : "missing") << ", rms_norm has "
              << expected[i] << std::endl;
    return false;
  }
  return true;
}

// Returns true if the hand-written norm computes the same as the shipped one, with every available
// instruction set: in cache, past the caches, for leftover rows, and with plain loops.
bool LimitIsRmsNorm() {
  bool agrees = true;
  for (const char* pass : {"forward", "backward"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      for (const auto& [rows, dim] : {std::pair(512, 256), {8192, 768}, {37, 128}, {5, 96}}) {
        NormCase c{"plumb", "rms_norm", pass, dtype, rows, dim, 1};
        const plumb::NormResults expected = plumb::ResultsOf(c);
        for (const char* norm :
             {"limit_rms_norm", "limit_rms_norm_2", "limit_rms_norm_1", "limit_rms_norm_0"}) {
          c.norm = norm;
          const plumb::NormResults got = plumb::ResultsOf(c);
          const std::string name = NameOf(c) + ": ";
          agrees &=
              Agree(name + "rows", expected.rows, got.rows, dtype[0] == 'b' ? 0x1p-7f : 1e-5f) &&
              Agree(name + "saved", expected.saved, got.saved, 1e-5f) &&
              Agree(name + "gradients", expected.gradients, got.gradients, 1e-5f);
        }
      }
    }
  }
  return agrees;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Interleaves memcpy and every norm in rounds on one thread. Prints medians over rounds: of
// memcpy's time, and of quotients of times within a round.
void PrintOutsideRow(NormCase c, int64_t runs, bool json, bool first) {
  constexpr int kRounds = 31;
  c.by = "memcpy";
  std::vector<std::function<void()>> cases = {plumb::MakeNormCase(c)};
  c.by = "plumb";
  for (const Compared& each : kCompared) {
    c.norm = each.norm;
    cases.push_back(plumb::MakeNormCase(c));
  }
  std::vector<double> copies, outside, limit;
  std::vector<std::vector<double>> shares(std::size(kCompared));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> times;
    for (const std::function<void()>& run : cases) times.push_back(Nanoseconds(run, runs));
    copies.push_back(times[0]);
    for (size_t i = 0; i < shares.size(); ++i) shares[i].push_back(times[0] / times[i + 1]);
    outside.push_back(times[1 + kOutside] / times[1 + kShipped]);
    limit.push_back(times[1 + kLimit] / times[1 + kShipped]);
  }
  const double copy = Median(copies), gigabytes = static_cast<double>(plumb::BytesOf(c)) / copy;
  const std::string shape = std::to_string(c.rows) + "x" + std::to_string(c.dim);
  std::cout << std::fixed;
  if (json) {
    std::cout << (first ? "[\n" : ",\n") << std::setprecision(3) << "{\"pass\": \"" << c.pass
              << "\", \"dtype\": \"" << c.dtype << "\", \"rows\": " << c.rows
              << ", \"dim\": " << c.dim << ", \"bytes\": " << plumb::BytesOf(c)
              << ", \"memcpy_us\": " << copy / 1e3;
    for (size_t i = 0; i < shares.size(); ++i) {
      std::cout << ", \"" << kCompared[i].title << "_of_memcpy\": " << Median(shares[i]);
    }
    std::cout << ", \"outside_over_shipped\": " << Median(outside)
              << ", \"shipped_of_limit\": " << Median(limit) << "}" << std::flush;
    return;
  }
  std::cout << std::left << std::setw(24) << c.pass + "/" + c.dtype + "/" + shape << std::right
            << std::setprecision(1) << std::setw(10) << copy / 1e3 << std::setw(7) << gigabytes;
  for (const std::vector<double>& each : shares) {
    std::cout << std::setw(11) << std::setprecision(0) << 100 * Median(each) << "%";
  }
  std::cout << std::setw(17) << std::setprecision(2) << Median(outside) << std::setw(14)
            << std::setprecision(0) << 100 * Median(limit) << "%" << std::endl;
}

int PrintOutside(bool json) {
  if (!LimitIsRmsNorm()) return 1;
  if (!json) {
    std::cout << std::left << std::setw(24) << "" << std::right << std::setw(10) << "memcpy us"
              << std::setw(7) << "GB/s";
    for (const Compared& each : kCompared) std::cout << std::setw(12) << each.title;
    std::cout << std::setw(17) << "outside/shipped" << std::setw(15) << "shipped/limit"
              << std::endl;
  }
  bool first = true;
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* pass : {"forward", "backward"}) {
      PrintOutsideRow({"", "", pass, dtype, 8192, 768, 1}, 4, json, first);
      first = false;
      PrintOutsideRow({"", "", pass, dtype, 512, 256, 1}, 200, json, first);
    }
  }
  if (json) std::cout << "\n]" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string("--serve")) return Serve();
  if (argc >= 2 && argv[1] == std::string("--outside")) {
    if (argc == 2) return PrintOutside(false);
    if (argc == 3 && argv[2] == std::string("--json")) return PrintOutside(true);
  }
  RegisterCases();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
