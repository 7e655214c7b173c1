# The programs of the peers: the two commands of a turn, or why there is none.
# SPDX-License-Identifier: BSL-1.0
"""A turn is (peer, work, bytes, mode, path). `turn_of` gives the commands of its two sides, or the reason for which it cannot be."""

from __future__ import annotations

import dataclasses
import pathlib

DEVICES = {"10.78.1.1": "rx1", "10.78.2.1": "rx2"}
PATHS = {"wire": ("10.78.1.1", "10.78.2.1"), "loopback": ("10.78.1.1", "10.78.1.1")}  # server, client
AS_LEAN = "as dat lean"  # begins the reason of a way of dat that does not differ in a row
DEPTH = 32  # operations under way where a rate is measured
BY_HAND = "verbs"
OURS = ["dat lean", "dat merged", "dat coroutines", "dat manual"]
PEERS = ["OFA DAPL", "libfabric", "perftest", "rdma-core", "fi_pingpong", "UCX"]
PACKAGES = {"OFA DAPL": "dapl2-utils", "libfabric": "libfabric1", "perftest": "perftest", "rdma-core": "ibverbs-utils", "fi_pingpong": "libfabric-bin", "UCX": "ucx-utils"}  # fmt: skip
WORKS = [("latency", 8), ("latency", 4096), ("latency", 65536), ("write", 8), ("read", 8), ("atomic", 8)]
# Connections one after the other, and bytes of a process for each of those that stay.
JOINS = [("connections", 0), ("heap", 0), ("resident", 0)]
JOINED = {"connections": 32, "heap": 128, "resident": 128}
# dtest's client takes the name of the adapter from its server, so each side has a dat.conf of its own, in which it has the same name.
DAT_CONFS = {device: f'dapl u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{link} 0" ""\n' for device, link in (("rx1", "v1"), ("rx2", "v2"))}


# Programs that cannot be run with two numbers of messages.
FIXED = {"OFA DAPL": "dtest always sends 100 messages"}


@dataclasses.dataclass(frozen=True)
class work:
    """One turn."""

    peer: str
    what: str
    bytes: int
    mode: str
    path: str


@dataclasses.dataclass
class turn:
    """The two sides. `ready` is how the server shows that it waits for the client: `tcp PORT`, or `line TEXT`."""

    server: list[str]
    client: list[str]
    ready: str
    parser: str
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    client_env: dict[str, str] = dataclasses.field(default_factory=dict)
    ends: bool = True  # whether the server ends with its client


