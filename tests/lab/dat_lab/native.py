# The host's own RDMA devices in place of a machine.
# SPDX-License-Identifier: BSL-1.0

import os
import signal
import subprocess
import time

from .outcome import TimeUp
from .output import say
from .processes import die_with_parent


class Native:
    """The same interface without a machine: the host's own devices."""

    name = "native"

    def __init__(self, options):
        self.options, self.proc = options, None

    def start(self, deadline):
        pass

    def stop(self):
        if self.proc and self.proc.poll() is None:
            self.kill(signal.SIGKILL)
            self.proc.wait()

    def kill(self, number):
        try:
            os.killpg(self.proc.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def run(self, argv, env, cwd, deadline):
        try:
            self.proc = subprocess.Popen(
                argv, env={**os.environ, **env}, cwd=cwd, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent
            )
        except FileNotFoundError:
            say(f"{argv[0]}: command not found")
            return 127
        except OSError as e:
            say(f"{argv[0]}: {e.strerror}")
            return 126
        try:
            rc = self.proc.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeUp
        self.kill(signal.SIGKILL)  # what it left behind
        return 128 - rc if rc < 0 else rc

    def signal(self, name, group=False):
        if self.proc and self.proc.poll() is None:
            number = getattr(signal, "SIG" + name)
            if group:
                self.kill(number)
            else:
                self.proc.send_signal(number)

    def terminate(self, limit):
        for number, seconds in ((signal.SIGTERM, limit), (signal.SIGKILL, 2)):
            self.kill(number)
            try:
                self.proc.wait(seconds)
                self.kill(signal.SIGKILL)
                return True
            except subprocess.TimeoutExpired:
                pass
        return False

    def oom_victims(self):
        return []

    def console_tail(self, lines=12):
        return []


def native_devices():
    """Devices of the host that have an active port."""
    found = []
    base = "/sys/class/infiniband"
    try:
        for device in sorted(os.listdir(base)):
            ports = os.path.join(base, device, "ports")
            if any("ACTIVE" in open(os.path.join(ports, p, "state")).read() for p in os.listdir(ports)):
                found.append(device)
    except OSError:
        pass
    return found
