# Processes that end with dat-lab.
# SPDX-License-Identifier: BSL-1.0

import ctypes
import signal
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def end_process(p):
    p.kill()
    try:
        p.wait(5)
    except subprocess.TimeoutExpired:  # blocked in the kernel: the process ends when the kernel call returns
        pass
