// SPDX-License-Identifier: Apache-2.0
// Commit of a git repository, read from its files.
#ifndef PLUMB_RUNTIME_REPORT_GIT_COMMIT_H_
#define PLUMB_RUNTIME_REPORT_GIT_COMMIT_H_

#include <string>

namespace plumb {

// Returns the commit that is checked out in the repository of a file, as hexadecimal digits; "" if
// the file is in none. Changes that are not committed do not matter: a report has the hashes of its
// files.
std::string GitCommitOf(const std::string& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_GIT_COMMIT_H_
