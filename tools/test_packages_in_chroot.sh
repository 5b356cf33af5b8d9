#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that tools/make_packages.sh made on a fresh Debian, like a new user, and
# uses them: the tool, manual pages, and hosts of the shared and the static library.
# Needs root, debootstrap and a mirror.
#
#   tools/test_packages_in_chroot.sh [OPTIONS]
#     --release 12|13     release of Debian (12), the one on which the packages were made
#     --packages DIR      directory of the packages (build/package/packages)
#     --directory DIR     directory of base systems and the chroot (build/chroot); a base system of
#                         tools/test_in_chroot.sh is reused
#     --mirror URL        mirror of Debian (http://deb.debian.org/debian)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
release=12 packages=$root/build/package/packages directory=${PLUMB_CHROOT_DIR:-$root/build/chroot}
mirror=http://deb.debian.org/debian
fail() { printf 'test_packages_in_chroot: %s\n' "$*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || fail "$1 is not an option, or lacks its value"
  case $1 in
    --release) release=$2 ;;
    --packages) packages=$2 ;;
    --directory) directory=$2 ;;
    --mirror) mirror=$2 ;;
    *) fail "$1 is not an option" ;;
  esac
  shift 2
done
case $release in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  *) fail "which Debian, 12 or 13?" ;;
esac
[ "$(id -u)" = 0 ] || fail "only root may make a chroot"
command -v debootstrap > /dev/null || fail "debootstrap is missing"
packages=$(realpath "$packages")
ls "$packages"/*.deb > /dev/null || fail "no packages in $packages: tools/make_packages.sh"

mkdir -p "$directory"
base=$directory/base-$release
if [ ! -e "$base" ]; then
  rm -rf --one-file-system "$base.part"
  debootstrap --variant=minbase "$suite" "$base.part" "$mirror" > "$directory/debootstrap.log" 2>&1 ||
    { tail -n 5 "$directory/debootstrap.log" >&2; fail "debootstrap failed"; }
  mv "$base.part" "$base"
fi
chroot=$(mktemp -d "$directory/packages-$release.XXXXXX")
trap 'rm -rf --one-file-system "$chroot"' EXIT
cp -a --reflink=auto "$base/." "$chroot"
rm -f "$chroot/etc/resolv.conf"
cp -L /etc/resolv.conf "$chroot/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' > "$chroot/usr/sbin/policy-rc.d"
chmod 755 "$chroot" "$chroot/usr/sbin/policy-rc.d"
printf 'deb %s %s main\n' "$mirror" "$suite" > "$chroot/etc/apt/sources.list"
mkdir "$chroot/packages"
cp "$packages"/*.deb "$chroot/packages"
cp "$root/examples/embed_c/main.c" "$chroot/packages/host.c"

cat > "$chroot/packages/use.sh" << 'END'
#!/bin/bash
set -euo pipefail
cd /packages
export DEBIAN_FRONTEND=noninteractive
say() { printf '\n== %s\n' "$*"; }
apt_get() { apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" > /tmp/apt.log 2>&1 || { tail -n 20 /tmp/apt.log; exit 1; }; }
# Lists all files except packages' databases, logs and caches.
files() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /packages -o -path /var -o -path /root \) -prune -o -print | sort; }
apt_get update

say "the tool alone, and what apt installs with it"
files > /tmp/before
apt_get install -y --no-install-recommends ./plumb_*.deb ./plumb-norms_*.deb
plumb --version
plumb docs faq | head -n 3
cat > model.pbtxt << 'MODEL'
n_layer: 1 n_head: 2 d_model: 16 context_length: 16
block { placement: "pre" norm: "rms_norm" }
MODEL
printf '%s\n' anna emma hannah lena lina marie mia nora paula sophia > names.txt
plumb train model.pbtxt --data names.txt --out run --set train.max_steps=2 --quiet
plumb sample run --num 2
plumb plugin list | head -n 3
plumb plugin check "$(dpkg -L plumb-norms | grep /rms_norm.so)" --level 1 | tail -n 1

say "purged: nothing is left"
apt_get purge -y plumb plumb-norms
apt_get autoremove --purge -y
files > /tmp/after
diff /tmp/before /tmp/after | grep -i plumb && exit 1

say "all packages, with what a host's author has"
apt_get install -y --no-install-recommends ./*.deb gcc libc6-dev pkg-config man-db
dpkg -l '*plumb*' | tail -n +6
dpkg --verify libplumb0.3 libplumb-dev plumb plumb-norms
ldconfig -p | grep libplumb

say "manual pages"
man plumb | head -n 4
[ "$(man -w plumb-train)" = /usr/share/man/man1/plumb-train.1.gz ]
man plumb train | sed -n 1,5p
apropos plumb | sort | head -n 3

say "a host in C, shared"
cc -std=c99 -Wall -Werror host.c -o host $(pkg-config --cflags --libs plumb)
./host | tail -n 2
dpkg-query -S "$(ldd host | awk '/libplumb/ { print $3 }' | xargs realpath)"

say "the same, with the static library and what libplumb-dev suggests"
apt_get install -y --no-install-recommends g++ libabsl-dev libhwy-dev libpcre2-dev
cc host.c -o static_host $(pkg-config --cflags --libs --static plumb | sed 's/-lplumb /-l:libplumb.a /')
cmp <(./host) <(./static_host)
! ldd static_host | grep libplumb
say "all passed"
END
chmod +x "$chroot/packages/use.sh"
# Uses its own mount and PID namespaces, which end with it.
# shellcheck disable=SC2016  # expanded by that bash
unshare --mount --propagation private --pid --fork --kill-child -- bash -euc '
  mount -t proc proc "$1/proc"
  mount --bind /dev "$1/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
  chroot "$1" /usr/bin/env -i HOME=/root LANG=C.UTF-8 NO_COLOR=1 MANPAGER=cat MANWIDTH=80 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /packages/use.sh' _ "$chroot" < /dev/null
