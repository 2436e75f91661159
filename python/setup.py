"""A wheel with the library inside where HOCKET_LIBRARY names it at build time, and one that finds an installed library otherwise:

    HOCKET_LIBRARY=build/release/libhocket.so pip wheel --no-deps python/
"""

import os
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

LIBRARY = os.environ.get("HOCKET_LIBRARY")


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if LIBRARY:
            shutil.copy(Path(LIBRARY).resolve(), Path(self.build_lib) / "hocket" / "libhocket.so.0")


class OneMachine(Distribution):
    def has_ext_modules(self):
        return bool(LIBRARY)


options = {"cmdclass": {"build_py": BuildWithLibrary}, "distclass": OneMachine}
if LIBRARY:
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:  # setuptools before 70.1
        from wheel.bdist_wheel import bdist_wheel

    class AnyPython(bdist_wheel):
        """The library is called through ctypes: one wheel for every Python of this platform."""

        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    options["cmdclass"]["bdist_wheel"] = AnyPython
setup(**options)
