# Completions of bash for dat-info, dat-ping, dat-perf, datcp, dat-conform and dat-lab.
# SPDX-License-Identifier: BSL-1.0
# Options come from the tool's --help, so they are those of the installed version.

# Completes files where the word is a path, and names of hosts with a colon (SERVER:PATH) otherwise.
_dat_tools_place() {
  _filedir
  if [[ $cur != */* && $cur != .* ]]; then
    local hosts=()
    _known_hosts_real -a -c -- "$cur"
    hosts=("${COMPREPLY[@]}")
    COMPREPLY=("${hosts[@]}")
    [[ ${COMPREPLY-} == *: ]] && compopt -o nospace
  fi
}

_dat_tools() {
  local cur prev words cword split
  _init_completion -s -n : || return
  local tool=${words[0]##*/} i

  # Behind `--`, dat-lab runs a command.
  if [[ $tool == dat-lab ]]; then
    for ((i = 1; i < cword; i++)); do
      if [[ ${words[i]} == -- ]]; then
        _command_offset $((i + 1))
        return
      fi
    done
  fi

  # These are flags of other tools.
  if [[ $tool == dat-perf && $prev == @(--json|--csv|--plot|--all) ]]; then
    _filedir
    return
  fi

  case $prev in
    --to | --address) _known_hosts_real -- "$cur" && return ;;
    --operation)
      COMPREPLY=($(compgen -W 'send write write-immediate read fetch-add compare-swap datagram' -- "$cur"))
      return
      ;;
    --launch) COMPREPLY=($(compgen -W 'ssh srun mpi' -- "$cur")) && return ;;
    --figure) COMPREPLY=($(compgen -W 'min mean p50 p90 p99 p99.9 max rate bandwidth lost' -- "$cur")) && return ;;
    --mode) COMPREPLY=($(compgen -W 'polled waiting coroutine' -- "$cur")) && return ;;
    --rdma-core) COMPREPLY=($(compgen -W 'trixie' -- "$cur")) && return ;;
    --device) COMPREPLY=($(compgen -W 'rxe siw' -- "$cur")) && return ;;
    --kernel)
      local kernels=(/boot/vmlinuz-*)
      COMPREPLY=($(compgen -W "newest ${kernels[*]#/boot/vmlinuz-}" -- "$cur"))
      return
      ;;
    --script | --faults | --pcap | --program) _filedir && return ;;
    --out | --share | --results) _filedir -d && return ;;
    --env) COMPREPLY=($(compgen -v -- "$cur")) && return ;;
    --port | --size | --count | --limit | --block-size | --blocks | --clients | --cpus | --memory | --links | --mtu | --loss | --delay | \
      --depth | --endpoints | --duration | --iterations | --warm-up | --inline | --slow | --parallel | --fail-above | --fail-below | --seed | --hosts | --on | --timeout | --each) return ;;
  esac
  $split && return

  if [[ $cur == -* ]]; then
    local serve=
    [[ $tool == datcp && ${words[1]-} == serve ]] && serve=serve
    COMPREPLY=($(compgen -W '$(_parse_help "$1" "$serve --help")' -- "$cur"))
    [[ $tool == dat-lab ]] && COMPREPLY+=($(compgen -W '--' -- "$cur"))
    return
  fi

  case $tool in
    dat-ping) _known_hosts_real -- "$cur" ;;
    dat-perf)
      if ((cword == 2)); then
        COMPREPLY=($(compgen -W 'latency bandwidth rate connections' -- "$cur"))
      else
        _known_hosts_real -- "$cur"
      fi
      ;;
    datcp)
      if [[ ${words[1]-} == serve && $cword -gt 1 ]]; then
        _filedir -d
      else
        _dat_tools_place
        ((cword == 1)) && COMPREPLY+=($(compgen -W 'serve' -- "$cur"))
      fi
      ;;
  esac
  return 0
} && complete -F _dat_tools dat-info dat-ping dat-perf datcp dat-conform dat-lab
