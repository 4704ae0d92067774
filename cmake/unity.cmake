# A compiler spends most of its time on headers and on templates that every source instantiates anew, so the sources of a folder
# are compiled as one: their static names must differ.

# These are compiled alone: kernels, which are long; formats and models, which are many, and alike in their names; what a
# test (tests/cuda/plans_test.cpp) stands in for; what is compiled with headers of its own.
set(ATHANOR_TOGETHER "^(autograd|data|dist|kernels/account|nn|optim|tensor|trainer)/")
set(ATHANOR_ALONE "^(data/formats|nn/models)/|^autograd/conv.cpp$|/cuda/|nccl|nvjpeg|mpi")
# So is a source that an exercise replaces: the linker takes the archive's object only if nothing has defined its symbols.
set(ATHANOR_REPLACEABLE "" CACHE STRING "Sources to compile alone, as well")
mark_as_advanced(ATHANOR_REPLACEABLE)
# What runs once, or once an epoch, is not worth the compiler's time.
set(ATHANOR_RUNS_ONCE "^kernels_account$|^trainer_(checkpoints|finders|flags|report|tool)$|^dist_(launch|watch)$")

function(athanor_unity library)
  if(NOT ATHANOR_UNITY)
    return()
  endif()
  set_target_properties(${library} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${library} SOURCES)
  foreach(source ${sources})
    if(NOT source MATCHES "${ATHANOR_TOGETHER}" OR source MATCHES "${ATHANOR_ALONE}" OR source IN_LIST ATHANOR_REPLACEABLE)
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    string(REGEX REPLACE "/detail$" "" group ${folder}) # what is private to a folder belongs to it
    string(REPLACE "/" "_" group ${group})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    # GCC takes a file that is included for a header, where types of an unnamed namespace would be a mistake.
    set(options "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
    if(group MATCHES "${ATHANOR_RUNS_ONCE}" AND NOT ATHANOR_SANITIZE)
      list(APPEND options -O1)
    endif()
    set_source_files_properties(CMakeFiles/${library}.dir/Unity/unity_${group}_cxx.cxx PROPERTIES COMPILE_OPTIONS "${options}")
  endforeach()
endfunction()
