# The examples as pages of the site: what each shows, its code, and its output on the devices of the lab.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import pathlib
import re

import pages

# Programs of the ladder beside one another, and what they share.
SHARED = ["peer.hpp", "kv.hpp"]
LABELS = {"alone": "one process", "pair": "a server and its clients", "service": "a server and its clients"}


class ladder:
    """The programs of examples/ladder.txt."""

    def __init__(self, tree: pathlib.Path, outputs: pathlib.Path):
        self.tree, self.outputs = tree, outputs
        self.ways: dict[str, str] = {}
        for line in (tree / "examples/ladder.txt").read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                name, way, _ = (part.strip() for part in line.split("|", 2))
                self.ways[name] = way

    def places(self) -> dict[str, str]:
        """The page of each source file that has one."""
        return {f"examples/{file}": f"examples/{file}.rst" for file in [*(f"{name}.cpp" for name in self.ways), *SHARED]}

    def introduction(self, file: str) -> str:
        """What the first comment says."""
        lines = []
        for line in (self.tree / "examples" / file).read_text(encoding="utf-8").splitlines():
            if not line.startswith("//") or line.startswith("//!"):
                break
            lines.append(line.removeprefix("//").strip())
        text = " ".join(lines).replace("SPDX-License-Identifier: BSL-1.0", "")
        return re.sub(r"`([^`]+)`", r"``\1``", " ".join(text.split()))

    def output(self, name: str) -> list[str]:
        """The output of a run, as a block; a note when the site was built without the lab."""
        log = self.outputs / f"{name}.log"
        if not log.exists():
            return ["This site was built without the lab, so the output is not here: ``./dev docs`` without ``--no-lab`` has it."]
        text = log.read_text(encoding="utf-8", errors="replace").rstrip()
        if text.endswith(f"{name}: exit code 77"):
            return [f"The host that built this site lacks something for it: {text.splitlines()[0].strip()}."]
        lines = [re.sub(r"^  ", "", line) for line in text.splitlines() if not re.match(rf"{re.escape(name)}: exit code 0$", line)]
        shown = lines if len(lines) <= 40 else [*lines[:30], f"... {len(lines) - 35} lines ...", *lines[-5:]]
        return [".. code-block:: text", "   :class: output", "", *(f"   {line}".rstrip() for line in shown), ""]

    def page(self, file: str, place: pathlib.Path) -> list[str]:
        """The page of one file."""
        name = pathlib.Path(file).stem if file.endswith(".cpp") else file
        out = [name, "=" * len(name), "", self.introduction(file), "", f".. literalinclude:: {pages.included(self.tree / 'examples' / file, place)}", "   :language: cpp", "   :linenos:", ""]
        way = self.ways.get(name)
        if way:
            out += ["Output", "------", ""]
            out += [f"On two Soft-RoCE devices in the lab, {LABELS.get(way.split()[0], 'as examples/run.sh starts it')}:", "", *self.output(name), ""]
        return out

    def write(self, to: pathlib.Path) -> list[str]:
        """Writes all pages; returns their documents in order."""
        made = []
        for file in [*(f"{name}.cpp" for name in self.ways), *SHARED]:
            place = to / "examples" / f"{file}.rst"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join(self.page(file, place)) + "\n", encoding="utf-8")
            made.append(f"examples/{file}")
        return made
