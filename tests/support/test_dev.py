#!/usr/bin/env python3
# Tests of ./dev: reading reports, the README check, the lint. Each must find faults.
# SPDX-License-Identifier: BSL-1.0
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "bench")]
import catch_xml  # noqa: E402
import check_readme  # noqa: E402
import compile_time  # noqa: E402
import dev  # noqa: E402
import dev_build  # noqa: E402
import dev_programs  # noqa: E402
import dev_run  # noqa: E402
import dev_site  # noqa: E402
import dev_tally  # noqa: E402
import lint  # noqa: E402
import records  # noqa: E402

VERSION_2 = """<?xml version="1.0" encoding="UTF-8"?>
<Catch name="unit"><Group name="unit">
<TestCase name="good" tags="[A-001]"><OverallResult success="true"/></TestCase>
<TestCase name="not here"><Warning>skipped: no atomics</Warning><OverallResult success="true"/></TestCase>
<TestCase name="bad" filename="a.cpp" line="3">
  <Expression success="false" type="CHECK" filename="a.cpp" line="4"><Original>a == b</Original><Expanded>1 == 2</Expanded></Expression>
  <OverallResult success="false"/></TestCase>
</Group></Catch>
"""
VERSION_3 = """<?xml version="1.0" encoding="UTF-8"?>
<Catch2TestRun name="unit">
<TestCase name="good"><OverallResult success="true" skips="0"/></TestCase>
<TestCase name="not here"><Skip filename="a" line="1">no atomics</Skip><OverallResult success="true" skips="1"/></TestCase>
</Catch2TestRun>
"""


