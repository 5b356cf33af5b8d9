// A norm plugin that ends the process is named, and never looks like success: handlers for the
// signals of faults and of abort(), and for exit(), _exit(), _Exit() and quick_exit(), while this
// program is at work. Each writes which function of which norm it was, and the file, and ends with
// exit code 3. What a plugin does by a system call of its own (exit_group, execve) is not seen. A
// mapped file that is cut while it is read, which is SIGBUS too, is named, and ends with exit
// code 1.
//
// Of the process, hence of main alone. Threads have signal stacks from the first runtime on
// (PLUMB_SIGNAL_STACKS).
#ifndef PLUMB_CLI_PLUGIN_FAULTS_H_
#define PLUMB_CLI_PLUGIN_FAULTS_H_

namespace plumb::cli {

// First thing in main. Signals that somebody handles already (a sanitizer) stay theirs.
void WatchPlugins();

// Last thing in main: from here on the process may exit, with this code and no other. Returns it.
int WorkEnded(int exit_code);

// From here on the process may exit outside of calls of plugins: MPI ends the ranks of a job that
// is aborted, from within any of its own functions.
void LeaveExitsOutsidePluginsAlone();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_FAULTS_H_
