# The emulator in kernels/simt/: what ATHANOR_CUDA=SIMT builds in place of CUDA.
set(ATHANOR_SIMT_SOURCES
  api_device
  api_launch
  api_memory
  api_stream
  copies
  counters
  executor
  fiber
  graph
  memory
  names
  nccl
  nccl_group
  options
  queues
  runtime
)

if(ATHANOR_SIMT_CHECK STREQUAL "RACE")
  list(APPEND ATHANOR_SIMT_SOURCES
    access
    race
    shadow
    symbols
    warp_counters
  )
  # g++ brings libbacktrace along; without it the program addr2line is asked.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES backtrace)
  check_cxx_source_compiles("#include <backtrace.h>
    int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr; }" ATHANOR_HAS_LIBBACKTRACE)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(ATHANOR_HAS_LIBBACKTRACE)
    list(APPEND ATHANOR_SIMT_OPTIONS -DATHANOR_SIMT_LIBBACKTRACE)
    target_link_libraries(athanor PRIVATE backtrace)
  endif()
  target_link_libraries(athanor PRIVATE ${CMAKE_DL_LIBS})
endif()

target_compile_definitions(athanor PUBLIC ATHANOR_SIMT)
# Its <cuda_runtime.h> stands in for the toolkit's.
target_include_directories(athanor SYSTEM PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/kernels/simt/include>)
foreach(file ${ATHANOR_SIMT_SOURCES})
  athanor_device_sources(athanor kernels/simt/${file}.cpp)
endforeach()
