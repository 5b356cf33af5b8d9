// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/event_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/formats/crc32c.h"

namespace plumb {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written without conversion");

// Numbers of the fields that are written, from event.proto, summary.proto, tensor.proto and
// tensor_shape.proto in tensorflow/core. Published numbers and wire types never change.
namespace event {
constexpr int kWallTime = 1;     // double
constexpr int kStep = 2;         // int64
constexpr int kFileVersion = 3;  // string; this and the next two are a oneof
constexpr int kSummary = 5;      // Summary
constexpr int kSessionLog = 7;   // SessionLog
}  // namespace event
namespace session_log {
constexpr int kStatus = 1;  // enum
constexpr uint64_t kStart = 1;
}  // namespace session_log
namespace summary {
constexpr int kValue = 1;  // repeated Value
}  // namespace summary
namespace value {
constexpr int kTag = 1;          // string
constexpr int kSimpleValue = 2;  // float
constexpr int kTensor = 8;       // TensorProto
constexpr int kMetadata = 9;     // SummaryMetadata
}  // namespace value
namespace metadata {
constexpr int kPluginData = 1;  // PluginData
constexpr int kDataClass = 4;   // enum
constexpr uint64_t kDataClassTensor = 2;
}  // namespace metadata
namespace plugin_data {
constexpr int kPluginName = 1;  // string
}  // namespace plugin_data
namespace tensor {
constexpr int kDtype = 1;        // enum
constexpr int kTensorShape = 2;  // TensorShapeProto; empty for a scalar
constexpr int kStringVal = 8;    // repeated bytes
constexpr uint64_t kDtString = 7;
}  // namespace tensor

// Wire format of protobuf: https://protobuf.dev/programming-guides/encoding.
constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;
constexpr size_t kMaxVarint = 10;

size_t VarintSize(uint64_t number) {
  size_t size = 1;
  for (; number >= 0x80; number >>= 7) ++size;
  return size;
}

char* PutVarint(char* to, uint64_t number) {
  for (; number >= 0x80; number >>= 7) *to++ = static_cast<char>(number | 0x80);
  *to++ = static_cast<char>(number);
  return to;
}

// Writes a key. All field numbers here are below 16, so a key is one byte.
char* PutKey(char* to, int field, int wire_type) {
  *to++ = static_cast<char>(field << 3 | wire_type);
  return to;
}

template <class Number>
char* PutNumber(char* to, Number number) {
  std::memcpy(to, &number, sizeof(number));
  return to + sizeof(number);
}

size_t BytesFieldSize(size_t size) { return 1 + VarintSize(size) + size; }

char* PutBytesHead(char* to, int field, size_t size) {
  return PutVarint(PutKey(to, field, kBytes), size);
}

char* PutBytes(char* to, int field, absl::string_view bytes) {
  to = PutBytesHead(to, field, bytes.size());
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

// Returns the same field as a string, for messages that are not written at every step.
std::string BytesField(int field, absl::string_view bytes) {
  std::string out(BytesFieldSize(bytes.size()), '\0');
  PutBytes(&out[0], field, bytes);
  return out;
}

std::string VarintField(int field, uint64_t number) {
  std::string out(1 + kMaxVarint, '\0');
  out.resize(static_cast<size_t>(PutVarint(PutKey(&out[0], field, kVarint), number) - out.data()));
  return out;
}

// Returns a SummaryMetadata with the plugin of a tag, which a reader needs once per tag.
std::string PluginMetadata(absl::string_view plugin) {
  return BytesField(metadata::kPluginData, BytesField(plugin_data::kPluginName, plugin));
}

constexpr absl::string_view kScalarsPlugin = "scalars";
// Sizes of PluginMetadata(kScalarsPlugin) and of the field of a Value that contains it.
constexpr size_t kScalarMetadataSize = 4 + kScalarsPlugin.size();
constexpr size_t kScalarMetadataFieldSize = 2 + kScalarMetadataSize;

char* PutScalarMetadata(char* to) {
  to = PutBytesHead(to, value::kMetadata, kScalarMetadataSize);
  to = PutBytesHead(to, metadata::kPluginData, 2 + kScalarsPlugin.size());
  return PutBytes(to, plugin_data::kPluginName, kScalarsPlugin);
}

size_t ScalarSize(const EventScalar& scalar, bool is_new) {
  return BytesFieldSize(scalar.tag.size()) + 1 + sizeof(float) +
         (is_new ? kScalarMetadataFieldSize : 0);
}

// Converts to f32. Out of its range the result is an infinity; the plain conversion is undefined.
float ToFloat(double number) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (number > kMax) return std::numeric_limits<float>::infinity();
  if (number < -kMax) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(number);
}

constexpr size_t kBufferSize = 64 << 10;
constexpr size_t kRecordHead = 12, kRecordTail = 4;

constexpr absl::string_view kNamePrefix = "events.out.tfevents.";
constexpr absl::string_view kNameSuffix = ".plumb";
constexpr int64_t kMaxSeconds = 9999999999;  // ten digits

// Returns the seconds in the name of an event file of any program; -1 if the name has none.
int64_t SecondsInName(absl::string_view name) {
  int64_t seconds = 0;
  if (!absl::ConsumePrefix(&name, kNamePrefix)) return -1;
  const absl::string_view digits = name.substr(0, name.find('.'));
  return digits.size() == 10 && absl::SimpleAtoi(digits, &seconds) ? seconds : -1;
}

// Returns a host's name in a form that fits into a file name.
std::string HostInName(std::string host) {
  for (char& c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  }
  constexpr size_t kMaxHost = 64;  // a file name has at most 255 bytes
  host.resize(std::min(host.size(), kMaxHost));
  return host.empty() ? "localhost" : host;
}

absl::StatusOr<std::string> NextName(const std::string& directory, double now,
                                     const std::string& host) {
  int64_t seconds = now >= 0 ? static_cast<int64_t>(std::min<double>(now, kMaxSeconds)) : 0;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) seconds = std::max(seconds, SecondsInName(name) + 1);
  return absl::StrFormat("%s%010d.%s%s", kNamePrefix, std::min(seconds, kMaxSeconds),
                         HostInName(host), kNameSuffix);
}

}  // namespace

