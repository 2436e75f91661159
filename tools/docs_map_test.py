"""Tests the map of a small set of rooms, and that an outdated map is found."""

import tempfile
import unittest
from pathlib import Path

import docs_map

FLOORS = """
room base   src/base                       # tools
room cache  src/policy/cache   : base      # pages: ids only
room tensor src/compute/tensor : base      # numbers
room kernel src/compute/kernel : tensor    # sums
room engine src/engine         : cache kernel  # the step
wall src/policy | src/compute
"""
PAGE = f"# The house\n\n{docs_map.BEGIN}\n{docs_map.END}\n\nMore.\n"


class DocsMapTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("tools/floors.txt", FLOORS)
        self.write("src/engine/stats/stats.h", "")
        self.write(docs_map.PAGE, PAGE)
        self.write(docs_map.PAGE, docs_map.rewritten(self.root, PAGE))

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def text(self):
        return (self.root / docs_map.PAGE).read_text(encoding="utf-8")

    def test_both_sides_stand_on_the_ground_and_carry_what_sees_both(self):
        drawn = [line.replace(" ", "") for line in self.text().split("```")[1].strip().splitlines()]
        line = "-" * 2 * docs_map.COLUMN
        self.assertEqual(drawn, ["engine", line, "policy|compute", "|kernel", "cache|tensor", line, "base"])

    def test_each_room_has_its_row_and_sub_folders_are_listed(self):
        self.assertIn("| [cache](../src/policy/cache/README.md) | pages: ids only | base |\n", self.text())
        self.assertIn("| tools | nothing |\n", self.text())
        self.assertIn("* `src/engine/`: stats\n", self.text())

    def test_what_surrounds_the_map_stays(self):
        self.assertTrue(self.text().startswith("# The house\n\n") and self.text().endswith("\n\nMore.\n"))
        self.assertEqual(docs_map.rewritten(self.root, self.text()), self.text())
        self.assertEqual(docs_map.check(self.root), [])

    def test_a_new_room_and_a_new_folder_make_it_out_of_date(self):
        self.write("src/engine/check/player.h", "")
        (fault,) = docs_map.check(self.root)
        self.assertIn("out of date; ./hocket docs map", fault)
        self.write(docs_map.PAGE, docs_map.rewritten(self.root, self.text()))
        self.assertEqual(docs_map.check(self.root), [])
        self.write("tools/floors.txt", FLOORS + "room server src/server : engine  # HTTP\n")
        self.assertEqual(len(docs_map.check(self.root)), 1)

    def test_rooms_without_a_comment_and_pages_without_marks_are_faults(self):
        self.write("tools/floors.txt", FLOORS.replace("# sums", ""))
        self.assertIn("no comment behind kernel", docs_map.check(self.root)[0])
        self.write("tools/floors.txt", FLOORS)
        self.write(docs_map.PAGE, self.text().replace(docs_map.END, ""))
        self.assertIn("lacks the line", docs_map.check(self.root)[0])


if __name__ == "__main__":
    unittest.main()
