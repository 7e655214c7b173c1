#!/usr/bin/env python3
# Tests of the completions of bash and zsh: the shells complete lines with the built tools.
# SPDX-License-Identifier: BSL-1.0
"""DAT_TOOLS names the directory of the built tools; by default that of build/gcc."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ.get("DAT_TOOLS", ROOT / "build/gcc/examples/tools"))
COMPLETIONS = ROOT / "examples/tools/completions"
# The scripts of the tree come before their installed forms, which need an installation.
PATH = ":".join(map(str, (ROOT / "tests/conformance", ROOT / "tests/lab", TOOLS, TOOLS.parent / "datcp", os.environ["PATH"])))

# Sets the variables that bash passes to a completion, calls the completion, and prints the candidates.
BASH = """
. /usr/share/bash-completion/bash_completion
. "$COMPLETIONS/dat-tools.bash"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
compopt() { :; }
_dat_tools "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Types a line and a tab into a new zsh; the completion prints its matches between two marks.
ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($COMPLETIONS \\$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell 'zstyle ":completion:*" verbose no; zstyle ":completion:*" list-grouped no; LISTMAX=1000; COLUMNS=300; stty -echo'
zpty -w shell 'compadd() { local -a found; builtin compadd -O found "$@"; (( $#found )) && print -l "match:"${^found} >> $OUT; builtin compadd "$@" }'
zpty -w shell 'after() { print done >> $OUT }; zle -N after; bindkey "^X" after; print ready >> $OUT'
until [[ -s $OUT ]] { read -k -t 0.05 -u 0 ignored }
zpty -n -w shell "$1"$'\\t\\C-x'
until grep -qx done $OUT; do zpty -r -t shell ignored; done
zpty -d shell
"""


class completions(unittest.TestCase):
    """Each test completes lines in a folder with a few names."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        (self.work / "reports").mkdir()
        (self.work / "script.txt").touch()
        self.env = os.environ | {"COMPLETIONS": str(COMPLETIONS), "PATH": PATH}


@unittest.skipUnless(pathlib.Path("/usr/share/bash-completion/bash_completion").exists(), "bash-completion is not installed")
class bash(completions):
    def complete(self, *words: str) -> set[str]:
        """The candidates for the last word."""
        done = subprocess.run(["bash", "--norc", "-c", BASH, "bash", *words], cwd=self.work, env=self.env, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return set(done.stdout.split())

    def test_options_are_those_of_help(self) -> None:
        for tool, some in (("dat-info", {"--json", "--to"}), ("dat-ping", {"--serve", "--count"}), ("dat-perf", {"--operation", "--fail-above"}), ("datcp", {"--resume", "--blocks"}),
                           ("dat-conform", {"--rules", "--results"}), ("dat-lab", {"--device", "--pcap", "--"})):  # fmt: skip
            found = {word.rstrip("=") for word in self.complete(tool, "--")}
            self.assertTrue(some <= found, f"{tool}: {found}")
            self.assertNotIn("--no-such", found)
        self.assertEqual(self.complete("dat-info", "--js"), {"--json"})
        self.assertIn("--clients", {word.rstrip("=") for word in self.complete("datcp", "serve", "--")})
        self.assertNotIn("--clients", {word.rstrip("=") for word in self.complete("datcp", "--")})

    def test_values(self) -> None:
        self.assertEqual(self.complete("dat-lab", "--device", ""), {"rxe", "siw"})
        self.assertEqual(self.complete("dat-lab", "--kernel", "new"), {"newest"})
        self.assertEqual(self.complete("dat-lab", "--script", "s"), {"script.txt"})
        self.assertEqual(self.complete("dat-conform", "--results", ""), {"reports"})
        self.assertEqual(self.complete("dat-ping", "--count", ""), set())
        self.assertEqual(self.complete("dat-perf", "--mode", ""), {"polled", "waiting", "coroutine"})
        self.assertEqual(self.complete("dat-perf", "--operation", "write"), {"write", "write-immediate"})
        self.assertEqual(self.complete("dat-perf", "--all", ""), {"script.txt", "reports"})
        self.assertEqual(self.complete("dat-perf", "somewhere", ""), {"latency", "bandwidth", "rate", "connections"})
        self.assertTrue({"script.txt", "serve"} <= self.complete("datcp", "s"))
        self.assertNotIn("serve", self.complete("datcp", "script.txt", "s"))
        self.assertEqual(self.complete("datcp", "serve", ""), {"reports"})

    def test_dat_lab_completes_the_command(self) -> None:
        self.assertEqual(self.complete("dat-lab", "--", "dat-pi"), {"dat-ping"})
        self.assertEqual(self.complete("dat-lab", "--mtu", "4200", "--", "cat", "scr"), {"script.txt"})


@unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
class zsh(completions):
    def complete(self, line: str) -> set[str]:
        """The candidates at the end of a line."""
        out = self.work.parent / f"{self.work.name}.out"
        out.unlink(missing_ok=True)
        self.addCleanup(out.unlink, missing_ok=True)
        env = self.env | {"OUT": str(out), "ZDOTDIR": str(self.work)}
        done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", line], cwd=self.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {word.removeprefix("match:") for word in out.read_text(encoding="utf-8").splitlines() if word.startswith("match:")}

    def test_options(self) -> None:
        for tool, some in (("dat-info", {"--json", "--to"}), ("dat-ping", {"--serve", "--count"}), ("dat-perf", {"--operation", "--fail-above"}), ("datcp", {"--resume", "--blocks"}),
                           ("dat-conform", {"--rules", "--results"}), ("dat-lab", {"--device", "--pcap"})):  # fmt: skip
            found = {word.rstrip("=") for word in self.complete(f"{tool} --")}
            self.assertTrue(some <= found, f"{tool}: {found}")
            self.assertNotIn("--no-such", found)

    def test_values(self) -> None:
        self.assertEqual(self.complete("dat-lab --device "), {"rxe", "siw"})
        self.assertEqual(self.complete("dat-perf --mode "), {"polled", "waiting", "coroutine"})
        self.assertEqual(self.complete("dat-perf somewhere "), {"latency", "bandwidth", "rate", "connections"})
        self.assertIn("newest", self.complete("dat-lab --kernel n"))
        self.assertIn("reports", {word.rstrip("/") for word in self.complete("dat-conform --results ")})
        self.assertIn("serve", self.complete("datcp "))


if __name__ == "__main__":
    unittest.main()
