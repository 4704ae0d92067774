# The library, one archive, of the files that the CMakeLists.txt of each folder lists. Files are listed, never globbed: a missing
# one fails at configure. The functions below take files of the folder that calls them.
add_library(athanor)
add_library(athanor::athanor ALIAS athanor)

# A source that an exercise replaces is compiled alone: the linker takes an archive's object only if nothing has defined its symbols.
set(ATHANOR_REPLACEABLE "" CACHE STRING "Sources to compile alone, as well")
mark_as_advanced(ATHANOR_REPLACEABLE)
set_target_properties(athanor PROPERTIES UNITY_BUILD ${ATHANOR_UNITY} UNITY_BUILD_MODE GROUP)

# athanor_sources([ALONE | GROUP name] [HOT | COLD] file...)
#   A compiler spends most of its time on headers and on templates that every source instantiates anew, so the sources of a folder
#   are compiled as one: their static names must differ.
#   GROUP: as one of their own. A program is linked with all of a group that it uses something of, and with the libraries it needs.
#   ALONE: each by itself: long kernels; what a test stands in for; what a program is linked with alone.
#   COLD: runs at most once a step, which is not worth the compiler's time.
#   HOT: optimised with sanitizers, too, with which little is (options.cmake): products and convolutions, in which tests spend
#   their time, and what else instantiates Eigen's products, for the linker takes any of two instances.
function(athanor_sources)
  cmake_parse_arguments(arg "ALONE;HOT;COLD" "GROUP" "" ${ARGN})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  if(NOT arg_GROUP)
    string(REPLACE "/" "_" arg_GROUP ${folder})
  endif()
  set(options)
  if((arg_COLD AND NOT ATHANOR_SANITIZE) OR (arg_HOT AND ATHANOR_SANITIZE))
    set(options -O1)
  endif()
  set(grouped)
  foreach(file ${arg_UNPARSED_ARGUMENTS})
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    target_sources(athanor PRIVATE ${source})
    if(NOT ATHANOR_UNITY OR arg_ALONE OR "${folder}/${file}" IN_LIST ATHANOR_REPLACEABLE)
      set_source_files_properties(${source} TARGET_DIRECTORY athanor PROPERTIES COMPILE_OPTIONS "${options}")
    else()
      set_source_files_properties(${source} TARGET_DIRECTORY athanor PROPERTIES UNITY_GROUP ${arg_GROUP})
      set(grouped ${PROJECT_BINARY_DIR}/CMakeFiles/athanor.dir/Unity/unity_${arg_GROUP}_cxx.cxx)
    endif()
  endforeach()
  if(grouped)
    # GCC takes a file that is included for a header, where types of an unnamed namespace would be a mistake.
    list(APPEND options "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
    set_source_files_properties(${grouped} TARGET_DIRECTORY athanor PROPERTIES COMPILE_OPTIONS "${options}")
  endif()
endfunction()

# athanor_optional_sources(NAME [word...] file... ABSENT file): what is built with the library NAME (dependencies.cmake), and what
# stands in for it elsewhere; words as of athanor_sources.
function(athanor_optional_sources name)
  cmake_parse_arguments(arg "" "ABSENT" "" ${ARGN})
  if(ATHANOR_WITH_${name})
    target_include_directories(athanor SYSTEM PRIVATE ${${name}_INCLUDE_DIR})
    target_link_libraries(athanor PRIVATE ${${name}_LIBRARY})
  else()
    list(FILTER arg_UNPARSED_ARGUMENTS EXCLUDE REGEX "[.]cpp$")
    list(APPEND arg_UNPARSED_ARGUMENTS ${arg_ABSENT})
  endif()
  athanor_sources(${arg_UNPARSED_ARGUMENTS})
endfunction()

# athanor_headers(file...): headers that a user may include: installed, documented, and each compiled alone by a test. They include
# no others of ours.
function(athanor_headers)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(athanor PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARGN})
endfunction()

target_compile_features(athanor PUBLIC cxx_std_20)
target_include_directories(athanor PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/athanor>)
target_include_directories(athanor SYSTEM PRIVATE ${ISAL_INCLUDE_DIR})
target_link_libraries(athanor
  PUBLIC fmt::fmt Threads::Threads
  PRIVATE $<BUILD_INTERFACE:athanor_flags> $<BUILD_INTERFACE:Eigen3::Eigen> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
    $<BUILD_INTERFACE:CLI11::CLI11> JPEG::JPEG PNG::PNG ZLIB::ZLIB ${ISAL_LIBRARY})
if(ATHANOR_OPENMP)
  target_link_libraries(athanor PRIVATE OpenMP::OpenMP_CXX)
endif()
if(NOT BUILD_SHARED_LIBS) # a program is bound to the libraries of formats that it reads
  target_link_options(athanor INTERFACE LINKER:--as-needed)
endif()
# The target athanor_verify_interface_header_sets compiles every public header alone; the test headers builds it.
set_target_properties(athanor PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)

athanor_headers(athanor.h)
foreach(folder tensor kernels autograd nn optim data dist trainer)
  add_subdirectory(${folder})
endforeach()

include(embed)
athanor_embed(athanor data/digits/digits.csv.gz kDigitsCsvGz) # the one data set that the library brings along
athanor_embed(athanor nn/models/weights.txt kKnownWeights)
athanor_embed(athanor trainer/report/style.css kReportStyle)
athanor_embed(athanor trainer/report/script.js kReportScript)
