#!/bin/sh
# Debian packages of a built tree: hocket (the server), libhocket0 and libhocket-dev (the C interface).
#
#   deploy/deb.sh [-b BUILD] [-o FOLDER] [-z LEVEL]     wants cmake, dpkg-dev, python3, and what `./hocket build` left in BUILD
#
#   -b  build/release        -o  where the packages go: build        -z  how hard xz tries, 0 to 9: 2
#
# They install on the Debian on which they are made and on newer ones: the libraries whose packages have another name in each Debian
# are copied into a folder of the package (cmake/install.cmake sets the RUNPATH); libssl, libhwloc and libstdc++ come from Debian.
# DEBFULLNAME and DEBEMAIL say who answers for them.
set -eu

root=$(dirname "$(dirname "$(readlink -f "$0")")")
build=$root/build/release out=$root/build
version=$(sed -n 's/^project(hocket VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
# The date of the newest commit; without git, of the newest source file.
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null ||
  find "$root/src" -type f -printf '%T@\n' | sort -n | tail -1 | cut -d. -f1)}
export SOURCE_DATE_EPOCH=$epoch
level=2
while getopts b:o:z: option; do
  case $option in
    b) build=$(readlink -f "$OPTARG") ;;
    o) mkdir -p "$OPTARG" && out=$(readlink -f "$OPTARG") ;;
    z) level=$OPTARG ;;
    *) exit 2 ;;
  esac
done
[ -f "$build/libhocket.so" ] && [ -f "$build/pages/hocket.1" ] ||
  { printf 'error: %s is not built\n  fix: ./hocket build\n' "$build" >&2; exit 2; }
