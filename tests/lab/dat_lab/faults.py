# Time lines of faults (--faults).
# SPDX-License-Identifier: BSL-1.0

import ipaddress
import os
import random
import re
import shlex

from .outcome import Failure


class BadLine(Exception):
    pass


class TimeLine:
    """Faults at given times after the start of a command, read from lines of the form `SECONDS: ACTION [VALUE] [LINK...]`."""

    LIMIT = 100000  # seconds

    def __init__(self, text, links, loss, delay, seed):
        self.links = [f"v{n}" for n in range(1, links + 1)]
        self.initial = {"delay": delay, "loss": loss and loss + "%", "duplicate": None, "reorder": None}
        self.random, self.chose = random.Random(seed), False
        self.errors, events = [], []
        for number, line in enumerate(text.split("\n"), 1):
            line = line.split("#")[0].strip()
            if line:
                try:
                    events.append((*self.parse(line), number))
                except BadLine as e:
                    self.errors.append((number, str(e)))
        events.sort(key=lambda e: e[0])
        self.compile(events)
        if not events and not self.errors:
            self.errors.append((1, "the file holds no fault"))

    # -- reading

    def between(self, text, form, what):
        """A number or, for LOW-HIGH, one that the seed chooses between the two."""
        m = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?" + form, text)
        if not m:
            raise BadLine(f"{text!r} is no {what}")
        low, high = m.group(1), m.group(2)
        if high is None:
            return low, m
        if float(high) < float(low):
            raise BadLine(f"{text!r}: the first number is larger than the second")
        self.chose = True
        return f"{self.random.uniform(float(low), float(high)):.2f}", m

    def parse(self, line):
        m = re.fullmatch(r"([^\s:]+):\s*(.*)", line)
        if not m:
            raise BadLine("it has not the form SECONDS: ACTION")
        when = float(self.between(m.group(1), "", "time in seconds")[0])
        if when > self.LIMIT:
            raise BadLine(f"{m.group(1)} is more than {self.LIMIT} seconds")
        action, *words = m.group(2).split() or [""]
        if action in ("loss", "duplicate", "reorder"):
            value = self.between(words.pop(0) if words else "", "%?", f"percentage: {action} P [LINK...]")[0]
            if float(value) > 100:
                raise BadLine(f"{value} is no percentage (0 to 100)")
            value += "%"
        elif action == "delay":
            value, m = self.between(words.pop(0) if words else "", "(us|ms|s)?", "time (as 500us, 5ms, 1s): delay T [LINK...]")
            value += m.group(3) or "ms"
        elif action in ("add", "remove"):
            text = words.pop(0) if words else ""
            try:
                value = ipaddress.ip_interface(text)
            except ValueError:
                raise BadLine(f"{text!r} is no IP address: {action} ADDRESS[/LENGTH] LINK...")
        elif action in ("down", "up", "clear"):
            value = None
        else:
            raise BadLine(f"unknown action {action!r} (loss, delay, duplicate, reorder, clear, down, up, add, remove)")
        for link in words:
            if link not in self.links:
                raise BadLine(f"{link!r} is no link (v1 to {self.links[-1]})")
        if not words and action in ("down", "up", "add", "remove"):
            raise BadLine(f"{action} needs a link (v1 to {self.links[-1]})")
        return when, action, value, words or self.links

    # -- commands of the machine

    def netem(self, link, state, old):
        """The command that changes a link from one state of netem to another."""
        options = " ".join(f"{k} {v}" for k, v in state.items() if v)
        if options:
            return f"tc qdisc replace dev {link} root netem limit 100000 {options}"
        return f"tc qdisc del dev {link} root" if any(old.values()) else ":"

    def wires(self, link, families):
        own = {4: f"10.78.{link[1:]}.1", 6: f"fd00:78:{link[1:]}::1"}
        usable = [f for f in families if link in self.upped and ipaddress.ip_address(own[f]) in self.present[link]]
        return [f"sh ./net.sh wire{f} {link[1:]}" for f in usable]

    def compile(self, events):
        now = {link: dict(self.initial) for link in self.links}
        self.upped = set(self.links)
        self.present = {link: {ipaddress.ip_address(f"10.78.{link[1:]}.1"), ipaddress.ip_address(f"fd00:78:{link[1:]}::1")} for link in self.links}
        moved, changed, added = False, set(), set()
        self.names, first, later = [], [], []
        for when, action, value, links, number in events:
            commands = []
            for link in links:
                if action in ("down", "up"):
                    moved = True
                    commands.append(f"ip link set {link} {action}")
                    if action == "up":
                        self.upped.add(link)
                        commands += self.wires(link, (4, 6))
                    else:
                        self.upped.discard(link)
                elif action == "add":
                    moved = True
                    self.present[link].add(value.ip)
                    added.add((link, value))
                    commands.append(f"ip addr replace {value} dev {link}" + (" nodad" if value.version == 6 else ""))
                    commands += self.wires(link, (value.version,))
                elif action == "remove":
                    moved = True
                    self.present[link].discard(value.ip)
                    commands.append(f"ip addr del {value} dev {link}")
                else:
                    old = dict(now[link])
                    if action == "clear":
                        now[link] = dict.fromkeys(old)
                    else:
                        now[link][action] = value if re.search("[1-9]", value) else None
                    if now[link]["reorder"] and not now[link]["delay"]:
                        self.errors.append((number, f"reorder needs a delay on {link} at that time: set the delay before it, remove it after it"))
                        break
                    changed.add(link)
                    commands.append(self.netem(link, now[link], old))
            (later if when > 0 else first).append(f"at {len(self.names)} {round(when * 100)} {shlex.quote(' && '.join(commands))}\n")
            self.names.append(" ".join([action, *([str(value)] if value else []), *links]))
        # Restores the first state. Runs each command, even if others have failed. An object that exists already is not a failure.
        undo = [f"tc qdisc del dev {link} root 2>/dev/null" for link in sorted(changed)]
        undo += [f"ip addr del {value} dev {link} 2>/dev/null" for link, value in sorted(added, key=str)]
        undo += ["sh ./net.sh restore"] if moved else []
        undo += [self.netem(link, self.initial, {}) for link in sorted(changed) if any(self.initial.values())]
        self.first, self.later, self.reset = "".join(first), "".join(later), "; ".join(undo + [":"])


def read_faults(path, options):
    try:
        text = os.fsdecode(open(path, "rb").read())
    except OSError as e:
        raise Failure(f"cannot read the faults {path}: {e.strerror}")
    line = TimeLine(text, options.links, options.loss, options.delay, options.seed)
    if line.errors:
        raise Failure(*(f"{path}:{number}: {error}" for number, error in sorted(line.errors)))
    return line
