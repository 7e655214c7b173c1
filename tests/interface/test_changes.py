#!/usr/bin/env python3
# Tests of the reader of the interface, and of the script that compares two versions of it.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import changes  # noqa: E402
import interface  # noqa: E402

BASE = """
namespace dat { inline namespace v0 {
namespace detail {
struct hidden { void inner(); };
/// What all handles have.
template <class Self> class handle {
public:
  /// Ends the object.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> close() noexcept;
  /// Opens the object again.
  ///
  /// Errors:
  /// - `invalid_handle`
  /// - `locked`: it is
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> reopen() noexcept;
protected:
  int core_;
};
}
/// A color.
enum class color { red, green };
/// A door.
class door : public detail::handle<door> {
public:
  door() noexcept = default; ///< names no door
  /// Opens it.
  void open(int width) noexcept;
  /// Opens it as far as a text says.
  template <class T> requires(sizeof(T) > 1) bool open(const T& text, int more = 3);
  static constexpr int most = 7;
  detail::hidden* native() const noexcept;
  explicit door(detail::hidden* h) noexcept;
  void wrong(int) noexcept;
private:
  int width_;
};
/// Shuts every door.
void shut_all();
}}
"""


def headers(at: pathlib.Path, text: str, version: tuple[int, int, int] = (0, 1, 0)) -> pathlib.Path:
    """A tree with one header and its version."""
    folder = at / "include/dat"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "door.hpp").write_text(text, encoding="utf-8")
    parts = "".join(f"#define DAT_VERSION_{name} {value}\n" for name, value in zip(("MAJOR", "MINOR", "PATCH"), version))
    (folder / "version.hpp").write_text(parts, encoding="utf-8")
    return at


class temporary(unittest.TestCase):
    """Tests with a folder of their own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def changes(self, new: str, version: tuple[int, int, int] = (0, 1, 0), *options: str) -> tuple[int, str, str]:
        """The exit code and the output for BASE and another text."""
        old = headers(self.work / "old", BASE)
        return self.run_main(str(old), str(headers(self.work / "new", new, version)), *options)

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        """The exit code, the output and the errors."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = changes.main(list(arguments), self.work)
        return code, out.getvalue(), errors.getvalue()


class the_reader(temporary):
    def test_it_finds_what_programs_may_name(self) -> None:
        found = changes.signatures(headers(self.work, BASE))
        self.assertEqual(found["dat::door::open"], {"void open(int width) noexcept",
                                                    "template <class T> requires (sizeof(T) > 1) bool open(const T& text, int more=3)"})  # fmt: skip
        self.assertEqual(found["dat::color::green"], {"green"})
        self.assertEqual(found["dat::shut_all"], {"void shut_all()"})
        self.assertIn("dat::door::most", found)

    def test_members_of_private_bases_of_the_library_are_those_of_the_class(self) -> None:
        self.assertEqual(changes.signatures(headers(self.work, BASE))["dat::door::close"], {"expected<void> close() noexcept"})

    def test_private_names_are_none(self) -> None:
        found = changes.signatures(headers(self.work, BASE))
        self.assertEqual([name for name in found if "detail" in name or "hidden" in name], [])
        for name in ("width_", "core_", "native", "wrong"):
            self.assertNotIn(f"dat::door::{name}", found)
        self.assertEqual(found["dat::door::door"], {"door() noexcept=default"})

    def test_the_lines_of_the_fields_become_sections(self) -> None:
        door = next(one for one in interface.read(headers(self.work, BASE)) if one.name == "dat::door")
        close = next(one for one in door.members if one.name == "dat::door::close")
        sections = {interface.plain(s.find("xreftitle")): interface.plain(s.find("xrefdescription")) for d in close.doc for s in d.iter("xrefsect")}
        self.assertEqual(sections, {"Errors": "invalid_handle.", "Allocates": "no.", "Blocks": "no.", "Thread safety": "safe."})

    def test_a_list_of_errors_ends_where_the_next_field_begins(self) -> None:
        door = next(one for one in interface.read(headers(self.work, BASE)) if one.name == "dat::door")
        reopen = next(one for one in door.members if one.name == "dat::door::reopen")
        sections = {interface.plain(s.find("xreftitle")): interface.plain(s.find("xrefdescription")) for d in reopen.doc for s in d.iter("xrefsect")}
        self.assertEqual(sections["Errors"].split(), ["invalid_handle", "locked:", "it", "is"])
        self.assertEqual({name: text for name, text in sections.items() if name != "Errors"}, {"Allocates": "no.", "Blocks": "no.", "Thread safety": "safe."})

    def test_a_private_class_that_the_library_defines_is_none(self) -> None:
        at = headers(self.work, BASE + "namespace dat { inline namespace v0 { class gate { public: gate(); private: class impl; impl* p; }; }}")
        inside = at / "detail/dat/detail/gate.hpp"
        inside.parent.mkdir(parents=True)
        inside.write_text("namespace dat { inline namespace v0 { class gate::impl { public: void shut(); }; }}\n", encoding="utf-8")
        found = changes.signatures(at)
        self.assertIn("dat::gate::gate", found)
        self.assertEqual([name for name in found if "impl" in name], [])


