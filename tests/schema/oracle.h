// SPDX-License-Identifier: Apache-2.0
// Protobuf's library as the oracle of runtime/schema: it reads and prints the same schema by
// TextFormat, from the descriptors that protoc generated.
#ifndef PLUMB_TESTS_SCHEMA_ORACLE_H_
#define PLUMB_TESTS_SCHEMA_ORACLE_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/schema/message.h"
#include "runtime/schema/reader.h"

namespace plumb {

// Result of reading a text.
struct Reading {
  bool accepted = false;
  std::string printed;  // print of an accepted text
  // Locations of all fields but the elements of lists "[...]": "block.sublayer[1].name" -> "3:7".
  std::map<std::string, std::string> locations;
  std::string error;
};

class Oracle {
 public:
  Oracle();

  // Returns the types of files: Model, Library, Study, Train.
  static const std::vector<std::string>& Types();

  std::unique_ptr<google::protobuf::Message> New(const std::string& type);
  Reading Read(const std::string& type, const std::string& text);

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
};

std::unique_ptr<textproto::Message> NewMessage(const std::string& type);
// Reads the text by runtime/schema.
Reading ReadByPlumb(const std::string& type, const std::string& text);

// Returns "" or the difference between the two readings of a text. Two differences are intended and
// not reported: protobuf reads an escape beyond Unicode as the characters "\U00110000", which plumb
// refuses; and protobuf has one location for a list "[...]", plumb one for each element.
std::string Difference(Oracle* oracle, const std::string& type, const std::string& text);

// Sets each field with some probability, to values that are hard to print.
void FillAtRandom(std::mt19937_64* random, google::protobuf::Message* message);
// Copies fields by their names.
void Copy(const google::protobuf::Message& from, textproto::Message* to);
// Prints a message in one of TextFormat's styles.
std::string PrintInSomeStyle(std::mt19937_64* random, const google::protobuf::Message& message);
std::string PrintByProtobuf(const google::protobuf::Message& message);

}  // namespace plumb

#endif  // PLUMB_TESTS_SCHEMA_ORACLE_H_
