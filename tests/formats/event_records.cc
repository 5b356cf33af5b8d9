// SPDX-License-Identifier: Apache-2.0
#include "tests/formats/event_records.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/match.h"
#include "runtime/base/file.h"

namespace plumb {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

template <class Number>
Number NumberAt(absl::string_view bytes, size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof(number));
  return number;
}

// Returns the masked CRC-32C, computed by long division one bit at a time.
uint32_t MaskedChecksum(absl::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      const bool carry = (crc & 1) != 0;
      crc >>= 1;
      if (carry) crc ^= 0x82f63b78u;
    }
  }
  crc ^= 0xffffffffu;
  return (crc / 32768 + crc * 131072) + 0xa282ead8u;  // rotated right by 15 bits
}

float AsFloat(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

double AsDouble(uint64_t bits) {
  double number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// Calls visit(field number, field) for every field of a message.
template <class Visit>
void ForEachField(const std::string& bytes, const Visit& visit) {
  UnknownFieldSet set;
  EXPECT_TRUE(set.ParseFromString(bytes)) << "not a message";
  for (int i = 0; i < set.field_count(); ++i) visit(set.field(i).number(), set.field(i));
}

void Unexpected(const char* message, int number) {
  ADD_FAILURE() << message << " has a field " << number;
}

std::string DecodePlugin(const std::string& metadata) {
  std::string plugin;
  ForEachField(metadata, [&](int number, const UnknownField& field) {
    switch (number) {
      case 1:
        ForEachField(field.length_delimited(), [&](int inner, const UnknownField& name) {
          if (inner != 1) return Unexpected("PluginData", inner);
          plugin = name.length_delimited();
        });
        break;
      case 4:
        EXPECT_EQ(field.varint(), 2u) << "a data class other than TENSOR";
        break;
      default:
        Unexpected("SummaryMetadata", number);
    }
  });
  return plugin;
}

std::string DecodeText(const std::string& tensor) {
  std::string text;
  ForEachField(tensor, [&](int number, const UnknownField& field) {
    switch (number) {
      case 1:
        EXPECT_EQ(field.varint(), 7u) << "a dtype other than string";
        break;
      case 2:
        EXPECT_EQ(field.length_delimited(), "") << "not a scalar";
        break;
      case 8:
        text = field.length_delimited();
        break;
      default:
        Unexpected("TensorProto", number);
    }
  });
  return text;
}

void DecodeValue(const std::string& bytes, DecodedEvent* event) {
  std::string tag;
  ForEachField(bytes, [&](int number, const UnknownField& field) {
    switch (number) {
      case 1:
        tag = field.length_delimited();
        break;
      case 2:
        event->scalars[tag] = AsFloat(field.fixed32());
        break;
      case 8:
        event->texts[tag] = DecodeText(field.length_delimited());
        break;
      case 9:
        event->plugins[tag] = DecodePlugin(field.length_delimited());
        break;
      default:
        Unexpected("Summary.Value", number);
    }
  });
}

DecodedEvent DecodeEvent(const std::string& bytes) {
  DecodedEvent event;
  ForEachField(bytes, [&](int number, const UnknownField& field) {
    switch (number) {
      case 1:
        event.wall_time = AsDouble(field.fixed64());
        break;
      case 2:
        event.step = static_cast<int64_t>(field.varint());
        break;
      case 3:
        event.file_version = field.length_delimited();
        break;
      case 5:
        ForEachField(field.length_delimited(), [&](int inner, const UnknownField& value) {
          if (inner != 1) return Unexpected("Summary", inner);
          DecodeValue(value.length_delimited(), &event);
        });
        break;
      case 7:
        ForEachField(field.length_delimited(), [&](int inner, const UnknownField& status) {
          if (inner != 1) return Unexpected("SessionLog", inner);
          event.session_status = static_cast<int64_t>(status.varint());
        });
        break;
      default:
        Unexpected("Event", number);
    }
  });
  return event;
}

}  // namespace

DecodedFile DecodeEvents(absl::string_view content) {
  DecodedFile file;
  while (content.size() >= 12) {
    const auto length = NumberAt<uint64_t>(content, 0);
    EXPECT_EQ(NumberAt<uint32_t>(content, 8), MaskedChecksum(content.substr(0, 8)));
    if (content.size() < 16 || length > content.size() - 16) break;
    const absl::string_view bytes = content.substr(12, length);
    EXPECT_EQ(NumberAt<uint32_t>(content, 12 + length), MaskedChecksum(bytes));
    file.events.push_back(DecodeEvent(std::string(bytes)));
    content.remove_prefix(16 + length);
  }
  file.torn_bytes = content.size();
  return file;
}

std::vector<DecodedFile> DecodeEventFiles(const std::string& directory) {
  std::vector<DecodedFile> files;
  const auto names = ListDirectory(directory);
  EXPECT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    if (!absl::StrContains(name, "tfevents")) continue;
    files.push_back(DecodeEvents(*ReadFile(JoinPath(directory, name))));
  }
  return files;
}

std::map<int64_t, float> Shown(const std::vector<DecodedFile>& files, const std::string& tag) {
  std::map<int64_t, float> shown;
  for (const DecodedFile& file : files) {
    for (const DecodedEvent& event : file.events) {
      if (event.session_status == 1) shown.erase(shown.lower_bound(event.step), shown.end());
      const auto value = event.scalars.find(tag);
      if (value == event.scalars.end()) continue;
      EXPECT_TRUE(shown.emplace(event.step, value->second).second)
          << tag << " twice at step " << event.step;
    }
  }
  return shown;
}

}  // namespace plumb