def count_of(what: str, size: int, count: int) -> int:
    """The operations of a turn: fewer where each takes long."""
    return JOINED.get(what, count if size <= 4096 else max(20, count // 10))


def turn_of(w: work, count: int, port: int, build: pathlib.Path) -> turn | str:
    """The commands of a turn with `count` operations, or a reason."""
    server, client = PATHS[w.path]
    if (w.what, 0) in JOINS:
        return joins(w, count, port, server, client, build)
    if w.peer == "dat manual":
        return f"{AS_LEAN}: only connections differ"
    makers = {"perftest": perftest, "rdma-core": rdma_core, "OFA DAPL": ofa, "fi_pingpong": fi_pingpong, "UCX": ucx, "dat coroutines": coroutines}
    if w.peer in makers:
        return makers[w.peer](w, count, port, server, client, build)
    words = [w.mode, w.what, str(w.bytes), str(count)]
    program = {BY_HAND: ["own", "verbs"], "dat lean": ["own", "lean"], "dat merged": ["own", "merged"], "libfabric": ["own_fabric"]}[w.peer]
    return ours(w, program, words, port, server, client, build)


def joins(w: work, count: int, port: int, server: str, client: str, build: pathlib.Path) -> turn | str:
    """Our own programs, with each library that connects endpoints."""
    programs = {BY_HAND: ["joins", "verbs"], "dat lean": ["joins", "dat"], "dat manual": ["joins", "manual"], "OFA DAPL": ["joins_ofa"], "libfabric": ["joins_fabric"]}
    if w.peer not in programs:
        return f"{AS_LEAN}: only completions differ" if w.peer in OURS else "its programs make one connection"
    return ours(w, programs[w.peer], [w.what, str(count)], port, server, client, build)


def ours(w: work, program: list[str], words: list[str], port: int, server: str, client: str, build: pathlib.Path) -> turn:
    """A turn of one of our programs. OFA's library takes the name of an adapter in place of an address."""
    start = [str(build / "bench/peers" / program[0]), *program[1:]]
    ofa = w.peer == "OFA DAPL"
    here = {side: "dapl" if ofa else side for side in (server, client)}
    envs = [ofa_env(build, side) if ofa else {} for side in (server, client)]
    return turn([*start, "serve", *words, here[server], client, str(port)], [*start, "connect", *words, here[client], server, str(port)], "line ready", "own", *envs)


def ofa_env(build: pathlib.Path, address: str) -> dict[str, str]:
    """The environment of a side of OFA's."""
    return {"DAT_OVERRIDE": str(build / f"bench/peers/{DEVICES[address]}.conf")}


def perftest(w: work, count: int, port: int, server: str, client: str, _: pathlib.Path) -> turn | str:
    """ib_send_lat, ib_write_bw, ib_read_bw, ib_atomic_bw."""
    program = {"latency": "ib_send_lat", "write": "ib_write_bw", "read": "ib_read_bw", "atomic": "ib_atomic_bw"}[w.what]
    words = [program, "-F", "-x", "1", "-n", str(count), "-p", str(port)]
    words += ["-e"] if w.mode == "waiting" else []
    words += [] if w.what == "atomic" else ["-s", str(w.bytes)]
    words += [] if w.what == "latency" else ["-t", str(DEPTH), *(["-A", "FETCH_AND_ADD"] if w.what == "atomic" else ["-Q", "1"] if w.mode == "polled" else [])]
    return turn([*words, "-d", DEVICES[server]], [*words, "-d", DEVICES[client], server], f"tcp {port}", "perftest_latency" if w.what == "latency" else "perftest_rate")


def rdma_core(w: work, count: int, port: int, server: str, client: str, _: pathlib.Path) -> turn | str:
    """ibv_rc_pingpong."""
    if w.what != "latency":
        return "ibv_rc_pingpong only sends"
    words = ["ibv_rc_pingpong", "-g", "1", "-s", str(w.bytes), "-n", str(count), "-p", str(port), *(["-e"] if w.mode == "waiting" else [])]
    return turn([*words, "-d", DEVICES[server]], [*words, "-d", DEVICES[client], server], f"tcp {port}", "rc_pingpong")


def ofa(w: work, count: int, port: int, server: str, client: str, build: pathlib.Path) -> turn | str:
    """dtest for latency, dapltest for rates."""
    envs = [ofa_env(build, side) for side in (server, client)]
    if w.what == "atomic":
        return "no program of OFA measures atomics"
    if w.what == "latency":
        words = ["stdbuf", "-oL", "dtest", "-P", "dapl", "-b", str(w.bytes), *(["-p"] if w.mode == "polled" else [])]
        return turn(words, [*words, "-h", server], "line waiting for client", "dtest", *envs)
    kind = {"write": "RW", "read": "RR"}[w.what]
    depth = DEPTH if w.what == "write" else 16
    one = ["stdbuf", "-oL", "dapltest", "-T", "S", "-D", "dapl", "-n", str(port)]
    two = ["dapltest", "-T", "P", "-i", str(count), "-s", server, "-D", "dapl", "-n", str(port), "-p", str(depth), "-m", "b" if w.mode == "waiting" else "p", kind, str(w.bytes), "1"]
    return turn(one, two, "line Service Point Ready", "dapltest", *envs, ends=False)


def fi_pingpong(w: work, count: int, port: int, server: str, client: str, _: pathlib.Path) -> turn | str:
    """fi_pingpong with message endpoints of the provider verbs."""
    if w.what != "latency":
        return "fi_pingpong only sends"
    if w.mode == "waiting":
        return "fi_pingpong only polls"
    words = ["fi_pingpong", "-p", "verbs", "-e", "msg", "-I", str(count), "-S", str(w.bytes)]
    return turn([*words, "-d", DEVICES[server], "-B", str(port)], [*words, "-d", DEVICES[client], "-P", str(port), server], f"tcp {port}", "fi_pingpong")


def ucx(w: work, count: int, port: int, server: str, client: str, _: pathlib.Path) -> turn | str:
    """uct with the transport rc_verbs, which polls."""
    work_of = {"latency": "am_lat", "write": "put_bw", "read": "get", "atomic": "fadd"}[w.what]
    words = ["ucx_perftest", "-n", str(count), "-w", "5", "-s", str(w.bytes), "-p", str(port), *([] if w.what == "latency" else ["-O", str(DEPTH)])]
    parser = "ucx_latency" if w.what == "latency" else "ucx_rate"
    env = {"UCX_IB_GID_INDEX": "1", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    if w.mode == "waiting":
        return "ucx_perftest -E sleep fails on Soft-RoCE: `Fatal: UD endpoint: unhandled timeout error`"
    layout = "short" if w.bytes <= 64 else "bcopy" if w.bytes <= 4096 else "zcopy"
    words += ["-t", work_of, "-x", "rc_verbs", "-D", "bcopy" if w.what == "read" else layout]
    return turn([*words, "-d", f"{DEVICES[server]}:1"], [*words, "-d", f"{DEVICES[client]}:1", server], f"tcp {port}", parser, env)


def coroutines(w: work, count: int, port: int, server: str, client: str, build: pathlib.Path) -> turn | str:
    """dat-perf with coroutines."""
    if w.mode == "polled":
        return "dat's driver sleeps while no coroutine can run"
    program = str(build / "examples/tools/dat-perf")
    test = ["latency"] if w.what == "latency" else ["rate", "--operation", {"atomic": "fetch-add"}.get(w.what, w.what), "--depth", str(DEPTH)]
    size = [] if w.what == "atomic" else ["--size", str(w.bytes)]
    words = [server, *test, *size, "--mode", "coroutine", "--iterations", str(count), "--address", client, "--port", str(port), "--csv", "-"]
    one = ["stdbuf", "-oL", program, "--address", server, "--port", str(port), "--once"]
    return turn(one, [program, *words], "line serving on", "dat_perf_latency" if w.what == "latency" else "dat_perf_rate")
