// SPDX-License-Identifier: Apache-2.0
// RunIdentity: everything that determines the numbers of a run, as named parts. Two runs with equal
// identities have equal losses, except for the rounding of other processors. run.json records it
// when a run begins; studies, stores, --resume and reports compare it and nothing else. A value.
#ifndef PLUMB_RUNTIME_TRAIN_RUN_IDENTITY_H_
#define PLUMB_RUNTIME_TRAIN_RUN_IDENTITY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/client/probe.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Inputs of a run, except for plumb itself.
struct RunInputs {
  std::string model;                         // self-contained text: api::Model::Text
  std::string recipe;                        // Recipe::text
  std::string data, tokenizer;               // hashes of their contents
  std::map<std::string, std::string> norms;  // from IdentifyNorms
  std::string init;                          // from IdentifyWeights; "": all weights are drawn
  uint64_t seed = 0;
  ProbeOptions probe;
  int64_t samples = 0;  // drawn after the training, in studies
};

class RunIdentity {
 public:
  // Identifies a run of this build of plumb. Fields of the recipe that only say how a run is stored
  // or distributed are not part of it, and neither is the path of a tokenizer.
  static RunIdentity Of(const RunInputs& inputs);
  // Reads the identity from the object of run.json. Returns: nullopt for a run that was written
  // before plumb recorded it. Errors: kDataLoss.
  static absl::StatusOr<std::optional<RunIdentity>> FromRunJson(const std::string& json);
  // Returns the object of run.json with this identity.
  std::string InRunJson(const std::string& json) const;

  // Returns the first part that is unknown, "norm org.example.mine"; "" if the run is identified.
  // A run that is not is never reused.
  std::string UnknownPart() const;
  // Returns SHA-256 of the parts, 64 hexadecimal digits.
  std::string Hash() const;
  // Returns a line for each part that differs: "data: 702b779491d6b50d, now 1f0c77aa31e8a2d0".
  // Ignores the parts `except`.
  std::vector<std::string> Differences(const RunIdentity& now,
                                       const std::vector<std::string>& except = {}) const;
  // Takes over the parts of `now`, with which the run continues after `step` steps. The replaced
  // ones stay in the part "before", so that the run equals no other.
  void ContinueAs(const RunIdentity& now, int64_t step);

  // Returns a part; "" if there is none.
  std::string Get(const std::string& name) const;
  // Replaces the parts `names` by those of `other`, which may lack them.
  void Keep(const RunIdentity& other, const std::vector<std::string>& names);
  const std::map<std::string, std::string>& parts() const { return parts_; }

 private:
  std::map<std::string, std::string> parts_;
};

// Returns the text of a recipe without its seed and the fields that only say how a run is stored or
// distributed, which change no number.
std::string WithoutStorage(const std::string& recipe);

// Returns the hash of a tokenizer and its special tokens, 16 digits.
std::string HashOfTokenizer(const Tokenizer& tokenizer);

// Returns the hash of plumb's sources and of the compiler and flags that built them, 16 digits.
const char* BuildId();

// Identifies the norms of a model by their ids: by the contents of the file with their code, or for
// a norm without one (Python) by its version; "" if it has none. Errors: a file that is gone.
absl::StatusOr<std::map<std::string, std::string>> IdentifyNorms(HostRuntime* runtime,
                                                                 const api::Model& model);

// Identifies the weights of a run or checkpoint, "" for the path "". Errors: those of OpenRunModel
// for the files.
absl::StatusOr<std::string> IdentifyWeights(const std::string& run);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RUN_IDENTITY_H_
