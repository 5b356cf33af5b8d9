#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plumb on a fresh Debian 12 or 13, like a user who has just cloned it: in a chroot with only
# the base system, runs the two commands of the README, examples/why_normalise/run.sh and
# tests/run.sh, and between them all commands of the README in their order, and prints the time of each
# phase. Needs root, debootstrap and a mirror.
set -euo pipefail

usage() {
  cat << 'END'
usage: tools/test_in_chroot.sh [OPTIONS] 12|13

Runs examples/why_normalise/run.sh, tests/readme_in_order.sh and tests/run.sh on a fresh Debian 12 or 13. Fails if one of
them fails, or if plumb does not load oneDNN there, and prints the compiler's warnings.

  --only demo|readme|tests
                         one of the three commands
  --as root|user|both    who runs them (root). For a user, who has no sudo, root installs the
                         packages first
  --user                 the same as --as user
  --ref REF              what to test (HEAD); uncommitted changes are not part of it
  --keep                 leaves the chroot where it was, to look around
  --mirror URL           of Debian (the one in this system's apt sources, or deb.debian.org)
  --directory DIR        for base systems, chroots and logs (build/chroot; also PLUMB_CHROOT_DIR)
  --help

The base system is downloaded once and kept; remove DIR/base-12 to have a newer one. Logs, one a
phase, and the table are in DIR/logs. The exit code is 77 if no chroot can be made here. As many compilers run as there are processors, or as
CMAKE_BUILD_PARALLEL_LEVEL says. CPU seconds are the figure to compare on a machine that is shared.
END
}

exec 3>&2  # messages go here even while the output of a command is redirected
say() { printf '%s\n' "test_in_chroot: $*" >&3; }
fail() {
  say "$*"
  exit 1
}
# Ends the script if no chroot can be made, with the exit code of a skipped test.
cannot() {
  say "$*"
  exit 77
}
misused() {
  say "$*; --help shows the options"
  exit 2
}

# Prints the first mirror in this system's sources that has all of Debian, not only security
# updates.
default_mirror() {
  local found
  found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources \
    2> /dev/null | grep -vE '^[[:space:]]*#' | grep -oE 'https?://[^][:space:]]+/debian/?([[:space:]]|$)' |
    head -n 1 | tr -d '[:space:]') || true
  printf '%s\n' "${found:-http://deb.debian.org/debian}"
}

release='' only='' as=root ref=HEAD keep='' mirror='' directory=${PLUMB_CHROOT_DIR:-}
while [ $# -gt 0 ]; do
  case $1 in
    --only | --as | --ref | --mirror | --directory) [ $# -ge 2 ] || misused "$1 lacks its value" ;;&
    --only) only=$2 && shift ;;
    --as) as=$2 && shift ;;
    --user) as=user ;;
    --ref) ref=$2 && shift ;;
    --keep) keep=1 ;;
    --mirror) mirror=$2 && shift ;;
    --directory) directory=$2 && shift ;;
    --help | -h)
      usage
      exit 0
      ;;
    12 | 13) release=$1 ;;
    *) misused "\"$1\" is not an option, nor 12 or 13" ;;
  esac
  shift
done
case $release in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  *) misused "which Debian, 12 or 13?" ;;
esac
case $only in '' | demo | readme | tests) ;; *) misused "--only demo, readme or tests" ;; esac
case $as in
  root | user) users=("$as") ;;
  both) users=(root user) ;;
  *) misused "--as root, user or both" ;;
esac
commands=(demo readme tests)
[ -z "$only" ] || commands=("$only")

[ "$(id -u)" = 0 ] || cannot "only root may make a chroot: sudo $0 $release"
for program in debootstrap unshare findmnt flock git tar; do
  command -v "$program" > /dev/null || cannot "$program is missing: apt-get install $program"
done
unshare --mount --propagation private --pid --fork true 2> /dev/null ||
  cannot "this system does not let root mount (unshare --mount fails): a container has to be privileged"
[ -e "/usr/share/debootstrap/scripts/$suite" ] ||
  cannot "this debootstrap does not know $suite: a newer one is needed"

source_directory=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# Root may read a repository that belongs to another user.
repository() { git -c safe.directory='*' -C "$source_directory" "$@"; }
repository rev-parse --git-dir > /dev/null 2>&1 || cannot "$source_directory is no git repository"
commit=$(repository rev-parse --verify --quiet --short "$ref^{commit}") || fail "no commit is called $ref"
[ "$ref" != HEAD ] || [ -z "$(repository status --porcelain)" ] ||
  say "uncommitted changes are not tested: only $commit is"

directory=${directory:-$source_directory/build/chroot}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd -P)
case ",$(findmnt -n -o OPTIONS -T "$directory")," in
  *,noexec,* | *,nodev,* | *,nosuid,*)
    cannot "no system can live in $directory, which is mounted noexec, nodev or nosuid: --directory" ;;
esac
gigabytes=$(($(df -Pk "$directory" | awk 'NR == 2 { print $4 }') >> 20))
[ "$gigabytes" -ge 8 ] || cannot "$gigabytes GB are free in $directory, and 8 are needed: --directory"
exec 9> "$directory/lock-$release"
flock -n 9 || fail "another run for Debian $release is at work in $directory"

