# How tests are declared. Labels: unit gradcheck parity dist simt cuda slow install.
find_package(GTest REQUIRED)
include(GoogleTest)

# Seconds after which a test hangs: never how long one should take, on however slow and busy a machine.
set(ATHANOR_TEST_TIMEOUT 1800)

# PROCESSORS 2 below: a test that starts processes which wait for one another. Others beside it would only prove that a
# busy machine is slow.

# What mpirun needs in the environment of a test.
file(STRINGS ${PROJECT_SOURCE_DIR}/scripts/open_mpi.env ATHANOR_OPEN_MPI_ENVIRONMENT REGEX "^[A-Z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/open_mpi.env)
if(ATHANOR_SIMT_CHECK STREQUAL "BOUNDS") # Open MPI keeps some memory to the end; AddressSanitizer would call that leaks
  list(APPEND ATHANOR_OPEN_MPI_ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()

# What every test is linked with: fresh memory is filled with NaN.
add_library(athanor_test_memory OBJECT ${PROJECT_SOURCE_DIR}/tests/support/fill_fresh_memory.cpp)
target_include_directories(athanor_test_memory PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(athanor_test_memory PRIVATE athanor_flags)

# What a cross build tests, one program per test of GoogleTest, each in an emulator: what depends on the CPU, and formats,
# which know whether a char has a sign. Left out are tests that start programs, for the emulator does not run those, and
# whole models, the loader, ranks and runs, which take it many minutes; and, by the test preset, what is labelled slow and
# Muon's largest matrices.
set(ATHANOR_CROSS_TESTS
  accumulate activation allocator arena attention augment checkpoint compare conv conv_padding conv_transpose copy crc32c creation
  cross_entropy dropout elementwise elementwise_rows ema engine formats foreign_names gradcheck group_norm half image init integers
  interpolate layer_norm loss loss_scale math matmul metric_sums metrics model_golden model_parts module muon norm npy optim
  optim_golden optim_step orientation pair_loss philox pool pool_indices precision preprocess printable rand_augment reduce
  resize safetensors scalar_ops scalars schedule sha256 shape similarity softmax state_dict tensor tfrecord topk torch_file
  transform)

# athanor_test(NAME [LABELS label...] [THREADS] [SOURCES file...] [LIBRARIES target...])
#   One binary from NAME_test.cpp (and SOURCES); each of its cases is a test. A case is labelled as LABELS says, else
#   by its name: *Gradcheck* is gradcheck, Suite.Slow* is slow, everything else is unit.
#   THREADS: exercises threads of our own, so that it is built under ThreadSanitizer too; nothing else is.
function(athanor_test name)
  cmake_parse_arguments(arg "THREADS" "" "LABELS;SOURCES;LIBRARIES" ${ARGN})
  if(ATHANOR_SANITIZE MATCHES "thread" AND NOT arg_THREADS)
    return()
  endif()
  if(CMAKE_CROSSCOMPILING AND NOT name IN_LIST ATHANOR_CROSS_TESTS)
    return()
  endif()
  add_executable(${name}_test ${name}_test.cpp ${arg_SOURCES} $<TARGET_OBJECTS:athanor_test_memory>)
  set_target_properties(${name}_test PROPERTIES ATHANOR_IS_TEST ON)
  target_link_libraries(${name}_test PRIVATE
    athanor::athanor athanor_flags GTest::gtest_main ${arg_LIBRARIES})
  if(arg_LABELS)
    athanor_discover(${name} "*" "${arg_LABELS}")
  else()
    athanor_discover(${name} "*Gradcheck*" gradcheck)
    athanor_discover(${name} "*.Slow*" slow)
    athanor_discover(${name} "-*Gradcheck*:*.Slow*" unit)
  endif()
endfunction()

# athanor_avx2_test(NAME...): the whole program once more, as on a CPU without AVX-512.
function(athanor_avx2_test)
  if(ATHANOR_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  foreach(name ${ARGN})
    add_test(NAME avx2.${name} COMMAND ${name}_test --gtest_brief=1 --gtest_filter=-*Slow*)
    set_tests_properties(avx2.${name} PROPERTIES LABELS unit TIMEOUT ${ATHANOR_TEST_TIMEOUT}
      ENVIRONMENT "ATHANOR_MAX_CPU_ISA=AVX2;ONEDNN_MAX_CPU_ISA=AVX2")
  endforeach()
endfunction()

# athanor_avx512_test(NAME...): the whole program once more, with the code for AVX-512 emulated, so that it is tested on a CPU
# that has none. What chooses between the two is in these sources; they take the place of the library's.
function(athanor_avx512_test)
  if(ATHANOR_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  set(options -include ${PROJECT_SOURCE_DIR}/tests/support/avx512_emulated.h -Wno-psabi)
  set(sources conv_tiles conv_tiles_avx512 panel_product winograd winograd_avx512)
  list(TRANSFORM sources REPLACE "^.+$" "${PROJECT_SOURCE_DIR}/kernels/cpu/\\0.cpp")
  add_library(athanor_avx512_emulated OBJECT ${sources})
  target_compile_options(athanor_avx512_emulated PRIVATE ${options})
  target_link_libraries(athanor_avx512_emulated PRIVATE athanor_flags)
  target_include_directories(athanor_avx512_emulated PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(name ${ARGN})
    add_executable(${name}_avx512_test ${name}_test.cpp $<TARGET_OBJECTS:athanor_avx512_emulated>
      $<TARGET_OBJECTS:athanor_test_memory>)
    set_target_properties(${name}_avx512_test PROPERTIES ATHANOR_IS_TEST ON)
    target_compile_options(${name}_avx512_test PRIVATE ${options})
    target_link_libraries(${name}_avx512_test PRIVATE athanor::athanor athanor_flags GTest::gtest_main)
    add_test(NAME avx512.${name} COMMAND ${name}_avx512_test --gtest_brief=1 --gtest_filter=-*Slow*)
    set_tests_properties(avx512.${name} PROPERTIES LABELS unit TIMEOUT ${ATHANOR_TEST_TIMEOUT})
  endforeach()
endfunction()

function(athanor_discover name filter labels)
  gtest_discover_tests(${name}_test TEST_FILTER "${filter}" TEST_LIST ${name}_${labels} NO_PRETTY_VALUES
    DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${labels}" TIMEOUT ${ATHANOR_TEST_TIMEOUT})
endfunction()

# athanor_mpi_test(NAME WORLD...): one binary from NAME_mpi_test.cpp, run by mpirun once per world size, all on this
# machine; skipped over where MPI was not found.
function(athanor_mpi_test name)
  if(NOT ATHANOR_WITH_MPI)
    return()
  endif()
  add_executable(${name}_mpi_test ${name}_mpi_test.cpp support/mpi_main.cpp)
  set_target_properties(${name}_mpi_test PROPERTIES ATHANOR_IS_TEST ON)
  target_link_libraries(${name}_mpi_test PRIVATE athanor::mpi athanor_ops athanor_flags GTest::gtest)
  foreach(world ${ARGN})
    add_test(NAME mpi.${name}_${world} COMMAND ${MPIEXEC_EXECUTABLE} -n ${world} $<TARGET_FILE:${name}_mpi_test>)
    set_tests_properties(mpi.${name}_${world} PROPERTIES LABELS dist TIMEOUT ${ATHANOR_TEST_TIMEOUT}
      PROCESSORS 2 ENVIRONMENT "${ATHANOR_OPEN_MPI_ENVIRONMENT}")
  endforeach()
endfunction()

# athanor_mpi_end_test(NAME WORLD ARGUMENTS PATTERN): a program without a test framework, whose job must end by
# itself and print what matches PATTERN.
function(athanor_mpi_end_test name world arguments pattern)
  if(NOT ATHANOR_WITH_MPI)
    return()
  endif()
  if(NOT TARGET ${name}_mpi_test)
    add_executable(${name}_mpi_test ${name}_mpi_test.cpp)
    set_target_properties(${name}_mpi_test PROPERTIES ATHANOR_IS_TEST ON)
    target_link_libraries(${name}_mpi_test PRIVATE athanor::mpi athanor_flags)
  endif()
  string(REPLACE " " "_" label "${name} ${arguments}")
  add_test(NAME mpi.${label}
    COMMAND ${MPIEXEC_EXECUTABLE} -n ${world} $<TARGET_FILE:${name}_mpi_test> ${arguments})
  set_tests_properties(mpi.${label} PROPERTIES LABELS dist TIMEOUT 300 PROCESSORS 2
    PASS_REGULAR_EXPRESSION "${pattern}" ENVIRONMENT "${ATHANOR_OPEN_MPI_ENVIRONMENT}")
endfunction()

# athanor_drills(DRILL...): rank_drill.sh for each, once; and 25 times in a lane of its own that takes a quarter of an hour:
# ctest --preset cpu -C drills -R 25_times
function(athanor_drills)
  if(NOT ATHANOR_WITH_MPI OR NOT TARGET athanor-tool OR ATHANOR_SANITIZE)
    return()
  endif()
  add_executable(rank_drill rank_drill.cpp)
  set_target_properties(rank_drill PROPERTIES ATHANOR_IS_TEST ON)
  target_link_libraries(rank_drill PRIVATE athanor::mpi athanor_flags)
  foreach(drill ${ARGN})
    set(command ${BASH} ${CMAKE_CURRENT_SOURCE_DIR}/rank_drill.sh ${MPIEXEC_EXECUTABLE} $<TARGET_FILE:rank_drill>
      $<TARGET_FILE:athanor-tool> ${drill})
    add_test(NAME drill.${drill} COMMAND ${command})
    set_tests_properties(drill.${drill} PROPERTIES LABELS dist TIMEOUT ${ATHANOR_TEST_TIMEOUT} PROCESSORS 2)
    add_test(NAME drill.${drill}_25_times CONFIGURATIONS drills COMMAND ${command} 25)
    set_tests_properties(drill.${drill}_25_times PROPERTIES LABELS "dist;slow" TIMEOUT 3600 PROCESSORS 2)
  endforeach()
endfunction()

# athanor_compile_fail(NAME): NAME.cpp compiles, and no longer does with -DATHANOR_MUST_FAIL, with an error that
# matches the regular expression in its first line, `// error: REGEX`.
function(athanor_compile_fail name)
  add_test(NAME compile_fail.${name} COMMAND ${BASH} ${PROJECT_SOURCE_DIR}/tests/compile_fail/check.sh
    ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only
    -I${PROJECT_SOURCE_DIR})
  set_tests_properties(compile_fail.${name} PROPERTIES LABELS unit)
endfunction()

# athanor_consumer(NAME FOLDER BINARY [argument...]): the project in FOLDER finds the installed library, builds,
# and its BINARY runs with those arguments.
function(athanor_consumer name folder binary)
  add_test(NAME consumer.${name} COMMAND ${CMAKE_COMMAND}
    -D SOURCE=${folder} -D BUILD=${PROJECT_BINARY_DIR}/consumer/${name} -D PREFIX=${ATHANOR_TEST_PREFIX}
    -D BINARY=${binary} "-DARGUMENTS=${ARGN}" -D CXX=${CMAKE_CXX_COMPILER}
    -D LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER} -P ${PROJECT_SOURCE_DIR}/tests/consumer/run.cmake)
  set_tests_properties(consumer.${name} PROPERTIES LABELS install FIXTURES_REQUIRED installed
    TIMEOUT ${ATHANOR_TEST_TIMEOUT})
endfunction()

find_program(BASH bash REQUIRED)
set(ATHANOR_TEST_PREFIX ${PROJECT_BINARY_DIR}/consumer/prefix)
