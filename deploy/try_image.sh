#!/bin/sh
# Tries an image of deploy/image.sh without a container engine: its files as a root of their own, its command as its user, one question.
#
#   deploy/try_image.sh FILE [PORT]      as root; wants tar, curl, unshare
set -eu

[ $# -ge 1 ] && [ -r "$1" ] || { echo "usage: deploy/try_image.sh FILE [PORT]" >&2; exit 2; }
port=${2:-$((20000 + $$ % 10000))}
work=$(mktemp -d)
pid=
end() {
  [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT

mkdir "$work/layout" "$work/files"
tar -C "$work/layout" -xf "$1"
for layer in $(sed 's/.*"Layers":\[\([^]]*\)\].*/\1/; s/[",]/ /g' "$work/layout/manifest.json"); do
  tar -C "$work/files" -xzf "$work/layout/$layer"
done
(cd "$work/layout/blobs/sha256" && for blob in *; do printf '%s  %s\n' "$blob" "$blob"; done | sha256sum --quiet -c)

# The child is a process space of its own: /proc lasts as long as it does, and so does everything in it.
unshare --mount --pid --fork --kill-child sh -c "mount -t proc proc '$work/files/proc' &&
  exec chroot --userspec=10001:10001 '$work/files' /usr/bin/hocket serve --host 127.0.0.1 --port $port" >"$work/log" 2>&1 &
pid=$!
tries=0
until curl -sf "http://127.0.0.1:$port/readyz" >/dev/null; do
  tries=$((tries + 1))
  if [ $tries -gt 300 ] || ! kill -0 $pid 2>/dev/null; then
    cat "$work/log" >&2
    echo "FAILED  it did not become ready" >&2
    exit 1
  fi
  sleep 0.1
done
chroot "$work/files" wget -q -O /dev/null "http://127.0.0.1:$port/readyz"
answer=$(curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is 7 + 5?"}], "temperature": 0}')
case $answer in
  *'"content":"12"'*) echo "ok      $1: ready, healthy, and 7 + 5 is 12" ;;
  *) echo "FAILED  it answered $answer" >&2; exit 1 ;;
esac
