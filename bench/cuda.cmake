# A build with CUDA, or with its emulator, measures what it adds: kernels on the device. Emulated there is nothing to
# time, and bench_cuda --counters prints what the kernels touch.
target_sources(athanor_bench_support PRIVATE
  support/device_case.cpp
  support/device_roof.cpp
  support/device_time.cpp
)
athanor_cuda_sources(athanor_bench_support support/device_roof.cu)

add_executable(bench_cuda
  bench_cuda.cpp
  cuda/augment.cpp
  cuda/conv.cpp
  cuda/copy.cpp
  cuda/dropout.cpp
  cuda/elementwise.cpp
  cuda/loss.cpp
  cuda/matmul.cpp
  cuda/norm.cpp
  cuda/pool.cpp
  cuda/reduce.cpp
  cuda/resize.cpp
  cuda/softmax.cpp
  cuda/update.cpp
)
target_link_libraries(bench_cuda PRIVATE athanor_bench_support)

# A training step, kernel by kernel. In the emulator it prints launches and bytes.
add_executable(bench_step bench_step.cpp step/measure.cpp step/report.cpp step/step_timer.cpp step/workload.cpp)
target_link_libraries(bench_step PRIVATE athanor_bench_support CLI11::CLI11 nlohmann_json::nlohmann_json
  $<TARGET_NAME_IF_EXISTS:CUDA::cudart>)
add_dependencies(gpu_programs bench_cuda bench_step)
