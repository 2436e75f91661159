"""Builds the package alone, or around an installation, for a wheel that needs nothing else (deploy/wheel.sh):

    HOCKET_PREFIX=PREFIX pip wheel --no-deps python/      PREFIX has bin/hocket, bin/hocket-bench, lib/libhocket.so.0 and share/hocket
"""

import os
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

PREFIX = os.environ.get("HOCKET_PREFIX")


class BuildAroundPrefix(build_py):
    def run(self):
        super().run()
        if PREFIX:
            shutil.copytree(PREFIX, Path(self.build_lib) / "hocket", dirs_exist_ok=True)


class OneMachine(Distribution):
    def has_ext_modules(self):
        return bool(PREFIX)


options = {"cmdclass": {"build_py": BuildAroundPrefix}, "distclass": OneMachine}
if PREFIX:
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:  # setuptools before 70.1
        from wheel.bdist_wheel import bdist_wheel

    class AnyPython(bdist_wheel):
        """The library is called through ctypes: one wheel for every Python of this platform."""

        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    options["cmdclass"]["bdist_wheel"] = AnyPython
    options["scripts"] = ["bin/hocket"]
setup(**options)
