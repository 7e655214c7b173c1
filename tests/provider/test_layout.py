#!/usr/bin/env python3
# The C headers against those of libdapl-dev: every type's size and offsets, every constant, every function's type.
# SPDX-License-Identifier: BSL-1.0
"""Both sets of headers define the same names, so each is compiled alone, and the results are compared."""

import functools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "examples/provider/registry/include"
THEIRS = pathlib.Path("/usr/include")
HEADERS = ("udat.h", "dat_registry.h", "dat_ib_extensions.h")
CC = os.environ.get("CC", "gcc")
# Macros of the other headers that are not values: parts of declarations, guards, names of functions and of types.
NO_VALUE = {"DAT_API", "DAT_EXPORT", "DAT_PROVIDER_INIT_FUNC_NAME", "DAT_PROVIDER_FINI_FUNC_NAME", "DAT_RMR_BIND_COMPLETION_STATUS"}
# Mistakes of the other headers: aliases of names that do not exist there, and a macro with a blank before its
# parameters.
BROKEN = {"DAT_IA_HA_RELATED", "DAT_IA_FIELD_IA_MAX_DTO_PER_OP", "DAT_CONNECT_MULTIPATH_REQUESTED_FLAG"}
TYPE = re.compile(r"\b(struct|union)\s+(\w+)\s*\{")


def run(words: list, text: str = "") -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(w) for w in words], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}\n{done.stderr[-3000:]}")
    return done.stdout


def includes() -> str:
    """The lines that include all headers."""
    return "#include <netinet/in.h>\n" + "".join(f"#include <dat2/{name}>\n" for name in HEADERS)


@functools.cache
def preprocessed(folder: pathlib.Path) -> str:
    """The preprocessed text of dat2/*.h, without the headers of the system."""
    kept, mine = [], False
    for line in run([CC, "-E", f"-I{folder}", "-x", "c", "-"], includes()).splitlines():
        if found := re.match(r'# \d+ "([^"]*)"', line):
            mine = "/dat2/" in found.group(1)
        elif mine:
            kept.append(line)
    return re.sub(r"\s+", " ", " ".join(kept))


@functools.cache
def macros(folder: pathlib.Path) -> dict[str, str]:
    """The macros that look like objects, and their text."""
    lines = run([CC, "-dM", "-E", f"-I{folder}", "-x", "c", "-"], includes()).splitlines()
    found = (re.match(r"#define (DAT_\w+|DCNT_\w+) (.+)", line) for line in lines)
    return {m.group(1): m.group(2) for m in found if m and m.group(1) not in NO_VALUE | BROKEN}


