#!/usr/bin/env bash
# Builds librusty_v8.a (V8 for the `v8` crate) from the sources inside the crate itself, with Debian's toolchain.
#
# Why: the crate's build script downloads a prebuilt archive. Where only package registries can be reached, this script
# makes the same archive from what they serve: the crate, ICU's data (crate deno_core_icudata), and clang, lld, gn and
# ninja as Debian packages.
#
# Cost: 45 to 60 minutes on two cores, 4 GiB of memory, 8 GiB of disk. It can be stopped and started again: it goes on
# where it was.
#
# What differs from the upstream archive: no Temporal (its Rust sources are not in the crate), no debug lines.
# How it gets below hours: precompiled headers for V8's three big source sets (see the wrapper below).
#
# Usage: build-v8.sh OUTPUT.a.gz [WORKDIR]
#   JOBS=n         parallel compiles; default: one per core
#   LLVM=n         Debian's LLVM version; default: the first of those below that is installed or can be
#   V8_VERSION, ICUDATA_VERSION   crates to build from
set -euo pipefail

V8_VERSION=${V8_VERSION:-150.4.0}
ICUDATA_VERSION=${ICUDATA_VERSION:-0.77.0}
JOBS=${JOBS:-$(nproc)}
# 22 made the archive beside this script. The others are tried where it is missing; V8's libc++ supports Clang 21 and later.
LLVM_VERSIONS=(22 23 24 21)

say() { printf 'build-v8: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

[[ $# -ge 1 && $1 != -* ]] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
OUTPUT=$(realpath -m "$1")
WORK=$(realpath -m "${2:-${XDG_CACHE_HOME:-$HOME/.cache}/mcpx-build/v8-$V8_VERSION}")
case $OUTPUT$WORK in *[[:space:]]*) die "gn cannot work in a path with blanks: $OUTPUT, $WORK" ;; esac
command -v cargo >/dev/null || die "cargo is not on PATH; it fetches the sources"

# 0. Packages.
{ command -v apt-get && command -v dpkg-query; } >/dev/null ||
  die "this recipe uses Debian's packages (clang, lld, gn, ninja), and there is no apt-get here"

# (Through variables: under pipefail a `grep -q` that stops reading early makes its writer, and so the pipe, fail.)
installed() { [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == *'ok installed'* ]]; }
offered() { [[ $(apt-cache policy "$1" 2>/dev/null) == *'Candidate: '[0-9]* ]]; }
as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "missing packages and neither root nor sudo; have an administrator run: $*"
  fi
}
updated=
refresh() { [[ $updated ]] || { say "reading Debian's package lists"; as_root apt-get update -q >&2; updated=1; }; }

if [[ ! ${LLVM:-} ]]; then
  for version in "${LLVM_VERSIONS[@]}"; do
    if installed "clang-$version" && installed "lld-$version"; then LLVM=$version; break; fi
  done
fi
if [[ ! ${LLVM:-} ]]; then
  refresh
  for version in "${LLVM_VERSIONS[@]}"; do
    if offered "clang-$version" && offered "lld-$version"; then LLVM=$version; break; fi
  done
fi
[[ ${LLVM:-} ]] || die "this Debian release offers none of LLVM ${LLVM_VERSIONS[*]}; name another one with LLVM=n"
LLVM_ROOT=/usr/lib/llvm-$LLVM

missing=()
for package in "clang-$LLVM" "lld-$LLVM" "llvm-$LLVM" "libclang-rt-$LLVM-dev" generate-ninja ninja-build pkg-config \
  libglib2.0-dev python3; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]})); then
  refresh
  say "installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
fi
say "V8 $V8_VERSION with LLVM $LLVM, $JOBS jobs, in $WORK; expect 45 to 60 minutes on two cores"

# 1. Sources: let cargo fetch and verify the two crates, then copy them out of its read-only registry folder.
mkdir -p "$WORK"
if [[ ! -e $WORK/src/.prepared ]]; then
  say "step 1 of 4: fetching crate v8 $V8_VERSION and ICU data $ICUDATA_VERSION"
  rm -rf "$WORK/fetch" "$WORK/src"
  mkdir -p "$WORK/fetch/src"
  touch "$WORK/fetch/src/lib.rs"
  printf '[package]\nname="fetch"\nversion="0.0.0"\nedition="2024"\n[dependencies]\nv8="=%s"\ndeno_core_icudata="=%s"\n[workspace]\n' \
    "$V8_VERSION" "$ICUDATA_VERSION" >"$WORK/fetch/Cargo.toml"
  (cd "$WORK/fetch" && cargo fetch -q)
  folder_of() {
    (cd "$WORK/fetch" && cargo metadata --format-version 1 --offline) | python3 -c '
import json, os, sys
print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == sys.argv[1]))' "$1"
  }
  v8_folder=$(folder_of v8)
  icudata_folder=$(folder_of deno_core_icudata)
  cp -r "$v8_folder" "$WORK/src"
  chmod -R u+w "$WORK/src"
  rm -f "$WORK/src/rust-toolchain.toml"
  mkdir -p "$WORK/src/third_party/icu/common"
  cp "$icudata_folder/src/icudtl.dat" "$WORK/src/third_party/icu/common/icudtl.dat"

  # Debian's gn is older than these build files: replace the few functions and fields that it does not know.
  python3 - "$WORK/src" <<'PY'