absl::StatusOr<EventFile> EventFile::Create(const std::string& directory,
                                            const EventFileOptions& options) {
  PLUMB_CHECK(options.clock != nullptr, "an event file has a clock");
  PLUMB_ASSIGN_OR_RETURN(const std::string name,
                         NextName(directory, options.clock(), options.host));
  const std::string path = JoinPath(directory, name);
  const int fd =
      Files().Open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(path, "cannot make");
  EventFile file(path, fd, options);  // closes fd on every return
  const auto add = [&file](int64_t step, int what, absl::string_view bytes) {
    return file.AddEvent(step, what, bytes.size(), [bytes](char* to) {
      std::memcpy(to, bytes.data(), bytes.size());
      return to + bytes.size();
    });
  };
  PLUMB_RETURN_IF_ERROR(add(0, event::kFileVersion, "brain.Event:2"));
  PLUMB_RETURN_IF_ERROR(add(options.first_step, event::kSessionLog,
                            VarintField(session_log::kStatus, session_log::kStart)));
  PLUMB_RETURN_IF_ERROR(file.Flush());
  PLUMB_RETURN_IF_ERROR(SyncDirectory(directory));
  return file;
}

EventFile::EventFile(std::string path, int fd, const EventFileOptions& options)
    : path_(std::move(path)),
      fd_(fd),
      clock_(options.clock),
      flush_seconds_(options.flush_seconds),
      flushed_at_(clock_()),
      buffer_(kBufferSize) {}

