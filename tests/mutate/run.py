#!/usr/bin/env python3
# ./dev mutate: plants small faults in dat, and counts those that the unit tests find.
# SPDX-License-Identifier: BSL-1.0
"""Plants a random sample of faults, or every fault, in a copy of the sources, compiles the test programs once for each set of faults,
and runs the cases that reach a fault with that fault alone. README.md beside this script has the kinds of faults and the outcomes.

The last line is the score. The exit code is 1 when the score is below --at-least, and 2 when nothing could be measured."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import fnmatch
import functools
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutants  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
WORK = ROOT / "build/mutate"
JOBS = os.cpu_count() or 1
FOUND = {"killed", "timed out"}
QUICK = 0.05  # seconds; such cases run before the others
FIRST = 30  # quick cases that run before all others
# The tests without a device: all but those of the tracer and of checked builds are in the first. `run` has them in this order.
PROGRAMS = ("tests/unit/unit", "tests/trace/trace", "tests/checked/checked")
# The programs that detect races, in the builds that `directory_of` names. Only faults that the other programs do not
# find come here.
SCHEDULES, RACES = "tests/schedules/schedules", "tests/mutate/races"
RACING = {"no lock", "swap"}  # and faults in the use of a compare-and-swap
RACES_LIMIT = 600  # seconds
FEW_SCHEDULES = {"DAT_SCHEDULES": "10"}  # orders of each case
RECORD = ROOT / "docs/conformance/mutation.json"
WAITS = "tests/unit/world.hpp"  # has the time limit with which tests wait
RULE = re.compile(r"\[([A-Z]+-\d{3})\]")


class case(NamedTuple):
    """The result of a test case in a run without a mutant."""

    name: str
    rules: tuple[str, ...]
    seconds: float
    reaches: frozenset[int]
    program: str = PROGRAMS[0]


class outcome(NamedTuple):
    """The fate of a mutant: killed, timed out, survived, or not reached by any case."""

    one: mutants.mutant
    end: str
    cases: int
    rules: tuple[str, ...]


def copy_tree(tree: pathlib.Path) -> None:
    """Bring the copy of the sources up to date. Files that are the same keep their time, so that nothing is compiled in vain."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-c", "-o", "--exclude-standard"], capture_output=True, check=True).stdout
    names = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
    for old in list(tree.rglob("*")) if tree.exists() else []:
        if old.is_file() and str(old.relative_to(tree)) not in names:
            old.unlink()
    for name in names:
        if name.startswith(("include/", "detail/")) and (tree / name).exists() and name.endswith("pp"):
            continue  # mutants.plant writes it
        source, copy = ROOT / name, tree / name
        text = source.read_bytes()
        if name == "tests/support/main.cpp":
            text += b'\n#include "../mutate/reached.cpp"\n'
        if name == WAITS:
            text = patient(text)
        if not copy.exists() or copy.read_bytes() != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(text)
            shutil.copymode(source, copy)


def patient(text: bytes) -> bytes:
    """The time limit of the tests, longer than a run may take: a wait that only its limit ends is a fault that was found."""
    usual, longer = b"timeout plenty = 20s;", b"timeout plenty = 24h;"
    if text.count(usual) != 1:
        sys.exit(f"mutate: {WAITS} has no {usual.decode()}")
    return text.replace(usual, longer)


def blamed(text: str, tree: pathlib.Path, lines: dict[str, dict[int, range]]) -> set[int]:
    """The mutants in whose lines a compiler found errors."""
    bad = set()
    for name, line in re.findall(r"((?:include|detail)/[\w./-]+pp):(\d+):\d+: (?:fatal )?error", text.replace(f"{tree}/", "")):
        bad |= {number for number, where in lines.get(name, {}).items() if int(line) in where}
    if not bad:  # a compiler names only the place where a template is used
        for name, line in re.findall(r"((?:include|detail)/[\w./-]+pp):(\d+):\d+:", text.replace(f"{tree}/", "")):
            bad |= {number for number, where in lines.get(name, {}).items() if int(line) in where}
    return bad


def ninja(directory: pathlib.Path, programs: tuple[str, ...]) -> tuple[bool, str]:
    done = subprocess.run(["ninja", "-k0", "-C", directory, f"-j{JOBS}", *programs], capture_output=True, text=True, errors="replace", check=False)
    return done.returncode == 0, done.stdout + done.stderr


