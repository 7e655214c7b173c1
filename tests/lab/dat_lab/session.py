# A session: the commands of one start of dat-lab, with their time limits, their environment and their records.
# SPDX-License-Identifier: BSL-1.0

import json
import os
import re
import secrets
import signal
import sys
import time

from .cache import cache_dir
from .captures import capture_file
from .faults import read_faults
from .hosts import Hosts
from .machine import Machine
from .native import Native, native_devices
from .outcome import RC_MACHINE, RC_TIMEOUT, Ended, Failure, MachineDied, TimeUp
from .output import put, say
from .rdma_core import rdma_core

PASSED_ENV = re.compile(
    r"(HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|COLORTERM|NO_COLOR|CLICOLOR\w*|COLUMNS|LINES|EDITOR|PAGER|TMPDIR|CI"
    r"|DAT_\w+|[A-Z]+SAN_OPTIONS|[A-Z]+SAN_SYMBOLIZER_PATH|LD_LIBRARY_PATH|LD_PRELOAD|LD_BIND_NOW|LD_DEBUG\w*"
    r"|IBV_\w+|RDMAV?_\w+|RXE_\w+|MLX\d_\w+|FI_\w+|UCX_\w+"
    r"|MALLOC_\w+|GLIBC_TUNABLES|VALGRIND_\w+|GCOV_\w+|LLVM_PROFILE_FILE|PYTHON\w+|MESON_TEST\w*|CATCH_\w+|GTEST_\w+|TESTS?_\w+)"
)

GRACE = 2  # seconds between the SIGTERM at the end of the time limit and the end of the machine
PASSED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def script_commands(path):
    """[(name, shell command)] of a script: empty lines and # comments are left out, `name: ` as first word names a command."""
    try:
        text = os.fsdecode(sys.stdin.buffer.read() if path == "-" else open(path, "rb").read())
    except OSError as e:
        raise Failure(f"cannot read the script {path}: {e.strerror}")
    commands = []
    for line in text.split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            m = re.match(r"([\w./+-]+):\s+(.*)", line)
            commands.append((m.group(1), m.group(2)) if m else (line, line))
    if not commands:
        raise Failure(f"the script {path} holds no command")
    return commands


def inner_environment(o, mode):
    env = {k: v for k, v in os.environ.items() if PASSED_ENV.fullmatch(k)} if mode == "machine" else {}
    for k in ("DAT_LAB_GUEST", "DAT_LAB_TOOLS", "DAT_LAB_KVM", "DAT_LAB_SAVED", "DAT_LAB_OUT"):
        env.pop(k, None)
    if mode == "machine":
        path = [d for d in os.environ.get("PATH", "").split(":") if d.startswith("/")]
        path = ["/run/dat-lab/commands"] * bool(o.hosts) + path
        env["PATH"] = ":".join(path + [d for d in "/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin".split() if d not in path])
        env["PWD"] = os.getcwd()
        env["DAT_LAB_NET"] = "/run/dat-lab/net.sh"
    env["DAT_LAB"] = mode
    if o.rdma_core:
        folder = rdma_core(cache_dir(), o.rdma_core)
        env["DAT_LAB_RDMA_CORE"] = folder
        env["LD_LIBRARY_PATH"] = ":".join([os.path.join(folder, "lib"), *filter(None, [env.get("LD_LIBRARY_PATH")])])
    if o.seed is not None:
        env["DAT_SEED"] = str(o.seed)
    if o.out:
        env["DAT_LAB_OUT"] = o.out
    for item in o.env:
        name, given, value = item.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise Failure(f"--env {item}: not a name of a variable")
        if given:
            env[name] = value
        elif name in os.environ:
            env[name] = os.environ[name]
    return env


def directory(path, option):
    try:
        os.makedirs(path, exist_ok=True)
        path = os.path.realpath(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "no write permission")
    except OSError as e:
        raise Failure(f"{option} {path}: {e.strerror}")
    return path


def choose_seed(o):
    """Sets o.seed (None when nothing depends on it) and o.time_line, and prints the seed."""
    given = o.seed is not None
    if o.seed in (None, -1):
        inherited = os.environ.get("DAT_SEED", "")
        o.seed = int(inherited) if o.seed is None and inherited.isdigit() else secrets.randbelow(2**32)
    o.time_line = read_faults(o.faults, o) if o.faults else None
    if given or o.time_line and o.time_line.chose:
        say(f"seed {o.seed} (--seed {o.seed} repeats it)")
    else:
        o.seed = None


