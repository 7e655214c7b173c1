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
# One translation unit for the headers as such and the programs that use them.
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
    """The names of the Catch2 test cases of a source file, and of its snippets that must not compile."""
    found = re.finditer(r'TEST_CASE(?:_\w+)?\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text)
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1))) for match in found} | set(re.findall(r"^//! case: (.+)$", text, re.M))


def dead_tests(path: pathlib.Path, root: pathlib.Path) -> list[str]:
    """Test cases that a document names as `file.cpp`: "name", "name", and that the file does not have."""
    if path.suffix != ".md" or "rules" in path.parts:
        return []
    findings = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for file, names in re.findall(r'`(?:[\w.-]+/)*([\w-]+\.cpp)`: ((?:"[^"]+"(?:, )?)+)', line):
            there = {name for found in root.glob(f"tests/**/{file}") for name in test_names(found.read_text(encoding="utf-8"))}
            for name in re.findall(r'"([^"]+)"', names):
                if name not in there:
                    findings.append(f'{path}:{number}: {file} has no test case "{name}"')
    return findings


def unproven(root: pathlib.Path) -> str:
    """What the conformance ledger finds without a run: unknown rules, and entries that no longer match the tests."""
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

    def check(file: str) -> list[str]:
        done = subprocess.run(
            ["clang-tidy", "--quiet", "-p", str(build), f"--header-filter={re.escape(str(root))}/.*", file],
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.findall(r"^(\S+:\d+:\d+: (?:warning|error): .*)$", done.stdout, re.M)
        if done.returncode and not found:
            found = [f"{file}: clang-tidy failed: {done.stderr.strip()[-500:]}"]
        return found

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return sorted({finding for found in pool.map(check, chosen) for finding in found})
