#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the report, and the gallery of placements, in headless Chromium:
#
#   tests/report/run_browser_tests.sh BUILD/tests/report/render_report
#
# Requires node 20, Chromium, and playwright-core and axe-core at the versions that package.json pins, installed by
# `npm ci` in this folder or in a directory of NODE_PATH. CHROMIUM names another browser. Exits with 77 if something
# is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

skip() { echo "skipped: $*"; exit 77; }

command -v node > /dev/null || skip "no node here (20 or newer)"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || skip "node is $(node --version), and playwright-core needs 20"
for candidate in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome; do
  if CHROMIUM=$(command -v "$candidate"); then break; fi
done
[ -n "${CHROMIUM:-}" ] || skip "no chromium here (Debian: apt-get install chromium)"
export CHROMIUM
for package in playwright-core axe-core; do
  wanted=$(node -p "require('./package.json').dependencies['$package']")
  found=$(node -p "require('$package/package.json').version" 2> /dev/null) ||
    skip "no $package here (npm ci in $PWD, or NODE_PATH)"
  [ "$found" = "$wanted" ] || skip "$package is $found here, and the tests want $wanted"
done

export RENDER_REPORT="${1:?the path of render_report}"
exec node --test stats_test.mjs figures_test.mjs page_test.mjs gallery_test.mjs accessibility_test.mjs
