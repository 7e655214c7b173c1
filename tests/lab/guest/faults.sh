#!/bin/sh
# Applies the time line of faults of the dat-lab machine. The host has made the commands (dat-lab, class TimeLine).
# SPDX-License-Identifier: BSL-1.0
#
# faults.sh first    the faults of time 0, before the command starts
# faults.sh later    all other faults, each at its time after now; SIGTERM ends it when the fault in progress is reported
# faults.sh reset    the state before the first fault
# Each fault gives a line on the control port (descriptor 3): fault NUMBER TIME CODE TEXT, with the time in hundredths of a second since
# the start of this program and the exit code and output of its commands.
cd /run/dat-lab || exit 1
. ./setup
now() {
  read -r t _ </proc/uptime
  t=${t%.*}${t#*.}
}
at() { # number, time, commands
  trap exit TERM
  [ -z "$stop" ] || exit # it came before that trap
  now
  [ "$t" -ge $((start + $2)) ] || {
    ./bin/usleep $(((start + $2 - t) * 10000)) &
    wait $! # a signal ends it, unlike a program in the foreground
  }
  trap 'stop=1' TERM
  text=$(eval "$3" 2>&1 </dev/null 3>&-)
  code=$?
  now
  [ "$2" -gt 0 ] || t=$start
  # shellcheck disable=SC2086 # a line of its words
  echo fault "$1" $((t - start)) $code $text >&3
}
stop=
now
start=$t
case $1 in
first) eval "$faults_first" ;;
later) eval "$faults_later" ;;
reset) text=$(eval "$faults_reset" 2>&1 </dev/null 3>&-) || echo faults_stay $text >&3 ;;
esac
