// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/communicator.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "runtime/ranks/local_ranks.h"

namespace plumb {

std::unique_ptr<Communicator> SingleRank() { return std::move(LocalRanks(1).front()); }

std::string OwnHostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace plumb
