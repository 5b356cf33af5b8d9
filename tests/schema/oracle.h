// SPDX-License-Identifier: Apache-2.0
// Protobuf's own library as the oracle of runtime/schema: the same schema, from the descriptors
// that protoc made of it, read and printed by TextFormat.
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

// What a reader made of a text.
struct Reading {
  bool accepted = false;
  std::string printed;  // of what was accepted
  // "block.sublayer[1].name" to "3:7", of every field but the elements of lists "[...]".
  std::map<std::string, std::string> locations;
  std::string error;
};

class Oracle {
 public:
  Oracle();

  // The types that files hold: Model, Library, Study, Train.
  static const std::vector<std::string>& Types();

  std::unique_ptr<google::protobuf::Message> New(const std::string& type);
  Reading Read(const std::string& type, const std::string& text);

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
};

std::unique_ptr<textproto::Message> NewMessage(const std::string& type);
// The same by runtime/schema.
Reading ReadByPlumb(const std::string& type, const std::string& text);

// Nothing, or how the two readings of a text differ. The differences that are meant, and not
// reported: protobuf makes the characters "\U00110000" of an escape beyond Unicode, which is a
// mistake to plumb; of a list "[...]" protobuf knows one place, plumb that of each element.
std::string Difference(Oracle* oracle, const std::string& type, const std::string& text);

// Every field with some chance, with values that are hard to print.
void FillAtRandom(std::mt19937_64* random, google::protobuf::Message* message);
// By the fields' names.
void Copy(const google::protobuf::Message& from, textproto::Message* to);
// In one of TextFormat's styles.
std::string PrintInSomeStyle(std::mt19937_64* random, const google::protobuf::Message& message);
std::string PrintByProtobuf(const google::protobuf::Message& message);

}  // namespace plumb

#endif  // PLUMB_TESTS_SCHEMA_ORACLE_H_