class temporary(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def file(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class reports(temporary):
    def test_version_2(self):
        report = catch_xml.read(self.file("r.xml", VERSION_2))
        self.assertEqual((report.passed, report.skipped, len(report.failures), report.complete), (1, ["not here"], 1, True))
        self.assertIn("a.cpp:4: CHECK(a == b) with 1 == 2", report.failures[0])

    def test_version_3(self):
        report = catch_xml.read(self.file("r.xml", VERSION_3))
        self.assertEqual((report.passed, report.skipped, report.failures, report.complete), (1, ["not here"], [], True))

    def test_a_report_that_is_cut_off(self):
        report = catch_xml.read(self.file("r.xml", VERSION_2[: VERSION_2.index("<Expression")]))
        self.assertEqual((report.passed, report.complete), (1, False))
        self.assertIn("bad", report.failures[0])

    def test_a_case_that_asserts_nothing(self):
        xml = '<Catch name="unit"><TestCase name="empty"><OverallResult success="false"/></TestCase></Catch>'
        self.assertIn("no assertion ran", catch_xml.read(self.file("r.xml", xml)).failures[0])

    def test_no_report(self):
        self.assertFalse(catch_xml.read(self.folder / "none.xml").complete)
        self.assertFalse(catch_xml.read(self.file("empty.xml", "")).complete)


class reporting(temporary):
    def test_a_program_refuses_empty_cases_and_writes_its_record_beside_the_report(self):
        old = [self.file("unit-gcc.xml", "old"), self.file("unit-gcc.record", "old")]
        command, env = dev_programs.reporting("unit", self.folder / "unit-gcc.xml", "-d", "yes")
        self.assertEqual(command[:5], ["unit", "-d", "yes", "-w", "NoAssertions"])
        self.assertEqual(env, {"DAT_TESTS_RECORD": str(self.folder / "unit-gcc.record"), "DAT_TESTS_TREE": dev_build.tree()})
        self.assertFalse(any(path.exists() for path in old))

    def test_the_digest_depends_on_each_source(self):
        self.file("include/a.hpp", "int a;")
        before = records.digest(self.folder)
        self.file("docs/a.md", "text")
        self.file("include/__pycache__/a.py", "text")
        self.file("tests/conformance/a.py", "text")
        self.assertEqual(records.digest(self.folder), before)
        self.file("include/a.hpp", "int b;")
        changed = records.digest(self.folder)
        self.file("tests/b.cpp", "")
        self.assertEqual(len({before, changed, records.digest(self.folder)}), 3)


class counting(temporary):
    def setUp(self):
        super().setUp()
        for module in (dev_run, dev_build, dev_tally):
            self.enterContext(unittest.mock.patch.object(module, "LOGS", self.folder / "logs"))
        self.sums = dev_tally.tally()

    def quietly(self, what, *arguments, **more):
        with contextlib.redirect_stdout(io.StringIO()):
            what(*arguments, **more)
        return self.sums.rows[-1][1:]

    def finish(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = self.sums.finish()
        return code, out.getvalue().splitlines()[-1]

    def test_the_last_line_is_the_sum(self):
        self.sums.add("a", 3, 0, 1)
        self.sums.add("b", 2, 0)
        self.assertEqual(self.finish(), (0, "5 passed, 0 failed"))
        self.assertEqual(self.sums.faults, [])
        self.sums.add("c", 2, 1)
        self.assertEqual(self.finish(), (1, "7 passed, 1 failed"))

    def test_what_failed_is_shown_again_at_the_end(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.sums.counted("a", ["sh", "-c", "echo the cause; echo 3 passed, 1 failed; exit 1"], 10)
            self.sums.check("b", False, "another cause")
            self.sums.check("c", True, "no cause")
            self.sums.finish()
        end = out.getvalue().split("What failed, once more:\n")[1]
        self.assertRegex(end, r"(?s)the cause\n.*another cause\n\na .*\nb .*\nc .*\n4 passed, 2 failed\n$")
        self.assertNotIn("no cause", out.getvalue())

    def test_the_errors_of_a_build_are_shown_again_at_the_end(self):
        out = io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            unittest.mock.patch.object(dev_build, "BUILD", self.folder),
            unittest.mock.patch.dict(dev_build.FAILED_BUILDS, clear=True),
            unittest.mock.patch.object(dev_build, "FLAVOURS", {"broken": ("g++", ["--not-an-option"]), "gcc": ("g++", [])}),
            unittest.mock.patch.object(dev_build, "configure", lambda flavour, configure=dev_build.configure: flavour == "gcc" or configure(flavour)),
        ):
            self.file("gcc/build.ninja", "rule fails\n command = echo a.cpp:1: error: the cause; exit 1\nbuild all: fails\n")
            self.assertFalse(dev_build.build("gcc"))
            self.assertFalse(dev_build.build("broken"))
            self.sums.check("a", True)
            self.sums.finish()
        end = out.getvalue().split("What failed, once more:\n")[1]
        self.assertRegex(end, r"(?s)error: the cause\n.*gcc: the build failed\n.*not-an-option.*broken: meson setup failed\n\na ")

    def test_a_run_of_nothing_fails(self):
        self.assertEqual(self.finish(), (1, "0 passed, 0 failed"))

    def test_a_part_of_nothing_fails(self):
        self.assertEqual(self.quietly(self.sums.add, "a", 0, 0), (0, 1, 0))

    def test_programs_that_count(self):
        def script(text):
            return self.quietly(self.sums.counted, "a", ["sh", "-c", text], 10)

        self.assertEqual(script("echo 3 passed, 0 failed"), (3, 0, 0))
        self.assertEqual(script("echo 3 passed, 2 failed; exit 1"), (3, 2, 0))
        self.assertEqual(script("echo 3 passed, 0 failed; exit 1"), (3, 1, 0))
        self.assertEqual(script("echo nothing"), (0, 1, 0))
        self.assertEqual(self.quietly(self.sums.counted, "a", ["/no/such/program"], 10), (0, 1, 0))

    def test_a_program_that_takes_too_long(self):
        self.assertEqual(self.quietly(self.sums.counted, "a", ["sleep", "60"], 0.2), (0, 1, 0))

    def test_unittest_scripts(self):
        def script(text):
            head = "import unittest\nclass t(unittest.TestCase):\n"
            path = self.file("t.py", head + text + "\nunittest.main()\n")
            return self.quietly(self.sums.unittests, "a", path, 30)

        good, bad = "  def test_a(self): pass\n", "  def test_b(self): self.fail()\n"
        skip = "  @unittest.skip('x')\n  def test_c(self): pass\n"
        self.assertEqual(script(good + skip), (1, 0, 1))
        self.assertEqual(script(good + bad), (1, 1, 0))
        self.assertEqual(script("  pass\n"), (0, 1, 0))
        self.assertEqual(script("  syntax error\n"), (0, 1, 0))

    def test_the_thread_that_built_takes_what_the_lane_has_not_begun(self):
        begun, taken = threading.Event(), threading.Event()
        threads = []

        def first():
            begun.set()
            self.assertTrue(taken.wait(60))
            threads.append(threading.get_ident())

        def second():
            taken.set()
            threads.append(threading.get_ident())

        self.sums.beside("first", first)
        self.sums.beside("second", second)
        self.assertTrue(begun.wait(60))
        self.sums.wait()
        self.assertEqual(len(set(threads)), 2)
        self.assertIn(threading.get_ident(), threads)
        self.assertEqual(self.sums.rows, [])

    def test_a_fault_in_a_part_fails_that_part_alone(self):
        def fault():
            raise ValueError("no")

        def fine():
            self.sums.add("b", 1, 0)

        with contextlib.redirect_stdout(io.StringIO()):
            self.sums.beside("a", fault)
            self.sums.beside("b", fine)
            self.sums.wait()
        self.assertEqual(sorted(self.sums.rows), [("a", 0, 1, 0), ("b", 1, 0, 0)])

    def test_a_site_that_is_not_built(self):
        with unittest.mock.patch.multiple(dev_site, BUILD=self.folder, measure_for_site=lambda *_: True, run=lambda *_: 1, tail=lambda _: "the cause"):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertFalse(dev_site.build_site(False, False))
        self.assertIn("the cause", out.getvalue())

    def test_catch2_programs(self):
        good, bad = self.file("g.xml", VERSION_3), self.file("b.xml", VERSION_2)
        cut = self.file("c.xml", VERSION_3[: VERSION_3.index("</Catch2TestRun>")])
        log = self.file("log", "")
        self.assertEqual(self.quietly(self.sums.catch2, "a", good, 0, log), (1, 0, 1))
        self.assertEqual(self.quietly(self.sums.catch2, "a", bad, 1, log), (1, 1, 1))
        self.assertEqual(self.quietly(self.sums.catch2, "a", good, 66, log), (1, 1, 1))  # a sanitizer speaks at the end
        self.assertEqual(self.quietly(self.sums.catch2, "a", cut, 0, log), (1, 1, 1))
        self.assertEqual(self.quietly(self.sums.catch2, "a", self.folder / "none", 0, log), (0, 1, 0))


class checking(temporary):
    """Compiling for errors and warnings alone."""

    def setUp(self):
        super().setUp()
        for name, value in {"BUILD": self.folder, "LOGS": self.folder / "logs", "build": lambda *_: True}.items():
            self.addCleanup(setattr, dev_build, name, getattr(dev_build, name))
            setattr(dev_build, name, value)
        (self.folder / "logs").mkdir()

    def check(self, text, folder="examples"):
        source = self.file("f/source.cpp", text)
        command = f"c++ -Wall -MD -MQ f/x.o -MF f/x.o.d -o f/x.o -c {source}"
        entry = {"directory": str(self.folder / "f"), "command": command, "file": str(source), "output": f"{folder}/x.o"}
        self.file("f/compile_commands.json", json.dumps([entry]))
        count, failed = dev_build.check_sources("f", "examples")
        self.assertEqual(sorted(path.name for path in (self.folder / "f").iterdir()), ["compile_commands.json", "source.cpp"])
        return count, len(failed)

    def test_a_good_source_passes(self):
        self.assertEqual(self.check("int main() {}\n"), (1, 0))

    def test_errors_and_warnings_fail(self):
        self.assertEqual(self.check("int main() { return nothing; }\n"), (1, 1))
        self.assertEqual(self.check("int main() { int unused; }\n"), (1, 1))

    def test_other_folders_do_not_count(self):
        self.assertEqual(self.check("int main() { return nothing; }\n", "tests"), (0, 0))


class readme(unittest.TestCase):
    PROGRAM = "int main() {\n  // says nothing\n\n  return 0;\n}\n"

    def problem(self, shown, real, most=30):
        return check_readme.problem(f"# x\n```sh\nls\n```\n```cpp\n{shown}```\n", f"#include <a>\n{real}", most)

    def marked(self, text):
        return f"//! [readme]\n{text}//! [readme]\nint more;\n"

    def test_equal_programs_pass(self):
        self.assertEqual(self.problem(self.PROGRAM, self.marked(self.PROGRAM)), "")
        indented = "  //! [readme]\n  f();\n    g();\n  //! [readme]\n"
        self.assertEqual(self.problem("f();\n  g();\n", indented), "")

    def test_other_programs_fail(self):
        self.assertIn("differ", self.problem(self.PROGRAM, self.marked(self.PROGRAM.replace("0", "1"))))
        self.assertIn("not exactly two", self.problem(self.PROGRAM, self.PROGRAM))
        self.assertIn("no ```cpp", check_readme.problem("# x\n", self.marked(self.PROGRAM), 30))
        self.assertIn("empty", self.problem("", self.marked("")))

    def test_the_second_program_is_compared_with_its_own_example(self):
        readme = f"```cpp\n{self.PROGRAM}```\nthen\n```cpp\nint second;\n```\n"
        self.assertEqual(check_readme.problem(readme, self.marked("int second;\n"), 30, 1), "")
        self.assertIn("differ", check_readme.problem(readme, self.marked(self.PROGRAM), 30, 1))
        self.assertIn("block 3", check_readme.problem(readme, self.marked(self.PROGRAM), 30, 2))

    def test_blocks_of_the_guide_compile_at_their_own_lines(self):
        good = "# x\n```cpp\nDAT_TRY(auto more, ia.create_pz());\n```\n"
        self.assertEqual(check_readme.compile_guide(good, "c++"), "")
        self.assertIn("docs/guide.md:4:", check_readme.compile_guide(good.replace("```cpp\n", "```cpp\n\n").replace("create_pz", "create"), "c++"))

    def test_long_programs_fail(self):
        self.assertEqual(self.problem(self.PROGRAM, self.marked(self.PROGRAM), 3), "")
        self.assertIn("3 code lines", self.problem(self.PROGRAM, self.marked(self.PROGRAM), 2))

    def test_examples_that_are_too_long_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            lines = {"01_a.cpp": 99, "rpc.cpp": 150, "kv.hpp": 100, "kv_server.cpp": 100, "kv_client.cpp": 50}
            for name, n in lines.items():
                (at / name).write_text("\n" * n, encoding="utf-8")
            self.assertEqual(check_readme.too_long(at), [])
            (at / "01_a.cpp").write_text("\n" * 100, encoding="utf-8")
            (at / "kv_client.cpp").write_text("\n" * 51, encoding="utf-8")
            found = check_readme.too_long(at)
            self.assertEqual([line.split(":")[0] for line in found], ["01_a.cpp", "kv.hpp, kv_server.cpp, kv_client.cpp"])


class linting(temporary):
    def findings(self, name, text):
        self.file(".clang-format", (ROOT / ".clang-format").read_text(encoding="utf-8"))
        path = self.file(name, text)
        return [bool(check(path)) for check in (lint.misformatted, lint.bad_script, lint.unlicensed)]

    LICENCE = "// SPDX-License-Identifier: BSL-1.0\n"

    @unittest.skipUnless(lint.shutil.which(lint.formatter()), "clang-format is not installed")
    def test_formatting(self):
        self.assertFalse(self.findings("a.cpp", self.LICENCE + "namespace a::inline v0 {\n\nint* x;\n\n} // namespace a::inline v0\n")[0])
        self.assertTrue(self.findings("a.cpp", self.LICENCE + "int *x;\n")[0])

    def test_scripts(self):
        self.assertFalse(lint.bad_script(self.file("a.py", "print(1)\n")))
        self.assertTrue(lint.bad_script(self.file("a.py", "print(1\n")))
        self.assertFalse(lint.bad_script(self.file("b", "#!/bin/sh\nif true; then :; fi\n")))
        self.assertTrue(lint.bad_script(self.file("b", "#!/bin/sh\nif true; then :\n")))
        self.assertTrue(lint.bad_script(self.file("c", "#!/usr/bin/env python3\nprint(1\n")))
        self.assertFalse(lint.bad_script(self.file("d", "no script ( at all\n")))

    def test_licences(self):
        self.assertFalse(lint.unlicensed(self.file("a.hpp", self.LICENCE)))
        self.assertTrue(lint.unlicensed(self.file("a.hpp", "// x\n")))
        self.assertFalse(lint.unlicensed(self.file("a.md", "# x\n")))
        self.assertFalse(lint.unlicensed(self.file("debian/control", "Source: x\n")))
        self.assertTrue(lint.unlicensed(self.file("debian/rules", "#!/bin/sh\n")))

    def test_threads_of_tests(self):
        good = self.file("tests/a.cpp", "std::jthread t(f);\nstd::thread(f).join();\nstd::thread::id id;\n")
        self.assertEqual(lint.raw_threads(good, self.folder), [])
        bad = self.file("tests/b.cpp", "std::thread t(f);\nstd::vector<std::thread> all;\n")
        self.assertEqual(len(lint.raw_threads(bad, self.folder)), 2)
        self.assertEqual(lint.raw_threads(self.file("bench/b.cpp", "std::thread t(f);\n"), self.folder), [])

    @unittest.skipUnless(lint.shutil.which("clang-tidy"), "clang-tidy is not installed")
    def test_faults_in_headers(self):
        self.file(".clang-tidy", (ROOT / ".clang-tidy").read_text(encoding="utf-8"))
        planted = self.file("include/planted.hpp", "inline int* none() { return 0; }\n")
        self.file("tests/values/version.cpp", "#include <planted.hpp>\nint main() { return none() != nullptr; }\n")
        build = self.folder / "build/tidy"
        # Meson writes paths relative to the build directory.
        command = "c++ -I../../include -c ../../tests/values/version.cpp"
        self.file("build/tidy/compile_commands.json",
                  json.dumps([{"directory": str(build), "command": command, "file": "../../tests/values/version.cpp"}]))  # fmt: skip
        found = lint.tidy(self.folder, build, 1)
        self.assertRegex("\n".join(found), rf"^{planted}:1:\d+: [^\n]*nullptr[^\n]*$")
        planted.write_text("inline int* none() { return nullptr; }\n", encoding="utf-8")
        self.assertEqual(lint.tidy(self.folder, build, 1), [])

    def test_paths_in_documents(self):
        self.file("include/dat/a.hpp", "")
        self.file("docs/b.md", "")
        good = self.file("docs/c.md", "`include/dat/a.hpp` [b](b.md#x) [up](../docs/b.md) `build/gcc/x.cpp` [w](https://a.b/c.md) `a.hpp`\n")
        self.assertEqual(lint.dead_paths(good, self.folder), [])
        bad = self.file("docs/d.md", "\n`base/gone.hpp` [x](gone.md)\n")
        self.assertEqual([finding.partition(":")[2] for finding in lint.dead_paths(bad, self.folder)],
                         ["2: names gone.md, which is not there", "2: names base/gone.hpp, which is not there"])  # fmt: skip


    def test_test_cases_in_documents(self):
        self.file("tests/a/b.cpp", 'TEST_CASE("one name", "[x]") {}\nTEMPLATE_TEST_CASE_SIG("a name "\n    "in parts", "[x]", 1) {}\n')
        good = self.file("docs/c.md", '| x | soak: `y`; `b.cpp`: "one name", "a name in parts" |\n')
        self.assertEqual(lint.dead_tests(good, self.folder), [])
        bad = self.file("docs/d.md", '\n| x | `tests/a/b.cpp`: "one name", "a name"; `none.cpp`: "one name" |\n')
        self.assertEqual([finding.partition(":")[2] for finding in lint.dead_tests(bad, self.folder)],
                         ['2: b.cpp has no test case "a name"', '2: none.cpp has no test case "one name"'])  # fmt: skip
        self.file("tests/c.py", "class c(case):\n    def test_two_hosts(self):\n        pass\n")
        self.assertEqual(lint.dead_tests(self.file("docs/c.md", '`c.py`: "two hosts"\n'), self.folder), [])
        self.assertTrue(lint.dead_tests(self.file("docs/c.md", '`c.py`: "three hosts"\n'), self.folder))


class options(unittest.TestCase):
    def code(self, *arguments):
        command = [sys.executable, HERE / "dev.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).returncode

    def test_tiers_that_are_not_there_are_refused(self):
        self.assertEqual(self.code("test", "--only", "untis"), 2)

    def test_cases_go_with_the_unit_tier_alone(self):
        self.assertEqual(self.code("test", "--only", "lint", "--cases", "[EP-001]"), 2)
        self.assertEqual(self.code("test", "--cases", "[EP-001]"), 2)

    def test_the_soak_takes_the_flavours_that_have_a_program_of_it(self):
        self.assertEqual(self.code("soak", "--build", "release", "--minutes", "1"), 2)
        for flavour in ("gcc", "asan", "tsan"):
            with self.subTest(flavour=flavour):
                # The soak's own arguments reach the soak: it refuses these.
                script = "import sys, dev; dev.build = lambda f, *t: print('built', f, *t, flush=True) or True; sys.exit(dev.command_soak(sys.argv[1:]))"
                command = [sys.executable, "-c", script, "--build", flavour, "--minutes", "0"]
                done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
                self.assertEqual(done.stdout, f"built {flavour} tests/soak/soak\n")
                self.assertEqual(done.returncode, 2)
                self.assertIn("--minutes must be above 0", done.stderr)

    def test_the_structure_is_printed(self):
        done = subprocess.run([sys.executable, HERE / "dev.py", "lint", "--structure"], capture_output=True, text=True, check=False)
        self.assertRegex(done.stdout, r"core classes in the largest cycle of names +\d+ +bar +3")

    def test_benchmarks_name_the_values_that_a_number_may_have(self) -> None:
        for script, option, most in (
            ("pingpong/run.py", "--rounds", 1000),
            ("connect/run.py", "--rounds", 1000),
            ("connect/run.py", "--connections", 4096),
            ("wakeup/run.py", "--rounds", 1000),
            ("wakeup/run.py", "--wakes", 100000),
            ("compile_time.py", "--rounds", 1000),
        ):
            for value in ("0", f"{most + 1}"):
                with self.subTest(script=script, option=option, value=value):
                    build = [] if script == "compile_time.py" else ["--build", "none"]
                    done = subprocess.run([sys.executable, ROOT / "bench" / script, *build, f"{option}={value}"], capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(f"argument {option}: '{value}' is no whole number from 1 to {most}", done.stderr)

    def test_a_compile_is_worse_when_it_takes_more_time_and_more_memory(self) -> None:
        row = compile_time.Program("row", "row.cpp", budget=2.5, reached=3.6, reached_memory=2.5)
        for times, memory, worse in ((2.4, 2.6, False), (3.5, 2.6, False), (3.8, 2.4, False), (3.7, 2.6, True)):
            self.assertEqual(compile_time.is_worse(row, times, memory), worse, (times, memory))
        self.assertFalse(compile_time.is_worse(compile_time.Program("no budget", "row.cpp"), 9.0, 9.0))
        self.assertTrue(compile_time.is_worse(compile_time.Program("within", "row.cpp", budget=2.5, reached_memory=1.8), 2.6, 1.9))

    def test_every_row_with_a_budget_names_the_memory_it_has_reached(self) -> None:
        for row in compile_time.PROGRAMS:
            self.assertEqual(row.budget is not None, row.reached_memory > 0, row.name)


class the_site(temporary):
    def test_an_example_has_run_when_its_log_says_so(self):
        for text, good in (("  hello\n01_hello: exit code 0\n", True), ("01_hello: exit code 77\n", True), ("01_hello: exit code 1\n", False),
                           ("  01_hello: exit code 0 is what it prints\n", False), ("", False)):  # fmt: skip
            self.assertEqual(dev_site.has_run(self.file("01_hello.log", text)), good, text)
        self.assertFalse(dev_site.has_run(self.folder / "none.log"))


class bootstrap(temporary):
    def test_help_needs_nothing(self):
        done = subprocess.run([ROOT / "dev", "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0)
        for command in dev.COMMANDS:
            self.assertRegex(done.stdout, rf"(?m)^  {command}\b")

    def test_an_unknown_command_is_refused(self):
        self.assertEqual(subprocess.run([ROOT / "dev", "tset"], capture_output=True, check=False).returncode, 2)

    def test_what_is_missing_is_named_and_not_installed_when_it_may_not_be(self):
        # A dpkg-query that lists two packages only.
        (self.folder / "bin").mkdir()
        query = self.file("bin/dpkg-query", "#!/bin/sh\necho installed python3; echo installed meson; echo not-installed g++\n")
        query.chmod(0o755)
        env = os.environ | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "DAT_DEV_INSTALL": "no"}
        done = subprocess.run([ROOT / "dev", "build"], capture_output=True, text=True, env=env, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        line = done.stderr.splitlines()[-1]
        self.assertIn("apt-get install", line)
        self.assertIn(" ninja-build ", line)
        self.assertRegex(line, r" g\+\+( |$)")
        self.assertNotIn(" python3 ", line)
        self.assertNotIn(" meson ", line)


if __name__ == "__main__":
    unittest.main()
