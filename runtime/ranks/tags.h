// Which messages are whose, for all of plumb: messages of different tags do not overtake each
// other's receives.
#ifndef PLUMB_RUNTIME_RANKS_TAGS_H_
#define PLUMB_RUNTIME_RANKS_TAGS_H_

namespace plumb {

enum RankTag : int {
  kTagControl = 1,  // errors, and waits of ranks (stall_watch.h)
  kTagFacts,        // what ranks say of themselves
  kTagGradients,
  kTagWeights,
  kTagStates,
  kTagCheckpoint,  // the hash of a file, from one of its writers to the next
  kTagStudy,       // runs that are handed out, and what came of them
  kTagLinks,       // measurements of latency and bandwidth
  kTagCollective,  // collectives.h
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_TAGS_H_
