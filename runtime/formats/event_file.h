// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files, written without TensorFlow: scalars and texts of a training run.
//
// A file is a sequence of TFRecords, little-endian,
//
//   u64 length | u32 masked CRC-32C of the length | bytes | u32 masked CRC-32C of the bytes
//
// The bytes of each record are an Event message (tensorflow/core/util/event.proto; event_file.cc
// has the few fields that are written). The first event has file_version "brain.Event:2". For every
// reader, a record that a crash has truncated ends the file.
//
// A run has one file for each start and each resume. Closed files are never changed, since a reader
// may have them open. Instead, the second event of each file is a SessionLog START with the first
// step of this session. A reader then drops the events of that and later steps in earlier files, so
// that it shows what metrics.jsonl contains.
#ifndef PLUMB_RUNTIME_FORMATS_EVENT_FILE_H_
#define PLUMB_RUNTIME_FORMATS_EVENT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb {

struct EventScalar {
  absl::string_view tag;
  double value = 0;  // stored as f32; NaN and infinities are kept
};

struct EventFileOptions {
  std::string host;               // part of the file's name
  std::function<double()> clock;  // returns seconds since 1970-01-01 UTC
  int64_t first_step = 1;         // first step of this session
  double flush_seconds = 2;       // maximum age of a buffered event, by that clock
};

// Appends to a new event file. Owns the open file and a buffer; move-only; thread-compatible.
// Adding scalars with known tags allocates nothing.
class EventFile {
 public:
  // Creates `directory`/events.out.tfevents.<seconds>.<host>.plumb with ten digits of seconds.
  // Readers read the files of a directory in the order of their names, so the seconds are the
  // maximum of the clock's and one more than those of the newest existing file.
  static absl::StatusOr<EventFile> Create(const std::string& directory,
                                          const EventFileOptions& options);
  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&& other) noexcept;
  EventFile(const EventFile&) = delete;
  ~EventFile();  // flushes

  // Appends one event. An error means that buffered bytes could not be written; the next call
  // continues at the first unwritten byte, so that no record is torn.
  absl::Status AddScalars(int64_t step, absl::Span<const EventScalar> scalars);
  // Appends a text. Requires: `markdown` is UTF-8.
  absl::Status AddText(int64_t step, absl::string_view tag, absl::string_view markdown);

  // Writes the buffer to the file.
  absl::Status Flush();
  // Flushes and syncs the file to disk, before a checkpoint that relies on it.
  absl::Status Sync();

  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, int fd, const EventFileOptions& options);

  // Appends a record of an Event whose oneof has field number `what`; write(char*) writes its
  // `size` bytes.
  template <class Write>
  absl::Status AddEvent(int64_t step, int what, size_t size, const Write& write);
  absl::Status EnsureCapacity(size_t size);
  // Returns the index in tags_; -1 if the tag is new.
  int FindTag(absl::string_view tag) const;

  std::string path_;
  int fd_ = -1;
  std::function<double()> clock_;
  double flush_seconds_ = 0;
  double flushed_at_ = 0;
  std::vector<std::string> tags_;  // scalar tags whose metadata has been written
  std::vector<char> buffer_;       // its first used_ bytes are not yet in the file
  size_t used_ = 0;
};

// Returns true if `directory` contains an event file that plumb wrote.
absl::StatusOr<bool> HasEventFile(const std::string& directory);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_EVENT_FILE_H_
