#!/bin/sh
# A container image without a registry and without Docker: Debian's own packages and a built hocket, as a file.
#
#   deploy/image.sh [-b PROGRAM] [-o FILE] [-d FOLDER]     as root; wants debootstrap, tar, gzip, sha256sum
#
#   -b  the program: build/release/hocket. It must have been built on the same Debian (12, bookworm)
#   -o  the image: build/hocket-VERSION.tar, an OCI layout that `docker load`, `podman load` and `skopeo copy oci-archive:` read
#   -d  a folder that debootstrap has filled already, or that keeps what it fills
#
# Of the Debian that debootstrap makes, the image gets the packages that the program needs, busybox (a shell for who looks inside)
# and certificates; nothing else. Two layers: Debian's files, and ours. The same inputs give the same bytes.
set -eu

root=$(dirname "$(dirname "$(readlink -f "$0")")")
suite=bookworm
runtime='libfmt9 libhiredis0.14 libhwloc15 libprometheus-cpp-core1.0 libsimdjson14 libspdlog1.10 libssl3 libucx0 libyaml-cpp0.7'
also='base-files busybox ca-certificates'
# Only the scripts of packages need these, and they have run by then.
left_out='awk adduser debconf debconf-2.0 openssl dpkg debianutils passwd gcc-12-base'
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
version=$(sed -n 's/^project(hocket VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")

stop() {
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 2
}

program=$root/build/release/hocket image=$root/build/hocket-$version.tar debian=
while getopts b:o:d: option; do
  case $option in
    b) program=$OPTARG ;;
    o) image=$OPTARG ;;
    d) debian=$OPTARG ;;
    *) stop "unknown option" "deploy/image.sh [-b PROGRAM] [-o FILE] [-d FOLDER]" ;;
  esac
done
[ "$(id -u)" = 0 ] || stop "debootstrap needs root" "sudo deploy/image.sh"
[ -x "$program" ] || stop "there is no $program" "./hocket version builds it"
for tool in debootstrap tar gzip sha256sum strip; do
  command -v $tool >/dev/null || stop "$tool is not installed" "apt-get install debootstrap binutils"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: "${debian:=$work/debian}"

# --- Debian ---------------------------------------------------------------------------------------

if [ ! -e "$debian/var/lib/dpkg/status" ]; then
  debootstrap --variant=minbase --include="$(echo $runtime $also | tr ' ' ',')" $suite "$debian" >"$work/debootstrap.log" 2>&1 ||
    { tail -5 "$work/debootstrap.log" >&2; stop "debootstrap failed" "is deb.debian.org reached from here?"; }
fi

needs_of() { # package: the packages it depends on, the first of alternatives
  chroot "$debian" dpkg-query -W -f='${Pre-Depends}, ${Depends}\n' "$1" | tr ',' '\n' |
    sed 's/|.*//; s/([^)]*)//; s/:any//; s/ //g; /^$/d'
}

kept='' todo="$runtime $also"
while [ -n "$todo" ]; do
  next=''
  for package in $todo; do
    case " $kept $left_out " in *" $package "*) continue ;; esac
    kept="$kept $package"
    next="$next $(needs_of "$package" | tr '\n' ' ')"
  done
  todo=$(echo $next)
done

base=$work/base
mkdir -p "$base"
# /lib and /bin are links into /usr: files are named by where they really are.
for package in $kept; do chroot "$debian" dpkg -L "$package"; done | sort -u |
  sed -E -e '/^\/(\.|bin|sbin|lib|lib32|lib64|libx32)$/d' -e 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' -e 's,^/,,' |
  grep -vE -e '^usr/share/(man|info|locale|lintian|bug|doc-base|menu|bash-completion)/' \
    -e '^usr/share/doc/[^/]+/.*(changelog|NEWS|README|TODO|examples)' -e '^usr/lib/x86_64-linux-gnu/(gconv|perl-base)/' |
  while read -r path; do
    if [ -e "$debian/$path" ] || [ -L "$debian/$path" ]; then printf '%s\n' "$path"; fi
  done >"$work/files"
tar -C "$debian" --no-recursion -cf - -T "$work/files" | tar -C "$base" -xf -
for folder in bin sbin lib lib64; do
  mkdir -p "$base/usr/$folder"
  ln -sfn usr/$folder "$base/$folder"
