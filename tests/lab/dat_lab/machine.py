# One machine: its start, its ports and its commands. Each line of its control port is a command's end, a fault or a failure.
# SPDX-License-Identifier: BSL-1.0

import math
import os
import re
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import time

from .captures import sort_capture
from .guest_root import check_directory, host_directories
from .initramfs import prepare
from .outcome import RC_MACHINE, MachineDied, TimeUp
from .output import Stream, put, say
from .processes import end_process
from .qemu import check_memory, kvm_works, machine_command, qemu_start, shared_folder
from .saved_state import SavedState, can_be_saved
from .tools import tool

BOOT_LIMIT = 300  # seconds from the start of qemu until the network stands; measured 3 to 4, up to a hundred times that on a busy machine


def image_to_boot(o, machines=1):
    """(kernel, initial file system, kind of processor) for machines with the options."""
    arch = o.architecture
    tool(arch.qemu, "runs the machine")
    if arch.foreign:
        check_directory(os.getcwd(), o.shares)
    else:
        for name in ("ip", "rdma") + (("tc",) if o.loss or o.delay or o.time_line else ()):
            tool(name, "sets up the machine's network")
    check_memory(o.memory, machines)
    kernel, initrd = prepare(arch, o.kernel, set(o.devices), o.hosts)
    return kernel, initrd, "counted" if o.counted else "kvm" if kvm_works(arch, kernel, initrd) else "tcg"


