# The program: does what the options say; the exit code.
# SPDX-License-Identifier: BSL-1.0

import shutil
import signal
import sys

from .architecture import architecture
from .cache import cache_dir
from .check import check
from .initramfs import prepare
from .kernel_choice import list_kernels
from .options import parse
from .outcome import RC_MACHINE, RC_TIMEOUT, Ended, Failure, OutputClosed, TimeUp
from .output import say
from .qemu import kvm_works
from .rdma_core import rdma_core
from .session import PASSED_SIGNALS, Session
from .tools import tool


def raise_ended(number, _):
    raise Ended(number)


def main():
    o = parse(sys.argv[1:])
    for number in PASSED_SIGNALS:
        signal.signal(number, raise_ended)
    try:
        if o.check:
            return check(o.arch)
        if o.clean:
            shutil.rmtree(cache_dir(), ignore_errors=True)
            return 0
        o.architecture = None if o.native else architecture(o.arch)
        if o.list_kernels:
            return list_kernels(o.architecture)
        if o.prepare:
            tool(o.architecture.qemu, "runs the machine")
            kernel, initrd = prepare(o.architecture, o.kernel, set(o.devices), o.hosts)
            kvm_works(o.architecture, kernel, initrd)
            if o.rdma_core:
                print(rdma_core(cache_dir(), o.rdma_core))
            return 0
        return Session(o).run()
    except Failure as e:
        for line in e.args:
            say(line)
        return RC_MACHINE
    except Ended as e:
        return 128 + e.number
    except TimeUp:
        return RC_TIMEOUT
    except OutputClosed:
        return 128 + signal.SIGPIPE
