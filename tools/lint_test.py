"""Tests the faults that text rules find, and when a remembered pass is no longer valid."""

import hashlib
import tempfile
import unittest
from pathlib import Path

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
        for comment in ("// What it holds.", "int x;  // of a row", "  /// Whose turn it is."):
            self.assertIn("begins with its subject", self.faults("src/base/a.cc", comment)[0])
        sound = '// The rows\n// of a half.\nint rows;  // rows of a half\nauto url = "http:// of nobody";\n'
        self.assertEqual(self.faults("src/base/a.cc", sound), [])

    def test_prose_is_narrow_and_tables_and_code_need_not_be(self):
        wide = "a word " * 18
        self.assertIn("README.md:2: 126 columns", self.faults("README.md", f"# a\n{wide}\n")[0])
        self.assertEqual(self.faults("README.md", f"| {wide}|\n\n    {wide}\n\n```\n{wide}\n```\n`{wide}`\n"), [])

    def test_files_have_an_end_and_kernels_a_later_one(self):
        self.assertIn("401 lines", self.faults("src/base/a.cc", "\n" * 401)[0])
        self.assertEqual(self.faults("src/compute/kernels/a.cc", "\n" * 700), [])
        self.assertIn("701 lines", self.faults("src/compute/kernels/a.cc", "\n" * 701)[0])

    def test_places_are_found_in_every_text(self):
        self.assertIn("names the place", self.faults("README.md", "see /" + "work/main")[0])
        self.assertIn("names the place", self.faults("tools/x.py", "# /" + "home/someone")[0])
        self.assertEqual(self.faults("README.md", "a shared expert, std::shared_ptr, work/ahead"), [])

    def test_loose_ends_and_missing_guards(self):
        self.assertIn("a loose end", self.faults("src/base/a.cc", "// TO" + "DO later")[0])
        self.assertIn("no #pragma once", self.faults("src/base/a.h", "int x;\n")[0])

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


if __name__ == "__main__":
    unittest.main()
