# How tests are declared. Each has the name of its lane as a label, beside that of its room:
#   quick   in process: what one runs while editing, `ctest --preset cpu -L quick`
#   all     what a change must pass: processes, MPI, programs from a shell, as well
#   every   exhaustive cases, most drills, ladders, the book: declared and built with -DATHANOR_EVERY_TEST=ON alone
find_package(GTest REQUIRED)
include(GoogleTest)
find_program(BASH bash REQUIRED)
find_package(Python3 COMPONENTS Interpreter)

# Seconds after which a test hangs: never how long one should take, on however slow and busy a machine.
set(ATHANOR_TEST_TIMEOUT 1800)

# What mpirun needs in the environment of a test.
file(STRINGS ${PROJECT_SOURCE_DIR}/scripts/open_mpi.env ATHANOR_OPEN_MPI_ENVIRONMENT REGEX "^[A-Z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/open_mpi.env)
if(ATHANOR_SIMT_CHECK STREQUAL "BOUNDS") # Open MPI keeps some memory to the end; AddressSanitizer would call that leaks
  list(APPEND ATHANOR_OPEN_MPI_ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()

# All programs of tests of this preset, without benchmarks and examples that no test runs.
add_custom_target(tests)
# Those of the lane quick.
add_custom_target(quick_tests)
add_dependencies(tests quick_tests)

# What every test program is linked with. Fresh memory is filled with NaN; calls of operator new are counted.
add_library(athanor_test_memory OBJECT ${PROJECT_SOURCE_DIR}/tests/support/fill_fresh_memory.cpp
  ${PROJECT_SOURCE_DIR}/tests/support/count_new.cpp)
set_target_properties(athanor_test_memory PROPERTIES ATHANOR_IS_TEST ON)
target_include_directories(athanor_test_memory PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(athanor_test_memory PRIVATE athanor_flags)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
add_library(athanor_test_support INTERFACE)
target_link_libraries(athanor_test_support INTERFACE athanor::athanor athanor_flags GTest::gtest
  nlohmann_json::nlohmann_json JPEG::JPEG PNG::PNG ZLIB::ZLIB)
target_compile_definitions(athanor_test_support INTERFACE
  ATHANOR_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden" ATHANOR_RECIPES_DIR="${PROJECT_SOURCE_DIR}/recipes")
foreach(library HDF5 LMDB LIBZIP WEBP) # what is tested depends on what was found
  if(ATHANOR_WITH_${library})
    target_include_directories(athanor_test_support SYSTEM INTERFACE ${${library}_INCLUDE_DIR})
    target_link_libraries(athanor_test_support INTERFACE ${${library}_LIBRARY})
    target_compile_definitions(athanor_test_support INTERFACE ATHANOR_TEST_${library})
  endif()
endforeach()

# What a cross build tests, one program per test of GoogleTest, each in an emulator: what depends on the CPU, and formats,
# which know whether a char has a sign. Left out are tests that start programs, for the emulator does not run those, and
# whole models, the loader, ranks and runs, which take it many minutes; and, by the test preset, the largest matrices and convolutions.
set(ATHANOR_CROSS_TESTS
  accumulate activation allocator arena attention augment checkpoint compare conv conv_list conv_transpose copy crc32c creation
  cross_entropy dropout elementwise elementwise_rows ema engine formats foreign_names gradcheck group_norm half image init integers
  interpolate layer_norm loss loss_scale math matmul metric_sums metrics model_golden model_parts module muon norm npy optim
  optim_golden optim_step orientation pair_loss philox pool pool_indices precision preprocess printable rand_augment reduce
  resize safetensors scalar_ops scalars schedule sha256 shape similarity softmax state_dict tensor tfrecord topk torch_file
  transform)

# athanor_test_program(NAME [LIBRARIES target...] SOURCES file...): a program of GoogleTest. Sources are compiled several as
# one, for the compiler spends its time on their headers: each has a namespace of its own, named after it.
function(athanor_test_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES} $<TARGET_OBJECTS:athanor_test_memory>)
  set_target_properties(${name} PROPERTIES ATHANOR_IS_TEST ON UNITY_BUILD ${ATHANOR_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} athanor_test_support)
  # GCC takes a file that is included for a header, where types of an unnamed namespace would be a mistake.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  add_dependencies(tests ${name})
endfunction()

# athanor_tests(ROOM [THREADS name...] [OTHERS name...] [SLOW pattern...] [LIBRARIES target...])
#   The program ROOM_test from a NAME_test.cpp for each name, in the folder ROOM. Each of its cases is a test, run alone.
#   SLOW: patterns of cases (as of --gtest_filter) that take seconds or start processes: they are of the lane `all`. Those called
#   Suite.Exhaustive* are of the lane `every`, all others of `quick`.
#   THREADS: exercise threads of our own, and are all that is built under ThreadSanitizer.
#   Under AddressSanitizer readers and kernels are, and what stands on them; runs and ranks follow in the lane every.
set(ATHANOR_ADDRESS_ROOMS tensor kernels autograd nn data examples)
# Cases that take minutes under a sanitizer. Kernels keep their other tests there and, under AddressSanitizer, random_ops.
set(ATHANOR_UNSANITIZED *Activations.AreHalf* BatchNorm.FusedEquals* BatchSize.IsBoundByMemory Collectives.SixteenRanks *ConvList.Large*
  *ConvList.Small* Copy.EveryPermutation* *ElementwiseRows.* Engine.MillionNodes* *Folding.* Layers.OnesMatch* *ModelGolden.*
  *Models.EveryParameter* Models.NamesAre* Zoo.* Predictor.HoldsNoMoreActivations* Reduce.MatchesDoubleReference
  ZeroOne.EqualsDdpBitForBitOnMoreRanks)
function(athanor_tests room)
  cmake_parse_arguments(arg "" "" "THREADS;OTHERS;SLOW;LIBRARIES" ${ARGN})
  set(names ${arg_THREADS} ${arg_OTHERS})
  if(ATHANOR_SANITIZE MATCHES "thread")
    set(names ${arg_THREADS})
  elseif(ATHANOR_SANITIZE AND NOT ATHANOR_EVERY_TEST AND NOT room IN_LIST ATHANOR_ADDRESS_ROOMS)
    return()
  endif()
  set(sources)
  foreach(name ${names})
    if(NOT CMAKE_CROSSCOMPILING OR name IN_LIST ATHANOR_CROSS_TESTS)
      list(APPEND sources ${room}/${name}_test.cpp)
    endif()
  endforeach()
  if(NOT sources)
    return()
  endif()
  athanor_test_program(${room}_test SOURCES ${sources} LIBRARIES ${arg_LIBRARIES} GTest::gtest_main)
  add_dependencies(quick_tests ${room}_test)
  set(exhaustive *.Exhaustive*)
  if(ATHANOR_SANITIZE AND NOT ATHANOR_EVERY_TEST)
    list(APPEND exhaustive ${ATHANOR_UNSANITIZED})
    list(REMOVE_ITEM arg_SLOW ${ATHANOR_UNSANITIZED})
  endif()
  list(JOIN exhaustive ":" exhaustive)
  list(JOIN arg_SLOW ":" slow)
  athanor_discover(${room}_test quick "-${slow}:${exhaustive}" LABELS ${room})
  if(slow)
    athanor_discover(${room}_test all "${slow}-${exhaustive}" LABELS ${room})
  endif()
  athanor_discover(${room}_test every "*.Exhaustive*" LABELS ${room})
endfunction()

# athanor_discover(PROGRAM LANE FILTER [LABELS label...] [SUFFIX suffix] [PREFIX prefix] [ENVIRONMENT name=value...]
#   [PROPERTIES name value...]): a test for each case that the filter takes.
function(athanor_discover program lane filter)
  cmake_parse_arguments(arg "" "SUFFIX;PREFIX" "LABELS;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(lane STREQUAL "every" AND NOT ATHANOR_EVERY_TEST)
    return()
  endif()
  string(MD5 list "${filter}${arg_SUFFIX}") # names a file, which may not be as long as a filter
  string(PREPEND list "${program}_${lane}_")
  gtest_discover_tests(${program} TEST_FILTER "${filter}" TEST_LIST ${list} TEST_PREFIX "${arg_PREFIX}"
    TEST_SUFFIX "${arg_SUFFIX}" NO_PRETTY_VALUES DISCOVERY_TIMEOUT 600
    PROPERTIES LABELS ${lane} TIMEOUT ${ATHANOR_TEST_TIMEOUT} ${arg_PROPERTIES})
  # gtest_discover_tests would take the second word of a list for the name of a property.
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${list}.cmake
    "if(${list})\n  set_tests_properties(\${${list}} PROPERTIES LABELS \"${lane};${arg_LABELS}\" ENVIRONMENT \"${arg_ENVIRONMENT}\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${list}.cmake)
endfunction()

# athanor_run_test(NAME LANE [BOTH_CORES] [ENVIRONMENT name=value...] [PROPERTIES name value...] COMMAND word...): a program is
# run. Code 77 says that it cannot be here; it prints why.
#   BOTH_CORES: it starts processes which wait for one another. Others beside it would only prove that a busy machine is slow.
function(athanor_run_test name lane)
  if(lane STREQUAL "every" AND NOT ATHANOR_EVERY_TEST)
    set_property(GLOBAL APPEND_STRING PROPERTY ATHANOR_WEEKLY_TESTS "${name}\n")
    return()
  endif()
  cmake_parse_arguments(arg "BOTH_CORES" "" "ENVIRONMENT;PROPERTIES;COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS ${lane} TIMEOUT ${ATHANOR_TEST_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${arg_ENVIRONMENT}" ${arg_PROPERTIES})
  if(arg_BOTH_CORES)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
  foreach(word ${arg_COMMAND})
    if(TARGET "${word}")
      add_dependencies(tests ${word})
    elseif(word MATCHES "TARGET_FILE:([^>]+)>")
      add_dependencies(tests ${CMAKE_MATCH_1})
    endif()
  endforeach()
endfunction()
