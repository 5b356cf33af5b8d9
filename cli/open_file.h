// Opening a file with the program that the user's desktop has for it. Stateless.
#ifndef PLUMB_CLI_OPEN_FILE_H_
#define PLUMB_CLI_OPEN_FILE_H_

#include <string>

namespace plumb::cli {

// Whether someone would see it: there is a display, and stdout is a terminal. Not so in scripts,
// in tests, or over ssh.
bool CanOpenFiles();

// Starts xdg-open on it and does not wait. False if it cannot be started.
bool OpenFile(const std::string& path);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_OPEN_FILE_H_
