# The options of dat-lab, its usage, and which of them work together.
# SPDX-License-Identifier: BSL-1.0
"""dat-lab [options] -- COMMAND [ARGUMENT...]
dat-lab [options] --script FILE
dat-lab [options] --hosts N --on 1 -- COMMAND [ARGUMENT...] --on 2 -- COMMAND [ARGUMENT...]...

Runs COMMAND as root on Soft-RoCE devices, in the same working directory. dat-lab boots the distribution's own kernel in qemu. The
host's file system is the read-only root, under an overlay that is discarded at the end. The devices are rx1, rx2, ... (10.78.1.1
and fd00:78:1::1, 10.78.2.1 and fd00:78:2::1, ...) on veth links. If the host has an active RDMA device, COMMAND runs on the host."""

import argparse
import os
import re

from .architecture import ARCHITECTURES


def percent(text):
    m = re.fullmatch(r"(\d+(?:\.\d+)?)%?", text)
    if not m or float(m.group(1)) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage (0 to 100)")
    return m.group(1)


def delay(text):
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)?", text)
    if not m:
        raise argparse.ArgumentTypeError(f"{text!r} is no time (as 500us, 5ms, 1s)")
    return m.group(1) + (m.group(2) or "ms")


def capture(text):
    """(link, file) of --pcap."""
    m = re.fullmatch(r"v(\d+)=(.+)", text, re.S)
    return (int(m.group(1)), m.group(2)) if m else (1, text)


def device(text):
    """(link or None, kind) of --device."""
    m = re.fullmatch(r"(?:v(\d+)=)?(rxe|siw)", text)
    if not m:
        raise argparse.ArgumentTypeError(f"{text!r} is no device (rxe, siw, v2=siw)")
    return m.group(1) and int(m.group(1)), m.group(2)


def release(text):
    if not re.fullmatch(r"[a-z]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a release of Debian (trixie)")
    return text


def number(low, high):
    def parse(text):
        if not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {low} to {high}")
        return int(text)

    return parse


def seconds(text):
    try:
        value = float(text)
        if not 0 < value <= 1e6:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds, above 0 and at most 1000000")
    return value


