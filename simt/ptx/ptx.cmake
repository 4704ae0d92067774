# Kernels as nvcc compiles them, run by the emulator: PTX, translated to C++ (translate.py). For emulators with CHECK NONE.
#
#   athanor_ptx_sources(TARGET ARCHITECTURE PATTERN FILE.cu...)
#
# A program that is linked with the target runs, wherever it launches a kernel of these files, what nvcc has made of it for that
# architecture, 90a or 80; of files that do not match the pattern, what g++ has. The target has g++'s code of all: the host's half
# of it, and the addresses of kernels. ATHANOR_NVCC_OPTIONS are the compiler's.

# What translated kernels call, and who finds them.
add_library(athanor_simt_ptx STATIC EXCLUDE_FROM_ALL)
set(sources block copies kernels warps wgmma)
list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM sources APPEND .cpp)
target_sources(athanor_simt_ptx PRIVATE ${sources})
target_compile_options(athanor_simt_ptx PRIVATE -O2 -fno-strict-aliasing)
target_link_libraries(athanor_simt_ptx PUBLIC athanor_simt PRIVATE fmt::fmt)

# athanor_ptx_translation(OUTPUT.cpp FILE.ptx FILE.cu): a rule that translates.
function(athanor_ptx_translation output ptx source)
  set(translate ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/translate.py)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_custom_command(OUTPUT ${output} DEPENDS ${ptx} ${translate} VERBATIM COMMENT "Translating PTX of ${source}"
    COMMAND ${Python3_EXECUTABLE} ${translate} ${ptx} ${source} -o ${output})
  # Integers wrap round, as in PTX; nothing of it can be uninitialised that is not in PTX too. A frame larger than the page below a
  # stack touches that page, instead of another stack.
  set_source_files_properties(${output} PROPERTIES COMPILE_OPTIONS "-O1;-fwrapv;-fno-strict-aliasing;-fstack-clash-protection;-w" SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# athanor_ptx(OUTPUT.ptx ARCHITECTURE FILE.cu): a rule that compiles.
function(athanor_ptx ptx architecture source)
  find_program(ATHANOR_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(NOT ATHANOR_NVCC)
    message(FATAL_ERROR "ptx: kernels are compiled by nvcc, but there is none: install the CUDA toolkit, set CUDA_HOME, or use the preset simt")
  endif()
  cmake_path(GET CMAKE_CURRENT_FUNCTION_LIST_DIR PARENT_PATH simt)
  cmake_path(GET simt PARENT_PATH above)
  cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE full)
  get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
  if(NOT definitions)
    set(definitions)
  endif()
  list(TRANSFORM definitions PREPEND -D)
  add_custom_command(OUTPUT ${ptx} DEPENDS ${full} DEPFILE ${ptx}.d VERBATIM COMMENT "PTX of ${source}"
    COMMAND ${ATHANOR_NVCC} --ptx -arch=sm_${architecture} ${ATHANOR_NVCC_OPTIONS} ${definitions} -I${above} -I${simt}/include
      -MD -MF ${ptx}.d -MT ${ptx} -o ${ptx} ${full})
endfunction()

function(athanor_ptx_sources target architecture pattern)
  set(translated)
  set(left_out ${ARGN})
  list(FILTER ARGN INCLUDE REGEX "${pattern}")
  list(REMOVE_ITEM left_out ${ARGN})
  foreach(source ${ARGN})
    set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${source}.ptx)
    athanor_ptx(${ptx} ${architecture} ${source})
    athanor_ptx_translation(${ptx}.cpp ${ptx} ${source})
    list(APPEND translated ${ptx}.cpp)
  endforeach()
  if(left_out)
    set(modules "#include \"simt/ptx/kernels.h\"\n")
    foreach(source ${left_out})
      cmake_path(GET source FILENAME name)
      string(MAKE_C_IDENTIFIER ${name} variable)
      string(APPEND modules "static const simt::ptx::Module ${variable}(\"${name}\");\n")
    endforeach()
    file(CONFIGURE OUTPUT ${target}_left_out.cpp CONTENT "${modules}" @ONLY)
    list(APPEND translated ${CMAKE_CURRENT_BINARY_DIR}/${target}_left_out.cpp)
  endif()
  add_library(${target}_ptx STATIC EXCLUDE_FROM_ALL ${translated})
  target_link_libraries(${target}_ptx PUBLIC athanor_simt_ptx PRIVATE athanor_flags)
  target_link_libraries(${target} INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,${target}_ptx>) # which are not called by name
endfunction()
