#!/usr/bin/env python3
# Makes the files of a release: tarball, digest, bill of materials, and the recipes of package managers for it.
# SPDX-License-Identifier: BSL-1.0
"""Makes the files of a release in build/release from the last commit: the tarball of `meson dist` with its digest, the bill of materials
(SPDX), and the recipes of vcpkg, Conan, Spack and WrapDB. docs/versions.md lists what comes before and after."""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import versions  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ADDRESS = "https://example.org/dat/releases/download/v{version}/dat-{version}.tar.xz"


class failed(Exception):
    """A step that failed."""


def run(*command: object, cwd: pathlib.Path = ROOT) -> None:
    """Runs a command; its output is shown when it fails."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise failed(f"$ {' '.join(map(str, command))}\n{done.stdout.strip()[-2000:]}")


def changes_of_tree(root: pathlib.Path) -> str:
    """The changes of the work tree that are not committed."""
    return subprocess.run(["git", "-C", root, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True).stdout.strip()


def tarball(root: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """The tarball of the last commit."""
    with tempfile.TemporaryDirectory(prefix="dat-dist-") as build:
        parts = [f"-D{part}=disabled" for part in ("tests", "examples", "tools", "bench")]
        run("meson", "setup", build, root, *parts)
        # Its tests are those of the tree (./dev test), and of ./dev test --only release.
        run("meson", "dist", "-C", build, "--formats", "xztar", "--no-tests", "--allow-dirty")
        made = next((pathlib.Path(build) / "meson-dist").glob("*.tar.xz"))
        return pathlib.Path(shutil.copy(made, out / made.name))


def recipes(to: pathlib.Path, archive: pathlib.Path, url: str, version: str) -> None:
    """The recipes for this tarball."""
    data = archive.read_bytes()
    values = {"@version@": version, "@url@": url, "@sha256@": hashlib.sha256(data).hexdigest(), "@sha512@": hashlib.sha512(data).hexdigest()}
    for source in sorted((HERE / "recipes").rglob("*")):
        if source.is_file() and source.name != "README.md":
            text = source.read_text(encoding="utf-8")
            for name, value in values.items():
                text = text.replace(name, value)
            made = to / source.relative_to(HERE / "recipes")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(text, encoding="utf-8")


def make(out: pathlib.Path, address: str = ADDRESS, root: pathlib.Path = ROOT) -> pathlib.Path:
    """All files of the release; returns the tarball."""
    if wrong := versions.disagreements(root):
        raise failed("\n".join(wrong))
    version = versions.version(root)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    archive = tarball(root, out)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (out / f"{archive.name}.sha256").write_text(f"{digest}  {archive.name}\n", encoding="utf-8")
    run(sys.executable, "-B", HERE / "sbom.py", "--output", out / f"dat-{version}.spdx.json")
    recipes(out, archive, address.format(version=version), version)
    return archive


def main() -> int:
    """Makes the release."""
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__)
    parser.add_argument("--address", default=ADDRESS, metavar="URL", help="where the tarball will be; {version} is the version (%(default)s)")
    parser.add_argument("--allow-dirty", action="store_true", help="although the work tree has changes, which the tarball will lack")
    options = parser.parse_args()
    try:
        if (changes := changes_of_tree(ROOT)) and not options.allow_dirty:
            raise failed(f"the work tree has changes that the tarball would lack; commit them, or give --allow-dirty:\n{changes}")
        make(ROOT / "build/release", options.address)
    except failed as e:
        print(f"release: {e}", file=sys.stderr)
        return 1
    for path in sorted((ROOT / "build/release").rglob("*")):
        if path.is_file():
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
