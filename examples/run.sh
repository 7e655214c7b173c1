#!/bin/sh
# Runs the examples that ladder.txt lists: run.sh DIRECTORY_OF_PROGRAMS [NAME...]. Without RDMA hardware: ./dev lab -- examples/run.sh ...
# SPDX-License-Identifier: BSL-1.0
set -u
here=$(dirname "$0")
[ $# -ge 1 ] || { echo "usage: run.sh DIRECTORY_OF_PROGRAMS [NAME...]" >&2; exit 2; }
programs=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/dat-examples.XXXXXX")
trap 'rm -rf "$work"' EXIT
missing=77 # the exit code of what this host cannot run

# One process.
alone() { timeout 240 "$programs/$name" "$@"; }

# Reads the first line of the server from a fifo, and sets `host`. Then the server listens.
wait_for_server() {
  exec 3<"$work/fifo"
  read -r line <&3 || { echo "the server has ended"; return 1; }
  echo "$line"
  host=${line#listening on }
  host=${host%% port *}
}

# A server in the background, then its clients at once. The server ends by itself.
pair() {
  start_server timeout 240 "$programs/$name"
  run_clients "$@"
  [ $bad = 0 ] || kill $server 2>/dev/null # it may still wait for the client that failed
  end_server
}
# A server that serves until SIGTERM.
service() {
  start_server timeout 240 "$programs/$name"
  run_clients "$@"
  kill $server 2>/dev/null
  end_server
}
# Processes that a launcher starts. MPI itself stays away from the RDMA devices. (Open MPI refuses root, and more
# processes than cores.)
mpi() {
  [ -x "$programs/$name" ] && command -v mpirun >/dev/null || { echo "this host has no MPI"; return $missing; }
  UCX_TLS=tcp,self,sm OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 240 mpirun -n "$1" "$programs/$name"
}

# kv_server with tests at once, of which one more is killed in the middle.
kv_clients() {
  start_server timeout 240 "$programs/kv_server"
  clients=
  for _ in $(seq "$1"); do
    timeout 240 "$programs/kv_test" "$host" 50 &
    clients="$clients $!"
  done
  mkfifo "$work/victim"
  "$programs/kv_test" "$host" 1000000 >"$work/victim" &
  read -r line <"$work/victim" && kill -KILL $!
  for one in $clients; do wait "$one" || bad=$?; done
  kill $server
  end_server
}
# kv_client stores a value and reads it.
kv_put_get() {
  start_server timeout 240 "$programs/kv_server"
  timeout 240 "$programs/kv_client" "$host" "$1" "$2" && timeout 240 "$programs/kv_client" "$host" "$1" || bad=$?
  kill $server
  end_server
}
# kv_test with a server that is killed in the middle, and another one in its place.
kv_restart() {
  start_server "$programs/kv_server"
  mkfifo "$work/client"
  timeout 240 "$programs/kv_test" "$host" 100 >"$work/client" &
  client=$!
  exec 4<"$work/client"
  read -r line <&4 && echo "$line" && kill -KILL $server
  start_server timeout 240 "$programs/kv_server"
  cat <&4
  wait $client || bad=$?
  kill $server
  end_server
}

# A server for the client of rping, then a client for the server of rping.
rping_both_ways() {
  start_server timeout 240 "$programs/$name"
  timeout 240 rping -c -a "$host" -C 5 -V || bad=$?
  [ $bad = 0 ] || kill $server 2>/dev/null
  end_server || return $bad
  timeout 240 rping -s -a "$host" -v &
  until rdma resource show cm_id | grep -q 'LISTEN.*:7174' || ! kill -0 $!; do sleep 0.1; done
  timeout 240 "$programs/$name" "$host" || bad=$?
  wait # rping ends when its client has gone, with an exit code that has no meaning
  return $bad
}
start_server() { # COMMAND
  rm -f "$work/fifo"
  mkfifo "$work/fifo"
  "$@" >"$work/fifo" &
  server=$!
  bad=0
  wait_for_server || bad=1
  cat <&3 &
}
run_clients() {
  clients=
  for _ in $(seq "${1:-1}"); do
    timeout 240 "$programs/$name" "$host" &
    clients="$clients $!"
  done
  for one in $clients; do wait "$one" || bad=$?; done
}
end_server() {
  wait $server || bad=$?
  wait
  return $bad
}

failed=0
wanted=" $* "
while IFS='|' read -r name how text; do
  case $name in '#'* | '') continue ;; esac
  name=${name%% *}
  case $wanted in "  " | *" $name "*) ;; *) continue ;; esac
  text=${text#"${text%%[! ]*}"} # without the spaces around it
  text=${text%"${text##*[! ]}"}
  rm -f "$work"/*
  $how >"$work/output" 2>&1 </dev/null
  code=$?
  sed 's/^/  /' "$work/output"
  if [ $code = 0 ] && ! grep -qF -e "$text" "$work/output"; then
    echo "$name: the output lacks: $text"
    code=1
  fi
  echo "$name: exit code $code"
  [ $code = 0 ] || [ $failed != 0 ] && [ $failed != $missing ] || failed=$code
done <"$here/ladder.txt"
exit $failed
