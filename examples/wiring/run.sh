#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the models of this folder with the same seeds and compares them: prints a table, and writes a
# report.
#
#   examples/wiring/run.sh                     names: build/studies/wiring/report.html
#   examples/wiring/run.sh text --data FILE    a text: build/studies/wiring_text/report.html
#
# Other options are those of plumb compare: --seeds N, --data FILE, --out DIR.
set -euo pipefail
study=wiring
if [ "${1:-}" = text ]; then
  study=wiring/text
  shift
fi
exec "$(dirname "${BASH_SOURCE[0]}")/../run_study.sh" "$study" "$@"
