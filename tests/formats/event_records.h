// SPDX-License-Identifier: Apache-2.0
// Readers of event files for tests, which share no code with the writer: checksums are computed bit
// by bit, and messages are read by protobuf's parser of unknown fields.
#ifndef PLUMB_TESTS_FORMATS_EVENT_RECORDS_H_
#define PLUMB_TESTS_FORMATS_EVENT_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

struct DecodedEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  int64_t session_status = 0;            // 1: START
  std::map<std::string, float> scalars;  // by tag
  std::map<std::string, std::string> texts;
  std::map<std::string, std::string> plugins;  // of values with metadata
};

struct DecodedFile {
  std::vector<DecodedEvent> events;
  size_t torn_bytes = 0;  // after the last complete record
};

// Decodes an event file. A wrong checksum or an unexpected field fails the test.
DecodedFile DecodeEvents(absl::string_view content);

// Decodes all event files of a directory, in the order in which TensorBoard reads them.
std::vector<DecodedFile> DecodeEventFiles(const std::string& directory);

// Returns the values of a scalar by step that a reader shows after all files. A START event
// discards earlier values from its step on.
std::map<int64_t, float> Shown(const std::vector<DecodedFile>& files, const std::string& tag);

}  // namespace plumb

#endif  // PLUMB_TESTS_FORMATS_EVENT_RECORDS_H_