def set_up(tree: pathlib.Path, directory: pathlib.Path, *options: str) -> None:
    """A build directory for the tree with mutants."""
    if not (directory / "build.ninja").exists():
        setup = ["meson", "setup", directory, tree, "--buildtype=plain", "-Db_ndebug=false", "-Dunity=on", "-Dunity_size=6", "-Dtests=enabled",
                 "-Dexamples=disabled", "-Dtools=disabled", "-Dbench=disabled", *options,
                 f"-Dcpp_args=-w -ffold-simple-inlines --param=ggc-min-heapsize=1000000 -include {HERE}/mutants.hpp"]  # fmt: skip
        subprocess.run(setup, env=os.environ | {"CXX": "g++"}, stdout=subprocess.DEVNULL, check=True)


def build(chosen: dict[int, mutants.mutant], tree: pathlib.Path, directory: pathlib.Path) -> dict[int, mutants.mutant]:
    """Compile the test programs with these mutants. Returns those that compile."""
    chosen = dict(chosen)
    names = [f"dat/{p.relative_to(ROOT / 'include/dat')}" for p in sorted((ROOT / "include/dat").rglob("*.hpp")) if p.name != "src.hpp"]
    everything = WORK / "everything.cpp"
    everything.write_text("".join(f"#include <{name}>\n" for name in names), encoding="utf-8")
    check = ["clang++", "-std=c++20", "-w", "-fsyntax-only", "-ferror-limit=0", "-fno-caret-diagnostics", "-include", str(HERE / "mutants.hpp"),
             f"-I{tree}/include", f"-I{tree}/detail", str(everything)]  # fmt: skip
    for attempt in range(12):
        lines = mutants.plant(ROOT, tree, chosen)
        done = subprocess.run(check, capture_output=True, text=True, errors="replace", check=False)
        good, text = done.returncode == 0, done.stderr
        if good:
            set_up(tree, directory)
            good, text = ninja(directory, PROGRAMS)
        if good:
            return chosen
        bad = blamed(text, tree, lines)
        if not bad:
            sys.exit(f"mutate: the build fails, and no mutant is to blame:\n{text[-4000:]}")
        for number in bad:
            del chosen[number]
        print(f"    {len(bad)} of the faults do not compile", flush=True)
    sys.exit("mutate: faults that do not compile remain")


