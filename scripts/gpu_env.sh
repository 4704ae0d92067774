# Sourced: finds a GPU and what CUDA programs need, on the system or in Python's nvidia-* wheels. Only looks; a function
# that finds nothing returns 1. Those that print a list print one item a line.

# The first GPU's name.
gpu_name() {
  local name
  if command -v nvidia-smi >/dev/null && name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) &&
    [ -n "$name" ]; then
    printf '%s\n' "${name%%$'\n'*}"
    return
  fi
  # Where the driver has no tool along.
  sed -n 's/^Model:[[:space:]]*//p' "${NVIDIA_PROC:-/proc/driver/nvidia}"/gpus/*/information 2>/dev/null | sed -n 1p | grep .
}

# What there is to know of it, as lines of name, tab, value.
gpu_facts() {
  local name sm
  name=$(gpu_name) || { echo "no NVIDIA GPU here"; return 77; }
  printf 'gpu\t%s\n' "$name"
  if sm=$(gpu_sm); then printf 'sm\t%s\n' "$sm"; fi
  printf 'driver\t%s\n' "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p)"
  printf 'memory\t%s\n' "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader 2>/dev/null | sed -n 1p)"
  printf 'clocks_before\t%s\n' "$(gpu_clocks)"
}
gpu_clocks() {
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader,nounits 2>/dev/null | sed -n 1p
}

# Its compute capability, 90 for 9.0.
gpu_sm() {
  local sm
  sm=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 1p | tr -d '. ') || return 1
  [[ $sm =~ ^[0-9]+$ ]] && echo "$sm"
}

# What CMake calls machine code for it. Hopper's own instructions need the letter.
gpu_architecture() {
  local sm
  sm=$(gpu_sm) || return 1
  if [ "$sm" = 90 ]; then echo 90a-real; else echo "$sm-real"; fi
}

# has_code_for ARCHITECTURES SM: whether what was built for a list as ATHANOR_CUDA_ARCHITECTURES has it runs on a GPU;
# as tensor/cuda/device.cpp decides it.
has_code_for() {
  local word built kind
  for word in ${1//[;,]/ }; do
    built=${word%%[!0-9]*} kind=${word#"${word%%[!0-9]*}"}
    [ -n "$built" ] || return 0 # all, native, release
    case $kind in
      a*) [ "$built" -ne "$2" ] || return 0 ;;
      "" | -virtual) [ "$built" -gt "$2" ] || return 0 ;;
      *) [ $((built / 10)) -ne $(($2 / 10)) ] || [ "$built" -gt "$2" ] || return 0 ;;
    esac
  done
  return 1
}

# Those of the folders on standard input that are there, each once.
folders_once() {
  local folder
  while read -r folder; do
    if [ -d "$folder" ]; then echo "$folder"; fi
  done | awk '!seen[$0]++'
}

# Folders nvidia/ of Python's packages: of the python3 on the path first, then of others in usual places.
nvidia_wheels() {
  {
    python3 -c 'import site, sys
for folder in sys.path + site.getsitepackages() + [site.getusersitepackages()]: print(folder + "/nvidia")' 2>/dev/null || true
    printf '%s\n' ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages/nvidia} \
      ${CONDA_PREFIX:+"$CONDA_PREFIX"/lib/python3*/site-packages/nvidia} \
      /opt/*/lib/python3*/site-packages/nvidia /opt/*/.venv/lib/python3*/site-packages/nvidia \
      /usr/local/lib/python3*/{site,dist}-packages/nvidia /usr/lib/python3*/dist-packages/nvidia
  } | folders_once
}

