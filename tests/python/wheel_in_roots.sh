#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a wheel of the package in other distributions, as a user without rights and without their packages of
# plumb's dependencies, and compares three models there. Prints the seconds of each part. Needs root for chroot, PyPI
# for numpy, and directories with Python and its venv:
#   debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates trixie roots/trixie
#   tests/python/wheel_in_roots.sh WHEEL ROOT...
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: wheel_in_roots.sh WHEEL ROOT..." >&2
  exit 2
fi
wheel=$(realpath "$1")
shift

for root in "$@"; do
  user=$root/tmp/plumb_user
  rm -rf "$user"
  mkdir -p "$user"
  cp "$wheel" "$user"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  mkdir -p "$user/certificates"
  cp -L /etc/ssl/certs/ca-certificates.crt "$user/certificates"
  cat > "$user/study.py" << 'EOF'
import time
begin = time.perf_counter()
import plumb_runtime as plumb
imported = time.perf_counter()
names = ["anna", "otto", "hannah", "emil", "ida", "paul", "lena", "karl", "rosa", "max"] * 20
placements = {"pre": "x = x + f(norm(x))", "post": "x = norm(x + f(x))", "branch": "x = x + norm(f(x))"}
models = {name: plumb.placement(each, name=name).spec(n_layer=4, n_head=2, d_model=16, context_length=16)
          for name, each in placements.items()}
study = plumb.compare(models, names, out="study", seeds=8, set={"train.max_steps": 500}, progress=False)
print(study.conclusion)
print(f"import {imported - begin:.2f} s, study of three models {time.perf_counter() - imported:.2f} s")
EOF
  cat > "$user/newcomer.sh" << 'EOF'
set -e
cd ~
export PIP_CERT=$HOME/certificates/ca-certificates.crt
python3 --version
SECONDS=0
python3 -m venv venv
venv/bin/pip -q install --disable-pip-version-check plumb_runtime-*.whl
echo "installed in $SECONDS s"
venv/bin/plumb --version
venv/bin/python study.py
test -s study/report.html
venv/bin/plumb plugin check "$(find venv -name rms_norm.so)" --level 1 | tail -n 1
EOF
  chown -R 1000:1000 "$user"
  chmod 1777 "$root/tmp"
  printf "\n%s\n" "$(sed -n "s/^PRETTY_NAME=//p" "$root/etc/os-release")"
  # The loader finds the libraries of a program, $ORIGIN, by /proc.
  # shellcheck disable=SC2016  # the inner shell expands it
  unshare --mount --propagation private --pid --fork -- sh -ec 'mount -t proc proc "$1/proc"
    exec chroot --userspec=1000:1000 --groups= "$1" /usr/bin/env -i HOME=/tmp/plumb_user PATH=/usr/bin:/bin LANG=C.UTF-8 \
      /bin/bash /tmp/plumb_user/newcomer.sh' sh "$root"
  rm -rf "$user"
done
