#!/usr/bin/env python3
# Tests of the peers' table: outputs of programs, verdicts, missing peers, the page, bad arguments.
# SPDX-License-Identifier: BSL-1.0
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import guest  # noqa: E402
import page  # noqa: E402
import parsing  # noqa: E402
import programs  # noqa: E402
import results  # noqa: E402
import run  # noqa: E402
import samples  # noqa: E402
import verdicts  # noqa: E402
from verdicts import ratio  # noqa: E402


class outputs(unittest.TestCase):
    def test_every_parser_reads_the_output_of_its_program(self):
        self.assertEqual({name for name, *_ in samples.RECORDED}, set(parsing.PARSERS))
        for name, text, value in samples.RECORDED:
            with self.subTest(name):
                self.assertAlmostEqual(parsing.PARSERS[name](text), value)

    def test_an_output_without_a_value_gives_its_error(self):
        for name, parser in parsing.PARSERS.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, "Couldn't connect to 10.78.1.1"):
                parser("starting\nCouldn't connect to 10.78.1.1:18515\n-----\n")

    def test_a_value_of_zero_is_no_value(self):
        with self.assertRaises(ValueError):
            parsing.own("result 0.0000\n")

    def test_system_calls_are_those_of_later_threads(self):
        self.assertEqual(parsing.system_calls(samples.HISTOGRAM, 183), 239)
        with self.assertRaisesRegex(ValueError, "not complete"):
            parsing.system_calls(samples.HISTOGRAM.replace("Dropped: 0", "Dropped: 2"), 183)

    def test_an_empty_output_is_named(self):
        self.assertEqual(parsing.problem("\n \n"), "no output")


class noise(unittest.TestCase):
    def test_a_ratio_is_that_to_the_turns_beside_it(self):
        one = verdicts.ratio_of([(20.0, 10.0, 10.0), (60.0, 20.0, 40.0)], more_is_better=False)
        self.assertEqual((one.median, one.turns), (2.0, 2))

    def test_a_higher_rate_is_a_lower_ratio(self):
        self.assertEqual(verdicts.ratio_of([(200.0, 100.0, 100.0)], more_is_better=True).median, 0.5)

    def test_noise_is_half_of_the_range_and_never_nothing(self):
        self.assertAlmostEqual(verdicts.ratio_of([(10, 10, 10), (14, 10, 10), (12, 10, 10)], False).noise, 0.2)
        self.assertEqual(verdicts.ratio_of([(10, 10, 10)], False).noise, verdicts.FLOOR)

    def test_a_verdict_needs_a_difference_beyond_the_noise_of_both(self):
        dat = ratio(1.0, 0.1, 3)
        self.assertEqual(verdicts.verdict(dat, ratio(1.3, 0.1, 3)), "ahead")
        self.assertEqual(verdicts.verdict(dat, ratio(0.7, 0.1, 3)), "behind")
        self.assertEqual(verdicts.verdict(dat, ratio(1.15, 0.1, 3)), "within noise")
        self.assertEqual(verdicts.verdict(dat, ratio(0.85, 0.1, 3)), "within noise")

    def test_one_turn_is_no_verdict(self):
        self.assertEqual(verdicts.verdict(ratio(1.0, 0.01, 1), ratio(9.0, 0.01, 1)), "within noise")

    def test_one_peer_that_is_faster_makes_dat_behind(self):
        dat, slow, fast = ratio(1.0, 0.01, 2), ratio(2.0, 0.01, 2), ratio(0.5, 0.01, 2)
        self.assertEqual(verdicts.ahead_of(dat, {"a": slow, "b": fast}), ("behind", ["b"]))
        self.assertEqual(verdicts.ahead_of(dat, {"a": slow}), ("ahead", []))

    def test_a_row_that_is_behind_needs_a_reason(self):
        rows = {"x": "behind", "y": "ahead", "z": "behind", "w": "within noise"}
        self.assertEqual(verdicts.missing_reasons(rows, {"x": "because"}), ["z"])
        self.assertEqual(verdicts.missing_reasons(rows, {"x": " ", "z": "because"}), ["x"])


def line(peer: str, value: float, **more: object) -> dict:
    return {"work": "latency", "bytes": 8, "mode": "waiting", "path": "wire", "peer": peer, "value": value, "before": 10.0, "after": 10.0} | more


