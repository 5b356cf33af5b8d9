#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the three models of this folder on the same names with the same seeds, and compares them:
# prints a table, and writes build/studies/why_normalise/report.html. Options are those of plumb
# compare: --seeds N, --data FILE, --out DIR.
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/../run_study.sh" why_normalise "$@"
