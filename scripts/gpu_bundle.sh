#!/usr/bin/env bash
# Packs what scripts/gpu_visit.sh needs into one archive for a machine with a GPU and no network, compiler or packages:
# the cuda preset's programs, stripped, the libraries they need beyond CUDA's own and glibc's, scripts and golden files.
#   scripts/gpu_bundle.sh OUT.tar.(gz|xz) [--build DIR] [--arch LIST] [--glibc VERSION] [--limit-mb N] [--cache FILE]
#   --build DIR     packs DIR/bin as it is, instead of building the cuda preset in build/gpu-bundle
#   --arch LIST     architectures to build for, as ATHANOR_CUDA_ARCHITECTURES [90a-real]
#   --glibc VERSION that of the oldest machine it must run on [2.35]: what is packed must not need a newer one
#   --limit-mb N    fails where the archive is larger than N million bytes [52]
#   --cache FILE    packs the plans that an earlier visit measured: its cache.tar.gz, or a folder of it
# There: gpu_visit.sh --bundle OUT, or tar -xf OUT, then athanor-gpu/scripts/gpu_visit.sh. It wants x86-64, bash, python3,
# and CUDA 13, cuDNN 9 and NCCL in their usual places or in Python's nvidia-* wheels.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out="" build="" architectures=90a-real oldest=2.35 limit=52 cache=""
while [ $# -gt 0 ]; do
  case $1 in
    --build | --arch | --glibc | --limit-mb | --cache)
      [ $# -ge 2 ] || fail 2 "gpu_bundle.sh: $1 must be followed by a value"
      case $1 in --build) build=$2 ;; --arch) architectures=$2 ;; --glibc) oldest=$2 ;; --limit-mb) limit=$2 ;; --cache) cache=$2 ;; esac
      shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) fail 2 "gpu_bundle.sh: must be --build, --arch, --glibc, --limit-mb or --cache, but got '$1'" ;;
    *) out=$1; shift ;;
  esac
done
case $out in
  *.tar.gz) pack=(gzip -9n) ;;
  # Its window of 64 MiB: what several programs contain, it packs once.
  *.tar.xz) pack=(xz -9e -T1) ;;
  *) fail 2 "gpu_bundle.sh: the archive must be named *.tar.gz or *.tar.xz, but got '$out'" ;;
esac
for tool in "${pack[0]}" strip readelf objdump ldd; do
  command -v "$tool" >/dev/null || fail 2 "gpu_bundle.sh: $tool is needed, but is not installed"
done
[ -z "$cache" ] || [ -e "$cache" ] || fail 2 "gpu_bundle.sh: --cache must be a visit's cache.tar.gz or a folder, but there is no $cache"
out=$(realpath -m "$out")

if [ -z "$build" ]; then
  set_up
  find_nvcc || fail 2 "gpu_bundle.sh: nvcc is needed, but was not found"
  root_of_cudnn=$(cudnn_root) || fail 2 "gpu_bundle.sh: cuDNN 9 is needed, but was not found"
  say "Building the cuda preset for $architectures in build/gpu-bundle"
  # A shared library is packed once: without it, each program would hold all kernels.
  build=$root/build/gpu-bundle
  configure cuda -B "$build" -DBUILD_SHARED_LIBS=ON -DATHANOR_CUDA_ARCHITECTURES="$architectures" -DCUDNN_ROOT="$root_of_cudnn" \
    -DATHANOR_MPI=OFF -DATHANOR_SERVE=OFF
  cmake --build "$build" --target gpu_programs
fi
[ -x "$build/bin/bench_cuda" ] || fail 2 "gpu_bundle.sh: $build must be a build of the cuda preset, but has no bin/bench_cuda"
programs=()
for program in "$build"/bin/{cuda_test,cuda_nccl_test,bench_cuda,bench_step,train_*,speedrun_cifar10,athanor}; do
  [ ! -x "$program" ] || programs+=("$program")
done