def parse(args):
    p = argparse.ArgumentParser(
        prog="dat-lab",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT...]\n       %(prog)s [options] --script FILE\n"
        "       %(prog)s [options] --hosts N --on 1 -- COMMAND [ARGUMENT...] --on 2 -- COMMAND [ARGUMENT...]...",
        description=__doc__.split("\n\n", 1)[1],
        epilog="Exit code: that of COMMAND (128 + n when signal n ended it); 124 time limit; 125 the machine could not start or "
        "died; 2 wrong use. Inside, DAT_LAB is `machine` or `native` and DAT_LAB_OUT names the directory of --out.",
        allow_abbrev=False,
    )
    g = p.add_argument_group("machine")
    g.add_argument("--arch", choices=ARCHITECTURES, metavar="NAME", help="architecture of the machine: x86_64, aarch64 or s390x (that of the host). Another one than the host's is emulated, and has a root of Debian packages; of the host, it has all directories but those of the system, so that it runs cross-built programs")
    g.add_argument("--cpus", type=number(1, 64), metavar="N", help="processors (2; with --hosts: 1 for each; with --counted: 1)")
    g.add_argument("--counted", action="store_true", help="one processor whose clock advances 2 ns per instruction, so that load on the host does not change what a program measures")
    g.add_argument("--kernel", metavar="VERSION", help="kernel of the machine: a version or its beginning (6.12), the name of a package, or `newest`; any kernel that is installed, cached or known to apt, Debian's backports included (the distribution's)")
    g.add_argument("--memory", type=number(192, 1 << 20), metavar="MIB", help="memory in MiB (1536; with --hosts: 768 for each)")
    g.add_argument("--links", type=number(1, 16), metavar="N", help="number of RDMA devices; 1-2, 3-4, ... are wired in pairs (2); with --hosts: devices of each host, each on a network of its own (1)")
    g.add_argument("--device", type=device, action="append", default=[], metavar="[LINK=]KIND", help="kind of the RDMA devices, of all links or of one: rxe (Soft-RoCE) or siw (Soft-iWARP, devices siw1, siw2, ...; built once from Debian's kernel sources) (rxe; repeatable)")
    g.add_argument("--rdma-core", type=release, metavar="RELEASE", help="libibverbs and librdmacm of a release of Debian (trixie), built once from its sources for this system; DAT_LAB_RDMA_CORE names their folder, with the headers in `include` (those of the host)")
    g.add_argument("--mtu", type=number(1280, 65535), default=1500, metavar="N", help="MTU of the links (1500: RDMA MTU 1024; 4200 or more: 4096)")
    g.add_argument("--loss", type=percent, metavar="P", help="per cent of packets lost on each link")
    g.add_argument("--delay", type=delay, metavar="T", help="delay of each packet: 500us, 5ms, 1s")
    g.add_argument("--faults", metavar="FILE", help="apply faults at the times of FILE, in seconds from the start of each command; lines as `1.5: loss 20%% v1`, `2: down v1`, `3: up v1`, `4: remove 10.78.1.1 v1`; actions are loss, delay, duplicate, reorder, clear, down, up, add, remove; `1-3: loss 5-20%%` lets the seed choose")
    g.add_argument("--seed", type=number(0, 2**32 - 1), nargs="?", const=-1, metavar="N", help="seed of what dat-lab chooses at random, also passed on as DAT_SEED; without N, dat-lab chooses one; it prints the seed")
    g.add_argument("--pcap", type=capture, action="append", default=[], metavar="[LINK=]FILE", help="write the frames of a link (v1) to FILE for Wireshark or tcpdump; v1 sees all frames that cross the wire of v1 and v2 (repeatable)")
    g = p.add_argument_group("hosts")
    g.add_argument("--hosts", type=number(2, 16), metavar="N", help="N machines with kernels, clocks and memory of their own on a private network; rx1 of host 2 is 10.78.1.2 and fd00:78:1::2, host2 its name")
    g.add_argument("--on", action="append", metavar="K", help="with -- COMMAND behind it: the command of host K. In the commands of hosts, `dat-lab kill 2`, `freeze`, `thaw`, `cut`, `join` and `clock` change another host, `dat-lab signal NAME` and `dat-lab wait NAME` are for steps in order (docs/lab.md)")
    g = p.add_argument_group("run")
    g.add_argument("--timeout", type=seconds, default=300, metavar="S", help="time limit in seconds, from the start of the machine (300)")
    g.add_argument("--each", type=seconds, metavar="S", help="time limit in seconds for each command of a script")
    g.add_argument("--out", metavar="DIR", help="directory for results, writable from both sides under the same path; created when missing")
    g.add_argument("--share", action="append", default=[], metavar="DIR", help="one more directory writable from both sides (repeatable)")
    g.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="one more environment variable to pass on or set (repeatable)")
    g.add_argument("--script", metavar="FILE", help="run each line of FILE (- for standard input) as a shell command, all in one boot")
    g.add_argument("--fail-fast", action="store_true", help="end a script, or the commands of all hosts, at the first failure")
    where = g.add_mutually_exclusive_group()
    where.add_argument("--native", action="store_true", help="use the host's RDMA devices, without a machine")
    where.add_argument("--machine", action="store_true", help="use the machine even where the host has RDMA devices")
    g = p.add_argument_group("other")
    g.add_argument("--check", action="store_true", help="list what is installed and what is missing, then exit")
    g.add_argument("--list-kernels", action="store_true", help="list the versions that --kernel can have, then exit")
    g.add_argument("--prepare", action="store_true", help="get the kernel and fill the cache, then exit")
    g.add_argument("--clean", action="store_true", help="remove the cache folder, then exit")
    g.add_argument("-v", "--verbose", action="count", default=0, help="print how the machine is started; twice: also its console")
    command, on = None, []
    if "--" in args:
        at = args.index("--")
        if args[max(0, at - 2) : at - 1] == ["--on"]:
            starts = [n for n in range(at - 2, len(args) - 2) if args[n] == "--on" and args[n + 2] == "--"]
            on = [(args[n + 1], args[n + 3 : end]) for n, end in zip(starts, [*starts[1:], len(args)])]
            args = args[: at - 2]
        else:
            args, command = args[:at], args[at + 1 :]
    if args and args[0] in ("kill", "freeze", "thaw", "cut", "join", "clock", "signal", "wait"):
        p.error(f"`dat-lab {args[0]}` is for the commands of --hosts: there is no other host here")
    o, unknown = p.parse_known_args(args)
    if o.on:
        p.error(f"--on {o.on[0]} needs -- COMMAND directly behind it")
    if unknown:
        p.error("unrecognized arguments: " + " ".join(unknown))
    o.command = command
    o.on = host_commands(p, o, on)
    if o.counted and (o.cpus or 1) > 1:
        p.error("--counted has one processor: leave --cpus out")
    o.cpus = o.cpus or (1 if o.hosts or o.counted else 2)
    o.links = o.links or (1 if o.hosts else 2)
    o.memory = o.memory or (768 if o.hosts else 1536)
    o.devices = ["rxe"] * o.links
    for link, kind in sorted(o.device, key=lambda d: d[0] or 0):  # a link's own kind counts more
        if link is not None and not 1 <= link <= o.links:
            p.error(f"--device v{link}=...: the links are v1 to v{o.links}")
        o.devices = [kind if link in (None, n) else k for n, k in enumerate(o.devices, 1)]
    if o.arch and ARCHITECTURES[o.arch].foreign and "siw" in o.devices:
        p.error("--device siw needs a machine of the host's architecture: its module is built for that")
    if o.arch and ARCHITECTURES[o.arch].foreign and o.rdma_core:
        p.error("--rdma-core needs a machine of the host's architecture: it is built for that")
    if o.check or o.prepare or o.clean or o.list_kernels:
        return o
    if o.hosts:
        for option, use in (
            ("script", "--on 1 -- sh FILE"),
            ("faults", "`dat-lab cut`, `freeze` and `kill`, or tc, in the commands"),
            ("counted", "a machine without --hosts"),
            ("native", "the host's devices without --hosts"),
        ):
            if getattr(o, option):
                p.error(f"--{option} does not work with --hosts: use {use}")
        o.machine = True
        if command or not on:
            p.error("--hosts needs the host of each command: --on 1 -- COMMAND --on 2 -- COMMAND")
    elif on:
        p.error(f"--on {on[0][0]} needs --hosts N")
    elif bool(command) == bool(o.script):
        p.error("either a command after -- or --script FILE")
    if o.links == 1 and not o.hosts and (o.loss or o.delay):
        p.error("--loss and --delay need a wire: --links 2 or more")
    for link, _ in o.pcap:
        if not 1 <= link <= o.links:
            p.error(f"--pcap v{link}=...: the links are v1 to v{o.links}")
    if len({os.path.realpath(path) for _, path in o.pcap}) < len(o.pcap):
        p.error("--pcap: two links need two files")
    # These exist in the machine only.
    for option in ("pcap", "faults", "kernel", "device", "arch", "rdma_core"):
        if getattr(o, option):
            if o.native:
                p.error(f"--{option.replace('_', '-')} needs the machine: leave --native out")
            o.machine = True
    return o


def host_commands(p, o, on):
    """{host: command} of the pairs of --on."""
    found = {}
    for host, argv in on if o.hosts else []:
        if not host.isdigit() or not 1 <= int(host) <= o.hosts:
            p.error(f"--on {host}: the hosts are 1 to {o.hosts}")
        if int(host) in found:
            p.error(f"--on {host}: a host has one command: use sh -c 'COMMAND & COMMAND; wait'")
        if not argv:
            p.error(f"--on {host} --: the command is missing")
        found[int(host)] = argv
    return found