import re, sys, pathlib
root = pathlib.Path(sys.argv[1])

def edit(path, *pairs):
    file = root / path
    text = before = file.read_text()
    for pattern, replacement in pairs:
        text = re.sub(pattern, replacement, text)
    if text == before:
        sys.exit(f"{path}: nothing to replace; is this another V8 version?")
    file.write_text(text)

edit("build/toolchain/siso.gni", (r"path_exists\((?:[^()]|\([^()]*\))*\)", "true"))
edit("build/config/c++/modules.gni", (r"path_exists\(path\)", "true"))
edit("build/config/compiler/BUILD.gn",
     (r"path_exists\(_head_revision_stamp_path\)", "false"),
     (r"\n    # \.dwo files are generated when ThinLTO is not used\.\n    c_additional_outputs =\n        \[ [^\]]*\]", ""))
edit("build/config/sysroot.gni", (r"path_exists\(sysroot\)", "true"))
edit("build/toolchain/rbe.gni", (r"!path_exists\(reclient_cc_cfg_file\)", "false"), (r"path_exists\(rewrapper_path\)", "true"))
edit("build/toolchain/gcc_toolchain.gni",
     (r'module_name_flag = " -fmodule-name=[^\n]*', 'module_name_flag = ""'),
     (r" \{\{module_deps\}\}", ""),
     (r' \{\{module_deps_no_self\}\} -fmodule-name=\\"\{\{cc_module_name\}\}\\" -x c\+\+ -Xclang -emit-module', ""),
     (r"\n +inputs =\n[^\n]*", ""),
     (r"\n +inputs = rustc_wrapper_inputs", ""))
PY
  touch "$WORK/src/.prepared"
fi

# 2. A private toolchain folder whose clang++ adds a precompiled header to V8's own sources.
#    Almost all of a V8 file's compile time is parsing the same headers; with them precompiled most files take a second.
rm -rf "$WORK/toolchain"
mkdir -p "$WORK/toolchain/bin" "$WORK/pch"
for tool in "$LLVM_ROOT"/bin/*; do ln -s "$tool" "$WORK/toolchain/bin/"; done
# The build files look for the compiler's runtime under lib/<triple>/, without the processor's name; Debian has it in linux/.
runtime=$WORK/toolchain/lib/clang/$LLVM/lib/$(uname -m)-unknown-linux-gnu
mkdir -p "$runtime"
ln -s "$LLVM_ROOT/lib/clang/$LLVM/include" "$WORK/toolchain/lib/clang/$LLVM/include"
for library in "$LLVM_ROOT/lib/clang/$LLVM/lib/linux"/libclang_rt.*-"$(uname -m)".a; do
  name=${library##*/}
  ln -s "$library" "$runtime/${name%-"$(uname -m)".a}.a"