done
mkdir -p "$base/etc/ssl/certs" "$base/tmp" "$base/var/lib/dpkg" "$base/etc/hocket"
chmod 1777 "$base/tmp"
cp -a "$debian/etc/ssl/certs/ca-certificates.crt" "$base/etc/ssl/certs/"
cp -a "$debian/etc/nsswitch.conf" "$base/etc/" 2>/dev/null || echo 'hosts: files dns' >"$base/etc/nsswitch.conf"
printf 'root:x:0:0:root:/:/bin/sh\nhocket:x:10001:10001:hocket:/nonexistent:/usr/sbin/nologin\n' >"$base/etc/passwd"
printf 'root:x:0:\nhocket:x:10001:\n' >"$base/etc/group"
for applet in $(chroot "$debian" busybox --list); do
  [ -e "$base/usr/bin/$applet" ] || [ -L "$base/usr/bin/$applet" ] || ln -s busybox "$base/usr/bin/$applet"
done
# Scanners that look for known faults in images read this.
for package in $kept; do chroot "$debian" dpkg-query -s "$package"; echo; done >"$base/var/lib/dpkg/status"
ldconfig -r "$base"
rm -rf "$base/var/cache/ldconfig"

# --- hocket ---------------------------------------------------------------------------------------

ours=$work/ours
mkdir -p "$ours/usr/bin" "$ours/usr/share/hocket/models" "$ours/usr/share/doc/hocket"
strip -o "$ours/usr/bin/hocket" "$program"
chmod 755 "$ours/usr/bin/hocket"
cp -a "$root/models/hocket-tiny-qwen3-moe" "$ours/usr/share/hocket/models/"
cp "$root/LICENSE" "$ours/usr/share/doc/hocket/copyright"

# It runs: no library is missing.
whole=$work/whole
cp -a "$base" "$whole"
cp -a "$ours/." "$whole/"
chroot "$whole" /usr/bin/hocket version >"$work/version" 2>&1 ||
  { cat "$work/version" >&2; stop "hocket does not run in the image" "build it on Debian 12, or add its library to deploy/image.sh"; }

# --- the file -------------------------------------------------------------------------------------

blobs=$work/layout/blobs/sha256
mkdir -p "$blobs"
sum() { sha256sum "$1" | cut -d' ' -f1; }
size() { stat -c %s "$1"; }
keep() { # file: puts it among the blobs; prints its digest
  digest=$(sum "$1")
  mv "$1" "$blobs/$digest"
  printf '%s' "$digest"
}
pack() { # folder archive
  tar -C "$1" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$2" .
}

layers='' diffs='' files='' unpacked=0
for name in base ours; do
  pack "$work/$name" "$work/$name.tar"
  diff=$(sum "$work/$name.tar")
  unpacked=$((unpacked + $(size "$work/$name.tar")))
  gzip -9n "$work/$name.tar"
  layer_size=$(size "$work/$name.tar.gz")
  layer=$(keep "$work/$name.tar.gz")
  comma=${layers:+,}
  layers="$layers$comma{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"sha256:$layer\",\"size\":$layer_size}"
  diffs="$diffs$comma\"sha256:$diff\""
  files="$files$comma\"blobs/sha256/$layer\""
done

created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
cat >"$work/config" <<JSON
{"created":"$created","architecture":"amd64","os":"linux","config":{"User":"10001:10001","ExposedPorts":{"30000/tcp":{},"5000/tcp":{}},"Env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"Entrypoint":["/usr/bin/hocket"],"Cmd":["serve","--host","0.0.0.0"],"WorkingDir":"/","Healthcheck":{"Test":["CMD","wget","-q","-O","/dev/null","http://127.0.0.1:30000/readyz"],"Interval":10000000000,"Timeout":5000000000,"StartPeriod":600000000000,"Retries":3},"Labels":{"org.opencontainers.image.title":"hocket","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":[$diffs]},"history":[{"created":"$created","created_by":"debian $suite: what hocket needs"},{"created":"$created","created_by":"hocket $version"}]}
JSON
config_size=$(size "$work/config")
config=$(keep "$work/config")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[%s]}' \
  "$config" "$config_size" "$layers" >"$work/manifest"
manifest_size=$(size "$work/manifest")
manifest=$(keep "$work/manifest")
printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"io.containerd.image.name":"docker.io/library/hocket:%s","org.opencontainers.image.ref.name":"%s"},"platform":{"architecture":"amd64","os":"linux"}}]}' \
  "$manifest" "$manifest_size" "$version" "$version" >"$work/layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"
# For `docker load` of before OCI layouts.
printf '[{"Config":"blobs/sha256/%s","RepoTags":["hocket:%s"],"Layers":[%s]}]' "$config" "$version" "$files" >"$work/layout/manifest.json"
mkdir -p "$(dirname "$image")"
pack "$work/layout" "$image"

megabytes() { awk -v bytes="$1" 'BEGIN {printf "%.1f MB", bytes / 1e6}'; }
printf '%s\n' "image     $image" "digest    sha256:$manifest" "packages  $(echo $kept | wc -w) of Debian" \
  "size      $(megabytes "$(size "$image")") to fetch, $(megabytes $unpacked) unpacked"