mirror=${mirror:-$(default_mirror)}
base=$directory/base-$release
logs=$directory/logs/debian$release-$commit-$(date +%Y%m%d-%H%M%S)
mkdir -p "$logs"

# Removes a chroot, but nothing that is mounted there. Its processes may take a moment to end after
# they were killed.
remove() {
  local attempt
  for attempt in 1 2 3; do
    [ -e "$1" ] || return 0
    if findmnt -rn -o TARGET | grep -qF "$1/"; then
      say "something is mounted in $1, so it is left there"
      return 1
    fi
    if rm -rf --one-file-system "$1" 2> /dev/null; then return 0; fi
    sleep "$attempt"
  done
  say "$1 could not be removed"
  return 1
}

# Runs a command in its own mount and PID namespaces, which end with it in any case.
child=''
in_namespace() {
  unshare --mount --propagation private --pid --fork --kill-child -- "$@" < /dev/null 3>&- 9>&- &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=''
  return "$status"
}

chroot_directory=''
finish() {
  [ -z "$child" ] || kill -KILL "$child" 2> /dev/null || true
  wait
  remove "$base.part" || true
  if [ -n "$chroot_directory" ] && [ -z "$keep" ]; then remove "$chroot_directory" || true; fi
}
trap finish EXIT
trap 'say interrupted; exit 130' INT TERM HUP

# enter ROOT USER COMMAND...: runs a command as that user of the chroot, in a clean environment.
# Does not exec chroot, because a process that becomes another user is no longer killed with its
# parent, but this bash is.
enter() {
  local root=$1 user=$2 home=/root
  shift 2
  [ "$user" = root ] || home=/home/$user
  # shellcheck disable=SC2016 # expanded by that bash
  in_namespace bash -euc '
    root=$1 user=$2
    shift 2
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --bind /dev "$root/dev"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    chroot --userspec="$user:$user" --groups= "$root" "$@"
    exit' _ "$root" "$user" \
    /usr/bin/env -i HOME="$home" USER="$user" LANG=C.UTF-8 \
    PATH=/phases:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${CMAKE_BUILD_PARALLEL_LEVEL:+CMAKE_BUILD_PARALLEL_LEVEL="$CMAKE_BUILD_PARALLEL_LEVEL"} "$@"
}

make_base() {
  [ ! -e "$base" ] || return 0
  say "downloading the base of Debian $release ($suite) from $mirror"
  remove "$base.part"
  if ! in_namespace debootstrap --variant=minbase "$suite" "$base.part" "$mirror" \
    > "$logs/debootstrap.log" 2>&1; then
    tail -n 5 "$logs/debootstrap.log" >&2
    fail "debootstrap failed: is there a network, and is $mirror a mirror of Debian (--mirror)?"
  fi
  mv "$base.part" "$base"
}

# Writes programs that precede the real ones on the PATH: they time the phases of a command, record
# the output of each phase, and ignore calls from the tests.
write_phases() {
  mkdir "$1/phases"
  cat > "$1/phases/phase" << 'END'
#!/bin/bash
set -o pipefail
real=/usr/bin/${0##*/}
[ -z "$PLUMB_PHASE" ] || exec "$real" "$@"
case ${0##*/}:$* in
  apt-get:*) export PLUMB_PHASE=packages ;;
  cmake:*--build*) export PLUMB_PHASE=build ;;
  cmake:*) export PLUMB_PHASE=configure ;;
  ctest:*) export PLUMB_PHASE=tests ;;
esac
TIMEFORMAT="$PLUMB_PHASE %R %U %S"
{ time { "$real" "$@" 2>&1 | tee -a "/phases/log/$PLUMB_PHASE.log"; }; } 2>> /phases/log/times
END
  cat > "$1/phases/timed" << 'END'
#!/bin/bash
cd "$HOME/plumb" || exit
TIMEFORMAT="all %R %U %S"
{ time "$@" 2>&3; } 3>&2 2>> /phases/log/times
END
  chmod +x "$1/phases/phase" "$1/phases/timed"
  for program in apt-get cmake ctest; do ln -s phase "$1/phases/$program"; done
}

# Prints "PACKAGES MEGABYTES" of the installed packages.
installed() {
  # shellcheck disable=SC2016 # fields of dpkg
  chroot "$1" dpkg-query -W -f='${db:Status-Status} ${Installed-Size}\n' |
    awk '$1 == "installed" { n += 1; kib += $2 } END { print n, int(kib / 1024) }'
}

