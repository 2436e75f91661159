"""Tests tools/check_words.py."""

import tempfile
import unittest
from pathlib import Path

import check_words

TABLES = """\
| **page** | a unit of memory |
| **side** | policy or compute |

| Word | Types, files, functions | Functions only |
|---|---|---|
| page | `engine` `tests` | `apps` |

Not checked, because names have these words in their everyday meaning too: side.
"""


class Words(unittest.TestCase):
    def faults(self, **files):
        """Returns the faults of files, given as name: text, in which __ is a slash and _h a suffix."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "docs").mkdir()
            (root / check_words.WORDS).write_text(TABLES, encoding="utf-8")
            names = []
            for key, text in files.items():
                name = ".".join(key.replace("__", "/").rsplit("_", 1))
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
                names.append(name)
            return check_words.check(names, root)

    def test_a_word_in_a_folder_of_its_row_is_no_fault(self):
        self.assertEqual(self.faults(src__engine__x_h="struct PageList {\n};\n", tests__api__x_py="class Pages:\n    pass\n"), [])

    def test_a_word_elsewhere_is_a_fault_of_apps_bench_and_tests_too(self):
        for name in ("src__server__x_h", "src__server__x_test_cc", "apps__x_h", "bench__x_cc"):
            found = self.faults(**{name: "struct PageList {\n};\n"})
            self.assertEqual(len(found), 1, (name, found))
            self.assertIn("gives 'page' another meaning", found[0])

    def test_functions_may_have_the_words_of_the_third_column(self):
        self.assertEqual(self.faults(apps__x_h="int page_of(int x);\n"), [])
        self.assertEqual(len(self.faults(bench__x_h="int page_of(int x);\n")), 1)

    def test_a_name_that_says_nothing_is_a_fault_in_python_too(self):
        found = self.faults(tests__hosts__x_py="class Teller:\n    pass\n")
        self.assertEqual(len(found), 1)
        self.assertIn("does not say what it is", found[0])


if __name__ == "__main__":
    unittest.main()
