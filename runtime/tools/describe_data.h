// What a run's data are, in a line.
#ifndef PLUMB_RUNTIME_TOOLS_DESCRIBE_DATA_H_
#define PLUMB_RUNTIME_TOOLS_DESCRIBE_DATA_H_

#include <string>

#include "runtime/data/data.h"

namespace plumb {

// "names.txt: 3,700 documents to train on, 0 held out; 26 characters ...".
std::string DescribeData(const Dataset& data);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_DESCRIBE_DATA_H_
