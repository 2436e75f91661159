"""The Debian packages that deploy/deb.sh makes of the built tree."""

import gzip
import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT, run

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("dpkg-deb", "dpkg-shlibdeps", "strip"))) or not os.path.isdir("/var/lib/dpkg/info"),
    reason="this is no Debian with dpkg-dev",
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deb")
    run(ROOT / "deploy/deb.sh", "-b", BUILD, "-o", folder, "-z", "0", timeout=400)
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


def files(package):
    """Returns {path: (mode, owner)} of a package."""
    rows = (line.split(None, 5) for line in run("dpkg-deb", "-c", package).splitlines())
    return {row[5].split(" -> ")[0].removeprefix("."): (row[0], row[1]) for row in rows}


def field(package, name):
    return run("dpkg-deb", "-f", package, name).strip()


def test_three_packages(packages):
    assert set(packages) == {"hocket", "libhocket0", "libhocket-dev"}


def test_the_server_brings_what_a_service_needs(packages):
    found = files(packages["hocket"])
    for path in (
        "/usr/bin/hocket",
        "/usr/bin/hocket-bench",
        "/lib/systemd/system/hocket.service",
        "/lib/systemd/system/hocket@.service",
        "/etc/hocket/hocket.yaml",
        "/usr/share/man/man1/hocket.1.gz",
        "/usr/share/hocket/models/hocket-tiny-qwen3-moe/config.json",
        "/usr/share/doc/hocket/copyright",
    ):
        assert path in found, path
    assert found["/etc/hocket/hocket.env"][0] == "-rw-------", "secrets are root's"
    assert {owner for _, owner in found.values()} == {"root/root"}
    assert "/etc/hocket/hocket.env" in run("dpkg-deb", "-I", packages["hocket"], "conffiles")


def test_it_depends_on_nothing_that_only_one_debian_has(packages):
    """Debian 12 and 13 both have or provide packages of these names; libssl3t64 is the name on a builder with Debian 13."""
    for package, also in (("hocket", {"adduser", "libssl3", "libssl3t64"}), ("libhocket0", {"libssl3", "libssl3t64"})):
        depends = {entry.split()[0] for entry in field(packages[package], "Depends").split(",")}
        assert {"libc6", "libstdc++6", "libhwloc15"} <= depends <= {"libc6", "libgcc-s1", "libstdc++6", "libhwloc15"} | also, package
        assert depends & {"libssl3", "libssl3t64"}, "OpenSSL comes from Debian, which mends it"


@pytest.mark.parametrize("package, file, folder", [("hocket", "bin/hocket", "hocket"), ("libhocket0", "lib/libhocket.so.0", "libhocket0")])
def test_the_other_libraries_are_in_a_folder_of_its_own(packages, tmp_path, package, file, folder):
    run("dpkg-deb", "-x", packages[package], tmp_path)
    own = sorted(path.name for path in (tmp_path / "usr/lib" / folder).iterdir())
    assert [name for name in own if name.startswith("libfmt.so.")] and [name for name in own if name.startswith("libspdlog.so.")]
    loaded = [line.split()[2] for line in run("ldd", tmp_path / "usr" / file).splitlines() if "=> /" in line]
    there = sorted(os.path.basename(path) for path in loaded if os.path.realpath(path).startswith(str(tmp_path)))
    assert there == own
    licences = gzip.decompress((tmp_path / f"usr/share/doc/{package}/licences-of-others.gz").read_bytes()).decode()
    for library in ("libfmt", "libspdlog", "tokenizers", "preact"):
        assert f"\n=== {library}" in licences


def test_libraries_are_apart(packages):
    runtime, development = files(packages["libhocket0"]), files(packages["libhocket-dev"])
    assert "/usr/lib/libhocket.so.0" in runtime and "/usr/lib/libhocket.so" not in runtime
    assert {"/usr/lib/libhocket.so", "/usr/include/hocket/hocket.h", "/usr/lib/pkgconfig/hocket.pc"} <= set(development)
    assert field(packages["libhocket-dev"], "Depends") == f"libhocket0 (= {field(packages['libhocket0'], 'Version')})"


def test_the_same_tree_gives_the_same_bytes(packages, tmp_path):
    run(ROOT / "deploy/deb.sh", "-b", BUILD, "-o", tmp_path, "-z", "0", timeout=400)
    for path in packages.values():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_settings_of_the_service_are_flags(packages, tmp_path):
    """`serve` accepts the installed settings file with all commented settings switched on."""
    run("dpkg-deb", "-x", packages["hocket"], tmp_path)
    text = (tmp_path / "etc/hocket/hocket.yaml").read_text(encoding="utf-8")
    (tmp_path / "all.yaml").write_text(re.sub(r"^#(\w[\w-]*:)", r"\1", text, flags=re.M), encoding="utf-8")
    done = subprocess.run([BUILD / "hocket", "serve", "--config", tmp_path / "all.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "/srv/models/" in done.stderr, done.stderr  # every key was read; the model is not there


@pytest.mark.skipif(not shutil.which("lintian"), reason="lintian is not installed")
def test_lintian_finds_no_error(packages):
    tags = "bogus-mail-host,bogus-mail-host-in-debian-changelog"  # the builder's address comes from DEBEMAIL
    run("lintian", "--fail-on", "error", "--allow-root", "--suppress-tags", tags, *packages.values())