class rows(unittest.TestCase):
    lines = [line("dat lean", 11.0), line("dat lean", 11.0), line("UCX", 30.0), line("UCX", 30.0), line("perftest", 10.0), line("perftest", 10.0),
             {"work": "latency", "bytes": 8, "mode": "waiting", "path": "wire", "peer": "libfabric", "error": "it | only polls"},
             {"cost": "calls", "peer": "verbs", "value": 4.0}, {"cost": "calls", "peer": "dat lean", "value": 5.0}]  # fmt: skip

    def test_rows_have_ratios_verdicts_and_what_is_missing(self):
        one, cost = results.rows_of(self.lines)
        self.assertEqual((one.name, one.by_hand), ("latency 8 waiting wire", 10.0))
        self.assertEqual(one.judged(), ("behind", ["perftest"]))
        self.assertEqual(one.missing, {"libfabric": "it | only polls"})
        self.assertEqual((cost.name, cost.ratios["dat lean"].median), ("system calls", 1.25))

    def test_the_page_names_missing_peers_and_reasons(self):
        made = results.rows_of(self.lines)
        text = page.page(made, {"latency 8 waiting wire": "Because."}, {"date": "today"}, "lines")
        self.assertIn("| libfabric | latency 8 waiting wire | it / only polls |", text)
        self.assertIn("| latency 8 waiting wire | perftest | Because. |", text)
        self.assertIn("| 1.10 ±0.01 |", text)

    def test_one_turn_of_the_counted_machine_is_a_verdict_and_connections_have_more_noise(self):
        one, two = results.rows_of([line("dat lean", 11.0), line("UCX", 12.0),
                                    line("dat lean", 10.0, work="connections", bytes=0), line("UCX", 9.5, work="connections", bytes=0)])  # fmt: skip
        self.assertEqual(one.judged(), ("ahead", []))
        self.assertEqual((two.name, two.unit, two.judged()), ("connections", "per second", ("within noise", ["UCX"])))

    def test_heap_is_less_is_better(self):
        (one,) = results.rows_of([line("dat manual", 20.0, work="heap", bytes=0), line("libfabric", 30.0, work="heap", bytes=0)])
        self.assertEqual((one.ratios["dat manual"].median, one.judged()), (2.0, ("ahead", [])))

    def test_a_way_of_dat_that_does_not_differ_is_not_missing(self):
        made = results.rows_of([*self.lines, {"work": "latency", "bytes": 8, "mode": "waiting", "path": "wire", "peer": "dat manual", "error": programs.AS_LEAN + ": x"}])
        self.assertNotIn("dat manual", page.missing_table(made))

    def test_a_line_that_is_cut_off_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "not a result"):
            results.lines_of('{"work": "lat')
        self.assertEqual(results.lines_of("a message\n" + json.dumps({"load": 1}) + "\n"), [{"load": 1}])


class peers(unittest.TestCase):
    def test_each_peer_has_commands_or_a_reason_for_each_turn(self):
        for peer in [programs.BY_HAND, *programs.PEERS, *programs.OURS]:
            for what, size in programs.WORKS:
                for mode in ("polled", "waiting"):
                    made = programs.turn_of(programs.work(peer, what, size, mode, "wire"), 50, 21001, pathlib.Path("/b"))
                    with self.subTest(peer=peer, what=what, mode=mode):
                        if isinstance(made, str):
                            self.assertGreater(len(made), 10)
                        else:
                            self.assertIn(made.parser, parsing.PARSERS)
                            self.assertRegex(made.ready, r"^(tcp \d+|line \w.*)$")

    def session(self, folder: str) -> guest.session:
        return guest.session({"build": folder}, pathlib.Path(folder))

    def test_a_peer_that_is_not_installed_is_named(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "/own: No such file or directory"):
            self.session(folder).measure(programs.work("verbs", "latency", 8, "waiting", "wire"), 10)

    def test_a_server_that_ends_is_named_with_its_error(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "server: error: no device"):
            guest.run(programs.turn(["sh", "-c", "echo error: no device; exit 1"], ["true"], "line ready", "own"), [], pathlib.Path(folder), 60)

    def test_a_client_that_fails_is_named_with_its_error(self):
        one = programs.turn(["sh", "-c", "echo ready; read x"], ["sh", "-c", "echo cannot open rx9; exit 3"], "line ready", "own")
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "exit code 3: cannot open rx9"):
            guest.run(one, [], pathlib.Path(folder), 60)

    def test_a_turn_gives_the_output_of_the_client(self):
        one = programs.turn(["sh", "-c", "echo ready; read x"], ["echo", "result 5.0"], "line ready", "own")
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(guest.run(one, [], pathlib.Path(folder), 60), "result 5.0\n")


class arguments(unittest.TestCase):
    def refuses(self, expected: str, *words: str) -> None:
        done = subprocess.run([sys.executable, HERE / "run.py", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(expected, done.stdout + done.stderr)

    def test_bad_arguments_name_what_may_be(self):
        self.refuses("'0' is no whole number from 1 to 100", "--rounds", "0")
        self.refuses("no peer 'MPI'; there are OFA DAPL", "--peers", "MPI,UCX")
        self.refuses("configure with -Dbench=enabled", "--build", "/nonexistent")

    def test_code_lines_leave_comments_and_blank_lines_out(self):
        self.assertEqual(run.code_lines("// a\n\nint b; // c\n  /// d\n}\n"), 2)


if __name__ == "__main__":
    unittest.main()
