#include "runtime/tools/describe_data.h"

#include "absl/strings/str_cat.h"

namespace plumb {

std::string DescribeData(const Dataset& data) {
  const std::string vocabulary = data.tokenizer().Description();
  if (data.format() == DatasetOptions::Format::kDocuments) {
    return absl::StrCat(data.name(), ": ", data.num_documents(Split::kTrain),
                        " documents to train on, ", data.num_documents(Split::kValidation),
                        " held out; ", vocabulary);
  }
  return absl::StrCat(data.name(), ": ", data.num_tokens(Split::kTrain), " tokens to train on, ",
                      data.num_tokens(Split::kValidation), " held out; ", vocabulary);
}

}  // namespace plumb
