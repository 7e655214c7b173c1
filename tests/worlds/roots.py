#!/usr/bin/env python3
# A tree with Debian packages of another architecture or release, below build/: nothing of it is installed on this host.
# SPDX-License-Identifier: BSL-1.0
"""apt resolves the packages and what they depend on with a configuration of its own, as for an empty machine of that
architecture and release, from the mirror that this host uses. The packages are unpacked, and none of their scripts runs."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import IO


class failed(Exception):
    """One line that names what is missing."""


def command(words: Sequence[str | pathlib.Path], stdin: IO[bytes] | int | None = subprocess.DEVNULL, env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(word) for word in words], stdin=stdin, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("E:")), done.stderr.strip()[-300:])
        raise failed(f"{words[0]} {words[1]}: {reason}")
    return done.stdout


def mirror() -> tuple[str, str, str]:
    """The address, the release and the file of keys of this host's Debian mirror."""
    for tool in ("apt-get", "dpkg-deb", "tar"):
        if not shutil.which(tool):
            raise failed(f"{tool} is missing: the packages come from a mirror of Debian's")
    listed = command(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(SOURCESENTRY)", "Identifier: Packages"])
    for line in listed.splitlines():
        origin, address, codename, entry = line.split("|")
        if origin != "Debian" or not re.fullmatch(r"[a-z]+", codename):
            continue
        source = pathlib.Path(entry.rpartition(":")[0])
        text = source.read_text(encoding="utf-8") if source.exists() else ""
        keys = re.search(r"^Signed-By:[ \t]*(/\S+)|signed-by=(/[^\s\]]+)", text, re.M | re.I)
        return address, codename, (keys.group(1) or keys.group(2)) if keys else ""
    raise failed("apt has no source of Debian's: apt-get update reads it")


def configure_apt(folder: pathlib.Path, architecture: str, release: str) -> dict[str, str]:
    """The environment in which apt uses `folder` in place of the host's lists, caches and installed packages."""
    address, codename, keys = mirror()
    for part in ("parts", "sources", "state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text("", encoding="utf-8")
    signed = f"Signed-By: {keys}\n" if keys else ""
    source = f"Types: deb\nURIs: {address}\nSuites: {release or codename}\nComponents: main\nArchitectures: {architecture}\n{signed}"
    (folder / "sources/debian.sources").write_text(source, encoding="utf-8")
    # The host's settings apply, for example a proxy, but no program of the host runs after an update. `main` is read
    # last.
    settings = {
        "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": folder / "sources", "Dir::Etc::preferencesparts": folder / "parts",
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
        "APT::Architecture": architecture, "APT::Sandbox::User": "root", "APT::Update::Error-Mode": "any",
    }  # fmt: skip
    hooks = ("APT::Update::Pre-Invoke", "APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success", "DPkg::Post-Invoke")
    lines = [f"#clear {name};" for name in (*hooks, "APT::Architectures")]
    lines += [f'{name} "{value}";' for name, value in settings.items()]
    lines.append(f'APT::Architectures {{ "{architecture}"; }};')
    host = pathlib.Path("/etc/apt/apt.conf")
    include = [f'#include "{host}";'] if host.exists() else []
    (folder / "main").write_text("\n".join([*include, *lines]) + "\n", encoding="utf-8")
    (folder / "apt.conf").write_text(f'Dir::Etc::main "{folder}/main";\n', encoding="utf-8")
    return os.environ | {"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}


def unpack(package: pathlib.Path, root: pathlib.Path) -> None:
    """Put the files of a package below `root`, through links of merged directories."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as files:
        command(["tar", "-x", "--no-same-owner", "--keep-directory-symlink", "-C", root, "--exclude=./dev/*"], stdin=files.stdout)
    if files.returncode:
        raise failed(f"{package.name} cannot be unpacked")


def root_of(root: pathlib.Path, architecture: str, packages: Sequence[str], release: str = "") -> pathlib.Path:
    """The tree `root` with these packages and what they depend on; made anew when the list of packages has changed."""
    wanted = json.dumps([architecture, release, sorted(packages)])
    stamp = root / "packages.json"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return root
    shutil.rmtree(root, ignore_errors=True)
    apt = root.with_name(f"{root.name}.apt")
    env = configure_apt(apt, architecture, release)
    command(["apt-get", "update", "-qq"], env=env)
    command(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", "--download-only", *packages], env=env)
    root.mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        unpack(package, root)
    shutil.rmtree(apt)
    stamp.write_text(wanted, encoding="utf-8")
    return root


def main() -> int:
    """One tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("architecture")
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--release", default="", help="a release of Debian's (this host's)")
    options = parser.parse_args()
    try:
        print(root_of(options.root.resolve(), options.architecture, options.packages, options.release))
    except failed as e:
        print(f"roots: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
