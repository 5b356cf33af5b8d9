// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files, written without TensorFlow: scalars and texts of a training run.
//
// A file is a sequence of TFRecords, little-endian,
//
//   u64 length | u32 masked CRC-32C of the length | bytes | u32 masked CRC-32C of the bytes
//
// the bytes of each being an Event message (tensorflow/core/util/event.proto; event_file.cc has
// the few fields that are written). The first says file_version "brain.Event:2". A record that a
// crash has cut short ends the file for every reader.
//
// A run has one file for each time that it was started or resumed. Files are never changed once
// they are closed, since a reader may have them open; instead the second event of each is a
// SessionLog START whose step is the first that this session takes. A reader forgets what earlier
// files say of that step and later ones, so that it shows what metrics.jsonl holds.
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
  double value = 0;  // stored as f32; NaN and infinities are shown as such
};

struct EventFileOptions {
  std::string host;               // for the file's name
  std::function<double()> clock;  // seconds since 1970-01-01 UTC
  int64_t first_step = 1;         // of this session
  double flush_seconds = 2;       // by that clock: how old a buffered event may become
};

// Appends to a new event file. Owns the open file and a buffer; move-only; thread-compatible.
// Adding scalars whose tags were seen before allocates nothing.
class EventFile {
 public:
  // Makes `directory`/events.out.tfevents.<seconds>.<host>.plumb, ten digits of seconds. Readers
  // take a directory's files in the order of their names; so the seconds are the clock's, or one
  // more than those of the newest file that is there, whichever is later.
  static absl::StatusOr<EventFile> Create(const std::string& directory,
                                          const EventFileOptions& options);
  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&& other) noexcept;
  EventFile(const EventFile&) = delete;
  ~EventFile();  // flushes

  // One event. An error is one of writing what was buffered; the next call tries again where that
  // one stopped, so that no record is torn by it.
  absl::Status AddScalars(int64_t step, absl::Span<const EventScalar> scalars);
  // `markdown` is UTF-8.
  absl::Status AddText(int64_t step, absl::string_view tag, absl::string_view markdown);

  // Hands what is buffered to the operating system.
  absl::Status Flush();
  // Flushes and waits until it is on the disk: before a checkpoint that counts on it.
  absl::Status Sync();

  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, int fd, const EventFileOptions& options);

  // A record of an Event with the field number `what` of its oneof, `size` bytes that
  // write(char*) puts down.
  template <class Write>
  absl::Status AddEvent(int64_t step, int what, size_t size, const Write& write);
  absl::Status MakeRoom(size_t size);
  // Index into tags_, -1 if the tag is new.
  int FindTag(absl::string_view tag) const;

  std::string path_;
  int fd_ = -1;
  std::function<double()> clock_;
  double flush_seconds_ = 0;
  double flushed_at_ = 0;
  std::vector<std::string> tags_;  // of scalars that have been described
  std::vector<char> buffer_;       // its first used_ bytes are not written yet
  size_t used_ = 0;
};

// Whether `directory` holds an event file that plumb wrote.
absl::StatusOr<bool> HasEventFile(const std::string& directory);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_EVENT_FILE_H_
