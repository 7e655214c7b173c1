#!/usr/bin/env python3
# Programs that were linked with the registry of this tree or with OFA's, each with both libraries at run time.
# SPDX-License-Identifier: BSL-1.0
"""Needs libdapl-dev (OFA's headers and libdat2), and DAT_BUILD: the build directory with the registry and the stub provider."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DAT_BUILD", ROOT / "build/gcc")).resolve()
OURS = BUILD / "examples/provider/registry"
STUB = BUILD / "tests/provider/libstub_provider.so"
CC = os.environ.get("CC", "gcc")
# Opens the stub's adapter twice, calls through its table, closes it, and prints the registry's error for a wrong name.
PROGRAM = r"""
#include <dat2/udat.h>
#include <stdio.h>
#include <string.h>
enum { most = 200 };
static DAT_PROVIDER_INFO info[most];
static DAT_PROVIDER_INFO* to[most];
int main(void) {
  DAT_IA_HANDLE ia = DAT_HANDLE_NULL, again = DAT_HANDLE_NULL, none = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  DAT_COUNT n = 0;
  const char *major = "", *minor = "";
  setvbuf(stdout, NULL, _IONBF, 0);
  for (int i = 0; i < most; ++i) to[i] = info + i;
  printf("list %x\n", dat_registry_list_providers(most, &n, to));
  for (int i = 0; i < n; ++i)
    if (strcmp(info[i].ia_name, "stub") == 0) printf("has stub %u.%u\n", info[i].dapl_version_major, info[i].dapl_version_minor);
  printf("open %x\n", dat_ia_open("stub", 8, &evd, &ia));
  printf("open again %x\n", dat_ia_open("stub", 8, &evd, &again));
  printf("%s\n", ia && again && ia != again ? "another handle" : "no other handle");
  printf("no such name %d\n", dat_ia_open("nosuch", 8, &evd, &none) == DAT_SUCCESS);
  printf("close %x\n", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
  printf("close again %x\n", dat_ia_close(again, DAT_CLOSE_ABRUPT_FLAG));
  printf("words %x\n", dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_HANDLE, &major, &minor));
  printf("%s\n", major);
  return 0;
}
"""
EXPECTED = """list 0
has stub 2.0
open 0
open again 0
another handle
no such name 0
close 0
close again 0
words 0
DAT_INVALID_HANDLE
"""


def run(words: list, **env: str) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=os.environ | env, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr[-3000:]}")
    return done.stdout


class both_ways(unittest.TestCase):
    """The registry that a program is linked with does not decide which registry it runs with."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "program.c").write_text(PROGRAM, encoding="utf-8")
        (self.folder / "dat.conf").write_text(f'stub u2.0 nonthreadsafe default {STUB} stub.1.0 "for OFA" ""\n', encoding="utf-8")

    def linked(self, *options) -> pathlib.Path:
        """The program, built with one of the libraries."""
        run([CC, "-o", self.folder / "program", self.folder / "program.c", *options, "-ldat2"])
        return self.folder / "program"

    def runs(self, program: pathlib.Path, library: str) -> None:
        """It runs with the library of a folder; empty: that of the system."""
        env = {"DAT_OVERRIDE": str(self.folder / "dat.conf"), "LD_LIBRARY_PATH": library}
        used = re.search(r"libdat2\.so\.2 => (\S+)", run(["ldd", program], **env))
        self.assertEqual(used[1].startswith(str(OURS)), library != "")
        self.assertEqual(run([program], **env), EXPECTED)

    def test_linked_with_ofas(self):
        program = self.linked()
        self.runs(program, "")
        self.runs(program, str(OURS))

    def test_linked_with_ours(self):
        program = self.linked(f"-I{ROOT / 'examples/provider/registry/include'}", f"-L{OURS}")
        self.runs(program, str(OURS))
        self.runs(program, "")


if __name__ == "__main__":
    unittest.main()