def body(text: str, start: int) -> str:
    """The text between the brace at `start` and the one that closes it."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1 : at]
    raise AssertionError("no closing brace")


def members(text: str, prefix: str = "") -> list[str]:
    """The members of a structure, those of structures without a tag with the path to them."""
    found, at = [], 0
    while at < len(text):
        nested = re.match(r"\s*(?:__extension__\s+)?(?:struct|union)\s*\{", text[at:])
        if nested:
            inner = body(text, at + nested.end() - 1)
            rest = at + nested.end() + len(inner) + 1
            name = re.match(r"\s*(\w*)\s*;", text[rest:])
            path = f"{prefix}{name.group(1)}." if name.group(1) else prefix
            found += ([path[:-1]] if name.group(1) else []) + members(inner, path)
            at = rest + name.end()
            continue
        end = text.find(";", at)
        if end < 0:
            break
        declaration = re.sub(r"\[[^]]*\]", "", text[at:end]).strip()
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        name = pointer.group(1) if pointer else re.search(r"(\w+)$", declaration).group(1)
        found.append(prefix + name)
        at = end + 1
    return found


@functools.cache
def types(folder: pathlib.Path) -> dict[str, list[str]]:
    """Structures and unions with a tag, and their members."""
    text = preprocessed(folder)
    return {f"{m.group(1)} {m.group(2)}": members(body(text, m.end() - 1)) for m in TYPE.finditer(text)}


@functools.cache
def enumerators(folder: pathlib.Path) -> set[str]:
    """The names that enumerations define."""
    text = preprocessed(folder)
    found = set()
    for m in re.finditer(r"\benum\s+\w+\s*\{", text):
        found |= {item.split("=")[0].strip() for item in body(text, m.end() - 1).split(",") if item.strip()}
    return found


@functools.cache
def typedefs(folder: pathlib.Path) -> set[str]:
    """The names of types, without those of functions."""
    return {n for n in re.findall(r"(\w+)\s*;", " ".join(re.findall(r"typedef\s+[^;{]+(?:\{[^}]*\})?[^;]*;", preprocessed(folder)))) if n.startswith("DAT_")}


def normal(parameters: str) -> str:
    """Types of parameters without names, so that two spellings of one function type are equal."""
    plain = []
    for part in parameters.split(","):
        part = re.sub(r"\(\s*(\w+)\s*\[\]\s*\)", r"\1[]", part)
        part = re.sub(r"\[\]", " *", re.sub(r"(\w+)\[\]", r"[]", part))
        part = re.sub(r"\bconst (DAT_PVOID|DAT_NAME_PTR)\b", r"\1", part)
        words = re.findall(r"\w+|\*|\.\.\.", part)
        if len(words) > 1 and words[-1] != "*" and words[-2:] != ["const", words[-1]] and not words[-1].startswith("DAT_") and words[-1] not in {"char", "int", "va_list", "__gnuc_va_list"}:
            words.pop()
        plain.append(" ".join(words))
    return ", ".join(plain)


@functools.cache
def functions(folder: pathlib.Path) -> dict[str, str]:
    """Functions and types of pointers to functions, with the types of their parameters."""
    text = preprocessed(folder)
    found = {m.group(1): normal(m.group(2)) for m in re.finditer(r"extern\s+DAT_RETURN\s+(dat_\w+)\s*\(((?:[^()]|\([^)]*\))*)\)\s*;", text)}
    pointers = re.finditer(r"typedef\s+(?:DAT_RETURN|void)\s*\(\s*\*\s*(DAT_\w+)\s*\)\s*\(((?:[^()]|\([^)]*\))*)\)\s*;", text)
    return found | {m.group(1): normal(m.group(2)) for m in pointers}


def values(folder: pathlib.Path, expressions: list[str]) -> dict[str, str]:
    """The values of integer expressions and texts, as a program that includes the headers sees them."""
    lines = [
        includes(),
        "#include <stdio.h>\n#include <stddef.h>",
        '#define SHOW(x) _Generic((x), char*: puts((const char*)(size_t)(x)), default: printf("%lld\\n", (long long)(size_t)(x)))',
        "int main(void) {",
        *(f"SHOW({e});" for e in expressions),
        "}",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        program = pathlib.Path(scratch) / "show"
        run([CC, "-w", f"-I{folder}", "-x", "c", "-", "-o", program], "\n".join(lines))
        return dict(zip(expressions, run([program]).splitlines(), strict=True))


@unittest.skipUnless((THEIRS / "dat2/udat.h").exists(), "the package libdapl-dev is not installed")
class Layout(unittest.TestCase):
    """Each case fails for a name that is missing as for one that differs."""

    maxDiff = None

    def same(self, expressions: list[str]) -> None:
        self.assertEqual(values(OURS, expressions), values(THEIRS, expressions))

    def test_structures_have_the_same_size_and_members_at_the_same_offsets(self) -> None:
        theirs = types(THEIRS)
        self.assertGreater(len(theirs), 30)
        self.assertGreaterEqual(types(OURS).keys(), theirs.keys())
        self.same([f"sizeof({t})" for t in sorted(theirs)])
        for name, fields in theirs.items():
            self.assertEqual(types(OURS)[name], fields, name)
        self.same([f"offsetof({t}, {f})" for t, fields in sorted(theirs.items()) for f in fields])
        self.same([f"sizeof((({t}*)0)->{f})" for t, fields in sorted(theirs.items()) for f in fields])

    def test_types_have_the_same_size_and_sign(self) -> None:
        names = sorted(n for n in typedefs(THEIRS) if not n.endswith("_FUNC"))
        self.assertGreater(len(names), 80)
        self.same([f"sizeof({n})" for n in names])
        numbers = [n for n in names if re.fullmatch(r"DAT_(UINT\d+|UVERYLONG|COUNT|PADDR|TIMEOUT|CONN_QUAL|PORT_QUAL|SEG_LENGTH|VLEN|VADDR|\w+_CONTEXT|FD|RETURN)", n)]
        self.assertGreater(len(numbers), 10)
        self.same([f"(({n})-1 < 0)" for n in numbers])

    def test_enumerators_have_the_same_values(self) -> None:
        theirs = enumerators(THEIRS) - {"DAT_CONNECT_MULTIPATH_FLAG"} | {"DAT_CONNECT_MULTIPATH_REQUESTED_FLAG"}
        self.assertGreater(len(theirs), 500)
        self.assertGreaterEqual(enumerators(OURS), theirs)
        self.same(sorted(theirs))

    def test_macros_have_the_same_values(self) -> None:
        ours, theirs = macros(OURS), macros(THEIRS)
        self.assertGreater(len(theirs), 150)
        self.assertEqual(sorted(theirs.keys() - ours.keys()), [])
        names = [n for n in theirs if not n.startswith(("DAT_OS_", "DAT_THREADSAFE"))]
        self.same(sorted(names))
        self.assertEqual(*(values(folder, ["DAT_THREADSAFE"]) for folder in (OURS, THEIRS)))

    def test_functions_have_the_same_parameters(self) -> None:
        ours, theirs = functions(OURS), functions(THEIRS)
        self.assertGreater(len(theirs), 150)
        self.assertEqual({n: ours.get(n) for n in theirs}, theirs)

    def test_a_difference_is_found(self) -> None:
        """The negative twin: a header with one changed structure and one changed constant."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "dat2").mkdir()
            for file in (OURS / "dat2").iterdir():
                text = file.read_text(encoding="utf-8")
                text = text.replace("  DAT_COUNT max_recv_iov;\n  DAT_COUNT low_watermark;\n} DAT_SRQ_ATTR;", "  DAT_UINT64 max_recv_iov;\n  DAT_COUNT low_watermark;\n} DAT_SRQ_ATTR;")
                text = text.replace("DAT_DTO_ERR_FLUSHED = 1", "DAT_DTO_ERR_FLUSHED = 20")
                (folder / "dat2" / file.name).write_text(text, encoding="utf-8")
            for expression in ("offsetof(struct dat_srq_attr, low_watermark)", "DAT_DTO_ERR_FLUSHED"):
                self.assertNotEqual(values(folder, [expression]), values(THEIRS, [expression]))


class Standing(unittest.TestCase):
    """The headers by themselves, without libdapl-dev."""

    def test_c_and_cpp_compile_each_header_alone(self) -> None:
        for header in ("udat.h", "dat_registry.h", "dat_ib_extensions.h"):
            for words in ([CC, "-std=c99"], [CC, "-std=c17"], [os.environ.get("CXX", "g++"), "-std=c++17"]):
                language = "c++" if "++" in words[1] else "c"
                flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
                run([*words, *flags, f"-I{OURS}", "-x", language, "-"], f"#include <dat2/{header}>\nint main(void) {{ return 0; }}\n")


if __name__ == "__main__":
    unittest.main()
