#!/usr/bin/env python3
"""Finds vector code that units of kernels of different instruction sets share:   tools/check_units.py BUILD

The linker keeps one copy of a weak function (an inline function, an instance of a template), perhaps that of the unit with the highest
instruction set, and every machine would run it. So the units in kernels/cpu whose names begin with an instruction set above AVX2 may
define no weak function that uses vector registers. Only an optimised build is judged, since others inline nothing.
"""

import re
import subprocess
import sys
from pathlib import Path

HIGH = ("avx512", "amx")
VECTOR = re.compile(r"%(?:[xyzt]mm|k)\d")


def is_optimised(build):
    return "CMAKE_BUILD_TYPE:STRING=Release" in (build / "CMakeCache.txt").read_text().splitlines()


def high_units(build):
    folder = build / "CMakeFiles/hocket_cpu.dir/src/compute/kernels/cpu"
    return sorted(unit for unit in folder.glob("*.o") if unit.name.startswith(HIGH))


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def shared_vector_code(unit):
    fields = (line.split() for line in output("nm", "--defined-only", unit).splitlines())
    weak = [name for _, kind, name in fields if kind == "W"]
    return [output("c++filt", name).strip() for name in weak if VECTOR.search(output("objdump", f"--disassemble={name}", unit))]


def check(build):
    """Returns the faults, one line each."""
    units = high_units(build)
    if not units:
        return [f"{build} holds no unit of an instruction set above AVX2: build it, or mend the folder in tools/check_units.py"]
    return [f"{unit.stem}: shares {name}; keep it in an anonymous namespace, or do without" for unit in units for name in shared_vector_code(unit)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1])
    if not is_optimised(build):
        print(f"{build} is not a Release build")
        return 0
    faults = check(build)
    print("\n".join(faults) or "no unit shares vector code")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
