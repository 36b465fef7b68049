#!/usr/bin/env bash
# Puts V8's static library where the `v8` crate looks before it downloads: $CARGO_HOME/.rusty_v8/<escaped release URL>.
# With that file in place cargo, clippy and editors need no environment at all. Safe to run any number of times.
#
# It is taken from, in this order: what is there already; the copy in this folder (x86_64 Linux with glibc); upstream's
# release, which the crate downloads by itself; a build from source (build-v8.sh, 45 to 60 minutes on two cores).
set -euo pipefail
export LC_ALL=C

# What this folder's archive is. build-v8.sh names the same version.
readonly V8_VERSION=150.4.0
readonly UNPACKED_BYTES=156864542

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

say() { printf 'v8: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

for name in RUSTY_V8_ARCHIVE RUSTY_V8_MIRROR V8_FROM_SOURCE; do
  if [[ -n ${!name:-} ]]; then
    say "$name is set: the v8 crate goes by it, nothing to do"
    exit 0
  fi
done

command -v rustc >/dev/null || die "rustc is not on PATH; install Rust first"
triple=$(rustc -vV | sed -n 's/^host: //p')
[[ $triple ]] || die "rustc -vV names no host"

# The version that Cargo will build, which after an update may not be this folder's yet.
version=$V8_VERSION
if [[ -r $here/../../Cargo.lock ]]; then
  locked=$(awk '/^name = "v8"$/ { getline; gsub(/[^0-9.]/, ""); print; exit }' "$here/../../Cargo.lock")
  version=${locked:-$V8_VERSION}
fi

case $triple in *-windows-*) library=rusty_v8 extension=lib ;; *) library=librusty_v8 extension=a ;; esac
file=${library}_simdutf_release_$triple.$extension
url=https://github.com/denoland/rusty_v8/releases/download/v$version/$file.gz
folder=${CARGO_HOME:-$HOME/.cargo}/.rusty_v8
target=$folder/$(printf '%s' "$url" | sed 's/[^A-Za-z0-9]/_/g')

# An ar archive or a gzipped one; the crate takes both.
looks_right() {
  case $(head -c 2 "$1" | od -An -tx1 | tr -d ' \n') in
    1f8b) return 0 ;;
    *) [[ $(head -c 7 "$1") == '!<arch>' ]] ;;
  esac
}

if [[ -e $target ]]; then
  looks_right "$target" || die "$target is damaged (not an archive). Remove it and run this again."
  say "V8 $version is in place"
  exit 0
fi

temporary=$folder/.$$.partial
trap 'rm -f "$temporary"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

from_tree() {
  local packed=$here/$file.xz want got size
  command -v xz >/dev/null || die "xz is missing; install the package xz-utils"
  [[ -r $packed.sha256 ]] || die "$packed.sha256 is missing; restore it with git checkout"
  say "unpacking the V8 $version of this repository (17 MiB, 150 MiB unpacked; some seconds)"
  want=$(cut -d ' ' -f 1 "$packed.sha256")
  got=$(sha256 "$packed")
  [[ $got == "$want" ]] || die "$packed is damaged: its SHA-256 is $got, not $want.
v8: Nothing was written. Restore the file with: git checkout -- third_party/v8"
  mkdir -p "$folder"
  xz -dc "$packed" >"$temporary" || die "unpacking to $folder failed; is the disk full?"
  size=$(wc -c <"$temporary" | tr -d ' ')
  [[ $size == "$UNPACKED_BYTES" ]] || die "the unpacked archive has $size bytes, not $UNPACKED_BYTES; nothing was written"
  looks_right "$temporary" || die "the unpacked file is not an archive; nothing was written"
  mv "$temporary" "$target"
  say "V8 $version is in place: $target"
}

# Whether upstream's release can be had: 0 yes, 1 no.
downloadable() {
  if command -v curl >/dev/null; then
    curl -fsIL --connect-timeout 5 --max-time 5 -o /dev/null "$url" 2>/dev/null
  elif command -v python3 >/dev/null; then
    python3 -c 'import sys, urllib.request as r
r.urlopen(r.Request(sys.argv[1], method="HEAD"), timeout=5)' "$url" 2>/dev/null
  else
    die "curl is missing; it finds out whether V8's release can be downloaded. Install the package curl."
  fi
}

from_source() {
  local built=${XDG_CACHE_HOME:-$HOME/.cache}/mcpx-build/$file-$version.gz
  if [[ ! -s $built ]]; then
    say "building V8 $version from source: 45 to 60 minutes on two cores, 8 GiB of disk. It can be interrupted and resumed."
    env V8_VERSION="$version" "$here/build-v8.sh" "$built" || die "the build from source failed; its messages are above"
  fi
  mkdir -p "$folder"
  cp "$built" "$temporary"
  looks_right "$temporary" || die "$built is not an archive; remove it and run this again"
  mv "$temporary" "$target"
  say "V8 $version is in place: $target"
}

if [[ $version != "$V8_VERSION" ]]; then
  say "Cargo.lock asks for V8 $version, this folder has $V8_VERSION (third_party/v8/README.md says how to update it)"
elif [[ -r $here/$file.xz ]]; then
  from_tree
  exit 0
fi
say "no V8 for $triple in this repository; asking whether upstream's release can be downloaded (5 s at most)"
if downloadable; then
  say "it can: the v8 crate downloads it while it builds"
else
  say "it cannot"
  from_source
fi