# Folders that hold a toolkit, or a part of one: bin/, include/ and lib/ or lib64/.
cuda_folders() {
  local nvcc wheels
  {
    [ -z "${CUDA_HOME-}" ] || echo "$CUDA_HOME"
    [ -z "${CUDA_PATH-}" ] || echo "$CUDA_PATH"
    if nvcc=$(command -v nvcc); then dirname "$(dirname "$(readlink -f "$nvcc")")"; fi
    echo /usr/local/cuda
    printf '%s\n' /usr/local/cuda-* | sort -rV
    echo /opt/cuda
    nvidia_wheels | while read -r wheels; do printf '%s\n' "$wheels"/cu[0-9]* "$wheels"/*; done
  } | folders_once
}

# Whether there is a CUDA compiler. Puts it on the path where it is not there.
find_nvcc() {
  local folder
  command -v nvcc >/dev/null && return
  while read -r folder; do
    [ -x "$folder/bin/nvcc" ] || continue
    PATH=$PATH:$folder/bin
    return
  done < <(cuda_folders)
  return 1
}

# Folders a library may be in, as the loader and the toolkit have them.
library_folders() {
  tr ':' '\n' <<<"${LD_LIBRARY_PATH-}"
  cuda_folders | while read -r folder; do
    printf '%s\n' "$folder"/lib64 "$folder"/lib "$folder"/targets/x86_64-linux/lib
  done
}

# find_library NAME...: the first file of one of these names.
find_library() {
  local name folder
  for name in "$@"; do
    while read -r folder; do
      if [ -n "$folder" ] && [ -e "$folder/$name" ]; then echo "$folder/$name" && return; fi
    done < <(library_folders)
    folder=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null | awk -v name="$name" '$1 == name { found = $NF } END { print found }')
    if [ -n "$folder" ]; then echo "$folder" && return; fi
  done
  return 1
}

# The folder with cuDNN's headers and library, as -DCUDNN_ROOT; empty where the compiler's own folders have both.
cudnn_root() {
  local folder
  for folder in "${CUDNN_ROOT-}" $(cuda_folders) /usr; do
    compgen -G "$folder/include/cudnn_backend.h" >/dev/null || compgen -G "$folder/include/*/cudnn_backend.h" >/dev/null || continue
    compgen -G "$folder/lib*/libcudnn.so*" >/dev/null || compgen -G "$folder/lib/*/libcudnn.so*" >/dev/null || continue
    echo "$folder"
    return
  done
  return 1
}

# What a build with CUDA lacks here, in words; nothing where it is all there.
cuda_build_lacks() {
  local lacks=()
  if ! find_nvcc; then
    lacks+=("nvcc")
  else
    local toolkit=""
    toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
    compgen -G "$toolkit/include/cublasLt.h" >/dev/null ||
      compgen -G "$toolkit/targets/*/include/cublasLt.h" >/dev/null || lacks+=("cuBLAS beside nvcc")
  fi
  cudnn_root >/dev/null || lacks+=("cuDNN 9")
  local IFS=,
  printf '%s' "${lacks[*]}" | sed 's/,/ and /g'
}

# library_path PROGRAM...: the folders, joined by colons, in which the libraries are that the loader does not find for
# these programs by itself, and those that cuDNN and NCCL load later.
library_path() {
  local folders=() name file
  for name in $(ldd "$@" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u) libnvrtc.so.13 libnccl.so.2; do
    file=$(find_library "$name") || continue
    folders+=("$(dirname "$file")")
  done
  printf '%s\n' "${folders[@]}" | awk 'NF && !seen[$0]++' | paste -sd:
}

# use_libraries PROGRAM...: from now on the loader finds what these programs need.
use_libraries() {
  local path
  path=$(library_path "$@")
  [ -z "$path" ] || export LD_LIBRARY_PATH="$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# use_bundle FOLDER: the same for all programs of an unpacked bundle.
use_bundle() {
  local programs=("$1"/bin/*)
  [ ! -d "$1/lib" ] || export LD_LIBRARY_PATH="$1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  # The C++ library of the machine that built it, only where this one's is older or missing.
  if [ -d "$1/lib/c++" ] && ldd "${programs[@]}" 2>&1 | grep -E "(GLIBCXX|CXXABI|GCC)_.* not found|lib(stdc[+][+]|gcc_s).*not found" >/dev/null; then
    export LD_LIBRARY_PATH="$1/lib/c++:$LD_LIBRARY_PATH"
  fi
  use_libraries "${programs[@]}"
  [ ! -d "$1/tests/golden" ] || export ATHANOR_GOLDEN_DIR="$1/tests/golden"
}

# read_ahead BIN: reads the libraries that the programs there will load, then PyTorch's.
read_ahead() {
  local file torch
  ldd "$1"/bench_step "$1"/cuda_test 2>/dev/null | awk '$3 ~ /^\// && !seen[$3]++ { print $3 }' | while read -r file; do
    case $file in
      */libcudnn.so*) cat "$(dirname "$file")"/libcudnn*.so.9 ;;
      */libcu* | */libathanor* | */libnv*) cat "$file" ;;
    esac
  done >/dev/null
  torch=$(python3 -c 'import importlib.util as find; print(find.find_spec("torch").submodule_search_locations[0])') || return 0
  cat "$torch"/lib/*.so* >/dev/null
}

# find_cuda_tool NAME FOLDER: a tool of the toolkit, or of a folder of its own beside or in it.
find_cuda_tool() {
  local folder file
  command -v "$1" && return
  for file in $(cuda_folders | while read -r folder; do printf '%s\n' "$folder/bin/$1" "$folder/$2/$1" "$folder/$2"*/"$1"; done) \
    /opt/nvidia/"$2"/*/"$1"; do
    if [ -x "$file" ]; then echo "$file" && return; fi
  done
  return 1
}

# The first Python here whose PyTorch sees a GPU.
python_with_torch() {
  local python
  for python in "${ATHANOR_PEERS_VENV:-${HOME-}/.cache/athanor/peers}/bin/python" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" python3 \
    /opt/*/bin/python3 /opt/*/.venv/bin/python3; do
    python=$(type -P "${python:-none}") || continue
    if timeout --foreground 60 "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then
      echo "$python" && return
    fi
  done
  return 1
}
