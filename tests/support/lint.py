# The checks of ./dev lint on sources: formatting, the scripts' syntax, licence lines, clang-tidy.
# SPDX-License-Identifier: BSL-1.0
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

CPP = {".hpp", ".ipp", ".cpp", ".h", ".c"}
# Files that need no licence line, or have one in another form.
NO_LICENCE_LINE = {"LICENSE", "dep5", ".gitignore", ".clang-format", ".clang-tidy"}
NO_LICENCE_SUFFIX = {".md", ".txt", ".json", ".svg", ".xml", ".toml"}
# One translation unit for the headers alone and the programs that use them.
TIDY = re.compile(r"(^|/)(tests/headers/main\.cpp|examples/.*\.cpp|tests/values/version\.cpp)$")


def sources(root: pathlib.Path) -> list[pathlib.Path]:
    """The project's own files: those that git knows or would add; in a tree without git, those outside build/."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        return sorted(path for name in listed if name and (path := root / name).is_file())
    skipped = {"build", "subprojects", "__pycache__"}
    return sorted(p for p in root.rglob("*") if p.is_file() and not skipped & set(p.relative_to(root).parts))


def formatter() -> str:
    """clang-format 14 by preference: other versions format differently."""
    return shutil.which("clang-format-14") or shutil.which("clang-format") or "clang-format"


def misformatted(path: pathlib.Path) -> str:
    """A finding when the file is not formatted. (Not --dry-run: version 14 reports namespace comments that it keeps.)"""
    text = path.read_bytes()
    done = subprocess.run([formatter(), "--style=file", str(path)], capture_output=True, check=False)
    if done.returncode:
        return f"{path}: clang-format failed: {done.stderr.decode(errors='replace').strip()}"
    if done.stdout == text:
        return ""
    pairs = zip(text.splitlines(), done.stdout.splitlines())
    line = next((n for n, (a, b) in enumerate(pairs, 1) if a != b), 0)
    return f"{path}:{line}: not formatted (./dev lint --fix)"


def format_in_place(root: pathlib.Path) -> None:
    """Format every C++ file of the project."""
    files = [str(p) for p in sources(root) if p.suffix in CPP]
    subprocess.run([formatter(), "-i", "--style=file", *files], check=True)


def interpreter(path: pathlib.Path) -> str:
    """'python', 'sh', 'bash' or '', by the first line or the name of a script."""
    if path.suffix == ".py":
        return "python"
    with open(path, "rb") as file:
        first = file.readline(200).decode(errors="replace")
    if first.startswith("#!"):
        found = re.search(r"\b(python|bash|sh)\d*\b", first)
        return found.group(1) if found else ""
    return ""


def bad_script(path: pathlib.Path) -> str:
    """A finding when a script does not parse."""
    kind = interpreter(path)
    if kind == "python":
        try:
            compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)
        except (SyntaxError, UnicodeDecodeError) as e:
            return f"{path}: {e}"
    elif kind and shutil.which(kind):
        done = subprocess.run([kind, "-n", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{path}: {done.stderr.strip()}"
    return ""


def unlicensed(path: pathlib.Path) -> str:
    """A finding when a source file does not name its licence at the top."""
    if path.name in NO_LICENCE_LINE or path.suffix in NO_LICENCE_SUFFIX:
        return ""
    if "debian" in path.parts[-3:-1] and not interpreter(path):  # files of fixed forms, which debian/copyright covers
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        head = [line for _, line in zip(range(12), file)]
    return "" if any("SPDX-License-Identifier: BSL-1.0" in line for line in head) else f"{path}: no SPDX line at the top"


# The scheduler has no assertions. A std::jthread has atomics of its own, which would become part of the orders.
RAW_THREADS = {"tests/schedules/schedule.cpp"}


def raw_threads(path: pathlib.Path, root: pathlib.Path) -> list[str]:
    """Threads of tests that a failing assertion would leave joinable, which ends the program and loses its other results."""
    name = path.relative_to(root).as_posix()
    if not name.startswith("tests/") or path.suffix not in CPP or name in RAW_THREADS:
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{path}:{number}: std::thread, where std::jthread joins also after a failed assertion"
            for number, line in enumerate(lines, 1) if re.search(r"\bstd::thread(\s+\w|>)", line)]  # fmt: skip


# Where a path in a document may begin, besides the folder of the document.
DOCUMENT_ROOTS = ("", "include", "include/dat", "detail/dat/detail", "docs")
# Paths of build directories and of users' trees, and patterns.
NOT_HERE = re.compile(r"^(build|subprojects|path|/|~)|[*<>@]|^https?:|^mailto:")


def dead_paths(path: pathlib.Path, root: pathlib.Path) -> list[str]:
    """Files that a document names, in a link or in code with a folder, and that do not exist."""
    if path.suffix != ".md" or "rules" in path.parts:
        return []
    findings = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        named = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", line)]
        named += re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:hpp|ipp|cpp|py|md|toml|txt|in))`", line)
        for name in named:
            if not name or NOT_HERE.search(name):
                continue
            if not any((folder / name).exists() for folder in (path.parent, *(root / start for start in DOCUMENT_ROOTS))):
                findings.append(f"{path}:{number}: names {name}, which is not there")
    return findings


def test_names(text: str) -> set[str]:
    """The names of the test cases of a source file: of Catch2, of snippets that must not compile, and of Python, with spaces."""
    found = re.finditer(r'TEST_CASE(?:_\w+)?\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text)
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1))) for match in found} | set(re.findall(r"^//! case: (.+)$", text, re.M)) | {
        name.replace("_", " ") for name in re.findall(r"^ +def test_(\w+)\(", text, re.M)
    }


def dead_tests(path: pathlib.Path, root: pathlib.Path) -> list[str]:
    """Test cases that a document names as `file.cpp` or `file.py`: "name", "name", and that the file does not have."""
    if path.suffix != ".md" or "rules" in path.parts:
        return []
    findings = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for file, names in re.findall(r'`(?:[\w.-]+/)*([\w-]+\.(?:cpp|py))`: ((?:"[^"]+"(?:, )?)+)', line):
            there = {name for found in root.glob(f"tests/**/{file}") for name in test_names(found.read_text(encoding="utf-8"))}
            for name in re.findall(r'"([^"]+)"', names):
                if name not in there:
                    findings.append(f'{path}:{number}: {file} has no test case "{name}"')
    return findings


def unproven(root: pathlib.Path) -> str:
    """The findings of the conformance ledger without a run: unknown rules, and entries that no longer match the tests."""
    command = [sys.executable, "-B", root / "tests/conformance/ledger.py", "--tags", root / "tests", root / "examples"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


def quick(root: pathlib.Path) -> list[tuple[str, list[str]]]:
    """The checks that take seconds: (name, findings)."""
    files = sources(root)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [
            (name, [finding for finding in pool.map(check, chosen) if finding])
            for name, check, chosen in (
                ("formatting", misformatted, [p for p in files if p.suffix in CPP]),
                ("scripts", bad_script, files),
                ("licences", unlicensed, files),
                ("documents", lambda path: "\n".join(dead_paths(path, root) + dead_tests(path, root)), files),
                ("threads", lambda path: "\n".join(raw_threads(path, root)), files),
                ("conformance", unproven, [root]),
            )
        ]


def tidy(root: pathlib.Path, build: pathlib.Path, jobs: int) -> list[str]:
    """clang-tidy over the representative translation units of a build directory: its findings."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    files = {str((pathlib.Path(c["directory"]) / c["file"]).resolve()) for c in commands}
    chosen = sorted(f for f in files if TIDY.search(f) and "noexcept" not in f)
    if not chosen:
        return ["no translation unit to check"]
    # clang-tidy compares a header's path as the compiler writes it. Meson's include paths are relative to the build directory.
    # Headers in C are left out: several checks are for C++ only.
    headers = "|".join(re.escape(start) for start in (str(root), os.path.relpath(root, build)))

    def check(file: str) -> list[str]:
        done = subprocess.run(
            ["clang-tidy", "--quiet", "-p", str(build), f"--header-filter=^({headers})/.*[.][hi]pp$", file],
            cwd=build,
            capture_output=True,
            text=True,
            check=False,
        )
        # clang-tidy reports a header by several forms of its path.
        found = [
            f"{os.path.normpath(build / path)}{rest}"
            for path, rest in re.findall(r"^([^\s:]+)(:\d+:\d+: (?:warning|error): .*)$", done.stdout, re.M)
        ]
        if done.returncode and not found:
            found = [f"{file}: clang-tidy failed: {done.stderr.strip()[-500:]}"]
        return found

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return sorted({finding for found in pool.map(check, chosen) for finding in found})
