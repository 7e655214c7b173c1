# Several machines on a private network (--hosts), and the requests of their commands, by which they change each other.
# SPDX-License-Identifier: BSL-1.0

import argparse
import math
import os
import re
import select
import signal
import socket
import time

from .machine import BOOT_LIMIT, Machine, image_to_boot
from .outcome import RC_MACHINE, MachineDied, TimeUp
from .output import Stream, put, say
from .processes import end_process
from .switch import Network, mac


class Refused(Exception):
    """Why a request of a command is not granted, and the exit code that the command gets."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


RUNNING, FROZEN, DEAD = "running", "frozen", "dead"
USES = {  # of requests: (least number of arguments, most, form)
    "kill": (1, 1, "kill HOST"),
    "freeze": (1, 1, "freeze HOST"),
    "thaw": (1, 1, "thaw HOST"),
    "cut": (1, 2, "cut HOST [LINK]"),
    "join": (1, 2, "join HOST [LINK]"),
    "clock": (2, 2, "clock HOST +SECONDS|-SECONDS"),
    "signal": (1, 1000, "signal NAME [VALUE]"),
    "wait": (1, 1, "wait NAME"),
}


class Labelled(Stream):
    """An output stream whose lines carry the name of the host."""

    LONGEST = 65536

    def __init__(self, sock, fd):
        super().__init__(sock, fd)
        self.part = b""

    def write(self, data, deadline):
        *lines, self.part = (self.part + data).split(b"\n")
        if len(self.part) > self.LONGEST:
            lines, self.part = [*lines, self.part], b""
        if lines:
            put(self.fd, b"".join(self.label + line + b"\n" for line in lines), deadline)

    def feed(self, data, deadline):
        super().feed(data, deadline)
        if self.ended:
            self.rest(deadline)

    def flush(self, deadline):
        super().flush(deadline)
        self.rest(deadline)

    def rest(self, deadline):
        if self.part:
            self.write(b"\n", deadline)


class Host(Machine):
    """One of the machines."""

    def __init__(self, options, number, poll):
        alone = argparse.Namespace(**{**vars(options), "pcap": []})
        super().__init__(alone, number, poll, type("Labelled", (Labelled,), {"label": b"host%d: " % number}))
        self.number, self.state, self.ready = number, RUNNING, False
        self.rc, self.command, self.over, self.clocks = None, None, False, []

    def end(self):
        """Ends the machine at once and reads its remaining output."""
        self.state = DEAD
        end_process(self.proc)
        self.drain(60)  # a reader of the output may be slow
        for fd in list(self.by_fd):
            self.poll.unregister(fd)
            del self.by_fd[fd]

    def busy(self):
        return self.command and self.state == RUNNING and not self.finished()


class Hosts:
    """The machines of --hosts, with the interface of Machine."""

    name = "machine"

    def __init__(self, options):
        self.options, self.poll, self.failed = options, select.poll(), None
        self.hosts = {n: Host(options, n, self.poll) for n in range(1, options.hosts + 1)}
        self.first, self.lost = 0, None
        self.events, self.waiting = {}, {}  # {name: value}, {name: [(host, request)]}
        self.network = Network({int(link[1:]): path for link, path in options.pcap})
        self.files = {int(link[1:]): path for link, path in options.pcap}
        self.began = None

    # -- start and stop

    def start(self, deadline):
        image = image_to_boot(self.options, len(self.hosts))
        for h in self.hosts.values():
            links = range(1, self.options.links + 1)
            networks = [(mac(link, h.number).hex(":"), self.network.add(link, h.number)) for link in links]
            h.launch(*image, networks)
        self.network.start()  # after the machines: a child of a process with threads could block before it is qemu
        limit = min(deadline(), time.monotonic() + BOOT_LIMIT)
        while not all(h.ready for h in self.hosts.values()):
            try:
                self.move(limit)
            except TimeUp:
                if time.monotonic() >= deadline():
                    raise
                late = ", ".join(f"host{h.number}{h.without_state()}" for h in self.hosts.values() if not h.ready)
                raise MachineDied(f"{late} did not come up within {BOOT_LIMIT} s")
            if self.lost:
                raise MachineDied(self.lost)

    def stop(self):
        for h in self.hosts.values():
            h.stop()
        self.network.stop()
        for link, path in sorted(self.files.items()):
            say(f"{path}: {self.network.frames[link]} frames of v{link}")

    # -- the commands

    def run(self, commands, env, cwd, deadline):
        """Runs {host: command}; the first exit code that is not 0."""
        self.began = time.monotonic()
        for n, argv in commands.items():
            h = self.hosts[n]
            h.command = argv
            h.begin(argv, {**env, "DAT_LAB_HOST": str(n), "DAT_LAB_HOSTS": str(len(self.hosts))}, cwd)
        while any(h.busy() for h in self.hosts.values()) and not (self.first and self.options.fail_fast):
            self.move(deadline)
        for h in self.hosts.values():
            if h.command and h.state == FROZEN and not h.finished():
                say(f"host{h.number} is still frozen: its command has not ended")
        return self.first

    def move(self, deadline):
        """Waits for what comes, moves it, and does what was asked."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeUp
        for fd, _ in self.poll.poll(math.ceil(min(left, 3600) * 1000)):
            for h in self.hosts.values():
                if fd in h.by_fd:
                    try:
                        h.take(fd, deadline)
                        while h.state != DEAD and (line := h.line()) is not None:
                            self.obey(h, line)
                    except MachineDied as e:
                        self.died(h, e)
        self.judge()

    def judge(self):
        """Notes commands that have ended."""
        for h in self.hosts.values():
            if h.command and h.state != DEAD and h.finished() and not h.over:
                h.over = True
                self.first = self.first or h.rc
        for name in list(self.waiting):
            for h, request in list(self.waiting[name]):
                if not self.signallers(h):
                    self.waiting[name].remove((h, request))
                    self.answer(h, request, 1, self.nobody(name))

    def died(self, h, cause):
        """A machine that has ended by itself."""
        self.failed = h
        h.end()
        self.lost = f"host{h.number}: {cause}"
        self.first = self.first or RC_MACHINE
        if self.began:
            say(f"host{h.number} died: {cause}")
            for line in h.console_tail():
                say("  | " + line)

    def signal(self, name, group=False):
        for h in self.hosts.values():
            if h.busy():
                h.signal(name, group)

    def terminate(self, limit):
        """Asks the commands to end; True when all did so before the limit (seconds from now)."""
        for name, seconds in (("TERM", limit), ("KILL", 2)):
            self.signal(name, group=True)
            end = time.monotonic() + seconds
            try:
                while any(h.busy() for h in self.hosts.values()):
                    self.move(end)
                return True
            except TimeUp:
                pass
        return False

    def oom_victims(self):
        return [v for h in self.hosts.values() for v in h.oom_victims()]

    def console_tail(self, lines=12):
        return self.failed.console_tail(lines) if self.failed else []

    # -- requests

    def obey(self, h, line):
        verb, *rest = line.split(" ", 1)
        if verb == "ready":
            h.ready = True
            h.is_up()
        elif verb == "clocked":
            self.clocked(h, *(rest[0].split(" ", 1) + [""])[:2])
        elif verb == "ask":
            request, *words = " ".join(rest).split() or [""]
            verb = words.pop(0) if words else "?"
            try:
                if verb not in USES or not USES[verb][0] <= len(words) <= USES[verb][1]:
                    raise Refused(f"use: dat-lab {USES[verb][2] if verb in USES else '|'.join(USES)}", 2)
                text = getattr(self, "do_" + verb)(h, request, *words)
                if text is not None:
                    self.answer(h, request, 0, text)
            except Refused as e:
                self.answer(h, request, e.code, str(e))
        else:
            h.ends(line)

    def answer(self, h, request, code, text=""):
        if h.state != DEAD:
            try:
                h.ctl.send(f"reply {request} {code} {text}\n".encode(errors="surrogateescape"), socket.MSG_DONTWAIT)
            except OSError:
                pass

    def host(self, text, *states):
        """The host that a request names, in one of the states."""
        if not text.isdigit() or int(text) not in self.hosts:
            raise Refused(f"{text} is no host: the hosts are 1 to {len(self.hosts)}", 2)
        h = self.hosts[int(text)]
        if h.state not in states:
            raise Refused(f"host{text} is {h.state}")
        return h

    def tell(self, by, what):
        say(f"at {time.monotonic() - self.began:.2f} s, by host{by.number}: {what}")

    def do_kill(self, by, _, host):
        h = self.host(host, RUNNING, FROZEN)
        h.end()
        self.tell(by, f"kill host{host}")
        return ""

    def do_freeze(self, by, _, host):
        h = self.host(host, RUNNING)
        self.tell(by, f"freeze host{host}")
        h.state = FROZEN
        os.kill(h.proc.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, h.proc.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return ""

    def do_thaw(self, by, _, host):
        h = self.host(host, FROZEN)
        h.state = RUNNING
        os.kill(h.proc.pid, signal.SIGCONT)
        self.tell(by, f"thaw host{host}")
        return ""

    def set_cut(self, by, verb, cut, host, link="all"):
        self.host(host, RUNNING, FROZEN)
        ports = [p for p in self.network.of(int(host)) if link in ("all", f"v{p.link}")]
        if not ports:
            raise Refused(f"{link} is no link: the links are v1 to v{self.options.links}", 2)
        for p in ports:
            p.cut = cut
        self.tell(by, f"{verb} host{host}" + (f" {link}" if link != "all" else ""))
        return ""

    def do_cut(self, by, _, host, *link):
        return self.set_cut(by, "cut", True, host, *link)

    def do_join(self, by, _, host, *link):
        return self.set_cut(by, "join", False, host, *link)

    def do_clock(self, by, request, host, step):
        if not re.fullmatch(r"[+-]\d{1,10}", step):
            raise Refused(f"{step} is no step of the clock in whole seconds: clock HOST +SECONDS or -SECONDS", 2)
        h = self.host(host, RUNNING)
        h.clocks.append((by, request, step))
        h.ctl.send(f"clock {step}\n".encode())

    def clocked(self, h, code, why):
        by, request, step = h.clocks.pop(0)
        if code == "0":
            self.tell(by, f"clock host{h.number} {step}")
        self.answer(by, request, int(code != "0"), why)

    def do_signal(self, _, request, name, *value):
        if name in self.events:
            raise Refused(f"{name} was signalled before")
        self.events[name] = " ".join(value)
        for h, waiting in self.waiting.pop(name, []):
            self.answer(h, waiting, 0, self.events[name])
        return ""

    def do_wait(self, by, request, name):
        if name in self.events:
            return self.events[name]
        if not self.signallers(by):
            raise Refused(self.nobody(name))
        self.waiting.setdefault(name, []).append((by, request))
        return None

    def signallers(self, h):
        """The other hosts whose command runs, or would after `thaw`."""
        return [o for o in self.hosts.values() if o is not h and o.command and o.state != DEAD and not o.finished()]

    def nobody(self, name):
        return f"nobody can signal {name}: the commands of all other hosts have ended"
