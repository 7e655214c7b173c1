#!/bin/sh
# Network of the dat-lab machine: RDMA devices rx1..rxN (Soft-RoCE) or siw1..siwN (Soft-iWARP) on veth pairs v1-v2, v3-v4, ... (an odd last one on a dummy link).
# SPDX-License-Identifier: BSL-1.0
#
# With hosts: the links are Ethernet devices, link N of all hosts on one network. Host K has the addresses 10.78.N.K and fd00:78:N::K there.
#
# Uses from the set-up file: host (its number or empty), hosts, links, mtu, kind1..kindN (rxe or siw), netem (arguments of tc's netem or empty), faults_reset (not empty when
# faults come later). All links live in one network namespace, since rdma_rxe of Linux 6.1 works in the first one only.
# Rules send packets for the partner's address by the pair, so that they really cross the link. `net.sh restore`
# re-creates what links that went down have lost. `net.sh wire4 N` and `net.sh wire6 N` re-create the routes and
# neighbours of one family that the link N has lost.
. /run/dat-lab/setup

host_mac() { printf 02:00:00:00:%02x:%02x "$1" "$2"; } # link, host
addresses() { # number: lines for ip -batch
  if [ -n "$host" ]; then
    echo "addr replace 10.78.$1.$host/24 dev v$1"
    echo "addr replace fd00:78:$1::$host/64 dev v$1 nodad"
    return
  fi
  echo "addr replace 10.78.$1.1/32 dev v$1"
  echo "addr replace fd00:78:$1::1/128 dev v$1 nodad"
}
mac() { printf 02:00:00:00:00:%02x $1; }
wire4() { # own number, partner's
  echo "route replace 10.78.$2.1/32 dev v$1 src 10.78.$1.1 table $((100 + $1))"
  echo "neigh replace 10.78.$2.1 lladdr $(mac $2) dev v$1 nud permanent"
}
wire6() {
  echo "route replace fd00:78:$2::1/128 dev v$1 src fd00:78:$1::1 table $((100 + $1))"
  echo "neigh replace fd00:78:$2::1 lladdr $(mac $2) dev v$1 nud permanent"
  echo "neigh replace $(printf fe80::ff:fe00:%x $2) lladdr $(mac $2) dev v$1 nud permanent"
}
neighbours() { # number: all hosts of its network
  k=1
  while [ $k -le "$hosts" ]; do
    [ $k = "$host" ] || for a in "10.78.$1.$k" "fd00:78:$1::$k" "$(printf fe80::ff:fe00:%x $(($1 * 256 + k)))"; do
      echo "neigh replace $a lladdr $(host_mac "$1" $k) dev v$1 nud permanent"
    done
    k=$((k + 1))
  done
}
rules() { # either family: own number, partner's, own address, partner's
  echo "rule add pref $((10 + $1)) iif v$1 lookup local"
  echo "rule add pref $((30 + $1)) from $3 to $3 lookup local"
  echo "rule add pref $((50 + $1)) to $4 lookup $((100 + $1))"
}
each_pair() { # function
  i=1
  while [ $i -lt "$links" ]; do
    "$1" $i $((i + 1))
    "$1" $((i + 1)) $i
    i=$((i + 2))
  done
}
each() {
  i=1
  while [ $i -le "$links" ]; do
    "$1" $i
    i=$((i + 1))
  done
}
rules4() { rules "$1" "$2" "10.78.$1.1" "10.78.$2.1"; }
rules6() { rules "$1" "$2" "fd00:78:$1::1" "fd00:78:$2::1"; }
named() { # number: its Ethernet device gets the name of the link
  for d in /sys/class/net/*; do
    read -r a <"$d/address"
    if [ "$a" = "$(host_mac "$1" "$host")" ]; then echo "link set ${d##*/} name v$1 txqueuelen 10000"; fi
  done
}
create() {
  if [ -n "$host" ]; then
    named "$1"
    return
  fi
  if [ $(($1 % 2)) = 0 ]; then return; fi
  if [ "$1" -lt "$links" ]; then
    echo "link add v$1 address $(mac $1) type veth peer name v$(($1 + 1)) address $(mac $(($1 + 1)))"
  else
    echo "link add v$1 address $(mac $1) type dummy"
  fi
}
steer() { printf %x $(((1 << (cpus < 32 ? cpus : 32)) - 1)) >/sys/class/net/v$1/queues/rx-0/rps_cpus; }
up() { echo "link set v$1 mtu $mtu up"; }
netem_on() { echo "qdisc replace dev v$1 root netem limit 100000 $netem"; }
device() { # number: name of its device
  eval "[ \$kind$1 = siw ]" && echo "siw$1" || echo "rx$1"
}
rdma_device() { eval "echo link add $(device $1) type \$kind$1 netdev v$1"; }
names() {
  if [ -z "$host" ]; then
    echo "10.78.$1.1 rx$1 $(device $1)"
  elif [ "$1" = 1 ]; then
    k=1
    while [ $k -le "$hosts" ]; do
      echo "10.78.1.$k host$k"
      k=$((k + 1))
    done
  fi
}

