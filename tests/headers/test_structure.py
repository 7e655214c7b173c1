#!/usr/bin/env python3
# Tests of the layers, of the rules for texts and of the list of debts: each lets good headers pass and finds bad ones.
# SPDX-License-Identifier: BSL-1.0
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check  # noqa: E402
import debt  # noqa: E402
import prose  # noqa: E402
import structure  # noqa: E402

LOW = "detail/dat/detail/adapter/low.hpp"
HIGH = "detail/dat/detail/endpoint/high.hpp"
HIGH_TEXT = "namespace dat { inline namespace v0 { namespace detail {\nclass ep_core {\n  int f();\n};\n}}}\n"


def of(files):
    """A tree with the given files."""
    return structure.Tree({name: check.blank_comments(text) for name, text in files.items()}, files)


class layers(unittest.TestCase):
    def test_folders_and_public_headers_have_layers(self):
        low, high = structure.layer_of(LOW), structure.layer_of(HIGH)
        self.assertLess(structure.layer_of("detail/dat/detail/base/ref.hpp"), low)
        self.assertLess(structure.layer_of("include/dat/error.hpp"), low)
        self.assertLess(low, high)
        self.assertLess(high, structure.layer_of("include/dat/ep.hpp"))

    def test_the_bodies_of_a_public_header_are_of_its_layer(self):
        for name in ("error", "ep"):
            self.assertEqual(structure.layer_of(f"detail/dat/detail/impl/{name}.ipp"), structure.layer_of(f"include/dat/{name}.hpp"))

    def test_a_folder_without_a_layer_is_found(self):
        self.assertEqual(structure.unknown_folders(of({LOW: "", "detail/dat/detail/odd/x.hpp": ""})), ["odd/"])

    def test_an_include_that_runs_down_passes(self):
        self.assertEqual(structure.upward_includes(of({HIGH: "#include <dat/detail/adapter/low.hpp>\n#include <dat/error.hpp>\n"})), {})

    def test_an_include_that_runs_upward_is_found(self):
        found = structure.upward_includes(of({LOW: "#include <dat/detail/endpoint/high.hpp>\n// #include <dat/ep.hpp>\n"}))
        self.assertEqual(found, {f"include {LOW} -> {HIGH}": 1})

    def test_a_header_may_include_its_bodies(self):
        files = {"include/dat/error.hpp": "#include <dat/detail/impl/error.ipp>\n", LOW: "#include <dat/detail/adapter/low.ipp>\n"}
        self.assertEqual(structure.upward_includes(of(files)), {})

    def test_the_source_of_all_definitions_may_include_everything(self):
        self.assertEqual(structure.upward_includes(of({"include/dat/src.hpp": "#include <dat/detail/delivery/x.ipp>\n"})), {})


class uses(unittest.TestCase):
    def found(self, low):
        files = of({LOW: low, HIGH: HIGH_TEXT})
        return structure.upward_uses(files, structure.classes(files))

    def test_a_name_of_a_higher_class_is_found(self):
        self.assertEqual(self.found("void f(ep_core& e);\nint g(ep_core*);\n"), {f"use {LOW} ep_core": 2})

    def test_a_forward_declaration_is_found(self):
        self.assertEqual(self.found("namespace dat { class ep_core; }\n"), {f"use {LOW} ep_core": 1})

    def test_a_friend_is_found(self):
        self.assertEqual(self.found("class a {\n  friend class ep_core;\n};\n"), {f"use {LOW} ep_core": 1})

    def test_comments_and_texts_pass(self):
        self.assertEqual(self.found('// ep_core\n/// of an ep_core\nconst char* t = "ep_core";\n'), {})

    def test_members_of_that_name_pass(self):
        self.assertEqual(self.found("void f() { x.ep_core(); y->ep_core = 1; }\n"), {})

    def test_a_variable_of_that_name_passes(self):
        self.assertEqual(self.found("void f(int ep_core) { return g(ep_core); }\n"), {})

    def test_members_of_another_class_pass(self):
        self.assertEqual(self.found("DAT_DECL int other::ep_core(int a) { return other::ep_core; }\n"), {})
        self.assertEqual(self.found("int f(detail::ep_core&);\nint n = ep_core::limit;\n"), {f"use {LOW} ep_core": 2})

    def test_a_nested_class_of_that_name_passes(self):
        self.assertEqual(self.found("class a {\n  struct ep_core : b {\n  };\n  list<ep_core> all;\n};\n"), {})

    def test_a_nested_class_that_stands_apart_passes(self):
        self.assertEqual(self.found("class a {\n  class ep_core;\n};\nvoid a::f() { const ep_core me(*this); }\n"), {})
        self.assertEqual(self.found("class a::ep_core {\n  ep_core();\n};\n"), {})

    def test_a_lower_class_may_be_named(self):
        files = of({LOW: HIGH_TEXT, HIGH: "void f(ep_core&);\n"})
        self.assertEqual(structure.upward_uses(files, structure.classes(files)), {})


