#!/usr/bin/env python3
# Package trees, options of Meson, and the emulator for other architectures.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import roots

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build/worlds"
# Meson's name of an architecture, which is GNU's and qemu's, and Debian's.
ARCHITECTURES = {"s390x": "s390x", "aarch64": "arm64"}
PACKAGES = ["catch2", "libboost-dev", "libibverbs-dev", "librdmacm-dev", "nlohmann-json3-dev"]
# qemu-user before 8.0 keeps a record of each page of the addresses that a program reserves, and dat reserves gigabytes.
EMULATOR_RELEASE = "trixie"


def emulator(architecture: str) -> pathlib.Path:
    """The program that runs programs of the architecture."""
    host = roots.command(["dpkg", "--print-architecture"]).strip()
    root = roots.root_of(BUILD / "qemu", host, ["qemu-user"], EMULATOR_RELEASE)
    wanted = {f"qemu-{name}" for name in ARCHITECTURES}
    for program in (root / "usr/bin").glob("qemu-*"):
        if program.name not in wanted:
            program.unlink()
    return root / "usr/bin" / f"qemu-{architecture}"


def prefix(architecture: str) -> list[str | pathlib.Path]:
    """The words before the command of a program of the architecture."""
    return [emulator(architecture), "-L", BUILD / architecture]


def cross_files(architecture: str) -> list[str]:
    """The options by which Meson compiles for the architecture. The file that `prepare` writes has the paths."""
    return [f"--cross-file=build/worlds/{architecture}.ini", f"--cross-file=tests/worlds/{architecture}.ini"]


def prepare(architecture: str) -> None:
    """Get what compiling for the architecture and running its programs needs; raises roots.failed."""
    if not shutil.which(f"{architecture}-linux-gnu-g++"):
        raise roots.failed(f"{architecture}-linux-gnu-g++ is missing: g++-{architecture}-linux-gnu")
    root = roots.root_of(BUILD / architecture, ARCHITECTURES[architecture], PACKAGES)
    cache = ["ccache"] if shutil.which("ccache") else []
    lines = ["[constants]", f"root = '{root}'", f"emulator = '{emulator(architecture)}'", f"cache = {cache}"]
    file = BUILD / f"{architecture}.ini"
    text = "\n".join(lines) + "\n"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def first_error_on_32_bits(header: str) -> str:
    """The first message of a 32-bit compiler about a header of dat."""
    root = roots.root_of(BUILD / "armhf", "armhf", [name for name in PACKAGES if name.startswith("lib")])
    words = ["arm-linux-gnueabihf-g++", f"--sysroot={root}", "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    include = [f"-I{HERE.parents[1] / folder}" for folder in ("include", "detail")]
    text = f"#include <{header}>\nint main() {{}}\n"
    done = subprocess.run([*words, *include], input=text, capture_output=True, text=True, check=False)
    return next((line for line in done.stderr.splitlines() if "error:" in line), "")


def lines_of(file: pathlib.Path) -> dict[str, str]:
    """The forms that `wire write` has written, by name."""
    return dict(line.split(": ", 1) for line in file.read_text(encoding="utf-8").splitlines() if ": " in line)


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """The names of the forms that differ between two files of `wire write`; of all when a file has none."""
    left, right = lines_of(one), lines_of(other)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name)) or ([] if left else [json.dumps("no form")])