case $1 in
wire4 | wire6)
  partner=$((($2 - 1 ^ 1) + 1))
  if [ $partner -gt "$links" ]; then exit; fi
  if [ "$1" = wire4 ]; then wire4 "$2" $partner | ip -batch -; else wire6 "$2" $partner | ip -6 -batch -; fi
  exit
  ;;
esac
if [ "$1" = restore ]; then
  each up | ip -force -batch -
  each addresses | ip -force -batch -
  if [ -n "$host" ]; then
    each neighbours | ip -batch -
    exit
  fi
  each_pair wire4 | ip -batch - && each_pair wire6 | ip -6 -batch -
  exit
fi

for c in all default; do
  echo 0 >/proc/sys/net/ipv4/conf/$c/rp_filter
  echo 1 >/proc/sys/net/ipv4/conf/$c/accept_local
  echo 0 >/proc/sys/net/ipv6/conf/$c/accept_dad
  echo 0 >/proc/sys/net/ipv6/conf/$c/dad_transmits
  echo 0 >/proc/sys/net/ipv6/conf/$c/accept_ra
  echo 1 >/proc/sys/net/ipv6/conf/$c/keep_addr_on_down
done
# rdma_rxe answers a read with all packets at once, 8192 for 8 MiB. By default the kernel queues 1000 packets of a link and drops
# the rest.
echo 65536 >/proc/sys/net/core/netdev_max_backlog
# The kernel's own choice, fq_codel, drops what waits for more than 5 ms.
if [ -n "$host" ]; then echo pfifo_fast >/proc/sys/net/core/default_qdisc; fi
{
  each create
  each up
  each addresses
  [ -z "$host" ] || each neighbours
} | ip -batch - || exit 1
# By default, the processor that sends a frame over a veth pair also receives it. While the host holds that processor, later frames of
# another processor overtake, and rdma_rxe retransmits a read. A wire keeps the order: here, one processor receives a connection's frames.
cpus=$(/run/dat-lab/bin/nproc)
if [ "$cpus" -gt 1 ]; then each steer; fi
if [ -z "$host" ] && [ "$links" -gt 1 ]; then
  { each_pair wire4; each_pair rules4; echo "rule add pref 100 lookup local"; echo "rule del pref 0"; } | ip -batch - || exit 1
  { each_pair wire6; each_pair rules6; echo "rule add pref 100 lookup local"; echo "rule del pref 0"; } | ip -6 -batch - || exit 1
fi
if [ -n "$netem$faults_reset" ]; then modprobe sch_netem; fi
if [ -n "$netem" ]; then
  each netem_on | tc -batch - || exit 1
fi
each rdma_device | rdma -b - || exit 1
each names >>/etc/hosts
echo "127.0.0.1 dat-lab" >>/etc/hosts

# Ready when each port is active and, on rxe, has its link-local, IPv4 and IPv6 GID. siw has no GIDs of addresses.
i=1
n=0
while [ $i -le "$links" ]; do
  name=$(device $i)
  port=/sys/class/infiniband/$name/ports/1
  read -r state <$port/state
  gid=iwarp
  [ "$name" = siw$i ] || read -r gid <$port/gids/2
  case "$state/$gid" in
  *ACTIVE*/*[1-9a-f]*) i=$((i + 1)) ;;
  *)
    n=$((n + 1))
    [ $n -lt 500 ] || { echo "$name is not ready: $state, third GID $gid"; exit 1; }
    /run/dat-lab/bin/usleep 10000
    ;;
  esac
done
exit 0
