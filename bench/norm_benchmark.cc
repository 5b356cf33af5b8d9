// SPDX-License-Identifier: Apache-2.0
// Measures norms on rows in memory, relative to a memcpy of equally many bytes.
//
//   norm_benchmark --outside [--json]
//                             prints a table: norms that others could write, the shipped ones, and
//                             memcpy
//   norm_benchmark --serve    reads cases from standard input, one per line:
//                             "BY NORM PASS DTYPE ROWS DIM THREADS RUNS"; answers with the
//                             nanoseconds of a run, or "none". norm_peers.py interleaves them with
//                             PyTorch's.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/norm_benchmark_cases.h"

namespace {

using plumb::NormCase;

std::string GetName(const NormCase& c) {
  std::ostringstream name;
  name << c.pass << "/" << c.dtype << "/" << c.rows << "x" << c.dim << "/threads:" << c.threads
       << "/" << c.by;
  if (c.by != "memcpy") name << ":" << c.norm;
  return name.str();
}

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
    const std::string name = GetName(c);
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
constexpr Compared kCompared[] = {{"template", "my_norm"},
                                  {"tutorial", "mix_norm"},
                                  {"outside", "outside_rms_norm"},
                                  {"shipped", "rms_norm"},
                                  {"layer_norm", "layer_norm"}};
constexpr size_t kOutside = 2, kShipped = 3;

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
  std::vector<double> copies, outside;
  std::vector<std::vector<double>> shares(std::size(kCompared));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> times;
    for (const std::function<void()>& run : cases) times.push_back(Nanoseconds(run, runs));
    copies.push_back(times[0]);
    for (size_t i = 0; i < shares.size(); ++i) shares[i].push_back(times[0] / times[i + 1]);
    outside.push_back(times[1 + kOutside] / times[1 + kShipped]);
  }
  const double copy = Median(copies), gigabytes = static_cast<double>(plumb::GetBytes(c)) / copy;
  const std::string shape = std::to_string(c.rows) + "x" + std::to_string(c.dim);
  std::cout << std::fixed;
  if (json) {
    std::cout << (first ? "[\n" : ",\n") << std::setprecision(3) << "{\"pass\": \"" << c.pass
              << "\", \"dtype\": \"" << c.dtype << "\", \"rows\": " << c.rows
              << ", \"dim\": " << c.dim << ", \"bytes\": " << plumb::GetBytes(c)
              << ", \"memcpy_us\": " << copy / 1e3;
    for (size_t i = 0; i < shares.size(); ++i) {
      std::cout << ", \"" << kCompared[i].title << "_of_memcpy\": " << Median(shares[i]);
    }
    std::cout << ", \"outside_over_shipped\": " << Median(outside) << "}" << std::flush;
    return;
  }
  std::cout << std::left << std::setw(24) << c.pass + "/" + c.dtype + "/" + shape << std::right
            << std::setprecision(1) << std::setw(10) << copy / 1e3 << std::setw(7) << gigabytes;
  for (const std::vector<double>& each : shares) {
    std::cout << std::setw(11) << std::setprecision(0) << 100 * Median(each) << "%";
  }
  std::cout << std::setw(17) << std::setprecision(2) << Median(outside) << std::endl;
}

int PrintOutside(bool json) {
  if (!json) {
    std::cout << std::left << std::setw(24) << "" << std::right << std::setw(10) << "memcpy us"
              << std::setw(7) << "GB/s";
    for (const Compared& each : kCompared) std::cout << std::setw(12) << each.title;
    std::cout << std::setw(17) << "outside/shipped" << std::endl;
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
  std::cerr << "usage: norm_benchmark --outside [--json] | --serve" << std::endl;
  return 2;
}
