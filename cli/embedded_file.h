// EmbeddedFile: a file that the program carries (cli/embed_files.cmake). A value.
#ifndef PLUMB_CLI_EMBEDDED_FILE_H_
#define PLUMB_CLI_EMBEDDED_FILE_H_

#include <string>

namespace plumb::cli {

struct EmbeddedFile {
  std::string name;  // "Makefile": no directory
  std::string content;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_EMBEDDED_FILE_H_
