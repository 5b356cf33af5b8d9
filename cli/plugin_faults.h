// SPDX-License-Identifier: Apache-2.0
// Handlers that name the norm plugin that ends the process, so that this never looks like success:
// for fault signals and abort(), and for exit() and quick_exit(). Each writes the function, the
// norm and its file, and ends with exit code 3. A plugin that calls _exit() or the system call is
// not noticed. If a mapped file was truncated while it was read (SIGBUS too), the message names the
// file, and the exit code is 1.
//
// The handlers are state of the process, so only main uses this header. Threads have signal stacks
// once the first runtime exists (PLUMB_RUNTIME_SIGNAL_STACKS).
#ifndef PLUMB_CLI_PLUGIN_FAULTS_H_
#define PLUMB_CLI_PLUGIN_FAULTS_H_

namespace plumb::cli {

// Installs the handlers. Keeps a handler that a signal already has (a sanitizer's). Requires:
// called once, at the beginning of main.
void InstallFaultHandlers();

// Returns `exit_code`, from now on the only code with which the process may exit. To be called last
// in main.
int RecordExitCode(int exit_code);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_FAULTS_H_
