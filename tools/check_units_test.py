"""Tests which definitions count as shared, on units that a compiler makes here."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import check_units

SHARED = "__attribute__((noinline)) inline float twice(float x) {{ return 2 * x; }}\nfloat {name}(float x) {{ return twice(x) + 1; }}\n"
OWN = "namespace {{ __attribute__((noinline)) float twice(float x) {{ return 2 * x; }} }}\nfloat {name}(float x) {{ return twice(x) + 1; }}\n"


class CheckUnitsTest(unittest.TestCase):
    def faults(self, **units):
        with tempfile.TemporaryDirectory() as folder:
            objects = Path(folder) / "CMakeFiles/hocket_cpu.dir/src/compute/kernels/cpu"
            objects.mkdir(parents=True)
            for name, text in units.items():
                source = Path(folder) / f"{name}.cc"
                source.write_text(text.format(name=name), encoding="utf-8")
                subprocess.run([os.environ.get("CXX", "c++"), "-O2", "-c", source, "-o", objects / f"{name}.cc.o"], check=True)
            return check_units.check(Path(folder))

    def test_an_inline_function_of_a_high_unit_is_named(self):
        (fault,) = self.faults(avx512_product=SHARED, amx_product=OWN, avx2_rows=SHARED)
        self.assertTrue(fault.startswith("avx512_product.cc: shares twice(float);"), fault)

    def test_a_shared_function_without_vectors_is_the_same_for_all(self):
        self.assertEqual(self.faults(avx512_product=SHARED.replace("float", "int")), [])

    def test_functions_of_their_own_are_no_fault(self):
        self.assertEqual(self.faults(avx512_product=OWN, amx_product=OWN), [])

    def test_a_build_without_such_units_is_a_fault(self):
        self.assertEqual(len(self.faults(avx2_rows=OWN)), 1)

    def test_only_optimised_builds_are_judged(self):
        with tempfile.TemporaryDirectory() as folder:
            for kind, judged in (("Release", True), ("Debug", False)):
                (Path(folder) / "CMakeCache.txt").write_text(f"CMAKE_BUILD_TYPE:STRING={kind}\n", encoding="utf-8")
                self.assertEqual(check_units.is_optimised(Path(folder)), judged)


if __name__ == "__main__":
    unittest.main()
