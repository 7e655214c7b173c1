#!/usr/bin/env python3
# Runs the libFuzzer targets for a bounded time, and prints runs and coverage of each.
# SPDX-License-Identifier: BSL-1.0
"""run.py: ends with `N passed, N failed`. The corpora are text: one input in hexadecimal digits a line."""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGETS = sorted(path.stem for path in HERE.glob("*.cpp"))
# A run that allocates this much, or takes this long, is a finding.
# Leaks are reported at the end of all runs, because a check after each run takes most of the time.
LIMITS = ["-detect_leaks=0", "-rss_limit_mb=2048", "-malloc_limit_mb=512", "-timeout=30"]
# An input of the corpus in the tree has at most so many bytes.
LONGEST = {"api_calls": 400, "cm_events": 300}
# Characters of a corpus in the tree, more or less.
ROOM = 4000
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0:strict_string_checks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def inputs_of(text: str) -> list[bytes]:
    """The inputs in the text of a corpus: hexadecimal digits, without what follows a `#`."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [bytes.fromhex("".join(words)) for words in lines if words]


def unpack(target: str, folder: pathlib.Path) -> int:
    """Writes the corpus of a target as files. Returns their number."""
    corpus = HERE / "corpus" / f"{target}.txt"
    inputs = inputs_of(corpus.read_text(encoding="utf-8")) if corpus.exists() else []
    for one in inputs:
        (folder / hashlib.sha1(one).hexdigest()).write_bytes(one)
    return len(inputs)


def fuzz(program: pathlib.Path, arguments: list[str], limit: float) -> tuple[int, str]:
    """The exit code and the output of a run of libFuzzer."""
    command = [str(program), *LIMITS, *arguments]
    with tempfile.TemporaryFile() as out:
        try:
            code = subprocess.run(command, env=os.environ | ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT, timeout=limit, check=False).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = 124
        out.seek(0)
        return code, out.read().decode(errors="replace")


def figures(output: str) -> str:
    """Runs, covered edges and features of the last line of progress."""
    edges = re.search(r"\((\d+) inline 8-bit counters\)|\((\d+) guards\)", output)
    lines = re.findall(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", output, re.M)
    if not lines:
        return "no figures"
    runs, covered, features, corpus = lines[-1]
    total = next((n for n in edges.groups() if n), "?") if edges else "?"
    return f"{runs} runs, {covered} of {total} edges, {features} features, {corpus} inputs"


def run(target: str, options: argparse.Namespace) -> bool:
    """Runs a target. Returns whether it found nothing."""
    program = options.build / "tests/fuzz" / target
    if not program.exists():
        print(f"{target}: not built", flush=True)
        return False
    findings = options.findings
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        seeds = pathlib.Path(temporary) / "seeds"
        seeds.mkdir()
        count = unpack(target, seeds)
        found = pathlib.Path(options.keep) / target if options.keep else pathlib.Path(temporary) / "found"
        found.mkdir(parents=True, exist_ok=True)
        arguments = [f"-seed={options.seed}", f"-artifact_prefix={findings}/{target}-"]
        arguments += [f"-runs={options.runs}"] if options.runs else [f"-max_total_time={options.seconds}"]
        arguments += [f"-max_len={LONGEST.get(target, 512)}", str(found), str(seeds)]
        code, output = fuzz(program, arguments, 1200 + options.seconds)
    print(f"{target}: {figures(output)}, {count} of them in the tree", flush=True)
    (findings / f"{target}.log").write_text(output, encoding="utf-8")
    if code == 0:
        return True
    first = re.search(r"^(fuzz: |==\d+==|.*runtime error|fake)", output, re.M)
    start = first.start() if first else max(0, len(output) - 4000)
    print("\n".join(f"    | {line[:300]}" for line in output[start:].splitlines()[:60]))
    for artifact in findings.glob(f"{target}-*-*"):
        print(f"    {artifact}: {artifact.read_bytes().hex()}")
    return False


def grow(target: str, options: argparse.Namespace) -> None:
    """Replaces the corpus in the tree by few inputs that cover what it and the kept inputs cover."""
    program = options.build / "tests/fuzz" / target
    corpus = HERE / "corpus" / f"{target}.txt"
    text = corpus.read_text(encoding="utf-8") if corpus.exists() else ""
    with tempfile.TemporaryDirectory() as temporary:
        seeds, merged = pathlib.Path(temporary) / "seeds", pathlib.Path(temporary) / "merged"
        seeds.mkdir()
        merged.mkdir()
        unpack(target, seeds)
        # set_cover_merge chooses few inputs for the edges alone; their shortest forms come first.
        arguments = ["-set_cover_merge=1", "-use_value_profile=0", "-use_counters=0", f"-max_len={LONGEST.get(target, 512)}", str(merged), str(seeds)]
        arguments += [str(pathlib.Path(options.keep) / target)] if options.keep else []
        code, output = fuzz(program, arguments, 3600)
        if code:
            print(f"{target}: the merge failed\n{output[-2000:]}")
            return
        chosen = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda one: (len(one), one))
    named = [line for line in text.splitlines() if line.startswith("#") or "#" in line]
    known = set(inputs_of("\n".join(named)))
    lines = list(named)
    for one in chosen:
        if one and one not in known and sum(map(len, lines)) + 2 * len(one) < ROOM:
            lines.append(one.hex())
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{target}: {len(lines)} lines, {corpus.stat().st_size} bytes", flush=True)


def main() -> int:
    """Run the targets that are named, or all."""
    parser = argparse.ArgumentParser(description="Runs the fuzz targets, or minimises their corpora.")
    parser.add_argument("targets", nargs="*", help=", ".join(TARGETS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/asan", help="the build directory")
    parser.add_argument("--findings", type=pathlib.Path, default=ROOT / "build/fuzz", help="where inputs that fail go")
    parser.add_argument("--seconds", type=int, default=5, help="for each target")
    parser.add_argument("--runs", type=int, default=0, help="a number of runs in place of a time")
    parser.add_argument("--seed", type=int, default=1, help="0: another one each time")
    parser.add_argument("--keep", metavar="DIR", help="where new inputs are kept, for another run or for --grow")
    parser.add_argument("--grow", action="store_true", help="write the corpora of the tree anew, with the inputs of --keep")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}")
    chosen = options.targets or TARGETS
    if options.grow:
        for target in chosen:
            grow(target, options)
        return 0
    good = [run(target, options) for target in chosen]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
