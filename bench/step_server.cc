// SPDX-License-Identifier: Apache-2.0
// Executes training steps on request, for scripts that interleave models or numbers of threads. The
// process lives as long as the comparison, so that starting, compiling and first touches of memory
// are not timed.
//
//   step_server MODEL.pbtxt [--seq N] [--batch N] [--dtype f32|bf16] [--threads N]
//               [--plugin FILE] [--set-model FIELD=VALUE]
//
// It prints one line when it is ready, and one for each line that it reads:
//
//   ready PARAMETERS
//   step N     seconds of N steps, tokens, FLOPs, loss of the last step
//   matmul D   FLOP/s of a product of 2048s in f32 or bf16; 0 if there is none
//   read       read bandwidth in bytes per second
//   memory     peak of resident bytes since the start; without those of matmul and read if it is
//              requested before them
//   profile N  table of the time of N steps by op, which ends with an empty line
//
// It ends at the end of its input.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "cli/bench/bench.h"

namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "step_server: %s\n", what.c_str());
  std::exit(1);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Fail(std::string(status.message()));
}

template <class T>
T Check(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

std::pair<std::string, std::string> Assignment(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) Fail(word + " is not FIELD=VALUE");
  return {word.substr(0, equals), word.substr(equals + 1)};
}

// Executes `n` steps and prints their sums.
void Step(plumb::TrainBench* train, long n) {
  plumb::BenchStep sum;
  for (long i = 0; i < n; ++i) {
    const plumb::BenchStep step = Check(train->Step());
    sum.seconds += step.seconds;
    sum.tokens += step.tokens;
    sum.flops += step.flops;
    sum.loss = step.loss;
  }
  std::printf("%.9f %lld %.6e %.6f\n", sum.seconds, static_cast<long long>(sum.tokens), sum.flops,
              sum.loss);
}

void Profile(plumb::TrainBench* train, long n) {
  for (long i = 0; i < n; ++i) Check(train->ProfiledStep().status());
  const plumb::Profile profile = Check(train->TakeProfile());
  for (const plumb::ProfileRow& row : profile.rows) {
    std::printf("%s %d %lld %.9f %.6e %.6e\n", row.name.c_str(), row.in_graph ? 1 : 0,
                static_cast<long long>(row.runs), row.seconds, row.flops, row.bytes);
  }
  std::printf("\n");
}

void Serve(plumb::TrainBench* train, plumb::MachineSpeed* machine) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, argument = "1";
    words >> command >> argument;
    const long n = std::strtol(argument.c_str(), nullptr, 10);
    if (command == "step") {
      Step(train, n);
    } else if (command == "profile") {
      Profile(train, n);
    } else if (command == "matmul") {
      const absl::StatusOr<double> speed = machine->Measure(
          argument == "bf16" ? plumb::api::Speed::kGemmBf16 : plumb::api::Speed::kGemmF32);
      if (!absl::IsUnimplemented(speed.status())) Check(speed.status());
      std::printf("%.6e\n", speed.ok() ? *speed : 0.0);
    } else if (command == "read") {
      std::printf("%.6e\n", Check(machine->Measure(plumb::api::Speed::kRead)));
    } else if (command == "memory") {
      std::printf("%lld\n", static_cast<long long>(plumb::PeakMemoryBytes()));
    } else {
      Fail("unknown command " + command);
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) Fail("usage: step_server MODEL.pbtxt [--option VALUE] ...");
  plumb::api::RuntimeOptions options;
  std::vector<std::string> plugin_files;
  plumb::TrainBenchRequest request;
  plumb::ModelSource model = Check(plumb::ReadModelSource(argv[1]));
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    const long number = std::strtol(value.c_str(), nullptr, 10);
    if (name == "--seq") {
      request.seq = number;
    } else if (name == "--batch") {
      request.batch = number;
    } else if (name == "--dtype") {
      request.dtype = value;
    } else if (name == "--threads") {
      options.threads = static_cast<int>(number);
    } else if (name == "--plugin") {
      plugin_files.push_back(value);
    } else if (name == "--set-model") {
      model.settings.push_back(Assignment(value));
    } else {
      Fail("unknown option " + name);
    }
  }
  const std::unique_ptr<plumb::HostRuntime> runtime =
      Check(plumb::HostRuntime::Create(options, plugin_files));
  const std::unique_ptr<plumb::TrainBench> train =
      Check(plumb::TrainBench::Open(runtime.get(), model, request));
  plumb::MachineSpeed machine(*runtime);
  std::printf("ready %lld\n", static_cast<long long>(train->parameters()));
  std::fflush(stdout);
  Serve(train.get(), &machine);
  return 0;
}
