// SPDX-License-Identifier: Apache-2.0
// The paths of this program and of its installed files. Stateless.
#ifndef PLUMB_CLI_INSTALLATION_H_
#define PLUMB_CLI_INSTALLATION_H_

#include <string>

namespace plumb::cli {

// The directory of this program, without a slash at the end; "" if the system does not say.
std::string OwnDirectory();

// The prefix under which this program is installed, "/usr/local", by where it lies: an installed
// tree may be moved, and a build is laid out as one. "" when it is in neither.
std::string InstallPrefix();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_INSTALLATION_H_