class class_graph(unittest.TestCase):
    def cycles(self, code, path=LOW):
        return structure.cycles(structure.classes(of({path: code})))

    def body(self, name, text):
        return f"class {name} {{\n{text}\n" + "  int x;\n" * structure.HELPER + "};\n"

    def test_two_classes_that_name_each_other_are_a_cycle(self):
        self.assertEqual(self.cycles(self.body("aa", "bb* b;") + self.body("bb", "aa* a;")), [["aa", "bb"]])

    def test_one_way_is_none(self):
        self.assertEqual(self.cycles(self.body("aa", "bb* b;") + self.body("bb", "")), [])

    def test_a_friend_is_no_name(self):
        self.assertEqual(self.cycles(self.body("aa", "bb* b;") + self.body("bb", "friend class aa;")), [])

    def test_bodies_that_stand_apart_count(self):
        apart = "DAT_DECL int bb::f() noexcept { return aa::g(); }\n"
        self.assertEqual(self.cycles(self.body("aa", "bb* b;") + self.body("bb", "") + apart), [["aa", "bb"]])

    def test_a_nested_class_that_stands_apart_counts(self):
        apart = "struct bb::inner {\n  aa* a;\n};\n"
        self.assertEqual(self.cycles(self.body("aa", "bb* b;") + self.body("bb", "") + apart), [["aa", "bb"]])

    def test_a_small_helper_counts_as_the_class_of_its_file(self):
        self.assertEqual(self.cycles(self.body("aa", "bb* b;") + "struct bb {\n  aa* a;\n};\n"), [])

    def test_three_classes_in_a_ring_are_one_cycle(self):
        ring = self.body("aa", "bb* b;") + self.body("bb", "cc* c;") + self.body("cc", "aa* a;") + self.body("dd", "aa* a;")
        self.assertEqual(self.cycles(ring), [["aa", "bb", "cc"]])

    def test_values_of_the_vocabulary_are_no_core_classes(self):
        ring = self.body("aa", "bb* b;") + self.body("bb", "aa* a;")
        self.assertEqual(self.cycles(ring, "detail/dat/detail/text/x.hpp"), [])


class numbers(unittest.TestCase):
    def test_headers_that_are_drawn(self):
        files = of(
            {
                "include/dat/a.hpp": "#include <dat/b.hpp>\n#include <vector>\n#ifndef DAT_SEPARATE_COMPILATION\n#include <dat/c.hpp>\n#endif\n",
                "include/dat/b.hpp": "#include <dat/a.hpp>\n",
                "include/dat/c.hpp": "",
            }
        )
        self.assertEqual(len(structure.drawn(files, "include/dat/a.hpp", True)), 2)
        self.assertEqual(len(structure.drawn(files, "include/dat/a.hpp", False)), 3)

    def test_friend_lines(self):
        code = "  friend class a;\n  friend struct b::c;\n  template <class T>\n  friend class d;\n  friend bool operator==(a, b);\n// friend class e;\n"
        self.assertEqual(structure.friend_lines(of({LOW: code})), 3)

    def test_a_route_whose_file_is_gone_or_has_changed_is_found(self):
        files = of({LOW: "void f();\n"})
        self.assertEqual(structure.stale_route(files, "x", [(LOW, "f")]), {})
        self.assertEqual(len(structure.stale_route(files, "x", [(LOW, "g"), (HIGH, "f")])), 2)

    def test_long_files_explain_themselves(self):
        long = "x\n" * (structure.LONG + 1)
        good = "// One queue of posted work: its entries, their order, their end.\n" + long
        self.assertEqual(structure.unexplained(of({LOW: good, HIGH: "// Short.\n"})), {})
        self.assertEqual(structure.unexplained(of({LOW: "// Work.\n" + long})), {f"unexplained {LOW}": 1})

    def test_the_tree_is_measured(self):
        found = structure.measure(pathlib.Path(__file__).resolve().parents[2])
        self.assertEqual(set(found.values), set(structure.LIMITS))
        self.assertIn("headers that <dat/lmr.hpp> draws", structure.report(found, {}))


class debts(unittest.TestCase):
    def test_what_is_listed_passes(self):
        self.assertEqual(debt.compare({"use a b": 2}, {"use a b": 2}, {"use"}), [])

    def test_what_is_not_listed_fails(self):
        self.assertEqual(debt.compare({"use a b": 1}, {}, {"use"}), ["use a b: 1"])
        self.assertEqual(len(debt.compare({"use a b": 3}, {"use a b": 2}, {"use"})), 1)

    def test_what_is_gone_fails_until_it_is_removed(self):
        self.assertIn("Remove it", debt.compare({}, {"use a b": 1}, {"use"})[0])
        self.assertIn("only 1 of 2", debt.compare({"use a b": 1}, {"use a b": 2}, {"use"})[0])

    def test_other_rules_do_not_matter(self):
        self.assertEqual(debt.compare({}, {"hint a": 1}, {"use"}), [])

    def test_a_list_is_written_and_read(self):
        counts = {"use b": 2, "use a": 1, "use c": 0}
        text = debt.render(counts)
        self.assertEqual(debt.parse(text), {"use a": 1, "use b": 2})
        self.assertLess(text.index("use a"), text.index("use b"))

    def test_a_list_is_not_written_where_it_grows(self):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
            file = pathlib.Path(name) / "debt.txt"
            file.write_text(debt.render({"use a": 2, "hint a": 1}))
            self.assertEqual(debt.write(file, {"use a": 3}, {"use"}, False), 1)
            self.assertEqual(debt.read(file), {"use a": 2, "hint a": 1})
            self.assertEqual(debt.write(file, {"use a": 1}, {"use"}, False), 0)
            self.assertEqual(debt.read(file), {"use a": 1, "hint a": 1})
            self.assertEqual(debt.write(file, {"use a": 3}, {"use"}, True), 0)
            self.assertEqual(debt.read(file), {"use a": 3, "hint a": 1})


