# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions that simulate several hosts on one machine, for tests. Sourced after mpi.sh. Requires root: each
# host is a network namespace with a host name of its own, connected to a switch in the first one. If that is
# not possible, a message says so and the test ends as skipped (77).
#
#   make_hosts N   creates hosts 1 to N with names plumb-host1 ... and addresses 10.77.0.1 ...
#   on_host I COMMAND...   runs a command on host I
#   cut_host I, mend_host I   disconnects host I, or connects it again
#   "${launch_hosts[@]}" -n M PROGRAM   runs one rank per host, started on host 1
#   launch_on I...   sets launch_hosts to these hosts
#   remove_hosts   removes the hosts and all their processes
hosts_scratch=$(mktemp -d)
hosts_prefix=plumb$$
n_hosts=0

skip_hosts() {
  echo "skipped: no network namespaces: $*"
  remove_hosts
  exit 77
}

on_host() {
  local i=$1
  shift
  # shellcheck disable=SC2016
  ip netns exec "$hosts_prefix-$i" unshare --uts sh -c 'hostname "$0" && exec "$@"' "plumb-host$i" "$@"
}

remove_hosts() {
  local i pids
  for i in $(seq 1 "$n_hosts"); do
    pids=$(ip netns pids "$hosts_prefix-$i" 2> /dev/null || true)
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -9 $pids 2> /dev/null || true
  done
  for i in $(seq 1 "$n_hosts"); do ip netns del "$hosts_prefix-$i" 2> /dev/null || true; done
  rm -rf "$hosts_scratch" /tmp/ompi.plumb-host*."$(id -u)"
}

make_hosts() {
  local n=$1 i
  [ "$(id -u)" = 0 ] || skip_hosts "this is not root"
  command -v ip > /dev/null || skip_hosts "there is no ip (iproute2)"
  mpirun --version 2> /dev/null | grep 'Open MPI' > /dev/null || skip_hosts "the launcher is not Open MPI's"
  for i in $(seq 1 "$n"); do
    ip netns add "$hosts_prefix-$i" 2> "$hosts_scratch/why" || skip_hosts "$(cat "$hosts_scratch/why")"
    n_hosts=$i
    # Entering a namespace mounts, which fails if / is no mount point, as in a chroot.
    ip -n "$hosts_prefix-$i" link set lo up 2> "$hosts_scratch/why" || skip_hosts "$(cat "$hosts_scratch/why")"
    # TCP gives up after seconds, not after a quarter of an hour.
    ip netns exec "$hosts_prefix-$i" sysctl -qw net.ipv4.tcp_retries2=6 2> "$hosts_scratch/why" ||
      skip_hosts "$(cat "$hosts_scratch/why")"
  done
  ip -n "$hosts_prefix-1" link add switch type bridge 2> "$hosts_scratch/why" ||
    skip_hosts "$(cat "$hosts_scratch/why")"
  ip -n "$hosts_prefix-1" addr add 10.77.0.1/24 dev switch
  ip -n "$hosts_prefix-1" link set switch up
  for i in $(seq 2 "$n"); do
    ip -n "$hosts_prefix-1" link add "cable$i" type veth peer name eth0 netns "$hosts_prefix-$i"
    ip -n "$hosts_prefix-1" link set "cable$i" master switch up
    ip -n "$hosts_prefix-$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "$hosts_prefix-$i" link set eth0 up
  done
  # mpirun calls this script instead of ssh: HOST COMMAND.
  cat > "$hosts_scratch/agent" <<EOF
#!/bin/sh
i=\${1##*.}
shift
exec ip netns exec "$hosts_prefix-\$i" unshare --uts sh -c "hostname plumb-host\$i && \$*"
EOF
  chmod +x "$hosts_scratch/agent"
  # shellcheck disable=SC2046
  launch_on $(seq 1 "$n")
}

launch_on() {
  local i list=
  for i in "$@"; do list+=${list:+,}10.77.0.$i:1; done
  # shellcheck disable=SC2034  # used by the scripts that source this file
  launch_hosts=(on_host 1 mpirun --bind-to none --host "$list" --mca plm_rsh_agent "$hosts_scratch/agent"
    --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24
    # A host that is cut off is noticed after half a minute.
    --mca oob_tcp_keepalive_time 20 --mca oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 2)
}

cut_host() { ip -n "$hosts_prefix-1" link set "cable$1" down; }
mend_host() { ip -n "$hosts_prefix-1" link set "cable$1" up; }
