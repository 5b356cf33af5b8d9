// SPDX-License-Identifier: Apache-2.0
// Reads event files for tests, sharing no code with the writer: checksums bit by bit, messages
// through protobuf's parser of unknown fields.
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
  std::map<std::string, std::string> plugins;  // where the value has metadata
};

struct DecodedFile {
  std::vector<DecodedEvent> events;
  size_t torn_bytes = 0;  // after the last whole record
};

// A checksum that is wrong, or a field that is not expected, fails the test.
DecodedFile DecodeEvents(absl::string_view content);

// Every event file of a directory, in the order in which TensorBoard reads them.
std::vector<DecodedFile> DecodeEventFiles(const std::string& directory);

// What a reader shows of a scalar after all files: step to value, START taken into account.
std::map<int64_t, float> Shown(const std::vector<DecodedFile>& files, const std::string& tag);

}  // namespace plumb

#endif  // PLUMB_TESTS_FORMATS_EVENT_RECORDS_H_