class Machine:
    name = "machine"

    def __init__(self, options, host="", poll=None, stream=Stream):
        """With --hosts, `host` is the number of the machine, all machines share `poll`, and `stream` is the class of its output streams."""
        self.options, self.host, self.poll, self.stream = options, host, poll or select.poll(), stream
        self.console = bytearray()
        self.proc = self.saved = None
        self.up = False
        self.lines = bytearray()
        self.captured = {}

    # -- start and stop

    def start(self, deadline):
        self.launch(*image_to_boot(self.options))
        limit = min(deadline(), time.monotonic() + BOOT_LIMIT)
        try:
            while self.pump(limit) != "ready":
                pass
        except TimeUp:
            if time.monotonic() >= deadline():
                raise
            raise MachineDied(f"it did not come up within {BOOT_LIMIT} s{self.without_state()}")
        self.is_up()

    def is_up(self):
        self.up = True
        if self.options.verbose:
            say(f"{self.described}, up after {time.monotonic() - self.began:.2f} s")

    def launch(self, kernel, initrd, accel, networks=()):
        """Starts the machine. Each network is (MAC address, socket to the network)."""
        o = self.options
        arch = o.architecture
        extra, ends, theirs = arch.device("serial"), {}, []
        for name in ("con", "ctl", "out", "err"):
            ours, other = socket.socketpair()
            ends[name] = ours
            theirs.append(other)
            extra += ["-chardev", f"socket,id={name},fd={other.fileno()}"]
            extra += ["-serial", "chardev:con"] if name == "con" else ["-device", f"virtserialport,chardev={name},name={name}"]
        for n, (mac, other) in enumerate(networks):
            theirs.append(other)
            extra += ["-netdev", f"socket,id=net{n},fd={other.fileno()}", *arch.device("net", f"netdev=net{n}", f"mac={mac}", *["romfile="] * (arch.bus == "pci"))]
        extra += shared_folder(arch, "host", kernel.files, ",readonly=on")
        directories = []
        if arch.foreign:  # the machine's root has none of the host's files
            directories = host_directories()
            extra += shared_folder(arch, "files", "/", ",readonly=on")
            extra += shared_folder(arch, "modules", kernel.modules, ",readonly=on")
        for n, share in enumerate(o.shares):
            extra += shared_folder(arch, f"share{n}", share)
        for n, (_, path) in enumerate(o.pcap):
            extra += ["-chardev", f"file,id=pcap{n},path={path.replace(',', ',,')}"]
            extra += ["-device", f"virtserialport,chardev=pcap{n},name=pcap{n}"]
        self.began, self.described = time.monotonic(), f"host{self.host}: " * bool(self.host) + f"kernel {kernel.version}, {accel}" + f" ({arch.name})" * arch.foreign
        descriptors = [s.fileno() for s in theirs]
        if can_be_saved(arch, accel):
            # By a new number the kernel knows that other machines have the same state, and makes random numbers of its own.
            words = machine_command(arch, kernel, initrd, accel, o.cpus, o.memory, [*extra, "-device", "vmgenid,guid=auto"])
            self.saved = SavedState(words, kernel, initrd)
            words += self.saved.words()
            descriptors += self.saved.descriptors()
        else:
            words = machine_command(arch, kernel, initrd, accel, o.cpus, o.memory, extra)
        self.proc = qemu_start(words, descriptors)
        if self.saved:
            self.saved.inherited()
        for s in theirs:
            s.close()
        self.ctl, self.con = ends["ctl"], ends["con"]
        self.out, self.err = self.stream(ends["out"], 1), self.stream(ends["err"], 2)
        self.sockets = dict(ends)
        self.by_fd = {}
        for name, s in [*ends.items(), ("qemu", self.proc.stdout)]:
            self.poll.register(s, select.POLLIN)
            self.by_fd[s.fileno()] = name
        netem = (f"delay {o.delay} " if o.delay else "") + (f"loss {o.loss}%" if o.loss else "")
        variables = {
            "kernel": kernel.version,
            "modules": "" if kernel.root == "/" else kernel.modules,
            "directories": len(directories),
            **{f"directory{n}": d for n, d in enumerate(directories)},
            "host_path": "" if arch.foreign else os.environ.get("PATH", ""),
            "host": self.host,
            "hosts": o.hosts or 0,
            "links": o.links,
            "mtu": o.mtu,
            "netem": netem.strip(),
            **{f"kind{n}": kind for n, kind in enumerate(o.devices, 1)},
            "shares": len(o.shares),
            **{f"share{n}": s for n, s in enumerate(o.shares)},
            "faults_first": o.time_line.first if o.time_line else "",
            "faults_later": o.time_line.later if o.time_line else "",
            "faults_reset": o.time_line.reset if o.time_line else "",
            "captures": len(o.pcap),
            **{f"capture{n}": link for n, (link, _) in enumerate(o.pcap)},
            "capture_room": min(64, o.memory // 8) << 20,
            "python": "/usr/bin/python3" if arch.foreign else os.path.realpath(sys.executable),
        }
        if self.saved and self.saved.resumes:
            self.described += ", from its saved state"
            variables["now"] = int(time.time())
        setup = os.fsencode("".join(f"{k}={shlex.quote(str(v))}\n" for k, v in variables.items()))
        self.setup = b"setup - %d\n" % len(setup) + setup
        if not self.saves():
            self.ctl.sendall(self.setup)

    def without_state(self):
        """Later machines boot, where this one does not come up from its saved state; the words that say so."""
        if not (self.saved and self.saved.resumes):
            return ""
        self.saved.refuse()
        return "; its saved state is not used again: repeat the command"

    def saves(self):
        return self.saved and self.saved.monitor

    def booted(self):
        """The machine has booted and waits for its configuration."""
        if self.saves():
            try:
                self.saved.save()
            except OSError as e:
                say(f"the state of the booted machine cannot be kept in {self.saved.cache}: {e}")
            self.ctl.sendall(self.setup)

    def stop(self):
        if self.proc:
            end_process(self.proc)
            self.proc.stdout.close()
            for s in self.sockets.values():
                s.close()
            if self.saves():
                self.saved.monitor.close()
            self.proc = None
            for _, path in self.options.pcap:
                sort_capture(path)
            for n, (frames, missing) in sorted(self.captured.items()):
                link, path = self.options.pcap[n]
                say(f"{path}: {frames} frames of {link}" + (f"; {missing} more are missing, since the capture was slower than the link" if missing else ""))

    # -- one command

    def run(self, argv, env, cwd, deadline):
        """Runs a command; its exit code. Raises TimeUp, MachineDied, OutputClosed."""
        self.begin(argv, env, cwd)
        while not self.finished():
            self.ends(self.pump(deadline))
        return self.judged(self.rc)

    def begin(self, argv, env, cwd):
        mark = secrets.token_hex(16).encode()
        job = ["echo $$ >/run/dat-lab/pid", "echo 0 >/proc/self/oom_score_adj"]
        job += [f"cd {shlex.quote(cwd)} || exit 125", "unset OLDPWD"]
        job += [f"export {k}={shlex.quote(v)}" for k, v in env.items()]
        missing = shlex.quote(f"dat-lab: {argv[0]}: command not found")
        job += [f"command -v {shlex.quote(argv[0])} >/dev/null || {{ printf '%s\\n' {missing} >&2; exit 127; }}"]
        job += ["exec " + " ".join(shlex.quote(a) for a in argv)]
        script = os.fsencode("\n".join(job) + "\n")
        self.out.begin(mark)
        self.err.begin(mark)
        self.ctl.settimeout(30)
        self.ctl.sendall(b"run %s %d\n" % (mark, len(script)) + script)
        self.rc, self.applied, self.failed = None, 0, 0

    def ends(self, event):
        """Takes the exit code of the command from a line of the control port."""
        if event and event.startswith("exit "):
            self.rc = int(event.split()[1])

    def finished(self):
        return self.rc is not None and self.out.ended and self.err.ended

    def judged(self, rc):
        """The exit code of the command; a failure where a fault could not be applied."""
        line = self.options.time_line
        if line and self.applied < len(line.names):
            say(f"the command ended before {len(line.names) - self.applied} of {len(line.names)} faults")
        return RC_MACHINE if rc == 0 and self.failed else rc

    def fault(self, text):
        number, hundredths, code, *why = text.split(" ", 3)
        what = f"fault at {int(hundredths) / 100:.2f} s: {self.options.time_line.names[int(number)]}"
        self.applied += 1
        if code != "0":
            self.failed += 1
            what += f" FAILED: {''.join(why) or 'exit code ' + code}"
        say(what)

    def signal(self, name, group=False):
        try:
            self.ctl.send(f"signal {name}{' group' if group else ''}\n".encode(), socket.MSG_DONTWAIT)
        except OSError:
            pass

    def terminate(self, limit):
        """Asks the command to end at the end of its time; True when it did so before the limit (seconds from now)."""
        for name, seconds in (("TERM", limit), ("KILL", 2)):
            self.signal(name, group=True)
            end = time.monotonic() + seconds
            try:
                while True:
                    event = self.pump(end)
                    if event and event.startswith("exit "):
                        while not (self.out.ended and self.err.ended):
                            self.pump(end)
                        return True
            except TimeUp:
                pass
        return False

    def pump(self, deadline):
        """Moves what is there; returns a line of the control port or None. Raises TimeUp at the deadline."""
        line = self.line()
        if line is not None:
            return line
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeUp
        for fd, _ in self.poll.poll(math.ceil(min(left, 3600) * 1000)):
            self.take(fd, deadline)
        return None

    def line(self):
        """The next line of the control port, or None. Takes those that are not for the caller."""
        while True:
            at = self.lines.find(b"\n")
            if at < 0:
                return None
            line = self.lines[:at].decode(errors="replace")
            del self.lines[: at + 1]
            if line.startswith("fail "):
                raise MachineDied(line[5:].strip())
            if line == "booted":
                self.booted()
            elif line.startswith("captured "):
                number, frames, missing = map(int, line.split()[1:])
                self.captured[number] = (frames, missing)
            elif line.startswith("fault "):
                self.fault(line[6:])
            elif line.startswith("faults_stay "):
                raise MachineDied("the faults could not be removed: " + line[12:])
            else:
                return line

    def take(self, fd, deadline):
        """Reads the bytes that have arrived on a descriptor, and passes them on."""
        name, data = self.read(fd)
        if not data:
            if name == "ctl":
                self.drain()
                raise MachineDied(self.cause() + ("" if self.up else self.without_state()))
        elif name == "ctl":
            self.lines += data
        elif name == "out":
            self.out.feed(data, deadline)
        elif name == "err":
            self.err.feed(data, deadline)
        else:
            self.console += data
            del self.console[:-65536]
            if self.options.verbose > 1:
                put(2, data, deadline)

    def read(self, fd):
        """Returns the name of the port and the bytes that have arrived. No bytes mean the end of the port, which is then polled no more."""
        name = self.by_fd[fd]
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(fd)
            del self.by_fd[fd]
        return name, data

    def drain(self, limit=1):
        """Reads the rest of qemu's output when qemu has ended."""
        end = time.monotonic() + limit
        poll = select.poll()
        for fd, name in self.by_fd.items():
            if name != "ctl":
                poll.register(fd, select.POLLIN)
        while time.monotonic() < end:
            ready = poll.poll(200)
            if not ready:
                break
            for fd, _ in ready:
                name, data = self.read(fd)
                if not data:
                    poll.unregister(fd)
                elif name in ("out", "err"):
                    getattr(self, name).feed(data, end)
                else:
                    self.console += data
        for stream in (self.out, self.err):
            stream.flush(end)

    def cause(self):
        text = bytes(self.console)
        panic = re.findall(rb"Kernel panic - not syncing: ([^\r\n]*)", text)
        if panic:
            return "kernel panic: " + panic[-1].decode(errors="replace")
        try:
            rc = self.proc.wait(2)
        except subprocess.TimeoutExpired:
            return "qemu closed its ports"
        return f"qemu was killed by {signal.Signals(-rc).name}" if rc < 0 else f"qemu ended with {rc}"

    def console_tail(self, lines=12):
        text = bytes(self.console).decode(errors="replace").replace("\r", "")
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1bc", "", text)
        return [l for l in text.splitlines() if l.strip()][-lines:]

    def oom_victims(self):
        return re.findall(rb"Out of memory: Killed process \d+ \(([^)]*)\)", bytes(self.console))