# MPI is more than a library that could be packed. Ranks with a GPU each meet over NCCL.
for program in "${programs[@]}"; do
  # grep reads to the end: where it did not, ldd could be ended by SIGPIPE, and the pipe's status be that.
  ! ldd "$program" | grep '^[[:space:]]*libmpi\.' >/dev/null ||
    fail 1 "gpu_bundle.sh: $(basename "$program") must do without MPI, which cannot be packed: configure with -DATHANOR_MPI=OFF"
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
stage=$folder/athanor-gpu
mkdir -p "$stage"/{bin,lib/c++,tests,bench/peers}
cp -L "${programs[@]}" "$stage/bin"
cp -r "$root/scripts" "$stage"
cp -r "$root/tests/golden" "$stage/tests"
cp -r "$root/bench/peers/pytorch" "$stage/bench/peers"
rm -rf "$stage/bench/peers/pytorch/__pycache__"
if [ -d "$cache" ]; then
  cp -rL "$cache" "$stage/cache"
elif [ -n "$cache" ]; then
  tar -xf "$cache" -C "$stage" cache || fail 1 "gpu_bundle.sh: $cache must be what a visit left as cache.tar.gz"
fi
cp "$root/scripts/gpu_bundle_env.sh" "$stage/env.sh"

for program in "$stage"/bin/*; do
  readelf -d "$program" | grep -E 'R(UN)?PATH.*\$ORIGIN/\.\./lib' >/dev/null ||
    fail 1 "gpu_bundle.sh: $(basename "$program") does not look for its libraries in \$ORIGIN/../lib"
done
# CUDA's libraries fit the driver of the machine, and glibc is the machine's own. The C++ library goes into a folder
# of its own, which is used only where the machine's is older.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name file; do
  case $name in
    libcuda.so* | libcudart* | libcublas* | libcudnn* | libnccl* | libnvrtc* | libnvJitLink* | libnvidia-*) ;;
    libc.so* | libm.so* | libmvec.so* | libdl.so* | libpthread.so* | librt.so* | libutil.so* | libresolv.so*) ;;
    libstdc++.so* | libgcc_s.so*) cp -L "$file" "$stage/lib/c++/$name" ;;
    *) cp -L "$file" "$stage/lib/$name" ;;
  esac
done
find "$stage/bin" "$stage/lib" -type f -exec strip --strip-unneeded {} +

# Without lib/c++: Debian's own is newer than the programs, which do with that of any system that has such a glibc.
glibc=$(find "$stage/bin" "$stage/lib" -maxdepth 1 -type f -exec objdump -T {} + | grep -o 'GLIBC_2[0-9.]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "GLIBC_$oldest" "$glibc" | sort -V | tail -n 1)" = "GLIBC_$oldest" ] ||
  fail 1 "gpu_bundle.sh: what is packed must do with glibc $oldest, but needs ${glibc#GLIBC_}: build on an older system, or, where \
the machine with the GPU has a newer one, say so with --glibc"
architectures=$(sed -n 's/^ATHANOR_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
cat >"$stage/MANIFEST.json" <<END
{
  "commit": "$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)",
  "architectures": "$architectures",
  "packed": "$(date -u +%FT%TZ)",
  "needs": "${glibc#GLIBC_}"
}
END

mkdir -p "$(dirname "$out")"
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner -cf - athanor-gpu | "${pack[@]}" >"$out.part"
bytes=$(stat -c %s "$out.part")
if [ "$bytes" -gt $((limit * 1000000)) ]; then
  rm "$out.part"
  du -a -B1000 "$stage" | sort -rn | sed -n '3,10s|\t.*athanor-gpu| kB unpacked: |p' >&2
  fail 1 "gpu_bundle.sh: the archive must have at most $limit million bytes, but has $bytes: .tar.xz is smaller than .tar.gz, one architecture than several"
fi
mv "$out.part" "$out"
echo "$out: $bytes bytes, ${#programs[@]} programs for $architectures, needs glibc ${glibc#GLIBC_}"
