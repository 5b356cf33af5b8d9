// A job of one rank, so that what is written for many runs on one.
#ifndef PLUMB_RUNTIME_RANKS_SINGLE_H_
#define PLUMB_RUNTIME_RANKS_SINGLE_H_

#include <memory>

#include "runtime/ranks/communicator.h"

namespace plumb {

// Rank 0 of 1. It may send to itself. Abort() returns, and later calls fail with kAborted.
std::unique_ptr<Communicator> SingleRank();

// Name of this machine, as its kernel has it.
std::string OwnHostName();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_SINGLE_H_