class the_headers_of_dat(unittest.TestCase):
    """The text of the site's reference about the changes."""

    names = [one for top in interface.read(ROOT) for one in top.all()]

    def test_a_function_that_can_fail_has_all_fields(self) -> None:
        for one in self.names:
            if one.kind == "function" and "expected<" in one.signature.partition("(")[0] and one.doc:
                titles = " ".join(interface.plain(s.find("xreftitle")) for d in one.doc for s in d.iter("xrefsect")).lower()
                self.assertEqual([name for name in interface.FIELDS if name.lower() not in titles], [], f"{one.header}:{one.line}: {one.name}")

    def test_each_name_but_a_function_is_documented(self) -> None:
        self.assertEqual([f"{one.header}:{one.line}: {one.name}" for one in interface.read(ROOT) if one.kind != "function" and not one.doc], [])


class the_differences(temporary):
    def test_none(self) -> None:
        self.assertEqual(self.changes(BASE), (0, "The interfaces are the same.\n\n", ""))

    def test_comments_and_private_names_are_none(self) -> None:
        text = BASE.replace("/// Opens it.", "/// Opens the door.").replace("int width_;", "long width_; int more_;").replace("inner()", "inner(int)")
        self.assertIn("are the same", self.changes(text)[1])

    def test_an_added_function(self) -> None:
        said = self.changes(BASE.replace("void shut_all();", "void shut_all(); void lock_all();"))[1]
        self.assertEqual(said.split(), "### Added - `dat::lock_all`".split())

    def test_a_removed_function(self) -> None:
        said = self.changes(BASE.replace("void shut_all();", ""))[1]
        self.assertEqual(said.split(), "### Breaking: removed - `dat::shut_all`".split())

    def test_a_changed_function(self) -> None:
        said = self.changes(BASE.replace("void shut_all();", "int shut_all();"))[1]
        self.assertIn("### Breaking: changed", said)
        self.assertIn("`dat::shut_all`: was `void shut_all()`; is `int shut_all()`", said)
        self.assertNotIn("Added", said)

    def test_an_overload_that_comes_or_goes(self) -> None:
        line = "  void open(int width) noexcept;"
        self.assertIn("removed\n\n- `dat::door::open`: the overload `void open(int width) noexcept`", self.changes(BASE.replace(line, ""))[1])
        self.assertIn("Added\n\n- `dat::door::open`: the overload `void open(long wide)`", self.changes(BASE.replace(line, line + " void open(long wide);"))[1])

    def test_an_inherited_function_that_goes(self) -> None:
        self.assertIn("removed\n\n- `dat::door::close`", self.changes(BASE.replace("expected<void> close() noexcept;", ""))[1])

    def test_a_member_that_moves_to_a_base_is_no_change(self) -> None:
        line = "  static constexpr int most = 7;"
        text = BASE.replace(line + "\n", "").replace("  /// Ends the object.", line + "\n  /// Ends the object.")
        self.assertIn("are the same", self.changes(text)[1])

    def test_an_enumerator_that_goes(self) -> None:
        self.assertIn("`dat::color::green`", self.changes(BASE.replace(", green", ""))[1])

    def test_a_class_that_goes_is_one_line(self) -> None:
        start, end = BASE.index("/// A door."), BASE.index("/// Shuts")
        said = self.changes(BASE[:start] + BASE[end:])[1]
        self.assertEqual(said.count("- `"), 1)
        self.assertIn("`dat::door`", said)


class the_version(temporary):
    ADDED = BASE.replace("void shut_all();", "void shut_all(); void lock_all();")
    REMOVED = BASE.replace("void shut_all();", "")

    def test_numbers_that_fit(self) -> None:
        for text, version in ((BASE, (0, 1, 1)), (self.ADDED, (0, 2, 0)), (self.REMOVED, (0, 2, 0)), (self.REMOVED, (1, 0, 0))):
            self.assertEqual(self.changes(text, version, "--check")[::2], (0, ""), version)

    def test_numbers_that_do_not_fit(self) -> None:
        for text, version, why in ((self.ADDED, (0, 1, 1), "grows"), (self.REMOVED, (0, 1, 9), "at least 0.2.0, not 0.1.9"), (BASE, (0, 0, 9), "lower than 0.1.0")):
            code, _, errors = self.changes(text, version, "--check")
            self.assertEqual(code, 1)
            self.assertIn(why, errors)

    def test_after_1_0_a_break_needs_a_new_major_number(self) -> None:
        broken, grown = changes.difference(removed=["x"]), changes.difference(added=["x"])
        self.assertIn("at least 2.0.0", changes.objection((1, 4, 0), (1, 5, 0), broken))
        self.assertEqual(changes.objection((1, 4, 0), (2, 0, 0), broken), "")
        self.assertEqual(changes.objection((1, 4, 0), (1, 5, 0), grown), "")

    def test_what_is_no_version(self) -> None:
        code, _, errors = self.run_main("no-such-tag")
        self.assertEqual(code, 2)
        self.assertIn("'no-such-tag' is neither a folder with include/dat nor a tag or commit", errors)

    def test_commits(self) -> None:
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.invalid", "-C", str(self.work)]
        (self.work / "detail").mkdir()
        (self.work / "detail/empty").touch()
        headers(self.work, BASE)
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
            subprocess.run([*git, *command], check=True)
        headers(self.work, self.ADDED)
        subprocess.run([*git, "commit", "-qam", "two"], check=True)
        self.assertIn("dat::lock_all", self.run_main("v1", "HEAD")[1])
        self.assertIn("dat::lock_all", self.run_main("v1")[1])
        self.assertIn("are the same", self.run_main("HEAD")[1])


if __name__ == "__main__":
    unittest.main()
