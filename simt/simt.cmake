# The emulator's libraries, athanor::simt, athanor::simt_race and athanor::simt_bounds, each built when a target wants it,
# and the call that compiles .cu files for them. This folder needs g++, fmt and nothing else; who has it includes this
# file, after find_package(fmt) and find_package(Threads).
#
#   athanor_simt_sources(TARGET FILE.cu... [CHECK NONE|RACE|BOUNDS] [OPTIONS option...])
#
# adds kernels to a target, compiled by g++, and links it to the emulator. What is looked for besides wrong calls:
#   RACE     races in shared and global memory, memory read before it was written; the default is NONE
#   BOUNDS   accesses out of bounds, and misaligned ones
# All of a program has one CHECK. OPTIONS go to the compiler of these files alone: -O0 -g for a debugger.
# In a folder whose CMakeLists.txt gives the same files to nvcc, they cannot be compiled as C++ too: call it from another.

# athanor_simt_options(CHECK OPTIONS KERNEL_OPTIONS): sets two variables: what the compiler must be told for code that runs
# or drives the device, and what for kernels besides.
function(athanor_simt_options check options kernel_options)
  set(device)
  # Registers loaded in one unrolled loop and used in the next, both under the same condition, look uninitialised to
  # g++. A float4 is read through pointers of other types, as CUDA allows and C++ does not.
  set(kernel "SHELL:-x c++" -fno-strict-aliasing -Wno-uninitialized -Wno-maybe-uninitialized -Wno-unknown-pragmas)
  if(check STREQUAL "BOUNDS")
    set(device -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1)
  elseif(check STREQUAL "RACE")
    set(device -DSIMT_RACE -g -fno-omit-frame-pointer)
    # The emulator has functions of its own for what this calls; libtsan is not linked.
    list(APPEND kernel -fsanitize=thread -fsanitize-coverage=trace-pc)
    # Barriers are told apart by the calls that lead to them: none is left out, and no two are made one.
    list(APPEND kernel -fno-optimize-sibling-calls -fno-partial-inlining -fno-crossjumping -fno-tree-tail-merge)
  elseif(NOT check STREQUAL "NONE")
    message(FATAL_ERROR "simt: CHECK must be NONE, RACE or BOUNDS, but is '${check}'")
  endif()
  set(${options} ${device} PARENT_SCOPE)
  set(${kernel_options} ${kernel} PARENT_SCOPE)
endfunction()

# athanor_simt_target(CHECK NAME): sets a variable to the library for that check.
function(athanor_simt_target check name)
  string(TOLOWER "_${check}" suffix)
  string(REPLACE "_none" "" suffix "${suffix}")
  set(${name} athanor_simt${suffix} PARENT_SCOPE)
endfunction()

function(athanor_simt_library check)
  athanor_simt_target(${check} name)
  if(TARGET ${name})
    return()
  endif()
  set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/emulator)
  set(sources
    api_device
    api_errors
    api_launch
    api_memory
    api_stream
    async_copies
    bulk_copies
    copies
    counters
    executor
    fiber
    graph
    handles
    matrices
    mbarriers
    memory
    operands
    options
    runtime
    tensor_tiles
    waiting
    warpgroups
  )
  if(check STREQUAL "RACE")
    list(APPEND sources
      access
      block_order
      program_memory
      race
      race_words
      shadow
      symbols
      warp_counters
    )
  endif()
  list(TRANSFORM sources PREPEND ${folder}/)
  list(TRANSFORM sources APPEND .cpp)
  athanor_simt_options(${check} options kernel_options)
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${sources})
  string(REPLACE athanor_ athanor:: alias ${name})
  add_library(${alias} ALIAS ${name})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_compile_options(${name} PRIVATE -O2 ${options})
  cmake_path(GET CMAKE_CURRENT_FUNCTION_LIST_DIR PARENT_PATH above)
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/include ${above}) # "simt/launch.h", "simt/emulator/..."
  target_include_directories(${name} SYSTEM PUBLIC ${folder}/cuda) # its <cuda_runtime.h> stands in for the toolkit's
  target_link_libraries(${name} PRIVATE fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
  if(check STREQUAL "BOUNDS")
    target_link_options(${name} INTERFACE -fsanitize=address,undefined)
  elseif(check STREQUAL "RACE")
    # g++ brings libbacktrace along; without it the program addr2line is asked.
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES backtrace)
    check_cxx_source_compiles("#include <backtrace.h>
      int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr; }" SIMT_HAS_LIBBACKTRACE)
    if(SIMT_HAS_LIBBACKTRACE)
      target_compile_definitions(${name} PRIVATE SIMT_LIBBACKTRACE)
      target_link_libraries(${name} PRIVATE backtrace)
    endif()
  endif()

  # NCCL between ranks that are threads, each with an emulated device: its <nccl.h> stands in for the library's.
  string(REPLACE athanor_simt athanor_simt_nccl nccl ${name})
  add_library(${nccl} STATIC EXCLUDE_FROM_ALL ${folder}/nccl/calls.cpp ${folder}/nccl/group.cpp)
  string(REPLACE athanor_ athanor:: alias ${nccl})
  add_library(${alias} ALIAS ${nccl})
  target_compile_options(${nccl} PRIVATE -O2 ${options})
  target_include_directories(${nccl} SYSTEM PUBLIC ${folder}/nccl)
  target_link_libraries(${nccl} PUBLIC ${name} PRIVATE fmt::fmt)
endfunction()

function(athanor_simt_sources target)
  cmake_parse_arguments(arg "" "CHECK" "OPTIONS" ${ARGN})
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "simt: kernels are compiled by g++, but the C++ compiler is ${CMAKE_CXX_COMPILER_ID}")
  elseif(NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "simt: athanor_simt_sources(${target}) names no .cu files")
  elseif(NOT arg_CHECK)
    set(arg_CHECK NONE)
  endif()
  get_target_property(former ${target} ATHANOR_SIMT_CHECK)
  if(former AND NOT former STREQUAL arg_CHECK)
    message(FATAL_ERROR "simt: ${target} has CHECK ${former}: it cannot have ${arg_CHECK} too; make another target")
  endif()
  set_target_properties(${target} PROPERTIES ATHANOR_SIMT_CHECK ${arg_CHECK})
  athanor_simt_options(${arg_CHECK} options kernel_options)
  athanor_simt_target(${arg_CHECK} library)

  # A library of objects, so that another target of the same folder may look for something else in the same files.
  string(SHA256 hash "${arg_UNPARSED_ARGUMENTS}")
  string(SUBSTRING ${hash} 0 8 hash)
  set(kernels ${target}_cu_${hash})
  add_library(${kernels} OBJECT ${arg_UNPARSED_ARGUMENTS})
  set_source_files_properties(${arg_UNPARSED_ARGUMENTS} PROPERTIES LANGUAGE CXX)
  target_compile_features(${kernels} PRIVATE cxx_std_20)
  # With what it links to, these properties of the target are complete.
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    set_property(TARGET ${kernels} PROPERTY ${property} "$<TARGET_PROPERTY:${target},${property}>")
  endforeach()
  # Last come our own options, by way of a library, for they overrule the target's.
  add_library(${kernels}_options INTERFACE)
  target_compile_options(${kernels}_options INTERFACE ${options} ${kernel_options} ${arg_OPTIONS})
  target_link_libraries(${kernels} PRIVATE ${library} ${kernels}_options)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${kernels}>)
  target_link_libraries(${target} PUBLIC ${library})
endfunction()

foreach(check NONE RACE BOUNDS)
  athanor_simt_library(${check})
endforeach()
