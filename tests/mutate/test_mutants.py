#!/usr/bin/env python3
# Tests of the mutants: each kind of fault is found and planted, compiles, is wrong when it is chosen and right otherwise.
# SPDX-License-Identifier: BSL-1.0
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import mutants  # noqa: E402
import run  # noqa: E402

SOURCE = """#pragma once
#include <mutex>
#include <utility>
extern "C" inline int ibv_call(int code) { return code; }
inline std::mutex guard;
inline int notices = 0;
struct word {
  int value = 0;
  void store(int v) { value = v; }
};
template <class T>
inline constexpr int width = 1;
template <class T>
inline constexpr int width<T*> = [] {
  int bits = 0;
  for (int i = 0; i < 6; ++i) bits += 3;
  return bits;
}();
inline int sum(int n) {
  static_assert(sizeof(int) == 4);
  constexpr int first = 1;
  int total[2] = {};
  for (int i = first; i <= n; ++i) total[0] += i;
  return total[0];
}
inline bool is_small(int n) {
  if constexpr (sizeof(n) < 2) return false;
  if (n < 5) return true;
  return false;
}
inline int named(int n) {
  switch (n) {
  case 77:
    return 7;
  default:
    return 8;
  }
}
inline bool fails(int code) {
  if (ibv_call(code)) return true;
  return false;
}
inline bool locked() {
  const std::lock_guard lock(guard);
  return !guard.try_lock() || (guard.unlock(), false);
}
inline int order() {
  word w;
  w.store(1);
  w.store(2);
  return w.value;
}
struct owner {
  int held = 0;
  int unnotified = 0;
  void take(owner& other) {
    held = std::exchange(other.held, 0);
    unnotified = other.held;
  }
};
struct ring {
  static void tsan_note(int n) { if (n > 0) ++notices; }
  int reserve(int n) { return n + 17; }
  int twice() {
    tsan_note(18);
    int a = 0;
    a += 4;
    { a += 4; }
    return a + reserve(19);
  }
};
"""
# The output of the program without a fault: sum(4), is_small(4), is_small(5), fails(7), locked(), order().
MAIN = """#include <dat/a.hpp>
#include <cstdio>
int main() { std::printf("%d %d%d %d %d %d", sum(4), is_small(4), is_small(5), fails(7), locked(), order()); }
"""
RIGHT = "10 10 1 1 2"


