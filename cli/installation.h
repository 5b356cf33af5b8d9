// SPDX-License-Identifier: Apache-2.0
// Paths of this program and of its installed files. Stateless.
#ifndef PLUMB_CLI_INSTALLATION_H_
#define PLUMB_CLI_INSTALLATION_H_

#include <string>

namespace plumb::cli {

// Returns the directory of this program, without a trailing slash; "" if it is unknown.
std::string OwnDirectory();

// Returns the prefix under which this program is installed, such as "/usr/local", computed from the
// program's own path, so that an installed tree can be moved; a build tree has the same layout.
// Returns "" if the program is in neither.
std::string InstallPrefix();

// Returns the directory of the installed pages and examples, such as "/usr/share/doc/plumb", which
// need not exist; "" if InstallPrefix() is unknown.
std::string DocDirectory();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_INSTALLATION_H_
