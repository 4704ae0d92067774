# The emulator in kernels/simt/: what ATHANOR_CUDA=SIMT builds in place of CUDA.
set(ATHANOR_SIMT_SOURCES
  api_device
  api_launch
  api_memory
  api_stream
  copies
  executor
  fiber
  graph
  memory
  names
  options
  queues
  runtime
)

target_compile_definitions(athanor PUBLIC ATHANOR_SIMT)
# Its <cuda_runtime.h> stands in for the toolkit's.
target_include_directories(athanor SYSTEM PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/kernels/simt/include>)
foreach(file ${ATHANOR_SIMT_SOURCES})
  athanor_device_sources(athanor kernels/simt/${file}.cpp)
endforeach()
