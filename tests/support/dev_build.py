# How ./dev builds: the options of each flavour, its build directory and its targets.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import fcntl
import functools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator

from dev_run import BUILD, JOBS, LOGS, ROOT, run, say, tail
import records
import worlds
from compile_commands import without_output

COMPILERS = {"gcc": "g++", "clang": "clang++"}
# Two parts of a run may bring the same flavour up to date; Ninja expects to be alone in a directory.
BUILDING: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)

# The errors of each flavour that could not be set up or built. The end of the run shows them once, whatever number of tiers needs
# the flavour.
FAILED_BUILDS: dict[str, str] = {}

# The options of each build directory follow from its purpose. All tests are compiled three times, so compile time matters:
# no optimisation, dat in a precompiled header, several test files as one source file, and line tables only, which suffice
# for a stack trace. (clang-tidy compiles each test file alone, and so finds a missing include.) The sanitizers are
# clang's, because clang compiles faster; clang 14 cannot compile coroutines with -fsanitize=function. It compiles the tests
# for the sanitizers only; headers, examples and benchmarks have a directory of their own. They take more files
# together: 36 as one need a quarter less time than as three of 12, and 2 GB of memory.
PLAIN = ["--buildtype=plain", "-Db_ndebug=false"]
TOGETHER = ["-Dunity=on", "-Dunity_size=24"]
SANITIZERS = "-gline-tables-only -fpch-instantiate-templates -Wno-shadow"
SANITIZED = PLAIN + ["-Dunity=on", "-Dunity_size=36", "-Db_lundef=false", "-Dexamples=disabled", "-Dtools=disabled", "-Dbench=disabled"]
ADDRESS = f"-Dcpp_args={SANITIZERS} -fno-sanitize-recover=all -fno-sanitize=function"
# g++ collects garbage less often and inlines std::move, which together saves a sixth of the time.
# In files that are compiled together, two warnings mean nothing: g++'s about types without linkage outside of the main file,
# and clang's about a local name that shadows a name of another test.
QUICK = "-Dcpp_args=-ffold-simple-inlines --param=ggc-min-heapsize=1000000 -Wno-subobject-linkage"
FLAVOURS: dict[str, tuple[str, list[str]]] = {
    "gcc": ("g++", PLAIN + TOGETHER + ["--werror", "-Dexamples=enabled", "-Dbench=disabled", QUICK]),
    "clang": ("clang++", PLAIN + TOGETHER + ["--werror", "-Dexamples=enabled", "-Dbench=enabled"]),
    "asan": ("clang++", SANITIZED + ["--werror", "-Db_sanitize=address,undefined", ADDRESS]),
    # Likewise, with all device tests.
    "asan-full": ("clang++", SANITIZED + ["--werror", "-Db_sanitize=address,undefined", "-Dtests_all_sanitized=true", ADDRESS]),
    "tsan": ("clang++", SANITIZED + ["--werror", "-Db_sanitize=thread", f"-Dcpp_args={SANITIZERS}"]),
    # The unit program as a checked build (DAT_CHECKED).
    "checked": ("g++", PLAIN + TOGETHER + ["--werror", "-Dchecked=true", "-Dexamples=disabled", "-Dbench=disabled", QUICK]),
    # The unit program with trace points and a log (DAT_TRACE).
    "traced": ("g++", PLAIN + TOGETHER + ["--werror", "-Dtrace=true", "-Dexamples=disabled", "-Dbench=disabled", QUICK]),
    # Only for clang-tidy, which builds nothing: without a precompiled header.
    "tidy": ("clang++", PLAIN + ["-Db_pch=false", "-Dexamples=enabled", "-Dbench=disabled"]),
    # Only for the commands that compilers of other releases take: without a precompiled header.
    "compilers": ("g++", PLAIN + TOGETHER + ["--werror", "-Db_pch=false", "-Dexamples=enabled", "-Dbench=disabled", QUICK]),
    "release": ("g++", ["--buildtype=release", "-Doptimization=2", "-Dtests=disabled", "-Dexamples=enabled", "-Dbench=enabled"]),
}
# Other architectures, after worlds.prepare; no ./dev build.
CROSS: dict[str, tuple[str, list[str]]] = {
    name: (f"{name}-linux-gnu-g++", PLAIN + TOGETHER + ["--werror", "-Dexamples=disabled", "-Dtools=disabled", "-Dbench=disabled", QUICK, *worlds.cross_files(name)])
    for name in worlds.ARCHITECTURES
}


