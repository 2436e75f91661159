"""Tests the faults that text rules find, and when a remembered pass is no longer valid."""

import contextlib
import hashlib
import io
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_members
import check_words
import lint


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def faults(self, name, text):
        self.write(name, text)
        return lint.check_text([name], self.root)

    def test_sound_text_has_no_fault(self):
        self.assertEqual(self.faults("src/base/a.h", "#pragma once\n" + "x" * 100 + "\n"), [])

    def test_columns_are_counted(self):
        self.assertIn("101 columns", self.faults("src/base/a.cc", "x" * 101)[0])

    def test_comments_begin_with_their_subject(self):
        for comment in ("// What it holds.", "int x;  // of a row", "  /// Whose turn it is.", "// Rows. What follows is one."):
            self.assertIn("begins with its subject", self.faults("src/base/a.cc", comment)[0])
        sound = '// The rows\n// of a half.\nint rows;  // rows of a half\nauto url = "http:// of nobody";\n'
        self.assertEqual(self.faults("src/base/a.cc", sound), [])
        for name in ("web/src/a.js", "web/src/a.jsx", "web/test/a.mjs"):
            self.assertIn("begins with its subject", self.faults(name, "let x; // what it holds\n")[0])
        for comment in ("# What it holds.\n", "X = 1  # of a row\n", '    """Of the library."""\n', "# Rows: a few. Of these one.\n"):
            self.assertIn("begins with its subject", self.faults("tools/a.py", comment)[0])
        self.assertEqual(self.faults("tools/a.py", '# The rows\n# of a half.\nprint("# of nobody", """What?""")\n'), [])

    def test_pages_are_narrow_and_tables_need_not_be(self):
        wide = "a word " * 18
        self.assertIn("README.md:2: 126 columns", self.faults("README.md", f"# a\n{wide}\n")[0])
        self.assertIn("README.md:2: 130 columns", self.faults("README.md", f"# a\n    {wide}\n")[0])
        self.assertIn("README.md:3: 126 columns", self.faults("README.md", f"# a\n```\n{wide}\n```\n")[0])
        self.assertEqual(self.faults("README.md", f"| {wide}|\n\n`{wide}`\n"), [])

    def test_files_have_an_end_and_kernels_a_later_one(self):
        self.assertIn("401 lines", self.faults("src/base/a.cc", "\n" * 401)[0])
        self.assertEqual(self.faults("src/compute/kernels/a.cc", "\n" * 700), [])
        self.assertIn("701 lines", self.faults("src/compute/kernels/a.cc", "\n" * 701)[0])

    def test_places_are_found_in_every_text(self):
        self.assertIn("names the place", self.faults("README.md", "see /" + "work/main")[0])
        self.assertIn("names the place", self.faults("tools/x.py", "# /" + "home/someone")[0])
        self.assertEqual(self.faults("README.md", "a shared expert, std::shared_ptr, work/ahead"), [])

    def test_the_product_has_mutexes_that_clang_checks(self):
        self.assertIn("base/mutex.h", self.faults("bench/a.cc", "std::mutex mutex;")[0])
        self.assertIn("base/mutex.h", self.faults("src/base/a.cc", "std::shared_mutex mutex;")[0])
        for name in ("src/base/mutex_test.cc", "src/server/tests/a.cc", "src/base/a_testing.cc", "fuzz/a_fuzz.cc"):
            self.assertEqual(self.faults(name, "std::mutex mutex;"), [])
        self.assertEqual(self.faults("src/base/b.cc", "std::condition_variable news;"), [])

    def test_marks_of_a_merge(self):
        self.assertIn("a mark of a merge", self.faults("README.md", "<" * 7 + " HEAD")[0])
        self.assertEqual(self.faults("README.md", "a << 7, \n=======\n"), [])

    def test_loose_ends_and_missing_guards(self):
        self.assertIn("a loose end", self.faults("src/base/a.cc", "// TO" + "DO later")[0])
        self.assertIn("no #pragma once", self.faults("src/base/a.h", "int x;\n")[0])

    @unittest.skipUnless(shutil.which(lint.CLANG), f"{lint.CLANG} is not installed")
    def test_clang_finds_a_guarded_member_that_is_used_without_its_mutex(self):
        body = """#include "base/mutex.h"
struct Counts {
  hocket::Mutex mutex;
  int num HOCKET_GUARDED_BY(mutex) = 0;
  void grow() HOCKET_REQUIRES(mutex) { ++num; }
  int look() { %s return num; }
  void count() { %s grow(); }
};
"""
        lock = "const hocket::MutexLock lock(mutex);"
        self.assertIn("--extra-arg=-Wthread-safety", lint.TIDY_ARGUMENTS)
        for first, second, fault in (
            (lock, lock, None),
            ("", lock, "reading variable 'num' requires holding mutex"),
            (lock, "", "calling function 'grow' requires holding mutex"),
        ):
            self.write("a.cc", body % (first, second))
            command = [lint.CLANG, "-std=c++23", "-fsyntax-only", "-Wthread-safety", f"-I{lint.ROOT / 'src'}", self.root / "a.cc"]
            found = subprocess.run(command, capture_output=True, text=True).stderr
            self.assertIn(fault, found) if fault else self.assertEqual(found, "")

    def test_a_page_that_is_cited_exists(self):
        gone, here = "docs" + "/gone.md", "docs" + "/here.md"  # cut in two, so that this file passes too
        self.assertIn(f"there is no {gone}", self.faults("src/base/a.cc", f"// Source: {gone}.")[0])
        self.write(here, "")
        self.assertEqual(self.faults("src/base/a.cc", f"// Source: {here}."), [])

    def test_files_that_guides_name_exist(self):
        self.write("src/engine/step.cc", "")
        self.write("docs/adding.md", "")
        guide = "CONTRIBUTING.md"
        self.assertEqual(self.faults(guide, "`engine/step.cc`, src/engine/step.cc, [recipes](docs/adding.md#a-kernel)"), [])
        self.assertIn("there is no engine/gone.h", self.faults(guide, "`engine/gone.h`")[0])
        self.assertEqual(self.faults("src/engine/README.md", "`engine/gone.h`"), [])
        self.assertEqual(self.faults("src/engine/a.h", "#pragma once\n// The verbs: engine/step.cc."), [])
        self.assertIn("there is no engine/gone.h", self.faults("src/engine/a.h", "#pragma once\nint a;  // engine/gone.h")[0])

    def test_sources_that_comments_name_without_a_folder_exist(self):
        self.write("src/engine/step.cc", "")
        fault = "src/policy/a.cc:2: there is no gone.cc"
        self.assertEqual(self.faults("src/policy/a.cc", "// The rules: step.cc and\n// gone.cc.\n"), [fault])
        for sound in ("// Members: a.cc (step.cc).", '#include "gone.h"', "// As <gone.h> has it.", "// step.h()", 'open("gone.cc");'):
            self.assertEqual(self.faults("src/policy/a.cc", sound), [])

    def test_a_number_in_a_comment_has_a_name(self):
        fault = "src/base/a.cc:1: a number without a name: int a;  // so many ranks"
        self.assertEqual(self.faults("src/base/a.cc", "int a;  // so many ranks"), [fault])
        self.assertEqual(len(self.faults("tools/a.py", "# at most so many")), 1)
        for sound in ("int a;  // so many that steps end", 'text("so many wait");', "int so_many;  // number of ranks"):
            self.assertEqual(self.faults("src/base/a.cc", sound), [])

    def test_the_help_of_a_flag_begins_with_its_noun(self):
        fault = "apps/a.cc: the help of --seed begins with its noun, not with 'of'"
        self.assertEqual(self.faults("apps/a.cc", '{{"seed", &o.seed,\n  "of prompts", ""}}'), [fault])
        self.assertEqual(self.faults("apps/a.cc", '{{"seed", &o.seed, "seed "\n  "of prompts", ""}}'), [])

    def word_faults(self, name, text):
        self.write(
            "docs/words.md",
            "| **lane** | exchanges of a half |\n| **delta net**, net | a linear layer |\n| **row** | one token in a step |\n"
            "| lane | `compute/comm` `engine` | `policy` `server/ranks` |\n| delta net | `compute` | |\n\n"
            "Not checked, because they have their everyday meaning too:\nrow.\n",
        )
        self.write(name, text)
        return check_words.check([name], self.root)

    def test_a_word_that_has_to_be_decoded_names_nothing_in_the_plural_either(self):
        fault = "src/server/http/a.h: '{}' in the name {} does not say what it is"
        for word, name in (("door", "HttpDoor"), ("doors", "Doors"), ("wishes", "SeatWishes"), ("interludes", "Interludes")):
            self.assertEqual(self.word_faults("src/server/http/a.h", f"struct {name} {{\n}};\n"), [fault.format(word, name)])
        self.assertEqual(self.word_faults("src/server/http/a.h", "struct New {\n};\nstruct NewPage {\n};\n"), [])

    def test_limits_begin_with_their_word(self):
        for name in ("kMostRows", "kShortestSleep", "kRowsMax"):
            self.assertIn(f"{name} is a limit", self.word_faults("src/server/http/a.h", f"constexpr int {name} = 1;\n")[0])
        self.assertEqual(self.word_faults("src/server/http/a.h", "constexpr int kMinSleep = 1;\n"), [])

    def test_a_term_names_types_of_its_rooms_only(self):
        text = "struct HttpLane {\n};\nclass Lanes final : public A {\n};\n  enum class DeltaNetKind : uint8_t { a };\n"
        self.assertEqual(
            self.word_faults("src/server/http/a.h", text),
            [
                "src/server/http/a.h: HttpLane gives 'lane' another meaning than docs/words.md",
                "src/server/http/a.h: Lanes gives 'lane' another meaning than docs/words.md",
                "src/server/http/a.h: DeltaNetKind gives 'delta net' another meaning than docs/words.md",
            ],
        )
        self.assertEqual(self.word_faults("src/compute/comm/a.h", text), [])
        self.assertEqual(len(self.word_faults("src/engine/lockstep/a.h", text)), 1)

    def test_a_term_may_name_what_is_no_type_of_src(self):
        sound = "struct Lane;\nvoid plane();\nstruct Planet {};\nstruct RowLanes;\nclass DeltaOfNets {};\nstruct Row {};\n"
        self.assertEqual(self.word_faults("src/server/a.h", sound), [])
        self.assertEqual(self.word_faults("tools/a.cc", "struct Lane {};"), [])

    def test_a_term_names_types_of_tests_and_benches_too(self):
        for name in ("src/server/a_test.cc", "bench/a.cc"):
            fault = f"{name}: Lane gives 'lane' another meaning than docs/words.md"
            self.assertEqual(self.word_faults(name, "struct Lane {};"), [fault])

    def test_a_term_names_files_and_functions_of_its_rooms_only(self):
        fault = "{}: {} gives 'lane' another meaning than docs/words.md"
        for name, stem in (("src/server/http_lane.cc", "http_lane"), ("src/text/lanes.h", "lanes")):
            self.assertEqual(self.word_faults(name, ""), [fault.format(name, stem)])
        for text in ("int lane();\n", "  virtual const Row& lane_of(int i) const = 0;\n", "static Result<void> close_lanes(int* a);\n"):
            found = self.word_faults("src/text/a.h", text)
            self.assertEqual(len(found), 1, text)
            self.assertIn("gives 'lane' another meaning", found[0])
            for name in ("src/text/a.cc", "src/text/a_testing.h", "src/text/tests/a.h", "src/policy/a.h", "src/server/ranks/a.h", "src/engine/a.h"):
                self.assertEqual(self.word_faults(name, text), [], name)
        for sound in ("  return lane(1);\n", "// int lane();\n", "  a = lane(1);\n", "int planes();\n"):
            self.assertEqual(self.word_faults("src/text/a.h", sound), [], sound)

    def test_a_type_has_its_name_to_itself_in_a_namespace(self):
        self.write("src/a.h", "namespace hocket {\nclass Step final : public Base {\n};\nstruct Row;\nenum class Kind : int;\n}  // namespace hocket\n")
        self.write("src/b.h", "namespace hocket {\nstruct Step {\n};\nenum class Kind : int { one };\nstruct Row {\n  struct Inner {};\n};\n}  // namespace hocket\n")
        self.write("src/c.cc", "namespace hocket {\nnamespace {\nstruct Step {\n};\n}  // namespace\nstruct Inner {\n};\n}  // namespace hocket\n")
        self.write("src/d.h", "namespace hocket::testing {\nenum class Step : uint8_t { one };\n}  // namespace hocket::testing\n")
        self.assertEqual(
            check_words.defined_twice(["src/a.h", "src/b.h", "src/c.cc", "src/d.h"], self.root),
            ["src/b.h: src/a.h defines the type hocket::Step too"],
        )

    def test_every_term_has_a_meaning_and_is_checked_or_listed(self):
        def faults(text):
            self.write("docs/words.md", text)
            return [fault.removeprefix("docs/words.md: ") for fault in check_words.check([], self.root)]

        self.assertEqual(faults("| lane | `compute` | |\n"), ["'lane' has no meaning there"])
        self.assertEqual(faults("| **row** | a token |\n\nNot checked, as here:\nrow, page\n of text.\n"), ["'page of text' has no meaning there"])
        self.assertEqual(faults("| **row** | a token |\n"), ["'row' needs a row in the table of names, or a place in the list behind it"])
        self.assertEqual(faults("| **row** | a token |\n| row | `a` | |\n\nNot checked, as here:\nrow.\n"), ["'row' is both checked and not"])

    def test_an_error_names_a_flag_that_exists_without_its_dashes(self):
        self.write("docs/flags.md", "| `--page-size` | `32` | tokens |\n")
        named = 'fail(error(code).with_param("%s"));'
        for sound in ("page-size", "max_tokens", "n"):
            self.assertEqual(self.word_faults("src/base/a.cc", named % sound), [])
        for flag in ("--page-size", "page-sizes"):
            fault = f"src/base/a.cc: an error names '{flag}', which is no flag of docs/flags.md; it has no dashes"
            self.assertEqual(self.word_faults("src/base/a.cc", named % flag), [fault])

    def test_limits_and_preconditions_are_spelled_in_one_way(self):
        text = "constexpr int kMostRows = 1, kFewest = 2, kLongestWait = 3, kRowsMax = 2, kMaxRows = 3, kMaximum = 4, kAlmost = 5;\n// Pre: a lease\nint f();  // Returns it; pre: a row\n"
        self.assertEqual(
            self.word_faults("src/base/a.h", text),
            [
                "src/base/a.h: kFewest is a limit, which begins with kMax or kMin",
                "src/base/a.h: kLongestWait is a limit, which begins with kMax or kMin",
                "src/base/a.h: kMostRows is a limit, which begins with kMax or kMin",
                "src/base/a.h: kRowsMax is a limit, which begins with kMax or kMin",
                "src/base/a.h: 'Pre:' is written 'Precondition:'",
                "src/base/a.h: 'pre:' is written 'Precondition:'",
            ],
        )

    def test_riddles_name_neither_types_nor_files(self):
        self.assertIn("'teller' in the name PartTeller", self.word_faults("bench/a.cc", "class PartTeller {};")[0])
        self.assertIn("'story' in the name request_story", self.word_faults("apps/request_story.h", "")[0])
        self.assertIn("'news' in the name News", self.word_faults("rust/src/a.rs", "pub struct News {")[0])
        self.assertEqual(self.word_faults("src/base/history.cc", "struct Telling {};\nint story;\n"), [])
        self.assertEqual(self.word_faults("docs/" + "story.md", "struct Story {};"), [])

    def test_binary_files_are_passed_over(self):
        (self.root / "blob").write_bytes(b"\xff\xfe/" + b"work/")
        self.assertEqual(lint.check_text(["blob"], self.root), [])

    def test_a_bundle_that_is_not_its_source_s_is_found(self):
        def sha(text):
            return hashlib.sha256(text.encode()).hexdigest()

        self.write("web/src/a.js", "1")
        self.write("web/dist/a.js", "one")
        files = ["web/dist/a.js", "web/src/a.js", "web/test/a.mjs"]
        stamp = f"{sha('src/a.js' + chr(0) + sha('1') + chr(10))}  sources\n{sha('one')}  dist/a.js\n"
        self.write("web/dist.sha256", stamp)
        self.assertEqual(lint.check_page(files, self.root), [])
        self.write("web/src/a.js", "2")
        self.assertIn("web: sources is not", lint.check_page(files, self.root)[0])
        self.write("web/src/a.js", "1")
        self.write("web/dist/a.js", "uno")
        self.assertIn("web: dist/a.js is not", lint.check_page(files, self.root)[0])
        self.assertIn("web: dist/a.js is not", lint.check_page(files[1:], self.root)[0])

    def test_a_pass_is_forgotten_when_an_include_changes(self):
        self.write("src/a.cc", '#include "b.h"\n')
        self.write("src/b.h", '#include "c.h"\n')
        self.write("src/c.h", "int c;\n")
        seen = lint.Seen(self.root, self.root / "seen")
        key = seen.key("src/a.cc", "rules")
        self.assertFalse(seen.passed(key))
        seen.remember(key)
        self.assertTrue(seen.passed(lint.Seen(self.root, seen.folder).key("src/a.cc", "rules")))
        self.assertNotEqual(key, seen.key("src/a.cc", "other rules"))
        self.write("src/c.h", "int d;\n")
        self.assertNotEqual(key, lint.Seen(self.root, seen.folder).key("src/a.cc", "rules"))

    def test_only_files_whose_includes_changed_since_a_commit_are_looked_at(self):
        self.write("src/a.cc", '#include "b.h"\n')
        self.write("src/b.h", '#include "c.h"\n')
        self.write("src/c.h", "int c;\n")
        self.write("src/d.cc", "int d;\n")
        untouched = lambda changed: [f for f in ("src/a.cc", "src/d.cc") if lint.Seen(self.root, self.root / "seen", changed).is_untouched(f)]
        self.assertEqual(untouched({"src/c.h", "README.md"}), ["src/d.cc"])
        self.assertEqual(untouched({"src/d.cc"}), ["src/a.cc"])
        self.assertEqual(untouched(set()), ["src/a.cc", "src/d.cc"])
        self.assertEqual(untouched(None), [])

    def lint_with(self, words, faults):
        """Runs lint with checks that find these faults; returns its status, its output, the checks that ran, and what it wrote."""
        (self.root / "tidied.txt").unlink(missing_ok=True)
        ran = []
        checks = {name: ("", lambda files, seen, name=name: ran.append(name) or faults.get(name, [])) for name in lint.CHECKS}
        tidied, output = self.root / "tidied.txt", io.StringIO()
        with contextlib.ExitStack() as stack:
            for name, value in (("CHECKS", checks), ("TIDIED", tidied), ("run", lambda command: (0, "" if "status" in command else "HEAD"))):
                stack.enter_context(mock.patch.object(lint, name, value))
            stack.enter_context(mock.patch.object(lint, "tracked_files", lambda: []))
            stack.enter_context(contextlib.redirect_stdout(output))
            stack.enter_context(contextlib.redirect_stderr(output))
            try:
                status = lint.main(words)
            except SystemExit as end:
                status = end.code
        return status, output.getvalue(), ran, tidied.is_file()

    def test_commits_and_merges_have_a_body(self):
        def git(*words):
            made = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=self.root, capture_output=True, text=True, check=True)
            return made.stdout.strip()

        git("init", "--initial-branch=main")
        commit = ["commit", "--allow-empty", "-m"]
        git(*commit, "before")
        since = git("rev-parse", "HEAD")
        self.assertEqual(lint.check_commits(since, self.root), [])
        git(*commit, "with a reason", "-m", "Because it was wrong.")
        self.assertEqual(lint.check_commits(since, self.root), [])
        git(*commit, "without one")
        git("checkout", "-b", "other", since)
        git(*commit, "aside", "-m", "So that there is something to merge.")
        git("merge", "--no-ff", "-m", "a merge", "main")
        found = [fault.split(" ", 2)[2] for fault in lint.check_commits(since, self.root)]
        self.assertEqual(found, ["a merge: its body says nothing; git commit --amend", "without one: its body says nothing; git commit --amend"])
        for unknown in ("", "0123456789abcdef0123456789abcdef01234567"):
            self.assertEqual(lint.check_commits(unknown, self.root), [])

    def test_classes_have_few_data_members(self):
        def faults(members):
            self.write("src/a.h", f"class A {{\n public:\n  void f();\n\n private:\n{members}}};\n")
            return check_members.check(["src/a.h"], self.root)

        self.assertEqual(faults("".join(f"  int a{i}_ = 0;\n" for i in range(25))), [])
        self.assertEqual(faults("".join(f"  int a{i}_ = 0;\n" for i in range(26))), ["src/a.h: class A has 26 data members; the limit is 25"])

    def test_data_members_are_counted_where_they_are_declared(self):
        text = """
class B;
enum class Kind : uint8_t { one_, two_ };
class A final : public Base<int> {
 public:
  A(int a, int b) : a_(a), b_{b} { c_ = 1; }
  explicit A(int a);
  int a() const { return a_; }
  struct Plain {
    int of_a_struct_ = 0;
  };
  class Inner {
    int inner_ = 0;
  };

 private:
  void note(int when_) { sum_ += when_; }
  const int a_, b_;  // first_, second_;
  std::vector<int> c_{1, 2}, d_;
  std::array<int, 3> e_{}, f_ = {a_, b_};
  mutable Mutex mutex_;
  int g_ HOCKET_GUARDED_BY(mutex_) = 0;
  Row* h_[2] = {};
  std::string i_ = "class C { int a_; };";
  static constexpr int kMax = 3;
};
struct S {
  int s_;
};
"""
        self.assertEqual(check_members.members(text), [("A", ["a_", "b_", "c_", "d_", "e_", "f_", "mutex_", "g_", "h_", "i_"]), ("Inner", ["inner_"])])

    def test_only_the_parts_that_are_named_run(self):
        self.assertEqual(self.lint_with([], {})[2], list(lint.CHECKS))
        status, output, ran, _ = self.lint_with(["map", "floors"], {"text": ["a fault"]})
        self.assertEqual((status, ran), (0, ["floors", "map"]))
        self.assertNotIn("a fault", output)
        status, output, ran, _ = self.lint_with(["text"], {"text": ["a fault"]})
        self.assertEqual((status, ran), (1, ["text"]))
        self.assertRegex(output, r"(?m)^a fault$[\s\S]*^text +1 faults")

    def test_only_a_whole_run_says_that_all_passed(self):
        self.assertTrue(self.lint_with(["--all"], {})[3])
        for words, faults in ((["--all"], {"rust": ["a fault"]}), (["--all", "tidy"], {}), ([], {})):
            self.assertFalse(self.lint_with(words, faults)[3])

    def test_a_part_that_is_none_is_refused_and_help_lists_all(self):
        status, output, ran, _ = self.lint_with(["map", "tests"], {})
        self.assertEqual((status, ran), (2, []))
        self.assertIn("tests is not a part of lint; there are floors, text,", output)
        self.assertEqual(self.lint_with(["--fix", "map"], {})[0], 2)
        status, output, ran, _ = self.lint_with(["--help"], {})
        self.assertEqual((status, ran), (0, []))
        in_script = (lint.ROOT / "hocket").read_text(encoding="utf-8").split("./hocket lint [PART...]")[1].split("./hocket fmt")[0]
        for name in lint.CHECKS:
            self.assertRegex(output, rf"(?m)^  {name}\b")
            self.assertRegex(in_script, rf"\b{name}\b")


if __name__ == "__main__":
    unittest.main()