class Session:
    def __init__(self, options):
        self.options, self.where, self.running, self.interrupts, self.terminated = options, None, False, 0, False

    def on_signal(self, number, _):
        self.interrupts += 1
        if not self.running or self.interrupts > 3:
            raise Ended(number)
        self.where.signal(signal.Signals(number).name[3:], group=number == signal.SIGINT)

    def run(self):
        o = self.options
        if o.script:
            commands = script_commands(o.script)
        else:
            commands = [(None, o.on if o.hosts else o.command)]
        choose_seed(o)
        o.out = directory(o.out, "--out") if o.out else None
        o.pcap = [(f"v{link}", capture_file(path)) for link, path in o.pcap]
        o.shares = ([o.out] if o.out else []) + [directory(d, "--share") for d in o.share]
        mode = "machine"
        if not o.machine:
            devices = native_devices()
            if o.native and not devices:
                raise Failure("--native: the host has no RDMA device with an active port (see ibv_devinfo): leave --native out to use the machine")
            if devices:
                mode = "native"
                say(f"using the host's RDMA device{'s' * (len(devices) > 1)} {' '.join(devices)} (--machine for the virtual machine)")
                if o.loss or o.delay:
                    say("--loss and --delay have no effect on the host's devices")
        env = inner_environment(o, mode)
        if o.script and o.out:
            open(os.path.join(o.out, "results.jsonl"), "wb").close()
        if o.hosts:
            self.where = Hosts(o)
        else:
            self.where = Machine(o) if mode == "machine" else Native(o)
        for number in PASSED_SIGNALS:
            signal.signal(number, self.on_signal)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # The time limit starts with the machine, not with the preparation of the cache.
        self.limit = None

        def deadline():
            if self.limit is None:
                self.limit = time.monotonic() + o.timeout
            return self.limit

        try:
            try:
                self.where.start(deadline)
            except MachineDied as e:
                return self.machine_died(e, commands)
            except TimeUp:
                say(f"time limit of {o.timeout:g} s reached while the machine was starting")
                self.record_rest(commands, RC_TIMEOUT)
                return RC_TIMEOUT
            return self.run_all(commands, env, deadline())
        finally:
            self.running = False
            for number in PASSED_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self.where.stop()

    def machine_died(self, reason, commands):
        tail = self.where.console_tail()
        say(f"the machine died: {reason}")
        for line in tail:
            say("  | " + line)
        self.record_rest(commands, RC_MACHINE)
        return RC_MACHINE

    def record_rest(self, commands, rc):
        """Commands that did not get their turn."""
        for name, _ in commands:
            self.record(name, rc, 0.0)
        if self.options.script and commands:
            say(f"{len(commands)} of the script's commands were not run")

    def record(self, name, rc, took):
        if not (self.options.script and self.options.out):
            return
        with open(os.path.join(self.options.out, "results.jsonl"), "ab") as f:
            f.write((json.dumps({"name": name.encode(errors="surrogateescape").decode(errors="replace"), "rc": rc, "seconds": round(took, 3)}) + "\n").encode())

    def run_all(self, commands, env, deadline):
        o, first = self.options, 0
        for number, (name, command) in enumerate(commands, 1):
            began = time.monotonic()
            limit = min(deadline, began + o.each) if o.each else deadline
            argv = ["/bin/sh", "-c", command] if o.script else command
            if o.script:
                put(1, f"dat-lab: [{number}/{len(commands)}] {name}\n".encode(errors="surrogateescape"), deadline)
            lost = None
            self.running = True
            try:
                rc = self.where.run(argv, env, os.getcwd(), limit)
            except TimeUp:
                rc = RC_TIMEOUT
                if not self.where.terminate(GRACE):
                    lost = TimeUp
                say(f"time limit of {limit - began if o.each and limit < deadline else o.timeout:g} s reached" + (f" in {name}" if name else ""))
            except MachineDied as e:
                rc, lost = RC_MACHINE, e
            self.running = False
            took = time.monotonic() - began
            if rc == 137 and self.where.oom_victims():
                victim = self.where.oom_victims()[-1].decode(errors="replace")
                say(f"the machine ran out of memory and killed {victim}: use more than --memory {o.memory}")
            first = first or rc
            if o.script:
                self.record(name, rc, took)
                put(1, f"dat-lab: [{number}/{len(commands)}] {'ok' if rc == 0 else 'FAIL'} rc {rc} {took:.2f} s\n".encode(), time.monotonic() + 5)
            rest = commands[number:]
            if isinstance(lost, MachineDied):
                self.machine_died(lost, rest)
                return first
            if lost or (rc == RC_TIMEOUT and deadline <= time.monotonic()):
                self.record_rest(rest, RC_TIMEOUT)
                return first
            if self.interrupts and rest:
                self.record_rest(rest, 130)
                return first or 130
            if rc and o.fail_fast:
                return first
        return first
