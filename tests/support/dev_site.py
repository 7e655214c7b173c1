# How ./dev builds the site: the output of the examples and the cost of operations, and the pages.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import pathlib
import re
import shlex
import sys

from dev_run import BUILD, DEBIAN_PYTHON, HANGS, LAB, LOGS, NOT_HERE, ROOT, run, say, step, tail
from dev_build import build, build_folder
from dev_programs import EXAMPLES


def has_run(log: pathlib.Path) -> bool:
    """Whether an example has written its output, or this host lacks something for it."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return re.search(rf"^{re.escape(log.stem)}: exit code (0|{NOT_HERE})$", text, re.M) is not None


def measure_for_site(kept: pathlib.Path, lab: bool, gauge: bool) -> bool:
    """What the site shows of runs: the output of the examples in the lab, and the instructions that the gauge counts. Whatever
    an earlier build of the site has left stays."""
    out = kept / "outputs"
    if lab and not all(has_run(out / f"{name}.log") for name in EXAMPLES):
        with step("The examples, in the lab", "2 to 4 min the first time"):
            if not build("gcc", "ladder"):
                return False
            out.mkdir(parents=True, exist_ok=True)
            # Examples have time limits, which a busy machine can exceed.
            for _ in range(3):
                missing = [name for name in EXAMPLES if not has_run(out / f"{name}.log")]
                lines = [f"{shlex.join([str(ROOT / 'examples/run.sh'), str(BUILD / 'gcc/examples'), name])} >{shlex.quote(str(out / name))}.log 2>&1\n" for name in missing]
                (out / "script").write_text("".join(lines), encoding="utf-8")
                if missing:
                    run([LAB, "--memory", "2048", "--timeout", str(HANGS), "--out", out, "--script", out / "script"], "site-lab.log", HANGS + 60)
            for name in missing:
                if not has_run(out / f"{name}.log"):
                    say(f"{tail(out / f'{name}.log')}\n    example {name} fails")
                    return False
    if gauge and not (kept / "gauge.json").exists():
        with step("The cost gauge", "1 to 2 min the first time"):
            script = ROOT / "bench/overhead/gauge.py"
            if not build_folder("release", "bench/overhead"):
                return False
            if run([sys.executable, script, "--no-worse", "--no-clock", "--build", BUILD / "release", "--json", kept / "gauge.json"], "site-gauge.log", HANGS):
                say(tail(LOGS / "site-gauge.log"))
                return False
    return True


def build_site(lab: bool, gauge: bool) -> bool:
    """Build the site into build/docs/html."""
    kept = BUILD / "docs"
    kept.mkdir(parents=True, exist_ok=True)
    if not measure_for_site(kept, lab, gauge):
        return False
    with step("The site", "about 1 min"):
        code = run([DEBIAN_PYTHON, "-B", ROOT / "docs/site/build.py"], "site.log", HANGS)
        if code:
            say(tail(LOGS / "site.log"))
    return code == 0