EventFile::EventFile(EventFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      clock_(std::move(other.clock_)),
      flush_seconds_(other.flush_seconds_),
      flushed_at_(other.flushed_at_),
      tags_(std::move(other.tags_)),
      buffer_(std::move(other.buffer_)),
      used_(std::exchange(other.used_, 0)) {}

EventFile& EventFile::operator=(EventFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(clock_, other.clock_);
  std::swap(flush_seconds_, other.flush_seconds_);
  std::swap(flushed_at_, other.flushed_at_);
  std::swap(tags_, other.tags_);
  std::swap(buffer_, other.buffer_);
  std::swap(used_, other.used_);
  return *this;
}

EventFile::~EventFile() {
  if (fd_ < 0) return;
  Flush().IgnoreError();  // a destructor cannot report it; callers who need to know call Sync
  Files().Close(fd_);
}

absl::Status EventFile::EnsureCapacity(size_t size) {
  if (buffer_.size() - used_ >= size) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(Flush());
  if (buffer_.size() < size) buffer_.resize(size);
  return absl::OkStatus();
}

template <class Write>
absl::Status EventFile::AddEvent(int64_t step, int what, size_t size, const Write& write) {
  PLUMB_CHECK(step >= 0, "steps count from 0");
  const double now = clock_();
  PLUMB_RETURN_IF_ERROR(EnsureCapacity(kRecordHead + 1 + sizeof(now) + 1 + kMaxVarint +
                                       BytesFieldSize(size) + kRecordTail));
  char* const record = buffer_.data() + used_;
  char* const message = record + kRecordHead;
  char* end = PutNumber(PutKey(message, event::kWallTime, kFixed64), now);
  // proto3 omits a number that is 0.
  if (step != 0) end = PutVarint(PutKey(end, event::kStep, kVarint), static_cast<uint64_t>(step));
  end = PutBytesHead(end, what, size);
  char* const body = end;
  end = write(body);
  PLUMB_CHECK(end == body + size, "a message has its declared length");

  const auto length = static_cast<uint64_t>(end - message);
  PutNumber(record, length);
  PutNumber(record + sizeof(length), MaskedCrc32c({record, sizeof(length)}));
  end = PutNumber(end, MaskedCrc32c({message, static_cast<size_t>(length)}));
  used_ += static_cast<size_t>(end - record);
  // If the clock was set back, events are flushed rather than kept until it catches up.
  if (now - flushed_at_ < flush_seconds_ && now >= flushed_at_) return absl::OkStatus();
  flushed_at_ = now;
  return Flush();
}

int EventFile::FindTag(absl::string_view tag) const {
  for (size_t i = 0; i < tags_.size(); ++i) {
    if (tags_[i] == tag) return static_cast<int>(i);
  }
  return -1;
}

absl::Status EventFile::AddScalars(int64_t step, absl::Span<const EventScalar> scalars) {
  const size_t known_before = tags_.size();
  size_t size = 0;
  for (const EventScalar& scalar : scalars) {
    const bool is_new = FindTag(scalar.tag) < 0;
    size += BytesFieldSize(ScalarSize(scalar, is_new));
    if (is_new) tags_.emplace_back(scalar.tag);
  }
  size_t known = known_before;
  const absl::Status status = AddEvent(step, event::kSummary, size, [&](char* to) {
    for (const EventScalar& scalar : scalars) {
      const bool is_new = known < tags_.size() && FindTag(scalar.tag) == static_cast<int>(known);
      if (is_new) ++known;
      to = PutBytesHead(to, summary::kValue, ScalarSize(scalar, is_new));
      to = PutBytes(to, value::kTag, scalar.tag);
      to = PutNumber(PutKey(to, value::kSimpleValue, kFixed32), ToFloat(scalar.value));
      if (is_new) to = PutScalarMetadata(to);
    }
    return to;
  });
  // If the event did not fit, no metadata was written, so its tags are still new.
  if (known == known_before) tags_.resize(known_before);
  return status;
}

absl::Status EventFile::AddText(int64_t step, absl::string_view tag, absl::string_view markdown) {
  const std::string text_metadata =
      PluginMetadata("text") + VarintField(metadata::kDataClass, metadata::kDataClassTensor);
  const std::string text = VarintField(tensor::kDtype, tensor::kDtString) +
                           BytesField(tensor::kTensorShape, "") +
                           BytesField(tensor::kStringVal, markdown);
  const std::string bytes =
      BytesField(summary::kValue, BytesField(value::kTag, tag) + BytesField(value::kTensor, text) +
                                      BytesField(value::kMetadata, text_metadata));
  return AddEvent(step, event::kSummary, bytes.size(), [&bytes](char* to) {
    std::memcpy(to, bytes.data(), bytes.size());
    return to + bytes.size();
  });
}

absl::Status EventFile::Flush() {
  size_t done = 0;
  absl::Status status;
  while (done < used_) {
    const ssize_t written = Files().Write(fd_, buffer_.data() + done, used_ - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      status = FileError(path_, "cannot write");
      break;
    }
    done += static_cast<size_t>(written);
  }
  // The remaining bytes continue at the end of the file, possibly in the middle of a record.
  if (done < used_) std::memmove(buffer_.data(), buffer_.data() + done, used_ - done);
  used_ -= done;
  return status;
}

absl::Status EventFile::Sync() {
  PLUMB_RETURN_IF_ERROR(Flush());
  return Files().Sync(fd_) == 0 ? absl::OkStatus() : FileError(path_, "cannot sync");
}

absl::StatusOr<bool> HasEventFile(const std::string& directory) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return SecondsInName(name) >= 0 && absl::EndsWith(name, kNameSuffix);
  });
}

}  // namespace plumb
