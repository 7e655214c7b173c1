#!/usr/bin/env python3
# Builds the Debian packages of the tree in a fresh chroot, checks them with lintian, and tests them in another one.
# SPDX-License-Identifier: BSL-1.0
"""./dev package: checks that each file has a licence (REUSE), builds the Debian packages from the files that git tracks in a fresh chroot, which has nothing but their build dependencies, checks them with
lintian, and runs the tests of debian/tests with autopkgtest in another fresh chroot, which has nothing but what the packages depend on. The packages are then in
build/package. Needs root for the chroots."""

import argparse
import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]


class failed(Exception):
    """A step that failed; its output has been shown."""


def run(*command: object, cwd: pathlib.Path = ROOT) -> None:
    """Runs a command and shows its output."""
    words = [str(word) for word in command]
    print("$ " + " ".join(words), flush=True)
    code = subprocess.run(words, cwd=cwd, check=False).returncode
    if code:
        raise failed(f"{words[0]} ended with exit code {code}")


def version() -> str:
    """The version of the tree, for which debian/changelog must have the newest entry."""
    found = re.search(r"^  version: '(\S+)',$", (ROOT / "meson.build").read_text(encoding="utf-8"), re.M)
    if not found:
        raise failed("meson.build has no version")
    entry = (ROOT / "debian/changelog").read_text(encoding="utf-8").splitlines()[0]
    if f"({found.group(1)}-" not in entry:
        raise failed(f"meson.build says {found.group(1)}, but debian/changelog begins with: {entry}")
    return found.group(1)


def copy_of_tree(to: pathlib.Path) -> None:
    """The files that git tracks, as they are in the work tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name, follow_symlinks=False)


# Runs a command after the mounts of a chroot. The mounts are in their own name space, so that they end with the
# command.
MOUNTS = 'cd "$1"; shift; for d in proc sys dev; do mount --rbind /$d $d; done; cd /; exec "$@"'


def minimal_system(archive: pathlib.Path) -> None:
    """A minimal Debian of this host's release, from this host's package sources, as an archive."""
    release = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release", encoding="utf-8") if "=" in line)
    apt = pathlib.Path("/etc/apt")
    sources = [p for p in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))) if p.suffix in {".list", ".sources"} and p.is_file()]
    # autopkgtest needs apt-ftparchive, and the package lists.
    run("mmdebstrap", "--variant=apt", "--include=apt-utils,ca-certificates", "--skip=cleanup/apt", release["VERSION_CODENAME"], archive, *sources)


@contextlib.contextmanager
def chroot(archive: pathlib.Path, at: pathlib.Path) -> Iterator[Callable[..., None]]:
    """A fresh chroot. Returns a function that runs a command with the mounts of the chroot."""
    at.mkdir(parents=True)
    run("tar", "--extract", "--numeric-owner", "--file", archive, "--directory", at)
    yield lambda *command: run("unshare", "--mount", "sh", "-ec", MOUNTS, "sh", at, *command)
    shutil.rmtree(at)


def build(archive: pathlib.Path, tree: pathlib.Path, out: pathlib.Path) -> None:
    """Builds the packages of a tree, with nothing but their build dependencies."""
    at = out / "chroot-build"
    with chroot(archive, at) as in_chroot:
        shutil.copytree(tree, at / "build" / tree.name, symlinks=True)
        steps = f"""export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /build/{tree.name}
apt-get build-dep --yes --quiet --no-install-recommends .
dpkg-buildpackage --build=binary --no-sign"""
        in_chroot("chroot", at, "sh", "-exc", steps)
        for made in (at / "build").iterdir():
            if made.is_file():
                shutil.copy2(made, out)


def main() -> int:
    """Builds, checks and tests the packages."""
    parser = argparse.ArgumentParser(prog="./dev package", description=__doc__)
    parser.add_argument("--no-test", action="store_true", help="build and check only")
    parser.add_argument("--test", action="append", default=[], metavar="NAME", help="only this test of debian/tests")
    options = parser.parse_args()
    out = ROOT / "build/package"
    try:
        if missing := [tool for tool in ("lintian", "mmdebstrap", "autopkgtest", "reuse") if not shutil.which(tool)]:
            raise failed(f"missing: {', '.join(missing)}; apt-get install lintian mmdebstrap autopkgtest reuse")
        run("reuse", "lint")
        shutil.rmtree(out, ignore_errors=True)
        tree = out / f"dat-cpp-{version()}"
        copy_of_tree(tree)
        system = out / "system.tar"
        minimal_system(system)
        build(system, tree, out)
        changes = next(out.glob("*.changes"))
        run("lintian", "--allow-root", "--fail-on", "error,warning", changes)
        if not options.no_test:
            chosen = [f"--test-name={name}" for name in options.test]
            packages = sorted(out.glob("*.deb"))
            at = out / "chroot-test"
            with chroot(system, at) as beside:
                beside("autopkgtest", "--no-built-binaries", *chosen, *packages, tree, "--", "chroot", at)
        system.unlink()
    except failed as e:
        print(f"package: {e}")
        return 1
    for package in sorted(out.glob("*.deb")):
        print(package.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
