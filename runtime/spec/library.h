// SPDX-License-Identifier: Apache-2.0
// NameTable: norms and placements that a model can name, from its own text, its imports and the
// shipped directories. Owns the parsed imports. Thread-compatible. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_LIBRARY_H_
#define PLUMB_RUNTIME_SPEC_LIBRARY_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb/v1/model.schema.h"
#include "runtime/schema/located.h"
#include "runtime/spec/convert.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

class NameTable {
 public:
  // Requires: each directory in `shipped` holds one placement per file, "<name>.pbtxt". Those
  // of adapters are next to it, in "adapters".
  explicit NameTable(std::vector<std::string> shipped) : shipped_(std::move(shipped)) {}

  // Adds the model's own names, then reads its imports. Errors: an unreadable file, a cycle of
  // imports, a name that one file defines twice.
  absl::Status AddModel(const ModelProto& model);

  // Returns the placement `name`, including everything it extends. `at` locates its use, for
  // errors.
  absl::StatusOr<std::shared_ptr<const PlacementSpec>> Placement(const std::string& name,
                                                                 const SourceLocation& at);
  struct NormEntry {
    const v1::Norm* message;
    Located at;
  };
  const NormEntry* FindNorm(const std::string& name) const;  // null: unknown name
  std::vector<std::string> NormNames() const;
  std::vector<std::string> PlacementNames() const;  // includes the shipped ones

  // Messages of every placement that was used, for a self-contained text.
  const std::vector<const v1::Placement*>& used_placements() const { return used_; }

 private:
  struct PlacementEntry {
    const v1::Placement* message;
    Located at;
  };
  struct File {
    v1::Library message;
    textproto::Locations locations;
  };

  template <class Message>
  absl::Status AddNames(const Message& message, const Located& at);
  template <class Message>
  absl::Status ReadImports(const Message& message, const Located& at,
                           std::vector<std::string>* stack);
  absl::StatusOr<const File*> ParseLibrary(const std::string& path, const std::string& text);
  absl::StatusOr<const PlacementEntry*> FindPlacement(const std::string& name,
                                                      const SourceLocation& at);
  absl::StatusOr<std::shared_ptr<const PlacementSpec>> Build(const std::string& name,
                                                             const SourceLocation& at,
                                                             std::vector<std::string>* stack);

  std::vector<std::string> shipped_;
  std::deque<File> files_;  // deque: entries point into the files, so addresses must be stable
  std::set<std::string> imported_;  // canonical paths
  std::map<std::string, PlacementEntry> placements_;
  std::map<std::string, NormEntry> norms_;
  std::map<std::string, std::shared_ptr<const PlacementSpec>> built_;
  std::vector<const v1::Placement*> used_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_LIBRARY_H_