def build_failed(flavour: str, log: pathlib.Path, what: str) -> None:
    """Show the errors of a build, now and again above the table at the end."""
    FAILED_BUILDS[flavour] = f"{tail(log)}\n    {flavour}: {what}"
    say(FAILED_BUILDS[flavour])


def configure(flavour: str) -> bool:
    """Set up the build directory, and again when its options differ from those of FLAVOURS."""
    cxx, options = (FLAVOURS | CROSS)[flavour]
    directory = BUILD / flavour
    command = ["meson", "setup", str(directory), str(ROOT), *options]
    if "-Dtests=disabled" not in options:
        command.append("-Dtests=enabled")
    stamp = directory / "dev-options.json"
    wanted = json.dumps([cxx, command], indent=1)
    if (directory / "build.ninja").exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return True
    if directory.exists():
        shutil.rmtree(directory)
    cc = cxx.replace("clang++", "clang").replace("g++", "gcc")
    if shutil.which("ccache"):
        cxx, cc = f"ccache {cxx}", f"ccache {cc}"
    if run(command, f"configure-{flavour}.log", 300, CXX=cxx, CC=cc):
        build_failed(flavour, LOGS / f"configure-{flavour}.log", "meson setup failed")
        return False
    stamp.write_text(wanted, encoding="utf-8")
    return True


@functools.cache
def tree() -> str:
    """The digest of the sources before the first build of a run. The conformance ledger rejects results whose digest differs from that
    of the work tree. So a run whose sources change gives no evidence."""
    return records.digest(ROOT)


def build(flavour: str, *targets: str) -> bool:
    """Bring a flavour up to date: everything, or some targets."""
    with BUILDING[flavour]:
        return build_alone(flavour, *targets)


def build_alone(flavour: str, *targets: str) -> bool:
    """Does the work of build(), for the thread that holds the flavour's lock."""
    tree()
    if not configure(flavour):
        return False
    # Let ccache keep precompiled headers, too. It must compare comments: g++ includes a header again whose text is not that of the
    # precompiled one.
    env = {"CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime", "CCACHE_COMMENTS": "1"}
    code = run(["ninja", "-C", BUILD / flavour, f"-j{JOBS}", *targets], f"build-{flavour}.log", 1800, **env)
    if code:
        build_failed(flavour, LOGS / f"build-{flavour}.log", "the build failed")
    return code == 0


def build_folder(flavour: str, folder: str) -> bool:
    """Bring the targets that a folder of the sources defines up to date; a fault elsewhere does not matter."""
    if not build(flavour, "build.ninja"):  # reads the meson.build files again
        return False
    directory = BUILD / flavour
    listed = subprocess.run(["meson", "introspect", "--targets", directory], capture_output=True, text=True, check=True).stdout
    files = [file for target in json.loads(listed) if ROOT / folder in pathlib.Path(target["defined_in"]).parents
             for file in target["filename"]]  # fmt: skip
    if not files:
        say(f"    {folder} defines nothing to build")
        return False
    return build(flavour, *(str(pathlib.Path(file).relative_to(directory)) for file in files))


def check_sources(flavour: str, *folders: str) -> tuple[int, list[str]]:
    """How many files of these folders of a build directory were compiled without output, and what failed."""
    directory = BUILD / flavour
    if not build(flavour, "build.ninja"):  # reads the meson.build files again
        return 0, []
    entries = json.loads((directory / "compile_commands.json").read_text(encoding="utf-8"))
    commands = [[*without_output(e["command"]), "-fsyntax-only"] for e in entries if e["output"].startswith(tuple(f"{folder}/" for folder in folders))]
    env = os.environ | {"CCACHE_DISABLE": "1"}

    def check(command: list[str]) -> str:
        done = subprocess.run(command, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)  # fmt: skip
        return "" if done.returncode == 0 and "warning:" not in done.stdout else f"$ {shlex.join(command)}\n{done.stdout}"

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        failed = [text for text in pool.map(check, commands) if text]
    (LOGS / f"check-{flavour}.log").write_text("\n".join(failed), encoding="utf-8")
    return len(commands), failed


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One ./dev at a time works in build/."""
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("dev: another ./dev works in build/; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
