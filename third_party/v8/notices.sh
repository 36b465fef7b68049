#!/usr/bin/env bash
# Collects the copyright and licence notices of what is inside V8's static library, from the v8 crate's own folders.
#
# The published crate leaves the LICENSE files of its third-party folders out; the notices are in the sources. So this
# takes, per component: every licence file that is there, each distinct copyright line, and each distinct licence text of
# a source file's comments. Full texts that the sources only refer to are copied from crates that Cargo fetched beside v8.
#
# Usage: notices.sh OUTPUT_DIR [V8_CRATE_DIR]
set -euo pipefail
export LC_ALL=C
shopt -s nullglob

V8_VERSION=150.4.0

say() { printf 'notices: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

[[ $# -ge 1 && $1 != -* ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 2; }
output=$1
crate=${2:-}
if [[ ! $crate ]]; then
  for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/v8-"$V8_VERSION"; do break; done
fi
[[ -d $crate/v8 ]] || die "the v8 crate's folder was not found; run cargo fetch first, or name it as the second argument"
registry=$(dirname "$crate")
mkdir -p "$output/texts"

# name | licence | folders in the crate
components='V8|BSD-3-Clause|v8/src v8/include v8/third_party
ICU|Unicode-3.0|third_party/icu
abseil-cpp|Apache-2.0|third_party/abseil-cpp
libc++|Apache-2.0 WITH LLVM-exception|third_party/libc++ third_party/libc++abi third_party/libunwind third_party/llvm-libc
simdutf|Apache-2.0 OR MIT|third_party/simdutf
fp16|MIT|third_party/fp16
fast_float|Apache-2.0 OR MIT OR BSL-1.0|third_party/fast_float
dragonbox|Apache-2.0 WITH LLVM-exception OR BSL-1.0|third_party/dragonbox
highway|Apache-2.0 OR BSD-3-Clause|third_party/highway'

# Comment blocks of the files on standard input (a list of names) that speak of a copyright or a licence, without their
# comment marks: copyright lines to the file `lines`, what else such a block says of a licence to `blocks` (NUL-separated).
read_comments() {
  # shellcheck disable=SC2016 # an awk program
  tr '\n' '\0' | xargs -0 -r awk -v lines="$1" -v blocks="$2" '
    function keep(text) {
      gsub(/^\n+|\n+$/, "", text); gsub(/\n\n\n+/, "\n\n", text)
      if (length(text) < 20000 && !(text in seen) &&
          text ~ /Redistribution and use|Permission (is hereby|to use)|[Ll]icensed under|governed by|SPDX-License|terms of use|Public License|Software License/) {
        seen[text]; printf "%s\n%c", text, 0 >>blocks
      }
    }
    function finish(   n, i, parts, rest) {
      if (block ~ /[Cc]opyright|\(C\)|SPDX-License/) {
        n = split(block "\n------------", parts, "\n"); rest = ""
        for (i = 1; i <= n; i++) {
          if (length(parts[i]) > 7 && parts[i] ~ /^[-=*\/+ ]+$/) { keep(rest); rest = ""; continue } # a rule; what follows is about the code
          if (parts[i] ~ /^!\/|^==.*(==|\/\/|#)$/) continue # names the interpreter, the file
          if (parts[i] ~ /[Cc]opyright.*([12][0-9][0-9][0-9]|[Aa]uthors|[Cc]ontributors)|©/) {
            if (!(parts[i] in seen)) { seen[parts[i]]; print parts[i] >>lines }
          } else rest = rest parts[i] "\n"
        }
      }
      block = ""; inside = 0
    }
    FNR == 1 { finish() }
    FNR > 60 && !inside && !/[Cc]opyright|\/\*/ { if (block != "") finish(); next }
    {
      line = $0; sub(/\r$/, "", line)
      if (!inside && line ~ /^[ \t]*\/\*/) { if (block != "") finish(); inside = 1 }
      if (inside || line ~ /^[ \t]*(\/\/|#([^a-z]|$))/) {
        ends = inside && line ~ /\*\//
        gsub(/^[ \t]*(\/\*+|\*+\/|\*+|\/\/+|#+)[ \t]?/, "", line); sub(/[ \t]*\*+\/.*$/, "", line); sub(/[ \t]+$/, "", line)
        block = block line "\n"
        if (ends) finish()
      } else if (block != "") finish()
    }
    END { finish() }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while IFS='|' read -r name licence folders; do
  out=$output/$name.txt
  : >"$work/lines"; : >"$work/blocks"
  {
    printf '%s\nLicence: %s\nFrom the crate v8 %s: %s\n' "$name" "$licence" "$V8_VERSION" "$folders"
    for folder in $folders; do
      [[ -d $crate/$folder ]] || continue
      while IFS= read -r file; do
        printf '\n==== %s ====\n\n' "${file#"$crate"/}"
        cat "$file"
      done < <(find "$crate/$folder" -type f \( -iname 'LICEN[SC]E*' -o -iname 'COPYING*' -o -iname 'NOTICE*' -o -iname copyright \) \
                 ! -name '*.py' ! -name '*.cc' ! -name '*.h' | sort)
      find "$crate/$folder" -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cc' -o -name '*.cpp' -o -name '*.inc' \
        -o -name '*.tq' -o -name '*.gn' -o -name '*.py' -o -path '*/libc++/src/include/*' \) | sort | read_comments "$work/l" "$work/b"
      cat "$work/l" >>"$work/lines" 2>/dev/null || true
      cat "$work/b" >>"$work/blocks" 2>/dev/null || true
      rm -f "$work/l" "$work/b"
    done
    printf '\n==== copyright notices in the sources ====\n\n'
    sort -u "$work/lines"
    sort -zu "$work/blocks" | while IFS= read -r -d '' block; do
      printf '\n==== licence notice in the sources ====\n\n%s' "$block"
    done
  } >"$out"
  say "$name: $(sort -u "$work/lines" | wc -l) copyright lines, $(sort -zu "$work/blocks" | tr -dc '\0' | wc -c) licence notices"
done <<<"$components"

# Full texts that the notices refer to. Each is looked for in the folders beside the v8 crate.
text() {
  local spdx=$1 file
  shift
  for file in "$@"; do
    [[ -s $file ]] || continue
    cp "$file" "$output/texts/$spdx.txt"
    chmod u+w "$output/texts/$spdx.txt"
    return
  done
  missing="${missing:+$missing, }$spdx"
}
missing=
text Apache-2.0 "$registry"/libc-*/LICENSE-APACHE /usr/share/common-licenses/Apache-2.0
text Apache-2.0-WITH-LLVM-exception "$registry"/rustix-*/LICENSE-Apache-2.0_WITH_LLVM-exception
text Unicode-3.0 "$registry"/icu_provider-*/LICENSE "$registry"/unicode-ident-*/LICENSE-UNICODE
text BSL-1.0 "$registry"/ryu-*/LICENSE-BOOST
[[ ! $missing ]] || say "full texts not found beside the crate: $missing"
say "written to $output"