make_chroot() {
  local user=$1 home=$chroot_directory/root
  remove "$chroot_directory"
  cp -a --reflink=auto "$base" "$chroot_directory"
  rm -f "$chroot_directory/etc/resolv.conf"
  cp -L /etc/resolv.conf "$chroot_directory/etc/resolv.conf"
  printf '#!/bin/sh\nexit 101\n' > "$chroot_directory/usr/sbin/policy-rc.d"  # starts no services
  chmod +x "$chroot_directory/usr/sbin/policy-rc.d"
  printf 'deb %s %s main\n' "$mirror" "$suite" > "$chroot_directory/etc/apt/sources.list"
  write_phases "$chroot_directory"
  if [ "$user" != root ]; then
    chroot "$chroot_directory" useradd --create-home --user-group "$user"
    home=$chroot_directory/home/$user
  fi
  mkdir "$home/plumb"
  repository archive --format=tar "$ref" | tar -x -C "$home/plumb"
  chroot "$chroot_directory" chown -R "$user:$user" "${home#"$chroot_directory"}/plumb"
}

# check_build USER LOG: prints the compiler's warnings, which do not stop a user's build. Fails if
# plumb does not load oneDNN, which the demo's models are too small to need.
check_build() {
  local user=$1 log=$2
  grep -h 'warning:' "$log/build.log" || true
  # shellcheck disable=SC2016 # expanded by that shell
  enter "$chroot_directory" "$user" sh -c '"$HOME/plumb/build/quick/bin/plumb" doctor' > "$log/doctor.log" 2>&1 || true
  if ! grep -q '^oneDNN  *[0-9]' "$log/doctor.log"; then
    cat "$log/doctor.log"
    echo "plumb does not load oneDNN: see above"
    return 1
  fi
}

# run_command USER NAME: runs a command and prints one row of the table.
run_command() {
  local user=$1 name=$2 command=() purpose log=$logs/$1-$2 status=0 before after
  case $name in
    demo) command=(examples/why_normalise/run.sh) purpose=run ;;
    readme) command=(tests/readme_in_order.sh --here) purpose=test ;;
    tests) command=(tests/run.sh) purpose=test ;;
  esac
  before=$(installed "$chroot_directory")
  mkdir -p "$log"
  rm -rf "$chroot_directory/phases/log"
  mkdir -m 1777 "$chroot_directory/phases/log"
  install -m 666 /dev/null "$chroot_directory/phases/log/times"
  say "Debian $release, $commit, as $user: ${command[*]}"
  if [ "$user" != root ]; then
    # shellcheck disable=SC2016 # expanded by that bash
    enter "$chroot_directory" root bash -c 'cd "$1" && tools/install_dependencies.sh "$2"' _ \
      "/home/$user/plumb" "$purpose" >> "$log/command.log" 2>&1 || status=$?
    chroot "$chroot_directory" chown -R "$user:$user" "/home/$user/plumb" /phases/log
  fi
  if [ "$status" = 0 ]; then
    enter "$chroot_directory" "$user" timed "${command[@]}" >> "$log/command.log" 2>&1 || status=$?
  fi
  cp "$chroot_directory"/phases/log/* "$log"
  if [ "$status" = 0 ]; then check_build "$user" "$log" >> "$log/command.log" 2>&1 || status=$?; fi
  after=$(installed "$chroot_directory")
  if [ "$status" != 0 ]; then
    tail -n 20 "$log/command.log" >&2
    say "${command[*]} failed with $status; its output is in $log/command.log"
    failures=$((failures + 1))
  fi
  awk -v head="| $release | $user | $name |" -v before="$before" -v after="$after" \
    -v installed_apart="$([ "$user" = root ] || echo 1)" \
    -v failed="$([ "$status" = 0 ] || echo ' (failed)')" '
    { wall[$1] += $2; cpu[$1] += $3 + $4 }
    function show(w, c) { printf " %.0f (%.0f) |", w, c }
    END {
      split(before, b, " "); split(after, a, " ")
      rest = wall["all"] - wall["configure"] - wall["build"]
      rest_cpu = cpu["all"] - cpu["configure"] - cpu["build"]
      if (!installed_apart) { rest -= wall["packages"]; rest_cpu -= cpu["packages"] }
      printf "%s", head
      show(wall["packages"], cpu["packages"]); show(wall["configure"], cpu["configure"])
      show(wall["build"], cpu["build"]); show(rest, rest_cpu)
      printf " %d | %d |%s\n", a[1] - b[1], a[2] - b[2], failed
    }' "$log/times" >> "$logs/rows"
}

failures=0
make_base
for user in "${users[@]}"; do
  account=$user
  [ "$user" = root ] || account=tester
  chroot_directory=$directory/debian$release-$user
  make_chroot "$account"
  for name in "${commands[@]}"; do run_command "$account" "$name"; done
  if [ -n "$keep" ]; then say "kept: $chroot_directory"; else remove "$chroot_directory"; fi
done

{
  printf 'Debian %s, %s, %s processors, commit %s; seconds (CPU seconds)\n\n' \
    "$(cat "$base/etc/debian_version")" "$(uname -m)" "$(nproc)" "$commit"
  printf '| Debian | as | command | packages | configure | build | run | packages | MB installed |\n'
  printf '|---|---|---|---|---|---|---|---|---|\n'
  cat "$logs/rows"
} | tee "$logs/table.md"
rm -f "$logs/rows"
say "logs: $logs"
[ "$failures" = 0 ] || exit 1