class hint_texts(unittest.TestCase):
    def found(self, code):
        return [v.text.partition('"')[2].rstrip('"') for v in prose.hints("x.hpp", code)]

    def test_sentences_pass(self):
        self.assertEqual(self.found('return e.hint("Take events first, or resize the evd.");'), [])
        self.assertEqual(self.found('return e.hint("`ulimit -l` says how much may be locked.");'), [])
        self.assertEqual(self.found('// hint("no sentence")\nauto t = e.hint();'), [])

    def test_fragments_are_found(self):
        self.assertEqual(self.found('e.hint("take events first.");'), ["take events first."])
        self.assertEqual(self.found('e.hint("Take events first");'), ["Take events first"])

    def test_variables_and_functions_that_pass_a_hint_on_count(self):
        self.assertEqual(self.found('what = "it is bad"; if (a) what = "It is good."; e.hint(what);'), ["it is bad"])
        code = 'error gone(int a, const char* hint);\nreturn gone(1, "it is bad");\nreturn lost("no hint at all");'
        self.assertEqual(self.found(code), ["it is bad"])

    def test_the_name_of_a_call_is_no_hint(self):
        self.assertEqual(self.found('const char* hint = good; e.at("a call", f(1)).hint("Good.");'), [])

    def test_literals_are_joined(self):
        self.assertEqual(self.found('e.hint("Take events "\n       "first.");'), [])
        self.assertEqual(self.found('e.hint("Take events. "\n       "first");'), ["Take events. first"])

    def test_each_text_of_a_choice_counts(self):
        self.assertEqual(self.found('e.hint(a ? "Good." : f(x) ? "it is bad" : "Good, too.");'), ["it is bad"])

    def test_constants_count(self):
        self.assertEqual(self.found('inline constexpr char quiet_hint[] = "it is bad";\nconst char* hint = "Good.";'), ["it is bad"])

    def test_a_semicolon_in_a_text_does_not_end_it(self):
        self.assertEqual(self.found('e.hint("Good; this, too.") ; g("bad");'), [])


class documentation(unittest.TestCase):
    FULL = "/// Does it.\n/// Errors: none.\n/// Allocates: never.\n/// Blocks: no.\n/// Thread safety: safe.\n"

    def missing(self, code):
        return [v.text.split("`")[3].rstrip(":") for v in prose.form("x.hpp", code)]

    def test_the_full_form_passes(self):
        self.assertEqual(self.missing(self.FULL + "[[nodiscard]] expected<int> f(int a = {}) const noexcept;\n"), [])

    def test_lines_may_be_joined(self):
        doc = "/// Does it by an id.\n/// Errors, Allocates, Blocks and Thread safety: as f.\n"
        self.assertEqual(self.missing(doc + "expected<int> f();\n"), [])

    def test_a_missing_line_is_found(self):
        doc = self.FULL.replace("/// Blocks: no.\n", "")
        self.assertEqual(self.missing(f"class a {{\npublic:\n{doc}  template <class T>\n  expected<T> f();\n}};\n"), ["Blocks"])

    def test_a_function_without_comment_lacks_all(self):
        self.assertEqual(self.missing("expected<int> f();\n"), list(prose.FORM))
        self.assertEqual(self.missing("auto f() -> expected<int>;\n"), list(prose.FORM))

    def test_what_users_do_not_see_passes(self):
        self.assertEqual(self.missing("class a {\n  expected<int> f();\n};\nnamespace detail {\nexpected<int> g();\n}\n"), [])

    def test_functions_that_cannot_fail_pass(self):
        self.assertEqual(self.missing("int f();\nvoid g(expected<int> e);\n"), [])

    def test_the_beginning_of_comments(self):
        def found(text):
            return len(prose.starts("x.hpp", text))

        self.assertEqual(found("/// Takes one\n/// of many.\nint a; ///< Length.\n/// dat_strerror (§7.1).\n// why\n"), 0)
        self.assertEqual(found("/// takes one\nint a;\n"), 1)
        self.assertEqual(found("/// The same for b.\nint b;\n\n/// and of c.\nint c;\n"), 2)

    def test_persons(self):
        def found(text):
            return [v.line for v in prose.persons("x.hpp", text)]

        self.assertEqual(found('// The thread whose wait ended.\nconst char* t = "who";\nint who;\n'), [])
        self.assertEqual(found("int a; // Who appends kicks.\n/// The caller.\n/* nobody */\n"), [1, 3])


if __name__ == "__main__":
    unittest.main()
