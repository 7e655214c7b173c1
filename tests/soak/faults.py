# The faults of the soak: each is applied for a while, chosen by the seed, and undone.
# SPDX-License-Identifier: BSL-1.0
"""The network faults need the machine of dat-lab: links v1 and v2, devices rx1 and rx2."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import typing

if typing.TYPE_CHECKING:
    import soak

LINKS = ("v1", "v2")
LIBC = ctypes.CDLL(None)


class chaos:
    """Applies faults to a run."""

    def __init__(self, run: soak.soak):
        self.run, self.random = run, run.random
        self.count: dict[str, int] = {}
        chosen = [name for name in run.only.split(",") if name] or list(KINDS)
        self.kinds = [(name, KINDS[name][0]) for name in chosen]
        self.weights = [KINDS[name][1] or (1 if run.only else 0) for name in chosen]

    def one(self) -> None:
        """One fault from its begin to its end."""
        (name, apply), = self.random.choices(self.kinds, self.weights)
        self.count[name] = self.count.get(name, 0) + 1
        apply(self)

    def clear(self) -> None:
        """No network fault is left."""
        for link in LINKS:
            self.sh(f"tc qdisc del dev {link} root", quiet=True)

    def say(self, text: str) -> None:
        """A line of the log."""
        self.run.say(text)

    def sh(self, line: str, quiet: bool = False) -> int:
        """Run a shell command; a failure is printed."""
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        if done.returncode and not quiet:
            self.say(f"'{line}' failed: {done.stderr.strip()}")
        return done.returncode

    def links(self) -> list[str]:
        """One link or both."""
        return self.random.choice([["v1"], ["v2"], list(LINKS)])

    def wait(self, least: float, most: float) -> float:
        """How long a fault lasts."""
        seconds = self.random.uniform(least, most)
        time.sleep(seconds)
        return seconds

    def netem(self, what: str, least: float = 0.5, most: float = 4) -> None:
        """A bad wire for a while."""
        links = self.links()
        self.say(f"{what} on {' '.join(links)}")
        for link in links:
            self.sh(f"tc qdisc replace dev {link} root netem limit 100000 {what}")
        self.wait(least, most)
        self.clear()

    def loss(self) -> None:
        self.netem(f"loss {self.random.choice([1, 3, 10, 30])}%")

    def delay(self) -> None:
        self.netem(f"delay {self.random.choice([1, 10, 50])}ms {self.random.choice([0, 5])}ms")

    def duplicate(self) -> None:
        self.netem(f"duplicate {self.random.choice([5, 30])}%")

    def reorder(self) -> None:
        self.netem("delay 5ms reorder 25% 50%")

    def mixture(self) -> None:
        self.netem("delay 3ms 3ms loss 2% duplicate 2% reorder 10%")

    def hole(self) -> None:
        self.netem("loss 100%", 0.3, 6)

    def down(self) -> None:
        link = self.random.choice(LINKS)
        self.say(f"{link} down")
        self.sh(f"ip link set {link} down")
        self.wait(0.2, 4)
        self.sh(f"ip link set {link} up; sh $DAT_LAB_NET restore")

    def flap(self) -> None:
        link = self.random.choice(LINKS)
        self.say(f"{link} flaps")
        for _ in range(self.random.randint(3, 8)):
            self.sh(f"ip link set {link} down")
            self.wait(0.02, 0.3)
            self.sh(f"ip link set {link} up; sh $DAT_LAB_NET restore")
            self.wait(0.02, 0.3)

    def address(self) -> None:
        number = self.random.randint(1, 2)
        self.say(f"10.78.{number}.1 removed")
        self.sh(f"ip addr del 10.78.{number}.1/32 dev v{number}")
        self.wait(0.3, 3)
        self.sh("sh $DAT_LAB_NET restore")

    def kill(self) -> None:
        one = self.run.peers[self.random.choice("ab")]
        self.say(f"SIGKILL for {one.name}")
        one.kill()
        self.wait(0, 2)
        one.start()
        one.wait("open")
        one.order("work")

    def stop(self) -> None:
        one = self.run.peers[self.random.choice("ab")]
        self.say(f"SIGSTOP for {one.name}")
        os.kill(one.process.pid, signal.SIGSTOP)
        self.wait(0.2, 5)
        os.kill(one.process.pid, signal.SIGCONT)

    def signals(self) -> None:
        self.say("signals")
        for _ in range(self.random.randint(20, 100)):
            one = self.run.peers[self.random.choice("ab")]
            threads = os.listdir(f"/proc/{one.process.pid}/task")
            LIBC.tgkill(one.process.pid, int(self.random.choice(threads)), signal.SIGUSR1)  # the thread may have ended
            time.sleep(0.01)

    def clock(self) -> None:
        hours = self.random.choice([-30, -1, 1, 30])
        self.say(f"the wall clock is set by {hours} h")
        before, since = time.time(), time.monotonic()
        self.sh(f"date -s @{int(before + hours * 3600)}")
        self.wait(0.2, 2)
        self.sh(f"date -s @{int(before + time.monotonic() - since)}")

    def memory(self) -> None:
        free = next(int(line.split()[1]) for line in open("/proc/meminfo", encoding="utf-8") if line.startswith("MemAvailable"))
        self.say("memory is short")
        # The kernel ends this process first when memory runs out.
        hog = "import sys, time; open('/proc/self/oom_score_adj', 'w').write('1000'); x = bytearray(int(sys.argv[1])); time.sleep(600)"
        with subprocess.Popen([sys.executable, "-c", hog, str((free - (60 << 10)) << 10)]) as process:
            self.wait(2, 5)
            process.kill()

    def device(self) -> None:
        name = self.random.choice("ab")
        one, number = self.run.peers[name], "ab".index(name) + 1
        self.say(f"rx{number} deleted")
        with subprocess.Popen(["rdma", "link", "delete", f"rx{number}"]):  # returns when the process has closed the adapter
            one.wait("gone")
        self.wait(0, 2)
        self.sh(f"rdma link add rx{number} type rxe netdev v{number}")
        one.wait("open")


# The name of a fault, the function that applies it, and its weight among the others. 0: only on request, since
# Soft-RoCE of Linux 6.1 does not survive it: while a link is down it leaves the machine no time for anything else,
# after the removal of an address its connection manager may stop permanently (docs/lab.md), and the removal of a device
# waits for its users without notifying them.
KINDS: dict[str, tuple[typing.Callable[[chaos], None], int]] = {
    "loss": (chaos.loss, 4),
    "delay": (chaos.delay, 2),
    "duplicate": (chaos.duplicate, 2),
    "reorder": (chaos.reorder, 2),
    "mixture": (chaos.mixture, 2),
    "hole": (chaos.hole, 2),
    "down": (chaos.down, 0),
    "flap": (chaos.flap, 0),
    "address": (chaos.address, 0),
    "kill": (chaos.kill, 3),
    "stop": (chaos.stop, 2),
    "signals": (chaos.signals, 1),
    "clock": (chaos.clock, 1),
    "memory": (chaos.memory, 1),
    "device": (chaos.device, 0),
}
