# OFA's programs (Debian package dapl2-utils), and how the judgement runs each of them.
# SPDX-License-Identifier: BSL-1.0
"""{device} is the name of the adapter, {address} the server's address, {port} a port that no other test uses."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class program:
    """How one of the programs is run, and how its success shows: by its exit code, and by what it prints."""

    client: str
    server: str = ""  # empty: the client runs alone
    ready: str = ""  # the server's text when clients may connect
    passed: str = ""  # the text of both when they have passed; if empty, the exit code decides
    failed: str = ""  # the text of both when they have failed
    quit: str = ""  # ends a server that does not end by itself
    parts: str = ""  # the title of a part of the output that is a test of its own: a row of the table
    part_failed: str = ""  # the text in the output of a part that has failed
    part_end: str = ""  # the end of the output of a part


def adapters(provider: object) -> str:
    """The dat.conf of the lab: each adapter with OFA's provider and with dat's, the library `provider`."""
    lines = [
        f'ofa-{number} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "v{number} 0" ""\n'
        f'dat-{number} u2.0 nonthreadsafe default {provider} dat.0.1 "rx{number} 1" ""\n'
        for number in (1, 2)
    ]
    return "".join(lines)


PROGRAMS = {
    "dtest": program(
        server="dtest -P {device} {options}",
        client="dtest -P {device} -h {address} {options}",
        ready="waiting for client",
        passed=r"Test Complete\. PASSED",
        failed="FAILED",
    ),
    "dtestx": program(
        server="dtestx -P {device} -s {options}",
        client="dtestx -P {device} -c -h {address} {options}",
        ready="waiting",
        passed=r"extension test.* PASSED|test - PASSED|PASSED",
        failed="FAILED",
    ),
    "dtestcm": program(
        server="dtestcm -P {device} -s {options}",
        client="dtestcm -P {device} -h {address} {options}",
        ready="waiting for client",
        passed=r"Connection Test Complete",
    ),
    "dtestsrq": program(
        server="dtestsrq -P {device} -s {options}",
        client="dtestsrq -P {device} -h {address} {options}",
        ready="server ready",
        passed=r"Test Complete",
    ),
    "dapltest": program(
        server="dapltest -T S -D {device} -n {port}",
        client="dapltest {options}",
        ready="Service Point Ready",
        failed="Test Error|FAILED|failed",
        quit="dapltest -T Q -s {address} -D {other} -n {port}",
    ),
    "limits": program(
        client="dapltest -T L -D {device} {options}",
        parts=r"Limitation Test\s+(\w+)",
        part_failed=r"created: 0$|posted per EP: 0$|fails: DAT_INVALID|can not continue",
        part_end=r"^\*{60,}$",
    ),
    "features": program(
        client="dapltest -T F -D {device} {options}",
        parts=r"Function feature: (\w+)\s+case: *(\d+)",
        part_failed=r"Result: FAIL",
        part_end=r"Result: (PASS|FAIL|UNSUPP)",
    ),
}


@dataclasses.dataclass(frozen=True)
class test:
    """A row of the table, or the rows of the parts of its output."""

    kind: str
    options: str = ""
    short: bool = False  # part of the short form, which runs with all other tests
    prints: str = ""  # further text of its client: a part that the program leaves out if an attribute is missing

    @property
    def name(self) -> str:
        """The command line, without the parts that differ from column to column."""
        shown = {"limits": "dapltest -T L", "features": "dapltest -T F"}.get(self.kind, self.kind)
        return " ".join(f"{shown} {self.options}".split())


def transaction(options: str, operations: str) -> test:
    """A transaction test of dapltest."""
    return test("dapltest", f"-T T -s {{address}} -D {{device}} -n {{port}} {options} {operations}")


def performance(options: str, operation: str) -> test:
    """A performance test of dapltest."""
    return test("dapltest", f"-T P -s {{address}} -D {{device}} -n {{port}} {options} {operation}")


BOTH = "client SR {0} server SR {0}"

ALL_PARTS = "PING DATA"  # the last part of dtest, after reads

TESTS = [
    test("dtest", "-b 4096", short=True, prints=ALL_PARTS),
    # All options, with a size that Soft-RoCE supports, and with the program's own size of 4 MiB.
    *(test("dtest", f"-b 4096 {options}", prints=ALL_PARTS) for options in ("-c", "-p", "-v", "-d 1", "-t", "-B 1", "-B 100", "-S 1")),
    *(test("dtest", f"-b 4096 {options}") for options in ("-w", "-w -u", "-W", "-W -D", "-W -a", "-c -W", "-p -w")),
    *(test("dtest", options) for options in ("-b 65536 -W -a -i 16384", "-b 65536 -B 50", "-b 1048576", "")),
    test("dtestx", short=True),
    *(test("dtestx", options) for options in ("-v", "-p", "-b 65536", "-u", "-U 4", "-m")),
    test("dtestcm", "-c 10", short=True),
    *(test("dtestcm", options) for options in ("-c 1", "-c 100", "-c 1000", "-c 100 -w", "-c 100 -b 10", "-c 10 -d 1", "-c 10 -u", "-c 10 -m")),
    test("dtestsrq", short=True),
    *(test("dtestsrq", options) for options in ("-c 4", "-c 16 -B 10", "-c 4 -t 10 -b 4096", "-c 100", "-S 0", "-u", "-c 4 -u")),
    dataclasses.replace(transaction("-i 10", BOTH.format("256")), short=True),
    transaction("-i 100", BOTH.format("4096 2")),
    transaction("-i 100 -V", BOTH.format("1024 4")),
    transaction("-i 100 -P", BOTH.format("256")),
    transaction("-i 100 -V -P", BOTH.format("1024")),
    transaction("-i 100", "client SR 256 server SR 256 client SR 256 -f server SR 256 -f"),
    transaction("-i 100 -r", BOTH.format("256")),
    transaction("-i 100", "client RW 4096 server RW 4096 " + BOTH.format("256")),
    transaction("-i 100 -V", "client RW 4096 2 server RW 2048 4 client RR 4096 server RR 2048 " + BOTH.format("256")),
    transaction("-i 100", "client RR 4096 2 server RR 4096 2 " + BOTH.format("256")),
    transaction("-i 20 -t 4", BOTH.format("256")),
    transaction("-i 20 -w 4", BOTH.format("256")),
    transaction("-i 20 -t 4 -w 4 -V", "client RW 4096 server RR 4096 " + BOTH.format("1024 3")),
    transaction("-i 20 -t 2 -w 8 -V -P", "client RR 8192 server RW 8192 " + BOTH.format("4096")),
    transaction("-i 10 -t 8 -w 2", BOTH.format("65536")),
    transaction("-i 5 -V", BOTH.format("1048576")),
    *(transaction(f"-i 10 -R {qos}", BOTH.format("256")) for qos in ("HT", "LL", "EC", "PM")),
    *(performance(f"-m {mode} -i 1000 {pipe}", f"{op} {size}") for mode in "bp" for op in ("RW", "RR") for pipe, size in (("", "64"), ("-p 4", "4096 2"))),
    performance("-m p -i 100", "RW 1048576"),
    test("limits", "-m 20", short=True),
    # The parts run one by one, because the program stops at the first failure.
    *(test("limits", f"-m 100 -w 2 limit_{kind}") for kind in ("ia", "pz", "cno", "evd", "ep", "rsp", "psp", "lmr", "rpost", "size_lmr")),
    *(test("features", f"-f {feature}") for feature in ("pz", "mem", "endpoint", "hwconn", "connmgt")),
    test("features", "-f queryinfo", short=True),
]
