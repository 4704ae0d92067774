# ATHANOR_CUDA: OFF; ON builds kernels/cuda/*.cu with nvcc; SIMT builds the same files with g++ against the emulator in
# simt/, which needs no CUDA at all. Nothing here asks a GPU anything.
set(ATHANOR_CUDA OFF CACHE STRING "CUDA backend: OFF, ON (nvcc, cuDNN, cuBLASLt) or SIMT (emulated on the CPU)")
set_property(CACHE ATHANOR_CUDA PROPERTY STRINGS OFF ON SIMT)

# What scripts/gpu_bundle.sh packs: programs that run on a device.
add_custom_target(gpu_programs)

# fmt would check format strings in a way nvcc's front end does not follow.
set(ATHANOR_NVCC_OPTIONS -std=c++20 --expt-relaxed-constexpr --extended-lambda --fmad=false -DFMT_USE_CONSTEXPR=1 -DFMT_CONSTEVAL=)

set(ATHANOR_WITH_CUDA OFF)
if(NOT ATHANOR_CUDA STREQUAL "OFF")
  set(ATHANOR_WITH_CUDA ON)
endif()

if(ATHANOR_CUDA STREQUAL "ON")
  # Release builds hold machine code for every architecture people have, and PTX that later ones can translate.
  # Development builds one.
  set(ATHANOR_CUDA_RELEASE 75-real 80 86-real 89-real 90a-real 100-real 120-real)
  set(ATHANOR_CUDA_ARCHITECTURES 90a-real CACHE STRING "Architectures to build for: a list as CMAKE_CUDA_ARCHITECTURES, or release")
  if(ATHANOR_CUDA_ARCHITECTURES STREQUAL "release")
    set(CMAKE_CUDA_ARCHITECTURES ${ATHANOR_CUDA_RELEASE})
    set(ATHANOR_CUDA_COMPRESS --compress-mode=size)  # programs have 52 MB instead of 344
  else()
    set(CMAKE_CUDA_ARCHITECTURES ${ATHANOR_CUDA_ARCHITECTURES})
  endif()
  enable_language(CUDA)
  # CMake 3.25 sets a property of this library, which CUDA 13 no longer has. Nothing here links it.
  if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit REQUIRED)
  find_package(CUDNN REQUIRED)
  if(NOT CMAKE_CUDA_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
    # Keeps what ptxas says of registers and spills beside each object, for scripts/kernel_report.sh.
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/nvcc_log.sh)
    if(CCACHE)
      list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/ccache.sh)
    endif()
    set(ATHANOR_PTXAS_LOG -Xptxas=-v)
  endif()
  # -std by hand: CMake 3.25 does not know how this nvcc spells C++20. Host code in .cu files launches kernels: -O1.
  list(JOIN ATHANOR_NVCC_OPTIONS " " options)
  add_library(athanor_cuda_flags INTERFACE)
  target_compile_options(athanor_cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:${options} -lineinfo ${ATHANOR_CUDA_COMPRESS} ${ATHANOR_PTXAS_LOG} -Xcompiler=-O1,-Wall,-Wextra>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ATHANOR_WERROR}>>:SHELL:-Werror all-warnings>")
endif()

# NCCL carries messages between GPUs; the emulator has a stand-in of its own. The library is loaded by programs that have
# several ranks, so that the others run without.
set(ATHANOR_WITH_NCCL OFF)
if(ATHANOR_CUDA STREQUAL "SIMT")
  set(ATHANOR_WITH_NCCL ON)
elseif(ATHANOR_CUDA STREQUAL "ON" AND NOT ATHANOR_NCCL STREQUAL "OFF")
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
  if(NCCL_INCLUDE_DIR)
    set(ATHANOR_WITH_NCCL ON)
  elseif(ATHANOR_NCCL STREQUAL "ON")
    message(FATAL_ERROR "ATHANOR_NCCL=ON, but nccl.h was not found: install libnccl-dev, set NCCL_ROOT, or set it OFF")
  endif()
endif()
if(ATHANOR_WITH_CUDA)
  message(STATUS "athanor: NCCL ${ATHANOR_WITH_NCCL}")
endif()

