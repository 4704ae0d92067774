# A compiler spends most of its time on headers and on templates that every source instantiates anew, so the sources of a folder
# are compiled as one: their static names must differ.

# These are compiled alone: kernels, which are long; what a test (tests/cuda/plans_test.cpp) stands in for; what is compiled with
# headers of its own; formats without which, or as the only ones of which, a program is linked, so that it needs no library for
# the others.
set(ATHANOR_TOGETHER "^(autograd|data|dist|kernels/account|nn|optim|tensor|trainer)/")
set(ATHANOR_ALONE "^data/formats/(cifar|idx|mnist|lmdb_writer|npz_reader)|^autograd/conv.cpp$|/cuda/|nccl|nvjpeg|mpi")
# So is a source that an exercise replaces: the linker takes the archive's object only if nothing has defined its symbols.
set(ATHANOR_REPLACEABLE "" CACHE STRING "Sources to compile alone, as well")
mark_as_advanced(ATHANOR_REPLACEABLE)
# What runs at most once a step is not worth the compiler's time.
set(ATHANOR_RUNS_ONCE "^data_formats_import$|^kernels_account$|^nn_(models|onnx|torch)$|^dist_(launch|watch)$|^trainer(_|$)")
# With sanitizers little is optimised (options.cmake): products and convolutions, in which tests spend their time, and what else
# instantiates Eigen's products, for the linker takes any of two instances.
set(ATHANOR_LOOPS "^(kernels/cpu/(conv|matmul|panel_product|winograd)|nn/[a-z0-9_]+[.])")

function(athanor_unity library)
  set_target_properties(${library} PROPERTIES UNITY_BUILD ${ATHANOR_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${library} SOURCES)
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    if(NOT folder STREQUAL "data/formats/detail") # which train_mnist needs
      string(REGEX REPLACE "/detail$" "" folder "${folder}") # what is private to a folder belongs to it
    endif()
    string(REPLACE "/" "_" group "${folder}")
    set(options)
    if(NOT ATHANOR_SANITIZE AND group MATCHES "${ATHANOR_RUNS_ONCE}" OR ATHANOR_SANITIZE AND source MATCHES "${ATHANOR_LOOPS}")
      set(options -O1)
    endif()
    if(ATHANOR_UNITY AND source MATCHES "${ATHANOR_TOGETHER}" AND NOT source MATCHES "${ATHANOR_ALONE}"
       AND NOT source IN_LIST ATHANOR_REPLACEABLE)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
      # GCC takes a file that is included for a header, where types of an unnamed namespace would be a mistake.
      list(APPEND options "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
      set(source CMakeFiles/${library}.dir/Unity/unity_${group}_cxx.cxx)
    endif()
    if(options)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${options}")
    endif()
  endforeach()
endfunction()