def run_cases(program: pathlib.Path, names: list[str], limit: float, **env: str) -> int | None:
    """The exit code of a program with these cases (none named: all); None when it took longer than `limit`."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as listed:
        # The limit of processor time ends a fault that makes a program spin, however busy the machine is.
        command: list[str | pathlib.Path] = ["prlimit", f"--cpu={math.ceil(limit / 2)}:"]
        command += [*without_randomization(), program, "-a"] if program.name == "races" else [program, "-a"]
        if names:
            listed.write("".join(f'"{escaped(name)}"\n' for name in names))
            listed.flush()
            command += ["-f", listed.name]
        process = subprocess.Popen(command, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            code = process.wait(limit)
            return None if code == -signal.SIGXCPU else code
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None


@functools.cache
def without_randomization() -> list[str]:
    """A command prefix for ThreadSanitizer, whose fixed shadow does not fit every random layout of the address space."""
    done = subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL, check=False)
    return ["setarch", "-R"] if done.returncode == 0 else []


def escaped(name: str) -> str:
    """A name as Catch2 takes it between quotation marks."""
    return re.sub(r'([\\,\[\]"*])', r"\\\1", name)


def reach(directory: pathlib.Path, program: str) -> list[case]:
    """Which case of a program reaches which mutants. All must pass while no mutant runs."""
    with tempfile.NamedTemporaryFile(suffix=".txt") as out:
        code = run_cases(directory / program, [], 1500, DAT_MUTANTS_REACHED=out.name, **FEW_SCHEDULES)
        if code != 0:
            sys.exit(f"mutate: {program} fails without a fault: exit code {code}")
        rows = [line.split("\t") for line in pathlib.Path(out.name).read_text(encoding="utf-8").splitlines()]
    return [case(name, tuple(RULE.findall(tags)), float(seconds), frozenset(map(int, numbers.split())), program)
            for name, tags, seconds, numbers in rows]  # fmt: skip


def in_order(cases: list[case]) -> list[tuple[str, list[case]]]:
    """The runs that judge a mutant, with the program of each: a few cases that reach little else, then the other quick ones, then the rest."""
    quick = sorted((c for c in cases if c.seconds < QUICK), key=lambda c: len(c.reaches))
    slow = [c for c in cases if c.seconds >= QUICK]
    runs = []
    for group in (quick[:FIRST], quick[FIRST:], slow):
        for program in PROGRAMS:
            some = [c for c in group if c.program == program]
            if some:
                runs.append((program, some))
    return runs


def judge(directory: pathlib.Path, number: int, one: mutants.mutant, cases: list[case]) -> outcome:
    """Run the cases that reach a mutant."""
    reaching = [c for c in cases if number in c.reaches]
    rules = tuple(sorted({rule for c in reaching for rule in c.rules}))
    if not reaching:
        return outcome(one, "not reached", 0, ())
    for program, some in in_order(reaching):
        # Any limit finds a fault that delays a case indefinitely. The limit is long because the machine may be busy.
        code = run_cases(directory / program, [c.name for c in some], 30 + 20 * sum(c.seconds for c in some), DAT_MUTANT=str(number))
        if code is None:
            return outcome(one, "timed out", len(reaching), rules)
        if code != 0:
            return outcome(one, "killed", len(reaching), rules)
    return outcome(one, "survived", len(reaching), rules)


def race(results: list[outcome], numbers: dict[mutants.mutant, int], tree: pathlib.Path, directory: pathlib.Path) -> list[outcome]:
    """The second pass, for faults that only a race can show: threads in chosen orders, then ThreadSanitizer. The programs are compiled
    when there is such a fault."""
    rest = [r for r in results if r.end not in FOUND and (r.one.kind in RACING or "compare_exchange" in r.one.text)]
    if not rest:
        return results
    print(f"==> {len(rest)} faults that only a race can show: building the programs for races", flush=True)
    # The first build has planted the mutants, so they compile.
    with_sanitizer = directory.with_name("races")
    set_up(tree, with_sanitizer, "-Db_sanitize=thread", "-Db_lundef=false")
    for where, program in ((directory, SCHEDULES), (with_sanitizer, RACES)):
        good, text = ninja(where, (program,))
        if not good:
            sys.exit(f"mutate: {program} does not compile:\n{text[-4000:]}")
    places = {SCHEDULES: directory, RACES: with_sanitizer}
    cases = [c for program, where in places.items() for c in reach(where, program)]

    def second(r: outcome) -> outcome:
        number = numbers[r.one]
        end = r.end
        for program, where in reversed(places.items()):
            reaching = [c.name for c in cases if c.program == program and number in c.reaches]
            if not reaching:
                continue
            code = run_cases(where / program, reaching, RACES_LIMIT, DAT_MUTANT=str(number), TSAN_OPTIONS="halt_on_error=1", **FEW_SCHEDULES)
            if code != 0:
                return r._replace(end="killed" if code is not None else "timed out")
            end = "survived"
        return r._replace(end=end)

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        seen = dict(zip((r.one for r in rest), pool.map(second, rest)))
    return [seen.get(r.one, r) for r in results]


def equivalents(path: pathlib.Path = HERE / "equivalent.txt") -> dict[tuple[str, str, str, str, int], str]:
    """Faults that change nothing that a program could see, with the reason."""
    known = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            file, place, what, rest = line.split(" | ", 3)
            text, _, reason = rest.rpartition(" | ")
            function, _, nth = place.partition(" #")
            known[file, function, what, text, int(nth or 1)] = reason
    return known


def place_of(one: mutants.mutant) -> str:
    """The place of a fault, as equivalent.txt has it."""
    return one.function + (f" #{one.nth}" if one.nth > 1 else "")


def again(path: pathlib.Path, every: list[mutants.mutant]) -> list[mutants.mutant]:
    """The faults of an earlier run that were not found, as far as the sources still have them."""
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    names = {(r["file"], r["function"], r["kind"], r["text"], r["nth"]) for r in rows if r["end"] not in FOUND}
    return [one for one in every if one.name in names]


def table(results: list[outcome]) -> list[str]:
    """The counts by kind and by file."""
    ends = ["killed", "timed out", "survived", "not reached"]
    lines = []
    for title, key in (("kind", lambda r: r.one.kind), ("file", lambda r: r.one.file)):
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for r in results:
            counts[key(r)][r.end] += 1
        width = max(map(len, [title, *counts]))
        lines.append(f"{title:<{width}}  " + "  ".join(f"{end:>11}" for end in ends))
        lines += [f"{name:<{width}}  " + "  ".join(f"{counts[name][end]:>11}" for end in ends) for name in sorted(counts)]
        lines.append("")
    return lines


def score(results: list[outcome]) -> float:
    return sum(r.end in FOUND for r in results) / len(results) if results else 0.0


def record_of(results: list[outcome], sample: int, seed: int, date: str) -> str:
    """The content of docs/conformance/mutation.json, which STATUS.md shows: the score of a random sample of all faults."""
    kinds = {kind: [r for r in results if r.one.kind == kind] for kind in sorted({r.one.kind for r in results})}
    counts = {kind: {"found": sum(r.end in FOUND for r in some), "of": len(some)} for kind, some in kinds.items()}
    head = {"date": date, "sample": sample, "seed": seed, "found": sum(r.end in FOUND for r in results), "of": len(results)}
    return json.dumps({**head, "kinds": counts}, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", default=40, help="how many random faults (40)")
    parser.add_argument("--seed", type=int, metavar="S", default=1, help="which random faults (1)")
    parser.add_argument("--all", action="store_true", help="every fault, in several builds: this takes many hours")
    parser.add_argument("--files", metavar="GLOB", default="*", help="only faults in these files, as 'detail/dat/detail/events/*'")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE", help="only the faults that the run with --json FILE has not found")
    parser.add_argument("--at-least", type=float, metavar="SHARE", default=0.0, help="fail when fewer are found, as 0.9")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to this file")
    parser.add_argument("--record", action="store_true", help="write the score to docs/conformance/mutation.json, for STATUS.md")
    parser.add_argument("--list", action="store_true", help="print the faults, and do nothing else")
    options = parser.parse_args()
    if options.sample < 1:
        parser.error("--sample must be at least 1")
    if not 0 <= options.at_least <= 1:
        parser.error("--at-least must be from 0 to 1")
    if options.record and (options.all or options.again or options.files != "*" or options.sample < 100):
        parser.error("--record takes a random sample of at least 100 of all faults: give it without --all, --again and --files")

    known = equivalents()
    every = [one for one in mutants.find(ROOT) if fnmatch.fnmatch(one.file, options.files) and one.name not in known]
    if not every:
        parser.error(f"no faults in {options.files}")
    if options.again:
        every = again(options.again, every)
        if not every:
            parser.error(f"{options.again} has no fault that was not found")
    sets = list(mutants.rounds(every)) if options.all or options.again else [mutants.sample(every, options.sample, options.seed)]
    if options.list:
        for one in (one for chosen in sets for one in chosen):
            print(f"{one.file}:{one.line}: {one.kind}: {one.text} | {place_of(one)}")
        return 0
    tree, directory = WORK / "tree", WORK / "build"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    results: list[outcome] = []
    for chosen in sets:
        print(f"==> {len(chosen)} of {len(every)} faults: building the test programs", flush=True)
        numbered = build(dict(enumerate(chosen, 1)), tree, directory)
        cases = [one for program in PROGRAMS for one in reach(directory, program)]
        print(f"==> Running the cases that reach each of {len(numbered)} faults", flush=True)
        judged: list[outcome] = []
        with concurrent.futures.ThreadPoolExecutor(JOBS + 1) as pool:  # one more, as a fault can put a program to sleep
            for done, result in enumerate(pool.map(lambda pair: judge(directory, *pair, cases), numbered.items()), 1):
                judged.append(result)
                if done % 20 == 0:
                    print(f"    {done} of {len(numbered)}, {sum(r.end in FOUND for r in judged)} found", flush=True)
        results += race(judged, {one: number for number, one in numbered.items()}, tree, directory)
    print("\n".join(["", *table(results)]))
    for r in results:
        if r.end in {"survived", "not reached"}:
            print(f"{r.end}: {r.one.file}:{r.one.line}: {r.one.kind}: {r.one.text} | {place_of(r.one)}")
            if r.rules:
                print(f"    reached by {r.cases} cases, of {' '.join(r.rules[:12])}{' ...' if len(r.rules) > 12 else ''}")
    if options.json:
        rows = [{**r.one._asdict(), "end": r.end, "cases": r.cases, "rules": r.rules} for r in results]
        head = {"date": datetime.date.today().isoformat(), "sample": None if options.all else options.sample, "seed": options.seed, "score": score(results)}
        options.json.write_text(json.dumps({**head, "results": rows}, indent=1) + "\n", encoding="utf-8")
    if options.record:
        RECORD.write_text(record_of(results, options.sample, options.seed, datetime.date.today().isoformat()), encoding="utf-8")
    share = score(results)
    print(f"{sum(r.end in {'killed', 'timed out'} for r in results)} of {len(results)} faults found ({share:.1%})")
    return 0 if share >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
