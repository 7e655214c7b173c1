# Stand-ins for the modules of Conan and Spack that the recipes of dat import, so that their methods run.
# SPDX-License-Identifier: BSL-1.0
"""conan(...) and spack(...) run a recipe against a tarball and return the folder that it has installed into."""

from __future__ import annotations

import hashlib
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import types
from typing import Any


def run(*command: object, cwd: pathlib.Path | None = None) -> None:
    """Runs a command, or fails with its output."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"$ {' '.join(map(str, command))}\n{done.stdout[-3000:]}")


def unpack(archive: pathlib.Path, sha256: str, to: pathlib.Path) -> pathlib.Path:
    """Checks the digest and unpacks; returns the one folder of the archive."""
    if (digest := hashlib.sha256(archive.read_bytes()).hexdigest()) != sha256:
        raise ValueError(f"the recipe names the SHA256 {sha256}, and the tarball has {digest}")
    with tarfile.open(archive) as packed:
        packed.extractall(to, filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(to)
    (inner,) = to.iterdir()
    return inner


def module(name: str, **names: Any) -> None:
    """Makes a module that the recipe can import, and those above it."""
    made = types.ModuleType(name)
    vars(made).update(names)
    sys.modules[name] = made


class folder_of_cpp(types.SimpleNamespace):
    """cpp_info of Conan."""

    def __init__(self) -> None:
        super().__init__(properties={})

    def set_property(self, name: str, value: str) -> None:
        self.properties[name] = value


def conan(recipe: pathlib.Path, archive: pathlib.Path, work: pathlib.Path, os_name: str = "Linux") -> tuple[Any, pathlib.Path]:
    """Runs the methods of a recipe in Conan's order; returns the recipe with its package's folder."""

    class ConanFile:
        """The base class of recipes."""

    class MesonToolchain:
        def __init__(self, of: Any):
            self.of, self.project_options = of, {}

        def generate(self) -> None:
            self.of.meson_options = self.project_options

    class Meson:
        def __init__(self, of: Any):
            self.of = of

        def configure(self) -> None:
            options = [f"-D{name}={value}" for name, value in self.of.meson_options.items()]
            run("meson", "setup", work / "build", self.of.source_folder, f"--prefix={self.of.package_folder}", "--libdir=lib", *options)

        def build(self) -> None:
            run("meson", "compile", "-C", work / "build")

        def install(self) -> None:
            run("meson", "install", "-C", work / "build")

    class PkgConfigDeps:
        def __init__(self, of: Any):
            pass

        def generate(self) -> None:
            pass

    class ConanInvalidConfiguration(Exception):
        pass

    def get(of: Any, url: str, sha256: str, strip_root: bool = False) -> None:
        if not strip_root or url.rpartition("/")[2] != archive.name:
            raise ValueError(f"get() of {url}, strip_root {strip_root}: the tarball is {archive.name}, with one folder")
        of.source_folder = str(unpack(archive, sha256, work / "src"))

    def copy(_of: Any, pattern: str, src: str, dst: str) -> None:
        pathlib.Path(dst).mkdir(parents=True, exist_ok=True)
        for found in pathlib.Path(src).glob(pattern):
            shutil.copy(found, dst)

    module("conan", ConanFile=ConanFile)
    module("conan.errors", ConanInvalidConfiguration=ConanInvalidConfiguration)
    module("conan.tools")
    module("conan.tools.build", check_min_cppstd=lambda of, least: of.checked.append(least))
    module("conan.tools.files", copy=copy, get=get, rmdir=lambda of, path: shutil.rmtree(path, ignore_errors=True))
    module("conan.tools.gnu", PkgConfigDeps=PkgConfigDeps)
    module("conan.tools.layout", basic_layout=lambda of, src_folder: None)
    module("conan.tools.meson", Meson=Meson, MesonToolchain=MesonToolchain)

    of = runpy.run_path(str(recipe / "conanfile.py"))["DatConan"]()
    of.checked, of.required, of.tools, of.settings = [], [], [], types.SimpleNamespace(os=os_name)
    of.requires = lambda reference, **_: of.required.append(reference)
    of.tool_requires = of.tools.append
    of.cpp_info, of.package_folder = folder_of_cpp(), str(work / "package")
    # conandata.yml has this form only; Debian's Python has no YAML.
    entry = re.search(r'"([\d.]+)":\n\s+url: "(.*)"\n\s+sha256: "(.*)"', (recipe / "conandata.yml").read_text(encoding="utf-8"))
    assert entry, "conandata.yml has no source"
    of.version, of.conan_data = entry[1], {"sources": {entry[1]: {"url": entry[2], "sha256": entry[3]}}}
    for step in ("layout", "requirements", "build_requirements", "validate", "source", "generate", "build", "package", "package_info"):
        getattr(of, step)()
    return of, pathlib.Path(of.package_folder)


def spack(recipe: pathlib.Path, archive: pathlib.Path, work: pathlib.Path, variant: str) -> tuple[Any, pathlib.Path]:
    """Runs a recipe for MesonPackage with a variant: `+tools` or `~tools`. Returns the directives of the recipe and the prefix."""
    said: dict[str, list[Any]] = {}

    def directive(name: str) -> Any:
        return lambda *values, **named: said.setdefault(name, []).append((values, named))

    class MesonPackage:
        """The base class of the recipe."""

    class when:
        def __init__(self, condition: str):
            self.condition = condition

        def __enter__(self) -> None:
            said.setdefault("when", []).append(self.condition)

        def __exit__(self, *_: object) -> None:
            pass

    names = {name: directive(name) for name in ("license", "version", "variant", "depends_on", "requires", "conflicts", "maintainers")}
    module("spack")
    module("spack.package", MesonPackage=MesonPackage, when=when, **names)
    of = runpy.run_path(str(recipe / "package.py"))["DatCpp"]()
    of.spec = types.SimpleNamespace(satisfies=lambda condition: condition == variant)
    (values, named) = said["version"][0]
    if of.url.rpartition("/")[2] != archive.name or values[0] not in archive.name:
        raise ValueError(f"the recipe names {of.url} for version {values[0]}, and the tarball is {archive.name}")
    source = unpack(archive, named["sha256"], work / "src")
    run("meson", "setup", work / "build", source, f"--prefix={work / 'prefix'}", "-Dstrip=false", *of.meson_args())
    run("ninja", "-C", work / "build")
    run("ninja", "-C", work / "build", "install")
    return said, work / "prefix"
