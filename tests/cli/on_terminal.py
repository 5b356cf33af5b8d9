#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a shell command on a terminal and prints what the terminal shows.

The end of a session's leader discards output that is still on its way to the terminal, so the shell, which is the
leader, waits until everything is read.
Usage: on_terminal.py COMMAND
"""
import os
import pty
import sys

END = b"<end>"
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", f"{sys.argv[1]}; printf '{END.decode()}'; read wait"])
shown = b""
while not shown.endswith(END):
    shown += os.read(terminal, 4096)
os.close(terminal)
os.waitpid(pid, 0)
sys.stdout.buffer.write(shown[: -len(END)].replace(b"\r\n", b"\n"))
