# A toolchain for 64-bit ARM (the preset aarch64): Debian's cross compiler, the libraries that scripts/arm64_sysroot.sh
# unpacks, and qemu for programs that the build or its tests run. It emulates a CPU with NEON and nothing newer.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH folder)
set(CMAKE_SYSROOT ${folder}/build/arm64-sysroot)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu cortex-a72 -L ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
