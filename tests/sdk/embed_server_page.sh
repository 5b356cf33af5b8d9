#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the page of examples/embed_server in headless Chromium. Exits with 77 if something is missing: see
# tests/report/run_browser_tests.sh, whose playwright-core it uses.
#   embed_server_page.sh SERVER RUN LONG_RUN
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
skip() { echo "the page is not tried: $*"; exit 77; }
command -v node > /dev/null || skip "no node here (20 or newer)"
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || skip "node is $(node --version)"
for candidate in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome; do
  if CHROMIUM=$(command -v "$candidate"); then break; fi
done
[ -n "${CHROMIUM:-}" ] || skip "no chromium here"
export CHROMIUM SERVER=$1 RUN=$2 LONG_RUN=$3
(cd ../report && node -e 'require("playwright-core")') 2> /dev/null || skip "no playwright-core in tests/report"
exec node --test embed_server_page_test.mjs