class planting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name) / "root"
        (cls.root / "include/dat").mkdir(parents=True)
        (cls.root / "detail").mkdir()
        (cls.root / "include/dat/a.hpp").write_text(SOURCE, encoding="utf-8")
        cls.found = mutants.find(cls.root)
        cls.tree = pathlib.Path(folder.name) / "tree"

    def output(self, one):
        mutants.plant(self.root, self.tree, {1: one})
        main = self.tree / "main.cpp"
        main.write_text(MAIN, encoding="utf-8")
        built = ["g++", "-std=c++20", "-w", "-include", HERE / "mutants.hpp", f"-I{self.tree}/include", main, "-o", self.tree / "main"]
        subprocess.run(built, check=True)
        return [subprocess.run([self.tree / "main"], env={"DAT_MUTANT": n}, capture_output=True, text=True, check=False).stdout for n in "01"]

    def one(self, what, text):
        fitting = [m for m in self.found if m.kind == what and m.text == text]
        self.assertEqual(len(fitting), 1, f"{what} {text} of {[m[5:7] for m in self.found]}")
        return fitting[0]

    def test_each_kind_is_wrong_when_chosen_and_right_otherwise(self):
        for what, text, wrong in (
            ("leave out", "total[0] += i;", "0 10 1 1 2"),
            ("invert", "n < 5", "10 01 1 1 2"),
            ("compare", "i <= n", "6 10 1 1 2"),
            ("add one", "5", "10 11 1 1 2"),
            ("no error", "ibv_call(code)", "10 10 0 1 2"),
            ("swap", "w.store(1); w.store(2);", "10 10 1 1 1"),
            ("no lock", "const std::lock_guard lock(guard);", "10 10 1 0 2"),
        ):
            with self.subTest(what):
                self.assertEqual(self.output(self.one(what, text)), [RIGHT, wrong])
        self.assertEqual({m.kind for m in self.found}, set(mutants.KINDS))

    def test_what_is_not_evaluated_at_run_time_has_no_mutant(self):
        self.assertEqual([m for m in self.found if m.text in {"sizeof(int) == 4", "sizeof(n) < 2"}], [])
        self.assertEqual([m for m in self.found if m.text in {"bits += 3;", "i < 6"}], [])
        length = SOURCE[: SOURCE.index("int total[2]")].count("\n") + 1
        self.assertEqual([m for m in self.found if m.line == length], [])

    def test_notes_to_the_sanitizer_and_reserved_sizes_have_no_mutant(self):
        self.assertEqual([m for m in self.found if m.text in {"tsan_note(18);", "18", "n > 0", "++notices;", "19"}], [])
        self.assertEqual([m.function for m in self.found if m.text == "17"], ["ring::reserve"])

    def test_only_steps_that_threads_see_are_swapped(self):
        self.assertEqual([m.text for m in self.found if m.kind == "swap"], ["w.store(1); w.store(2);"])

    def test_faults_with_the_same_text_are_told_apart_by_function_and_number(self):
        same = [m for m in self.found if m.text == "a += 4;"]
        self.assertEqual([(m.function, m.nth) for m in same], [("ring::twice", 1), ("ring::twice", 2)])
        self.assertEqual(len({m.name for m in self.found}), len(self.found))

    def test_a_sample_depends_on_its_seed_and_has_no_overlaps(self):
        first, again, other = (mutants.sample(self.found, 4, seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        everything = mutants.sample(self.found, 1000, 1)
        self.assertTrue(all(a.end <= b.begin for a, b in zip(everything, everything[1:])))

    def test_rounds_hold_each_mutant_once(self):
        rounds = list(mutants.rounds(self.found))
        self.assertEqual(sorted(m for chosen in rounds for m in chosen), self.found)
        for chosen in rounds:
            self.assertTrue(all(a.end <= b.begin for a, b in zip(chosen, chosen[1:])))

    def test_lines_of_planted_mutants_are_those_that_a_compiler_names(self):
        chosen = dict(enumerate(mutants.sample(self.found, 1000, 1), 1))
        lines = mutants.plant(self.root, self.tree, chosen)["include/dat/a.hpp"]
        text = (self.tree / "include/dat/a.hpp").read_text(encoding="utf-8").split("\n")
        for number, where in lines.items():
            self.assertIn(f"dat_mutant({number})", "\n".join(text[where.start - 1 : where.stop - 1]))
        message = f"{self.tree}/include/dat/a.hpp:{lines[2].start}:7: error: no"
        self.assertIn(2, run.blamed(message, self.tree, {"include/dat/a.hpp": lines}))
        self.assertEqual(run.blamed("x.cpp:3:1: error: no", self.tree, {"include/dat/a.hpp": lines}), set())


class counting(unittest.TestCase):
    def test_the_score_counts_what_was_found(self):
        one = mutants.mutant("a", 1, 0, 1, "invert", "a", "HERE")
        results = [run.outcome(one, end, 1, ()) for end in ("killed", "timed out", "survived", "not reached")]
        self.assertEqual(run.score(results), 0.5)
        self.assertEqual(run.score([]), 0.0)
        rows = [line.split() for line in run.table(results)]
        self.assertIn(["invert", "1", "1", "1", "1"], rows)

    def test_tests_with_a_fault_wait_longer_than_a_run(self):
        text = (run.ROOT / run.WAITS).read_bytes()
        self.assertIn(b"timeout plenty = 24h;", run.patient(text))
        self.assertEqual(len(run.patient(text)), len(text))

    def test_the_record_has_the_counts_of_each_kind(self):
        one = mutants.mutant("a", 1, 0, 1, "invert", "a", "HERE")
        results = [run.outcome(one, end, 1, ()) for end in ("killed", "timed out", "survived", "not reached")]
        results.append(run.outcome(one._replace(kind="swap"), "survived", 1, ()))
        kinds = {"invert": {"found": 2, "of": 4}, "swap": {"found": 0, "of": 1}}
        head = {"date": "2026-01-31", "sample": 6, "seed": 7, "found": 2, "of": 5}
        self.assertEqual(json.loads(run.record_of(results, 6, 7, "2026-01-31")), {**head, "kinds": kinds})

    def test_the_quick_cases_of_all_programs_run_first(self):
        unit, trace, _ = run.PROGRAMS
        slow, quick, other = (run.case(name, (), seconds, frozenset(), program) for name, seconds, program in (
            ("slow", 1.0, unit), ("quick", 0.0, unit), ("other", 0.0, trace)))  # fmt: skip
        self.assertEqual(run.in_order([slow, quick, other]), [(unit, [quick]), (trace, [other]), (unit, [slow])])
        many = [run.case(f"case {n}", (), 0.0, frozenset(range(n))) for n in range(run.FIRST, -1, -1)]
        self.assertEqual(run.in_order(many), [(unit, many[:0:-1]), (unit, many[:1])])

    def test_a_program_that_spins_ends_by_its_processor_time(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "spins"
            program.write_text("#!/bin/sh\nwhile :; do :; done\n", encoding="utf-8")
            program.chmod(0o755)
            with unittest.mock.patch.object(run.subprocess.Popen, "wait", lambda self, limit=None, wait=subprocess.Popen.wait: wait(self)):
                self.assertIsNone(run.run_cases(program, [], 2))

    def test_names_of_cases_are_escaped_as_catch2_takes_them(self):
        self.assertEqual(run.escaped('a "b", [c]*'), 'a \\"b\\"\\, \\[c\\]\\*')

    def test_equivalent_faults_exist_and_have_a_reason(self):
        names = {one.name for one in mutants.find(run.ROOT)}
        for name, reason in run.equivalents().items():
            self.assertIn(name, names)
            self.assertGreater(len(reason), 10)

    def test_an_equivalent_fault_is_one_of_those_with_its_text(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# comment\na.hpp | x::f | add one | 0 | one reason\na.hpp | x::f #2 | add one | 0 | another reason\n")
            file.flush()
            first, second = (("a.hpp", "x::f", "add one", "0", nth) for nth in (1, 2))
            self.assertEqual(run.equivalents(pathlib.Path(file.name)), {first: "one reason", second: "another reason"})

    def test_again_takes_what_an_earlier_run_has_not_found(self):
        every = [mutants.mutant("a", line, line, line + 1, "invert", text, "HERE", "f") for line, text in ((1, "a"), (2, "b"), (3, "c"))]
        rows = [{**one._replace(line=9)._asdict(), "end": end} for one, end in zip(every, ("killed", "survived", "not reached"))]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"results": rows}, file)
            file.flush()
            self.assertEqual(run.again(pathlib.Path(file.name), every), every[1:])

    def test_only_faults_that_a_race_can_show_have_a_second_pass(self):
        one = mutants.mutant("a", 1, 0, 1, "invert", "a", "HERE")
        results = [run.outcome(one, "survived", 1, ()), run.outcome(one._replace(kind="no lock"), "killed", 1, ())]
        nowhere = pathlib.Path("/nowhere")
        self.assertEqual(run.race(results, {}, nowhere, nowhere), results)


if __name__ == "__main__":
    unittest.main()
