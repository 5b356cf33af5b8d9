// SPDX-License-Identifier: Apache-2.0
// Names the norm plugin that ends the process, so that this never looks like success: handlers for
// the signals of faults and of abort(), and exit handlers for exit() and quick_exit(). Each writes
// which function of which norm it was, and the file, and ends with exit code 3. A plugin that calls
// _exit(), or a system call, is not noticed. A mapped file that is cut while it is read, which is
// SIGBUS too, is named, and the process ends with exit code 1.
//
// State of the process, hence for main alone. Threads have signal stacks from the first runtime on
// (PLUMB_SIGNAL_STACKS).
#ifndef PLUMB_CLI_PLUGIN_FAULTS_H_
#define PLUMB_CLI_PLUGIN_FAULTS_H_

namespace plumb::cli {

// Installs the handlers. A signal that has a handler already (a sanitizer's) keeps it.
// REQUIRES: called once, at the beginning of main.
void WatchPlugins();

// Returns `exit_code`, with which alone the process may exit from now on: the last call of main.
int WorkEnded(int exit_code);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_FAULTS_H_
