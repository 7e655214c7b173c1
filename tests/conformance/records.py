"""The record beside each result file: of which sources, on what and when it was made, and which assertions showed which rule.

docs/conformance/README.md, "Records", defines it. The programs write it (tests/support/main.cpp); write() does it for others.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The files on which a result that shows rules depends: the library and its tests. The checks of texts and of the ledger
# itself are not among them, so that results need no second run when a text is corrected.
FOLDERS = ("include", "detail", "tests")
FILES = ("meson.build", "meson_options.txt", "dev", "examples/tools/dat_info/device_table.hpp")
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".ipp", ".py", ".sh", ".build", ".txt", ".toml", ".conf", ""}
EXCLUDED = ("tests/conformance", "tests/headers")

# The files of a whole run. A further program adds a file, and is added here.
WHOLE_RUN = (
    "device-gcc.xml", "device-asan.xml", "device-tsan.xml",
    "unit-gcc.xml", "unit-asan.xml", "unit-tsan.xml",
    "unit-checked-gcc.xml", "unit-checked-asan.xml",
    "unit-fake_verbs-gcc.xml", "unit-fake_verbs-asan.xml", "unit-fake_verbs-tsan.xml",
    "unit-schedules-gcc.xml", "unit-unit_header_only-gcc.xml",
    "compile_fail.json",
)  # fmt: skip


def sources(root: Path) -> Iterator[Path]:
    for name in FOLDERS:
        for path in sorted((root / name).rglob("*")):
            relative = path.relative_to(root)
            hidden = any(part.startswith((".", "__pycache__")) for part in relative.parts)
            if not hidden and path.suffix in SUFFIXES and path.is_file() and not relative.as_posix().startswith(EXCLUDED):
                yield relative
    for name in FILES:
        if (root / name).is_file():
            yield Path(name)


def digest(root: Path) -> str:
    """Returns the digest of the sources on the disk, committed or not."""
    total = hashlib.sha256()
    for path in sources(root):
        content = hashlib.sha256((root / path).read_bytes()).hexdigest()
        total.update(f"{path.as_posix()} {content}\n".encode())
    return total.hexdigest()[:16]


@dataclass
class Record:
    tree: str
    date: str
    kernel: str
    devices: str = ""
    filtered: bool = False  # only some cases were requested
    cases: int = 0
    types_only: set[str] = field(default_factory=set)  # cases that assert nothing at run time
    left_behind: dict[str, str] = field(default_factory=dict)
    shows: dict[str, list[str]] = field(default_factory=dict)  # case -> rules, by SHOWS
    deviates: dict[str, list[str]] = field(default_factory=dict)  # case -> rules, by DEVIATES


def path_of(result: Path) -> Path:
    return result.with_suffix(".record")


def read(result: Path) -> Record:
    """Raises OSError, ValueError or TypeError."""
    told = json.loads(path_of(result).read_text(encoding="utf-8"))
    told["types_only"] = set(told.get("types_only", ()))
    return Record(**told)


def write(result: Path, tree: str, cases: int) -> None:
    """The record of a program that knows neither devices nor SHOWS."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    told = {"tree": tree, "date": now, "kernel": kernel, "cases": cases}
    path_of(result).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def origin(known: Iterable[Record]) -> str:
    """One line about results that belong together."""
    last = max(known, key=lambda record: (bool(record.devices), record.date), default=None)
    if last is None:
        return ""
    return f"tree {last.tree}, {last.date}, on {last.kernel}" + (f" with {last.devices}" if last.devices else "")


def problems_of(results: dict[str, tuple[Record, int]], root: Path, whole: bool, driver: str = "rxe",
                some: bool = False) -> Iterator[str]:  # fmt: skip
    """The faults of a set of results: file name -> its record and the number of its cases."""
    now = digest(root)
    for name, (record, cases) in results.items():
        if record.tree != now:
            yield f"{name}: results of another tree ({record.tree or 'none'}; this one is {now}): run ./dev test"
        if record.filtered and not some:
            yield f"{name}: only some cases were run"
        if record.cases != cases:
            yield f"{name}: {cases} cases, its record has {record.cases}"
        for case, what in sorted(record.left_behind.items()):
            yield f"{name}: '{case}' leaves behind {what}"
        if name.startswith("device") and not all(device.endswith(f"({driver})") for device in record.devices.split(", ")):
            yield f"{name}: ran on {record.devices or 'no device'}; what it shows is called 'shown on {driver}'"
    ran_on = {(r.kernel, r.devices) for name, (r, _) in results.items() if name.startswith("device")}
    if len(ran_on) > 1:
        yield "results of several machines: " + "; ".join(sorted(f"{devices} on {kernel}" for kernel, devices in ran_on))
    if whole:
        for name in WHOLE_RUN:
            if name not in results:
                yield f"{name} is missing: the results are not those of a whole run"
