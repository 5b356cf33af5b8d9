#include <unistd.h>

#include <cstdlib>
#include <string>

#include "runtime/tools/launch.h"

namespace plumb {
namespace {

// What Open MPI, PMIx (Slurm, PRRTE) and PMI (MPICH, Intel MPI, Slurm) say to the processes that
// they start. SLURM_PROCID alone says nothing: a batch script has one too.
constexpr const char* kRankVariables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
constexpr const char* kSizeVariables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

}  // namespace

bool Launch::IsLaunched() {
  for (const char* name : kRankVariables) {
    if (std::getenv(name) != nullptr) return true;
  }
  for (const char* name : kSizeVariables) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

int Launch::LaunchedRank() {
  for (const char* name : kRankVariables) {
    if (const char* const rank = std::getenv(name); rank != nullptr) return std::atoi(rank);
  }
  return 0;
}

}  // namespace plumb
