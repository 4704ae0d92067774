# SimGrid's MPI, which ATHANOR_MPI=SMPI builds on in place of Open MPI: all ranks of a job in one process, on a made-up
# network and its clock. A program is a module that smpirun loads once per rank, so that each has globals of its own.
find_library(SIMGRID_LIBRARY simgrid)
find_path(SIMGRID_INCLUDE_DIR smpi/mpi.h)
find_program(SMPIRUN_EXECUTABLE smpirun)
mark_as_advanced(SIMGRID_LIBRARY SIMGRID_INCLUDE_DIR SMPIRUN_EXECUTABLE)
if(NOT SIMGRID_LIBRARY OR NOT SIMGRID_INCLUDE_DIR OR NOT SMPIRUN_EXECUTABLE)
  message(FATAL_ERROR "ATHANOR_MPI=SMPI, but SimGrid was not found: install libsimgrid-dev, or set it AUTO")
endif()
if(ATHANOR_OPENMP OR ATHANOR_SANITIZE)
  message(FATAL_ERROR "ATHANOR_MPI=SMPI needs ATHANOR_OPENMP=OFF and no sanitizer: ranks are fibers of one thread")
endif()
set(MPI_CXX_INCLUDE_DIRS ${SIMGRID_INCLUDE_DIR}/smpi ${SIMGRID_INCLUDE_DIR})
set(MPI_CXX_LIBRARIES ${SIMGRID_LIBRARY})
set(ATHANOR_WITH_MPI ON)
set(ATHANOR_WITH_SMPI ON)

# The loader gives each copy of a module its globals, but only one of an `inline` variable, which g++ makes unique to
# the process: all ranks would share it.
target_compile_options(athanor_flags INTERFACE -fno-gnu-unique)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# athanor_smpi_program(NAME SOURCES file... [LIBRARIES target...]): bin/NAME, to be run by smpirun. The library is linked
# statically into it. What nothing calls is left out: a thousand ranks are a thousand copies.
function(athanor_smpi_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  target_link_libraries(${name} PRIVATE athanor::mpi athanor_flags ${SIMGRID_LIBRARY} ${arg_LIBRARIES})
  target_include_directories(${name} SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
  target_link_options(${name} PRIVATE LINKER:--gc-sections LINKER:--exclude-libs,ALL LINKER:-s)
endfunction()
