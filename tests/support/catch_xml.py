# Reads the XML report of a Catch2 program, version 2 or 3, also one that was cut off in the middle.
# SPDX-License-Identifier: BSL-1.0
import dataclasses
import pathlib
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class report:
    """The results of a program's test cases."""

    passed: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)  # a text per test case
    complete: bool = False  # the report has an end: the program was not killed in the middle


def describe(case: ElementTree.Element) -> str:
    """A failed test case and its failures."""
    lines = [f"    FAILED: {case.get('name')}"]
    for part in case.iter():
        where = f"{part.get('filename')}:{part.get('line')}"
        text = " ".join((part.text or "").split())
        if part.tag == "Expression" and part.get("success") == "false":
            original = " ".join((part.findtext("Original") or "").split())
            expanded = " ".join((part.findtext("Expanded") or "").split())
            lines.append(f"      {where}: {part.get('type')}({original}) with {expanded}")
        elif part.tag in ("Failure", "Exception", "FatalErrorCondition"):
            lines.append(f"      {where}: {part.tag}: {text}")
        elif part.tag == "Info":
            lines.append(f"      with {text}")
    if len(lines) == 1:
        lines.append("      no assertion ran, in the case or in one of its sections")
    return "\n".join(lines)


def take(case: ElementTree.Element, result: report) -> None:
    """Add one complete test case."""
    overall = case.find("OverallResult")
    # Version 2 has no SKIP: <support/catch.hpp> reports it by a warning.
    said = any((w.text or "").strip().startswith("skipped: ") for w in case.iter("Warning"))
    if overall is None or overall.get("success") != "true":
        result.failures.append(describe(case))
    elif said or overall.get("skips", "0") != "0":
        result.skipped.append(case.get("name", ""))
    else:
        result.passed += 1


def read(path: pathlib.Path) -> report:
    """Read a report; a missing file is an empty one."""
    result = report()
    started = None
    try:
        for event, element in ElementTree.iterparse(path, events=("start", "end")):
            if event == "start" and element.tag == "TestCase":
                started = element
            elif event == "end" and element.tag == "TestCase":
                take(element, result)
                started = None
        result.complete = True
    except FileNotFoundError:
        pass
    except ElementTree.ParseError:
        if started is not None:
            result.failures.append(f"    FAILED: {started.get('name')}\n      the program ended in this test case")
    return result
