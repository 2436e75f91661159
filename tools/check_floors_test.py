"""Tests each rule on a small set of rooms.   Run: python3 -m unittest discover -s tools -p '*_test.py'"""

import tempfile
import unittest
from pathlib import Path

import check_floors

FLOORS = """
room base   src/base
room cache  src/policy/cache   : base
room tensor src/compute/tensor : base
room engine src/engine         : cache tensor
wall src/policy | src/compute
"""
CMAKE = """
hocket_room(base   DIR base           LINK fmt::fmt)
hocket_room(cache  DIR policy/cache   LINK hocket_base)
hocket_room(tensor DIR compute/tensor LINK hocket_base PRIVATE spdlog::spdlog)  # a remark
hocket_room(engine DIR engine         LINK hocket_cache
            PRIVATE hocket_tensor)
"""
FILES = {
    "tools/floors.txt": FLOORS,
    "CMakeLists.txt": CMAKE,
    "src/base/check.h": "#include <vector>\n",
    "src/base/README.md": "base\n",
    "src/policy/cache/lease.h": '#include "base/check.h"\n',
    "src/policy/cache/README.md": "cache\n",
    "src/compute/tensor/view.h": '#include "base/check.h"\n',
    "src/compute/tensor/README.md": "tensor\n",
    "src/engine/step.cc": '#include "compute/tensor/view.h"\n#include "policy/cache/lease.h"\n',
    "src/engine/README.md": "engine\n",
}


class CheckFloorsTest(unittest.TestCase):
    def faults(self, **changes):
        """Returns the faults of the small set of rooms with some files changed; None removes a file."""
        files = dict(FILES)
        for path, text in changes.get("files", {}).items():
            files[path] = text
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                if text is None:
                    continue
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check_floors.check(Path(folder))

    def test_a_sound_house_has_no_fault(self):
        self.assertEqual(self.faults(), [])

    def test_policy_may_not_include_compute(self):
        (fault,) = self.faults(files={"src/policy/cache/lease.h": '#include "compute/tensor/view.h"\n'})[:1]
        self.assertIn("cache may not see tensor", fault)

    def test_folders_of_a_room_include_each_other_in_one_direction(self):
        circle = {
            "src/engine/step.h": '#include "engine/balance/mover.h"\n',
            "src/engine/balance/mover.h": '#include "engine/runner.h"\n',
            "src/engine/runner.h": "",
        }
        (fault,) = self.faults(files=circle)
        self.assertEqual(
            fault,
            "src/engine/step.h: includes src/engine/balance/mover.h, and src/engine/balance includes src/engine, directly or not",
        )
        by_a_test = circle | {"src/engine/step.h": "", "src/engine/step_test.cc": circle["src/engine/step.h"]}
        self.assertEqual(self.faults(files=by_a_test), [])

    def test_a_type_of_an_upper_floor_may_not_be_declared_either(self):
        step = {"src/engine/step.h": "struct Step final : base::Part {\n};\n"}
        (fault,) = self.faults(files=step | {"src/base/check.h": "struct Step;\n"})
        self.assertEqual(fault, "src/base/check.h: base may not see engine: Step is defined in src/engine/step.h")
        # Downwards, in the same room, of a library, and of a type that a lower room has too.
        below = {"src/base/check.h": "class alignas(64) Row {\n};\n", "src/engine/step.cc": "class Row;\nstruct Step;\n"}
        self.assertEqual(self.faults(files=step | below | {"src/base/log.h": "class Sink;\n"}), [])
        self.assertEqual(self.faults(files=step | {"src/base/check.h": "struct Step;\nstruct Step {};\n"}), [])

    def test_a_detour_is_found_with_its_chain(self):
        faults = self.faults(
            files={
                "src/base/check.h": '#include "compute/tensor/view.h"\n',
                "src/compute/tensor/view.h": "",
            }
        )
        through = [f for f in faults if f.startswith("src/policy/cache/lease.h")]
        self.assertEqual(len(through), 1)
        self.assertIn("src/compute/tensor/view.h <- src/base/check.h <- src/policy/cache/lease.h", through[0])

    def test_circles_of_includes_end(self):
        self.assertEqual(self.faults(files={"src/base/check.h": '#include "base/check.h"\n'}), [])

    def test_an_upper_floor_is_refused(self):
        faults = self.faults(files={"src/base/check.h": '#include "engine/step.cc"\n'})
        self.assertTrue(any("base may not see engine" in f for f in faults))

    def test_an_include_of_nothing_is_named(self):
        (fault,) = self.faults(files={"src/base/check.h": '#include "base/gone.h"\n'})
        self.assertIn('"base/gone.h" is not in this repository', fault)

    def test_a_floor_that_breaks_a_wall_is_refused(self):
        floors = FLOORS.replace(": base\nroom engine", ": base cache\nroom engine")
        cmake = CMAKE.replace("LINK hocket_base PRIVATE", "LINK hocket_base hocket_cache PRIVATE")
        (fault,) = self.faults(files={"tools/floors.txt": floors, "CMakeLists.txt": cmake})
        self.assertIn("tensor sees cache through the wall", fault)

    def test_a_room_sees_only_rooms_above_its_line(self):
        (fault,) = self.faults(files={"tools/floors.txt": FLOORS.replace("src/base\n", "src/base : engine\n")})
        self.assertIn("base names engine, which is not below it", fault)

    def test_links_must_equal_floors(self):
        (fault,) = self.faults(files={"CMakeLists.txt": CMAKE.replace("hocket_cache\n", "hocket_base\n")})
        self.assertIn("engine is src/engine and links ['base', 'tensor']", fault)

    def test_a_room_must_be_built(self):
        cmake = CMAKE.replace("hocket_room(tensor", "# hocket_room(tensor")
        self.assertEqual(self.faults(files={"CMakeLists.txt": cmake}), ["CMakeLists.txt: no hocket_room(tensor ...)"])

    def test_a_room_without_readme_is_named(self):
        (fault,) = self.faults(files={"src/engine/README.md": None})
        self.assertIn("src/engine: no README.md", fault)

    def test_a_readme_is_a_screen(self):
        (fault,) = self.faults(files={"src/engine/README.md": "line\n" * 61})
        self.assertIn("longer than a screen", fault)

    def test_a_file_outside_every_room_is_named(self):
        (fault,) = self.faults(files={"src/loose.cc": ""})
        self.assertEqual(fault, "src/loose.cc: lies in no room of tools/floors.txt")


if __name__ == "__main__":
    unittest.main()