for tool in cmake dpkg-deb dpkg-shlibdeps python3 strip; do
  command -v $tool >/dev/null || { printf 'error: there is no %s\n  fix: apt-get install cmake dpkg-dev binutils python3\n' $tool >&2; exit 2; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
changed=$(date -u -R -d "@$epoch")
maintainer="${DEBFULLNAME:-hocket} <${DEBEMAIL:-hocket@localhost.localdomain}>"

put() { # component package
  DESTDIR=$work/$2 cmake --install "$build" --prefix /usr --component "$1" --strip >"$work/install.log" ||
    { cat "$work/install.log" >&2; exit 1; }
}

copied='libfmt|libhiredis|libspdlog|libsimdjson|libyaml-cpp|libprometheus-cpp-core'

loaded() { # file: the libraries it loads that are copied
  ldd "$1" | sed -nE "s,^\\s*($copied)\\.so\\S* => (\\S*) .*,\\2,p"
}

copy_libraries() { # file folder
  mkdir -p "$2" "$work/shlibs/debian"
  for library in $(loaded "$1"); do
    cp -L "$library" "$2/"
    basename "$library" | sed 's/\.so\./ /' >>"$work/shlibs/debian/shlibs.local" # no package brings it
  done
}

papers() { # package [file]: who may do what with it and with what is in the file, and what changed
  folder=$work/$1/usr/share/doc/$1
  mkdir -p "$folder"
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: hocket\n\n'
    printf 'Files: *\nCopyright: 2026 the hocket authors\nLicense: Apache-2.0\n On Debian systems the text of the Apache License 2.0 is in\n'
    printf ' /usr/share/common-licenses/Apache-2.0.\n'
    [ $# = 1 ] || printf 'Comment: The licences of what others wrote are in licences-of-others.gz.\n'
  } >"$folder/copyright"
  [ $# = 1 ] || python3 "$root/deploy/licences.py" "$build" $(loaded "$2") | gzip -9n >"$folder/licences-of-others.gz"
  printf 'hocket (%s) unstable; urgency=medium\n\n  * Release %s.\n\n -- %s  %s\n' "$version" "$version" "$maintainer" "$changed" |
    gzip -9n >"$folder/changelog.gz"
}

libraries_of() { # files: the packages whose libraries they load
  printf 'Source: hocket\n\nPackage: hocket\nArchitecture: amd64\n' >"$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps -O "$@" 2>"$work/shlibs.log") | sed -n 's/^shlibs:Depends=//p'
}

pack() { # package section depends description, and more fields on stdin
  folder=$work/$1
  mkdir -p "$folder/DEBIAN"
  find "$folder" -path "$folder/DEBIAN" -prune -o -type f -printf '%P\n' | sort | (cd "$folder" && xargs -d '\n' md5sum) >"$folder/DEBIAN/md5sums"
  {
    printf 'Package: %s\nSource: hocket\nVersion: %s\nArchitecture: amd64\nMaintainer: %s\nSection: %s\nPriority: optional\n' \
      "$1" "$version" "$maintainer" "$2"
    printf 'Installed-Size: %s\nDepends: %s\n' "$(du -sk --exclude=DEBIAN "$folder" | cut -f1)" "$3"
    cat
    printf 'Description: %s\n' "$4"
  } >"$folder/DEBIAN/control"
  find "$folder" -newermt "@$epoch" -exec touch -h -d "@$epoch" {} +
  dpkg-deb --root-owner-group -Zxz "-z$level" --build "$folder" "$out/$1_${version}_amd64.deb" >/dev/null
  printf '%-14s %6.1f MB  %s\n' "$1" "$(stat -c %s "$out/$1_${version}_amd64.deb" | awk '{print $1 / 1e6}')" "$out/$1_${version}_amd64.deb"
}

put server hocket
put library libhocket0
put development libhocket-dev
copy_libraries "$build/hocket" "$work/hocket/usr/lib/hocket"
copy_libraries "$build/libhocket.so" "$work/libhocket0/usr/lib/libhocket0"

# The server: unit, settings, and who it runs as.
server=$work/hocket
gzip -9n "$server/usr/share/man/man1/hocket.1"
mkdir -p "$server/lib/systemd/system" "$server/etc/hocket"
cp "$root/deploy/systemd/hocket.service" "$server/lib/systemd/system/"
sed 's,/usr/local/bin/,/usr/bin/,' "$root/deploy/systemd/hocket@.service" >"$server/lib/systemd/system/hocket@.service"
cp "$root/deploy/debian/hocket.yaml" "$root/deploy/debian/hocket.env" "$server/etc/hocket/"
chmod 600 "$server/etc/hocket/hocket.env"
mkdir -p "$server/DEBIAN"
printf '/etc/hocket/hocket.env\n/etc/hocket/hocket.yaml\n' >"$server/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "$root/deploy/debian/$script" "$server/DEBIAN/"; done
printf 'libhocket 0 libhocket0 (>= %s)\n' "$version" >"$work/libhocket0.shlibs"
mkdir -p "$work/libhocket0/DEBIAN"
cp "$work/libhocket0.shlibs" "$work/libhocket0/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"$work/libhocket0/DEBIAN/triggers"
papers hocket "$build/hocket"
papers libhocket0 "$build/libhocket.so"
papers libhocket-dev

pack hocket net "$(libraries_of "$server"/usr/bin/* "$server"/usr/lib/hocket/*), adduser" \
  "inference server for Mixture-of-Experts language models
 Answers the OpenAI API from the weights of a Hugging Face folder, on CPUs,
 alone or with the experts spread over several hosts. A tiny model that answers
 sums is included." <<FIELDS
Recommends: libucx0
Suggests: libhocket-dev
FIELDS
pack libhocket0 libs "$(libraries_of "$work"/libhocket0/usr/lib/libhocket.so.*.* "$work"/libhocket0/usr/lib/libhocket0/*)" \
  "inference engine for language models, as a library
 The engine of hocket without its server: a model in a program of your own, by
 an interface in C." <<FIELDS
Recommends: libucx0
FIELDS
pack libhocket-dev libdevel "libhocket0 (= $version)" \
  "inference engine for language models, development files
 Header, pkg-config and CMake files of libhocket." <<FIELDS
FIELDS
