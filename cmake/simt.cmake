# The emulator in kernels/simt/: what ATHANOR_CUDA=SIMT builds in place of CUDA.
option(ATHANOR_SIMT_RACE "Instrument kernels for the emulator's race detector" OFF)

target_compile_definitions(athanor PUBLIC ATHANOR_SIMT)
# Its <cuda_runtime.h> stands in for the toolkit's.
target_include_directories(athanor SYSTEM PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/kernels/simt/include>)
target_sources(athanor PRIVATE ${ATHANOR_SIMT_SOURCES})
