#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Recreates docs/images: the top of the report of examples/why_normalise, light, dark and on a
# phone, and the gallery of all studies (examples/make_gallery.sh, which trains missing ones).
#
#   tools/screenshots.sh [OUT]
#
# Needs node 20, Chromium (or the browser that CHROMIUM names), and playwright-core, which
# tools/install_dependencies.sh installs into tests/report. PLUMB names the plumb to use; by default
# one is built.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$(realpath -m -- "${1:-$root/docs/images}")
fail() { printf 'screenshots: %s\n' "$*" >&2; exit 1; }

command -v node > /dev/null || fail "no node here (20 or newer)"
for candidate in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome; do
  if CHROMIUM=$(command -v "$candidate"); then break; fi
done
[ -n "${CHROMIUM:-}" ] || fail "no chromium here (Debian: apt-get install chromium)"
export CHROMIUM
export NODE_PATH=$root/tests/report/node_modules${NODE_PATH:+:$NODE_PATH}
node -e 'require("playwright-core")' 2> /dev/null ||
  fail "no playwright-core here: npm ci --prefix tests/report"

"$root/examples/make_gallery.sh"
mkdir -p "$out"
exec node "$root/tools/screenshots.mjs" "$root/build/gallery" "$out"
