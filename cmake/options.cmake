# Flags shared by the library, tests, benchmarks and examples, as one interface target.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# scripts/gpu_bundle.sh packs programs as they are here, with libraries in a folder beside them.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/ccache.sh)
endif()

# Most sources are read by the compiler for longer than they run. Tests are compiled without optimisation; with sanitizers,
# which make the compiler twice as slow, so is all but loops of much arithmetic (HOT in library.cmake). What tests test is otherwise
# optimised as ever.
define_property(TARGET PROPERTY ATHANOR_IS_TEST BRIEF_DOCS "A test, without code under test in its own sources")
define_property(TARGET PROPERTY ATHANOR_RUNS_ONCE BRIEF_DOCS "Its own code takes no time worth optimising")
if(ATHANOR_SANITIZE)
  set(ATHANOR_OPTIMIZE -O0)
else()
  set(ATHANOR_OPTIMIZE "$<IF:$<BOOL:$<TARGET_PROPERTY:ATHANOR_IS_TEST>>,-O0,$<IF:$<BOOL:$<TARGET_PROPERTY:ATHANOR_RUNS_ONCE>>,-O1,-O3>>")
endif()

add_library(athanor_flags INTERFACE)
target_compile_features(athanor_flags INTERFACE cxx_std_20)
# Bits are promised to be equal across CPUs: a*b+c is fused only where std::fma says so.
# Nobody reads errno or the exception flags, and branch-free loops need both out of the way to vectorise.
target_compile_options(athanor_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${ATHANOR_OPTIMIZE};-fno-math-errno;-fno-trapping-math;-ffp-contract=off;-Wall;-Wextra;-Wno-unknown-pragmas>"
  # g++ looks for memory to free only where it holds this many KiB: a fifth of its time for a third more memory.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>
  # Clang's own -Wshadow is about names of a namespace, too.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wshadow>
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wshadow-uncaptured-local;-Wno-bitwise-conditional-parentheses>")
if(ATHANOR_ISA)
  target_compile_options(athanor_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${ATHANOR_ISA}>)
endif()
if(ATHANOR_WERROR)
  target_compile_options(athanor_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(ATHANOR_SANITIZE)
  target_compile_options(athanor_flags INTERFACE -fsanitize=${ATHANOR_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(athanor_flags INTERFACE -fsanitize=${ATHANOR_SANITIZE})
  # As GCC defines them, and later Clangs.
  string(REGEX MATCH "address|thread" sanitizer "${ATHANOR_SANITIZE}")
  string(TOUPPER "${sanitizer}" sanitizer)
  target_compile_definitions(athanor_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:__SANITIZE_${sanitizer}__=1>)
  # Every vector loop is compiled for the baseline alone: the source is the same, instrumenting it twice is slow.
  target_compile_definitions(athanor_flags INTERFACE ATHANOR_ONE_ISA)
endif()
if(ATHANOR_ONE_ISA)
  message(STATUS "athanor: loops for ${ATHANOR_ISA} alone; -DATHANOR_ONE_ISA=OFF adds those for AVX-512")
  target_compile_definitions(athanor_flags INTERFACE ATHANOR_ONE_ISA)
endif()
