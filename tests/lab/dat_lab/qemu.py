# Starts qemu: its command line, its processor and its memory.
# SPDX-License-Identifier: BSL-1.0

import ctypes
import functools
import json
import mmap
import os
import platform
import re
import select
import socket
import subprocess
import time

from .cache import Lock, cache_dir, write_atomically
from .outcome import Failure
from .output import say
from .processes import die_with_parent, end_process
from .tools import tool


@functools.cache  # several hosts start at once
def tsc_khz():
    """The frequency of this host's time stamp counter, or None where it cannot be read. An emulated processor has the same one. The
    machine's kernel would measure it at boot, and on a busy host it errs: a clock was seen that ran 2.5 times too fast."""
    if platform.machine() != "x86_64":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # a host that forbids writable executable memory
        return None
    page.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))  # rdtsc; shl rdx, 32; or rax, rdx; ret
    ticks = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

    def now():
        """(nanoseconds, ticks) of one time: of the attempt that took the least time."""
        attempts = []
        for _ in range(20):
            before, t, after = time.monotonic_ns(), ticks(), time.monotonic_ns()
            attempts.append((after - before, (before + after) // 2, t))
        return min(attempts)[1:]

    began = now()
    time.sleep(0.05)
    ended = now()
    return round((ended[1] - began[1]) * 1000000 / (ended[0] - began[0]))


def boot_id():
    """Another one after each boot of the host."""
    try:
        return open("/proc/sys/kernel/random/boot_id").read().strip()
    except OSError:
        return "unknown"


def qemu_command(arch, kernel, initrd, accel, cpus, memory, extra, append):
    """The words of qemu's command line."""
    cpu = {
        "kvm": ["-accel", "kvm", "-cpu", "host"],
        "tcg": ["-accel", "tcg,thread=multi", "-cpu", arch.cpu],
        # An instruction takes 2 ns, and nothing else takes any time; waiting is skipped.
        "counted": ["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off", "-cpu", arch.cpu],
    }[accel]
    return (
        [tool(arch.qemu, "runs the machine"), "-name", "dat-lab", "-machine", arch.machine, *cpu, "-smp", str(cpus), "-m", str(memory)]
        + ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-net", "none"]
        + ["-kernel", kernel.image, "-initrd", initrd]
        + ["-append", f"console={arch.console} quiet panic=-1 oops=panic {arch.append} {append}"]
        + extra
    )


def machine_command(arch, kernel, initrd, accel, cpus, memory, extra):
    """Returns the command of qemu_command for a machine that runs commands."""
    append = f"tsc_early_khz={khz}" if accel == "tcg" and arch.name == "x86_64" and (khz := tsc_khz()) else ""
    return qemu_command(arch, kernel, initrd, accel, cpus, memory, extra, append)


def qemu_start(words, pass_fds):
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def shared_folder(arch, tag, path, more=""):
    """The words for a folder of the host that the machine mounts by its tag."""
    path = path.replace(",", ",,")
    return ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{more}", *arch.device("9p", f"fsdev={tag}", f"mount_tag={tag}")]


def kvm_works(arch, kernel, initrd):
    """Whether a trial boot under KVM succeeds within seconds; the verdict is kept until the host boots again."""
    if arch.foreign or not os.access("/dev/kvm", os.R_OK | os.W_OK) or os.environ.get("DAT_LAB_KVM") == "0":
        return False
    cache = cache_dir()
    verdict, state = os.path.join(cache, f"kvm-{kernel.version}"), [boot_id(), platform.release(), kernel.version]
    with Lock(cache):
        try:
            *known, works = json.load(open(verdict))
            if known == state:
                return works
        except (OSError, ValueError):
            pass
        say("trying KVM (at most 5 s, once per boot of the host)")
        ours, theirs = socket.socketpair()
        extra = ["-chardev", f"socket,id=con,fd={theirs.fileno()}", "-serial", "chardev:con"]
        p = qemu_start(qemu_command(arch, kernel, initrd, "kvm", 1, 512, extra, "dat_lab.trial"), [theirs.fileno()])
        theirs.close()
        seen, end = b"", time.monotonic() + 5
        while b"dat-lab-trial-ok" not in seen and time.monotonic() < end:
            if not select.select([ours], [], [], max(0, end - time.monotonic()))[0]:
                break
            data = ours.recv(4096)
            if not data:
                break
            seen += data
        end_process(p)
        p.stdout.close()
        ours.close()
        works = b"dat-lab-trial-ok" in seen
        write_atomically(verdict, json.dumps([*state, works]).encode())
        if not works:
            say("KVM does not work here: using emulation (TCG)")
    return works


def check_memory(memory, machines=1):
    try:
        text = open("/proc/meminfo").read()
        available = int(re.search(r"^MemAvailable:\s*(\d+)", text, re.M).group(1)) // 1024
    except (OSError, AttributeError):
        return
    try:
        limit = open("/sys/fs/cgroup/memory.max").read().strip()
        if limit != "max":
            available = min(available, (int(limit) - int(open("/sys/fs/cgroup/memory.current").read())) // 1048576)
    except (OSError, ValueError):
        pass
    if available < (memory + 128) * machines:
        least = max(256, available // machines - 256) // 64 * 64
        who = "the machine needs" if machines == 1 else f"each of {machines} hosts needs"
        raise Failure(f"not enough memory: {who} {memory} + 128 MiB, {available} MiB are available: use --memory {least} or less, or free some")
