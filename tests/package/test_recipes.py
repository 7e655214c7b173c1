#!/usr/bin/env python3
# Makes a release, and builds a program by the recipe of each package manager from its tarball.
# SPDX-License-Identifier: BSL-1.0
"""DAT_RECIPE_TOOLS=1 in the environment builds the tools by the recipes, too."""

from __future__ import annotations

import configparser
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "stand_ins")]
import conan_spack  # noqa: E402
import release  # noqa: E402
import versions  # noqa: E402

PROGRAM = HERE.parent / "consume/main.cpp"
# Programs and man pages of other packages of Debian (liballegro4-dev, dapl2-utils).
TAKEN_NAMES = {"dat", "dtest", "dtestx", "dtestcm", "dtestsrq", "dapltest"}
TOOLS = os.environ.get("DAT_RECIPE_TOOLS") == "1"


def run(*command: object, cwd: pathlib.Path, **env: str) -> str:
    """Runs a command; returns its output, or fails with it."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"$ {' '.join(map(str, command))}\n{done.stdout[-3000:]}")
    return done.stdout


class recipes(unittest.TestCase):
    """One release for all tests."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(prefix="dat-release-")
        cls.out = pathlib.Path(cls.folder.name) / "release"
        cls.archive = release.make(cls.out)
        cls.version = versions.version(release.ROOT)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def setUp(self) -> None:
        work = tempfile.TemporaryDirectory(prefix="dat-recipe-")
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def runs(self, program: pathlib.Path) -> None:
        """The program has the version of the release."""
        self.assertIn(f"dat {self.version},", run(program, cwd=self.work))

    def test_the_tarball_has_what_git_has(self) -> None:
        listed = set(run("tar", "-tf", self.archive, cwd=self.work).split())
        top = f"dat-{self.version}/"
        for name in ("meson.build", "LICENSE", "include/dat/dat.hpp", "detail/dat.cpp", "CMakeLists.txt", "README.md", "tests/lab/dat-lab"):
            self.assertIn(top + name, listed)
        self.assertFalse([name for name in listed if not name.startswith(top) or "/.git/" in name or "/build/" in name])

    def test_the_digest_is_that_of_the_tarball(self) -> None:
        run("sha256sum", "--check", "--strict", f"{self.archive.name}.sha256", cwd=self.out)

    def test_the_bill_of_materials_lists_the_files(self) -> None:
        said = json.loads((self.out / f"dat-{self.version}.spdx.json").read_text(encoding="utf-8"))
        self.assertEqual((said["spdxVersion"], said["packages"][0]["versionInfo"]), ("SPDX-2.3", self.version))
        files = {one["fileName"]: one for one in said["files"]}
        header = files["./include/dat/ia.hpp"]
        self.assertEqual(header["licenseInfoInFiles"], ["BSL-1.0"])
        self.assertIn("The dat authors", header["copyrightText"])
        # REUSE reports no licence for the text of the licence.
        without = {name for name, one in files.items() if one["licenseInfoInFiles"] != ["BSL-1.0"]}
        self.assertEqual(without, {"./.reuse/dep5", "./LICENSE", "./LICENSES/BSL-1.0.txt"})
        identities = [one["SPDXID"] for one in said["files"] + said["packages"]]
        self.assertEqual(len(identities), len(set(identities)))
        known = {*identities, "SPDXRef-DOCUMENT"}
        self.assertFalse([r for r in said["relationships"] if r["spdxElementId"] not in known or r["relatedSpdxElement"] not in known])
        needed = {r["relatedSpdxElement"] for r in said["relationships"] if r["relationshipType"] == "DEPENDS_ON"}
        self.assertEqual(needed, {"SPDXRef-libibverbs", "SPDXRef-librdmacm", "SPDXRef-Boost"})

    def test_no_placeholder_is_left(self) -> None:
        names = ("@version@", "@url@", "@sha256@", "@sha512@")
        for path in self.out.rglob("*"):
            if path.is_file() and path != self.archive and path.suffix != ".json" or path.name in {"vcpkg.json", "releases.json"}:
                self.assertFalse([name for name in names if name in path.read_text(encoding="utf-8")], path)

    def test_wrap(self) -> None:
        for name in ("main.cpp", "meson/meson.build", "meson/meson_options.txt"):
            shutil.copy(PROGRAM.parent / name, self.work)
        (self.work / "subprojects/packagecache").mkdir(parents=True)
        shutil.copy(self.archive, self.work / "subprojects/packagecache")
        shutil.copy(self.out / "wrapdb/dat.wrap", self.work / "subprojects")
        run("meson", "setup", "--wrap-mode=forcefallback", "out", cwd=self.work)
        run("ninja", "-C", "out", cwd=self.work)
        self.runs(self.work / "out/consumer")

    def test_the_entry_of_wrapdb_is_that_of_the_wrap(self) -> None:
        wrap = configparser.ConfigParser()
        wrap.read_string((self.out / "wrapdb/dat.wrap").read_text(encoding="utf-8"))
        entries = json.loads((self.out / "wrapdb/releases.json").read_text(encoding="utf-8"))
        self.assertEqual(list(entries), ["dat"])
        # WrapDB checks that the newest version comes first, that it is the version of the folder with a revision, and that the names agree.
        newest = entries["dat"]["versions"][0]
        self.assertRegex(newest, r"^\d+\.\d+\.\d+-\d+$")
        self.assertEqual(wrap["wrap-file"]["directory"], f"dat-{newest.rpartition('-')[0]}")
        self.assertEqual([name.strip() for name in wrap["provide"]["dependency_names"].split(",")], entries["dat"]["dependency_names"])
        # Names of dependencies that the project of the tarball has.
        said = (release.ROOT / "meson.build").read_text(encoding="utf-8")
        for name in entries["dat"]["dependency_names"]:
            self.assertIn(f"meson.override_dependency('{name}', ", said)

    def test_a_wrap_with_another_digest_is_refused(self) -> None:
        for name in ("main.cpp", "meson/meson.build", "meson/meson_options.txt"):
            shutil.copy(PROGRAM.parent / name, self.work)
        (self.work / "subprojects/packagecache").mkdir(parents=True)
        (self.work / "subprojects/packagecache" / self.archive.name).write_bytes(self.archive.read_bytes() + b"more")
        shutil.copy(self.out / "wrapdb/dat.wrap", self.work / "subprojects")
        with self.assertRaisesRegex(AssertionError, "Incorrect hash"):
            run("meson", "setup", "--wrap-mode=forcefallback", "out", cwd=self.work)

    def vcpkg(self, archive: pathlib.Path, features: str) -> pathlib.Path:
        """Runs the port; returns the folder of the package."""
        run("cmake", f"-DPORT_DIR={self.out / 'vcpkg'}", f"-DTARBALL={archive}", f"-DWORK={self.work}", f"-DFEATURES={features}",
            "-P", HERE / "stand_ins/vcpkg.cmake", cwd=self.work)  # fmt: skip
        return self.work / "packages"

    def test_vcpkg(self) -> None:
        port = json.loads((self.out / "vcpkg/vcpkg.json").read_text(encoding="utf-8"))
        self.assertEqual((port["name"], port["version-semver"], port["license"]), ("dat-cpp", self.version, "BSL-1.0"))
        package = self.vcpkg(self.archive, "tools" if TOOLS else "core")
        self.assertTrue((package / "share/dat-cpp/copyright").is_file())
        self.assertEqual((package / "tools/dat-cpp/dat-info").is_file(), TOOLS)
        # dat-lab is not in the package, and its man page must not be there either.
        self.assertFalse((package / "share/man").exists())
        shutil.copy(PROGRAM, self.work)
        shutil.copy(PROGRAM.parent / "cmake/CMakeLists.txt", self.work)
        run("cmake", "-G", "Ninja", "-S", ".", "-B", "out", f"-Ddat_DIR={package / 'share/dat'}", cwd=self.work)
        run("cmake", "--build", "out", cwd=self.work)
        self.runs(self.work / "out/consumer")

    def test_vcpkg_refuses_another_tarball(self) -> None:
        other = self.work / self.archive.name
        other.write_bytes(self.archive.read_bytes() + b"more")
        with self.assertRaisesRegex(AssertionError, "SHA512"):
            self.vcpkg(other, "core")

    def test_conan(self) -> None:
        of, package = conan_spack.conan(self.out / "conan", self.archive, self.work)
        self.assertEqual((of.name, of.version, of.checked), ("dat-cpp", self.version, [20]))
        self.assertEqual([one.partition("/")[0] for one in of.required], ["rdma-core", "boost"])
        self.assertEqual(of.cpp_info.properties["cmake_target_name"], "dat::dat")
        self.assertEqual(sorted(path.name for path in package.iterdir()), ["include", "licenses"])
        self.assertTrue((package / "licenses/LICENSE").is_file())
        # Links the libraries that cpp_info and the required packages name, like the generators of Conan.
        libraries = ["-libverbs", "-lrdmacm", *(f"-l{name}" for name in of.cpp_info.system_libs)]
        for source, program in ((PROGRAM, "consumer"), (self.out / "conan/test_package/version.cpp", "version")):
            run("c++", "-std=c++20", "-Wall", "-Werror", f"-I{package / 'include'}", source, *libraries, "-o", program, cwd=self.work)
            self.runs(self.work / program)

    def test_conan_refuses_other_systems(self) -> None:
        with self.assertRaisesRegex(Exception, "dat needs Linux"):
            conan_spack.conan(self.out / "conan", self.archive, self.work, "Windows")

    def test_spack(self) -> None:
        said, prefix = conan_spack.spack(self.out / "spack", self.archive, self.work, "+tools" if TOOLS else "~tools")
        needed = [values[0].partition("@")[0] for values, _ in said["depends_on"]]
        self.assertTrue({"meson", "pkgconfig", "rdma-core", "boost", "cli11", "fmt", "nlohmann-json", "xxhash"} <= set(needed))
        self.assertEqual((prefix / "bin/dat-info").is_file(), TOOLS)
        self.assertFalse([path for path in prefix.rglob("*") if path.name.partition(".")[0] in TAKEN_NAMES and path.parent.name in {"bin", "man1", "man5", "man7"}])
        flags = run("pkg-config", "--cflags", "--libs", "dat", cwd=self.work, PKG_CONFIG_PATH=str(prefix / "share/pkgconfig")).split()
        run("c++", "-std=c++20", PROGRAM, *flags, "-o", "consumer", cwd=self.work)
        self.runs(self.work / "consumer")

    def test_spack_refuses_another_tarball(self) -> None:
        other = self.work / self.archive.name
        other.write_bytes(self.archive.read_bytes() + b"more")
        with self.assertRaisesRegex(ValueError, "SHA256"):
            conan_spack.spack(self.out / "spack", other, self.work, "~tools")


if __name__ == "__main__":
    unittest.main()