done
[[ -e $runtime/libclang_rt.builtins.a ]] || die "no libclang_rt.builtins for $(uname -m) under $LLVM_ROOT/lib/clang/$LLVM"
rm -f "$WORK/toolchain/bin/clang++" "$WORK"/pch/*.failed
cat >"$WORK/toolchain/bin/clang++" <<PY
#!/usr/bin/python3
"""clang++ that compiles V8's own files against a precompiled header, and without it where that fails."""
import fcntl, os, pathlib, subprocess, sys
REAL, PCH = "$LLVM_ROOT/bin/clang++", pathlib.Path("$WORK/pch")
SETS = {"obj/v8/v8_base_without_compiler/": "base", "obj/v8/v8_compiler/": "compiler",
        "obj/v8/v8_initializers/": "csa", "obj/v8/torque_generated_initializers/": "csa"}
HEADERS = {
  "base": """api/api-inl objects/objects-inl execution/isolate-inl heap/heap-inl heap/heap-layout-inl heap/local-heap-inl
     heap/factory-inl debug/debug execution/frames-inl execution/arguments-inl execution/protectors-inl
     objects/js-array-inl objects/js-array-buffer-inl objects/hash-table-inl objects/managed-inl wasm/wasm-objects-inl
     wasm/wasm-engine wasm/wasm-code-manager deoptimizer/deoptimizer builtins/builtins-utils-inl codegen/assembler-inl
     codegen/compiler ast/ast init/bootstrapper handles/global-handles-inl handles/handles-inl roots/roots-inl
     logging/log numbers/conversions tracing/trace-event utils/ostreams init/v8""",
  "compiler": """objects/objects-inl execution/isolate-inl compiler/js-heap-broker compiler/node-properties
     compiler/common-operator compiler/node-matchers compiler/simplified-operator compiler/js-graph compiler/linkage
     compiler/access-builder compiler/turboshaft/assembler compiler/turboshaft/copying-phase compiler/turboshaft/phase
     compiler/turboshaft/operations compiler/turbofan-graph compiler/type-cache compiler/machine-operator
     compiler/operator-properties compiler/compilation-dependencies codegen/optimized-compilation-info
     codegen/interface-descriptors-inl compiler/js-operator compiler/schedule compiler/backend/instruction-selector
     compiler/backend/instruction wasm/wasm-objects-inl""",
  "csa": "codegen/code-stub-assembler-inl builtins/builtins-utils-gen objects/objects-inl",
}
args = sys.argv[1:]

def precompiled(name, flags):
    """The path of set \`name\`'s precompiled header, made by whichever compile needs it first; None where it cannot be."""
    header, output, failed = PCH / f"{name}.h", PCH / f"{name}.pch", PCH / f"{name}.failed"
    with open(PCH / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists() and not failed.exists():
            header.write_text("".join(f'#include "src/{h}.h"\n' for h in HEADERS[name].split()))
            made = subprocess.run([REAL, *flags, "-x", "c++-header", str(header), "-o", f"{output}.tmp",
                                   "-fpch-instantiate-templates"])
            if made.returncode == 0: os.rename(f"{output}.tmp", output)
            else: failed.touch()
        return output if output.exists() else None

name = None
if "-c" in args and "-o" in args:
    target = args[args.index("-o") + 1]
    name = next((s for prefix, s in SETS.items() if target.startswith(prefix)), None)
if name:
    at = args.index("-c")
    flags, skip = [], False
    for arg in args[:at]:  # everything before "-c source -o object", less the dependency file
        if skip: skip = False
        elif arg == "-MF": skip = True
        elif arg != "-MD": flags.append(arg)
    header = precompiled(name, flags)
    if header and subprocess.run([REAL, *args, "-include-pch", str(header)], stderr=subprocess.DEVNULL).returncode == 0:
        sys.exit(0)
os.execv(REAL, [REAL, *args])
PY
chmod +x "$WORK/toolchain/bin/clang++"

# 3. Configure. The arguments are the crate's own defaults for a release build, plus simdutf (deno_core asks for it).
say "step 2 of 4: configuring"
gn gen --root="$WORK/src" --script-executable=python3 "$WORK/out" "--args=
  is_debug=false use_custom_libcxx=true v8_enable_sandbox=false v8_enable_pointer_compression=false
  v8_enable_v8_checks=false rusty_v8_enable_simdutf=true v8_monolithic_for_shared_library=true
  clang_base_path=\"$WORK/toolchain\" clang_version=\"$LLVM\" treat_warnings_as_errors=false symbol_level=0
  enable_rust=false enable_rust_cxx=false v8_enable_temporal_support=false" >&2
# Two slips of the older gn and of this clang: a '+' in a rule name, and flags that this clang does not know.
find "$WORK/out" -name '*.ninja' -print0 | xargs -0 sed -i -E \
  -e 's/(__[A-Za-z0-9_]*libc)\+\+([A-Za-z0-9_]*__rule)/\1xx\2/g' \
  -e 's/ -fdiagnostics-show-inlining-chain//g; s/ -fno-lifetime-dse//g; s/ -fsanitize-ignore-for-ubsan-feature=[a-z-]+//g'

say "step 3 of 4: compiling about 2,500 files, $JOBS at a time; this is the long part (45 to 60 minutes on two cores)"
ninja -C "$WORK/out" -j "$JOBS" rusty_v8 >&2

say "step 4 of 4: packing"
mkdir -p "$(dirname "$OUTPUT")"
"$LLVM_ROOT/bin/llvm-strip" --strip-debug -o "$WORK/librusty_v8.a" "$WORK/out/obj/librusty_v8.a"
gzip -9 -n -c "$WORK/librusty_v8.a" >"$OUTPUT.tmp"
mv "$OUTPUT.tmp" "$OUTPUT"
(cd "$(dirname "$OUTPUT")" && sha256sum "$(basename "$OUTPUT")" >"$(basename "$OUTPUT").sha256")
say "done: $OUTPUT ($(stat -c %s "$OUTPUT") bytes); $WORK can be deleted now"