# nvJPEG decodes JPEG files on a GPU. Its header is needed to build, its library by runs with --decode gpu: beside the
# toolkit, or in the wheel nvidia-nvjpeg (set NVJPEG_ROOT to its folder nvidia/cu13).
set(ATHANOR_WITH_NVJPEG OFF)
if(ATHANOR_CUDA STREQUAL "ON" AND NOT ATHANOR_NVJPEG STREQUAL "OFF")
  find_path(NVJPEG_INCLUDE_DIR nvjpeg.h HINTS ${NVJPEG_ROOT} $ENV{NVJPEG_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(NVJPEG_LIBRARY NAMES nvjpeg libnvjpeg.so.13 libnvjpeg.so.12 HINTS ${NVJPEG_ROOT} $ENV{NVJPEG_ROOT} ${CUDAToolkit_LIBRARY_DIR}
    PATH_SUFFIXES lib lib64)
  mark_as_advanced(NVJPEG_INCLUDE_DIR NVJPEG_LIBRARY)
  if(NVJPEG_INCLUDE_DIR)
    set(ATHANOR_WITH_NVJPEG ON)
  elseif(ATHANOR_NVJPEG STREQUAL "ON")
    message(FATAL_ERROR "ATHANOR_NVJPEG=ON, but nvjpeg.h was not found: install libnvjpeg-dev, set NVJPEG_ROOT, or set it OFF")
  endif()
  message(STATUS "athanor: nvJPEG ${ATHANOR_WITH_NVJPEG}")
endif()

include(${PROJECT_SOURCE_DIR}/simt/simt.cmake) # its libraries are built where something links to them
if(ATHANOR_CUDA STREQUAL "SIMT")
  # What the emulator looks for besides wrong results. Only what runs on or drives the device is instrumented: kernels,
  # the emulator, the device runtime. The rest is compiled as without, so that ccache has it already.
  set(ATHANOR_SIMT_CHECK NONE CACHE STRING "NONE; BOUNDS: accesses out of bounds and misaligned; RACE: races and uninitialised memory")
  set_property(CACHE ATHANOR_SIMT_CHECK PROPERTY STRINGS NONE BOUNDS RACE)
  athanor_simt_options(${ATHANOR_SIMT_CHECK} ATHANOR_SIMT_OPTIONS kernel_options)
  athanor_simt_target(${ATHANOR_SIMT_CHECK} ATHANOR_SIMT_LIBRARY)
  string(REPLACE simt simt_nccl ATHANOR_SIMT_NCCL ${ATHANOR_SIMT_LIBRARY})
  option(ATHANOR_SIMT_DEBUG "Compile kernels without optimisation, for a debugger" OFF)
  # Kernels as nvcc compiles the same files, instead of g++'s; of some of the files, if a regular expression says which.
  set(ATHANOR_PTX OFF CACHE STRING "Run the PTX of nvcc for an architecture: OFF, 90a or 80")
  set(ATHANOR_PTX_SOURCES "" CACHE STRING "Which .cu files, as a regular expression, have their PTX run; the default is all")
  list(APPEND ATHANOR_NVCC_OPTIONS -DATHANOR_WITH_CUDA)
  include(${PROJECT_SOURCE_DIR}/simt/ptx/ptx.cmake)
  foreach(library ${ATHANOR_SIMT_LIBRARY} ${ATHANOR_SIMT_NCCL} athanor_simt_ptx) # with this build's warnings
    target_compile_options(${library} PRIVATE -Wall -Wextra -Wshadow $<$<BOOL:${ATHANOR_WERROR}>:-Werror>)
  endforeach()
endif()

# athanor_device_sources(TARGET FILE.cpp...): adds host code that drives a device to a target.
function(athanor_device_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  if(ATHANOR_CUDA STREQUAL "SIMT")
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${ATHANOR_SIMT_OPTIONS}")
  endif()
endfunction()

# athanor_cuda_sources(TARGET FILE.cu...): adds kernels to a target, for nvcc or for the emulator.
function(athanor_cuda_sources target)
  if(ATHANOR_PTX)
    athanor_ptx_sources(${target} ${ATHANOR_PTX} "${ATHANOR_PTX_SOURCES}" ${ARGN})
  endif()
  if(NOT ATHANOR_CUDA STREQUAL "SIMT")
    target_sources(${target} PRIVATE ${ARGN})
  elseif(ATHANOR_SIMT_DEBUG)
    athanor_simt_sources(${target} ${ARGN} CHECK ${ATHANOR_SIMT_CHECK} OPTIONS -O0 -g)
  else()
    # Products, in which tests spend their time, and the rest, compiled in half of the time.
    set(products ${ARGN})
    set(rest ${ARGN})
    list(FILTER products INCLUDE REGEX "(conv|matmul)[a-z_]*[.]cu$")
    list(FILTER rest EXCLUDE REGEX "(conv|matmul)[a-z_]*[.]cu$")
    if(products)
      athanor_simt_sources(${target} ${products} CHECK ${ATHANOR_SIMT_CHECK})
    endif()
    if(rest)
      athanor_simt_sources(${target} ${rest} CHECK ${ATHANOR_SIMT_CHECK} OPTIONS $<$<STREQUAL:${ATHANOR_SIMT_CHECK},NONE>:-O1>)
    endif()
  endif()
endfunction()
