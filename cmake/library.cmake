# The library, in four archives: athanor_formats holds what reads and writes data files, athanor_ops the ops, layers and
# models that train_digits and the Trainer do without, athanor_predict decodes pictures and says what a
# model makes of them, athanor everything else, which calls nothing in them
# (models of athanor_ops register themselves). A program that needs none of them
# (train_digits) is built without them. athanor::athanor is all four.
# Files are listed, never globbed: a missing one fails at configure.

# One op family has the same base name everywhere: kernels/F.h, kernels/cpu/F.cpp, autograd/F.{h,cpp},
# tests/F_test.cpp, bench/bench_F.cpp. A new family is one word here, and its headers in headers.cmake.
set(ATHANOR_KERNELS
  accumulate
  augment
  batch_norm
  compare
  conv
  copy
  dropout
  elementwise
  extremum
  hash
  index
  loss
  matmul
  metrics
  mix
  muon
  pool
  rand_augment
  random
  reduce
  resize
  softmax
  update
)
# What kernels of a GPU would take: several families in a file. Compiled as one, in this order: a specialisation comes
# before what calls it.
set(ATHANOR_ACCOUNT
  context
  elementwise
  copy
  matmul
  conv
  augment
  index
  loss
  metrics
  norm
  pool
  reduce
  update
  random
)
# Those of them that kernels/cuda/ has.
set(ATHANOR_CUDA_KERNELS
  accumulate
  augment
  batch_norm
  batch_norm_backward
  batch_norm_pair
  compare
  conv
  conv_depthwise
  conv_products
  copy
  dropout
  elementwise
  extremum
  group_norm
  hash
  index
  interpolate
  layer_norm
  loss
  matmul
  matmul_wgmma
  metrics
  mix
  muon
  pair_loss
  pool
  rand_augment
  random
  reduce
  resize
  scalar_ops
  softmax
  topk
  update
)
set(ATHANOR_CUDA_RUNTIME
  tensor/cuda/allocator.cpp
  tensor/cuda/copy.cpp
  tensor/cuda/device.cpp
  tensor/cuda/graph.cpp
  tensor/cuda/parking.cpp
  tensor/cuda/pinned.cpp
  tensor/cuda/stream.cpp
)
# What plans of cuDNN and cuBLASLt need and can be tested without them,
set(ATHANOR_CUDA_PLANNING
  autotune
  conv_error
  gemm_layout
  plan_folder
  vendor_log
)
# and they themselves; in a simt build vendor_absent stands in.
set(ATHANOR_CUDA_VENDOR
  conv_plan
  cublas_matmul
  cudnn_backend
  cudnn_conv
  cudnn_plans
  vendor
  vendor_conv
  vendor_matmul
)
set(ATHANOR_AUTOGRAD
  checkpoint
  compare
  conv
  conv_packed
  conv_transpose
  creation
  dropout
  elementwise
  loss
  matmul
  norm
  pool
  reduce
  shape
  softmax
)

set(ATHANOR_SOURCES
  data/convert.cpp
  data/decoded_dataset.cpp
  data/defects.cpp
  data/detail/batch_readers.cpp
  data/detail/device_feed.cpp
  data/detail/duplicates.cpp
  data/detail/resident_images.cpp
  data/detail/sample_order.cpp
  data/detail/sample_reader.cpp
  data/detail/worker_tuner.cpp
  data/digits.cpp
  data/formats/cifar.cpp
  data/formats/crc32c.cpp
  data/formats/detail/csv.cpp
  data/formats/detail/image_files.cpp
  data/formats/detail/indexed_store.cpp
  data/formats/detail/file_bytes.cpp
  data/formats/detail/lmdb_tree.cpp
  data/formats/detail/npy_header.cpp
  data/formats/detail/packed_layout.cpp
  data/formats/detail/sample_table.cpp
  data/formats/detail/tar_reader.cpp
  data/formats/detail/writing.cpp
  data/formats/example.cpp
  data/formats/folder_pairs.cpp
  data/formats/idx.cpp
  data/formats/image_folder.cpp
  data/formats/image_folder_writer.cpp
  data/formats/import/cache.cpp
  data/formats/import/detail/child_process.cpp
  data/formats/import/hdf5.cpp
  data/formats/join.cpp
  data/formats/lmdb.cpp
  data/formats/manifest.cpp
  data/formats/mnist.cpp
  data/formats/npy.cpp
  data/formats/npz_writer.cpp
  data/formats/open.cpp
  data/formats/packed.cpp
  data/formats/packed_verify.cpp
  data/formats/packed_writer.cpp
  data/formats/raw.cpp
  data/formats/table.cpp
  data/formats/tar.cpp
  data/formats/tfrecord.cpp
  data/image/decoder.cpp
  data/image/detail/png_metadata.cpp
  data/image/jpeg.cpp
  data/image/orientation.cpp
  data/image/png.cpp
  data/image/resize.cpp
  data/image/transform.cpp
  data/in_memory.cpp
  data/loader.cpp
  data/mix.cpp
  data/pixel_stage.cpp
  data/preprocess.cpp
  data/recode.cpp
  data/relabelled.cpp
  data/sample_row.cpp
  data/dataset.cpp
  data/stratified_split.cpp
  data/synthetic.cpp
  dist/all_gather.cpp
  dist/bucket_layout.cpp
  dist/bucket_runner.cpp
  dist/collectives/communicator.cpp
  dist/collectives/exchange.cpp
  dist/collectives/hierarchical.cpp
  dist/collectives/rank_order.cpp
  dist/collectives/ring.cpp
  dist/collectives/ring_advice.cpp
  dist/collectives/session.cpp
  dist/collectives/wait.cpp
  dist/gather_state.cpp
  dist/gradient_sync.cpp
  dist/launch/bootstrap.cpp
  dist/launch/launcher.cpp
  dist/launch/rendezvous.cpp
  dist/launch/restart.cpp
  dist/launch/run_processes.cpp
  dist/launch/scratch_folder.cpp
  dist/launch/signal_stack.cpp
  dist/launch/tcp.cpp
  dist/pass_network.cpp
  dist/sync_batch_norm.cpp
  dist/transports/staged_transport.cpp
  dist/transports/thread_transport.cpp
  dist/transports/transport.cpp
  dist/watch/culprit.cpp
  dist/watch/flight_record.cpp
  dist/watch/rank_record.cpp
  dist/watch/wait_chain.cpp
  dist/watch/watchdog.cpp
  dist/zero1.cpp
  tensor/allocator.cpp
  tensor/atomic_file.cpp
  tensor/control_groups.cpp
  tensor/cores.cpp
  tensor/counters.cpp
  tensor/detail/host_copy.cpp
  tensor/detail/loaded_file.cpp
  tensor/detail/safetensors_header.cpp
  tensor/detail/sha256.cpp
  tensor/detail/tags.cpp
  tensor/device.cpp
  tensor/format.cpp
  tensor/nearest.cpp
  tensor/pool.cpp
  tensor/printable.cpp
  tensor/file_kind.cpp
  tensor/regular_file.cpp
  tensor/safetensors.cpp
  tensor/shape.cpp
  tensor/state_dict.cpp
  tensor/stream.cpp
  tensor/tensor.cpp
  tensor/trace.cpp
  tensor/version.cpp
  kernels/conv.cpp
  kernels/packed_weights.cpp
  kernels/random_op.cpp
  kernels/vendor_stats.cpp
  kernels/cpu/batch_norm_backward.cpp
  kernels/cpu/batch_norm_statistics.cpp
  kernels/cpu/context.cpp
  kernels/cpu/conv_choices.cpp
  kernels/cpu/conv_direct.cpp
  kernels/cpu/conv_eigen.cpp
  kernels/cpu/conv_few_pixels.cpp
  kernels/cpu/conv_gradient.cpp
  kernels/cpu/conv_scatter.cpp
  kernels/cpu/conv_pool.cpp
  kernels/cpu/conv_rules.cpp
  kernels/cpu/conv_tiles.cpp
  kernels/cpu/conv_tiles_avx2.cpp
  kernels/cpu/conv_tiles_avx512.cpp
  kernels/cpu/conv_winograd.cpp
  kernels/cpu/conv_winograd_gradient.cpp
  kernels/cpu/deferred_signals.cpp
  kernels/cpu/elementwise_backward.cpp
  kernels/cpu/elementwise_map.cpp
  kernels/cpu/implementations.cpp
  kernels/cpu/isa.cpp
  kernels/cpu/matmul_eigen.cpp
  kernels/cpu/panel_product.cpp
  kernels/cpu/primitive_cache.cpp
  kernels/cpu/thread_team.cpp
  kernels/cpu/winograd.cpp
  kernels/cpu/winograd_avx2.cpp
  kernels/cpu/winograd_avx512.cpp
  autograd/engine.cpp
  autograd/gradcheck.cpp
  autograd/grad_mode.cpp
  autograd/node.cpp
  autograd/op_trace.cpp
  nn/batch_norm.cpp
  nn/conv2d.cpp
  nn/conv_norm.cpp
  nn/conv_transpose2d.cpp
  nn/init.cpp
  nn/linear.cpp
  nn/models/alexnet.cpp
  nn/models/digits_cnn.cpp
  nn/models/lenet.cpp
  nn/models/model.cpp
  nn/models/resnet.cpp
  nn/models/vgg.cpp
  nn/module.cpp
  nn/pretrained.cpp
  nn/sequential.cpp
  nn/torch/detail/pickle.cpp
  nn/torch/detail/pickle_tensors.cpp
  nn/torch/detail/torch_tensors.cpp
  nn/torch/detail/zip_directory.cpp
  nn/torch/foreign_names.cpp
  nn/torch/torch_file.cpp
  nn/torch/torch_layout.cpp
  optim/adam.cpp
  optim/arena.cpp
  optim/ema.cpp
  optim/load.cpp
  optim/muon.cpp
  optim/optimizer.cpp
  optim/plan.cpp
  optim/schedule.cpp
  optim/sgd.cpp
  optim/step.cpp
  optim/step_buffer.cpp
  trainer/bottleneck.cpp
  trainer/classifier.cpp
  trainer/config.cpp
  trainer/early_stopping.cpp
  trainer/data_pipeline.cpp
  trainer/first_pass.cpp
  trainer/free_memory.cpp
  trainer/freezing.cpp
  trainer/frozen_weights.cpp
  trainer/gather_metrics.cpp
  trainer/limits.cpp
  trainer/loop.cpp
  trainer/metric_sums.cpp
  trainer/optimized_networks.cpp
  trainer/overflow.cpp
  trainer/parallel_strategy.cpp
  trainer/plateau.cpp
  trainer/readable.cpp
  trainer/run.cpp
  trainer/run_main.cpp
  trainer/run_networks.cpp
  trainer/run_on_ranks.cpp
  trainer/run_validation.cpp
  trainer/samples.cpp
  trainer/signals.cpp
  trainer/step_graphs.cpp
  trainer/task.cpp
  trainer/train_main.cpp
  trainer/trainer.cpp
  trainer/validation.cpp
  trainer/checkpoints/background_save.cpp
  trainer/checkpoints/checkpoint_folder.cpp
  trainer/checkpoints/run_checkpoints.cpp
  trainer/checkpoints/run_folder.cpp
  trainer/checkpoints/final_weights.cpp
  trainer/checkpoints/run_state.cpp
  trainer/checkpoints/split_file.cpp
  trainer/checkpoints/state_file.cpp
  trainer/detail/terminal.cpp
  trainer/finders/batch_finder.cpp
  trainer/finders/finders.cpp
  trainer/finders/lr_chart.cpp
  trainer/finders/lr_finder.cpp
  trainer/flags/augment_flags.cpp
  trainer/flags/finder_flags.cpp
  trainer/flags/flags.cpp
  trainer/flags/logger_flags.cpp
  trainer/flags/machine_flags.cpp
  trainer/flags/parse_flags.cpp
  trainer/flags/recipe.cpp
  trainer/flags/recipe_file.cpp
  trainer/flags/recipe_flags.cpp
  trainer/flags/report_flags.cpp
  trainer/flags/run_description.cpp
  trainer/flags/settings.cpp
  trainer/flags/spellings.cpp
  trainer/flags/training_flags.cpp
  trainer/inference/batch_parts.cpp
  trainer/inference/evaluate.cpp
  trainer/inference/evaluation.cpp
  trainer/inference/evaluation_json.cpp
  trainer/inference/evaluation_svg.cpp
  trainer/inference/evaluation_text.cpp
  trainer/inference/model_file.cpp
  trainer/inference/predictor.cpp
  trainer/inference/weights_file.cpp
  trainer/loggers/appended_file.cpp
  trainer/loggers/csv_log.cpp
  trainer/loggers/json_lines.cpp
  trainer/loggers/loggers.cpp
  trainer/loggers/progress.cpp
  trainer/loggers/reports.cpp
  trainer/loggers/step_log.cpp
  trainer/loggers/tensorboard.cpp
  trainer/plan/gpus.cpp
  trainer/plan/step_account.cpp
  trainer/plan/step_places.cpp
  trainer/profile/layers.cpp
  trainer/profile/profile_text.cpp
  trainer/profile/profiler.cpp
  trainer/profile/roof.cpp
  trainer/report/comparison.cpp
  trainer/report/detail/chart.cpp
  trainer/report/detail/html.cpp
  trainer/report/figures.cpp
  trainer/report/mistakes.cpp
  trainer/report/page.cpp
  trainer/report/record.cpp
  trainer/report/report_page.cpp
  trainer/report/sections.cpp
  trainer/tool/evaluate.cpp
  trainer/tool/named_data.cpp
  trainer/tool/picture.cpp
  trainer/tool/pictures.cpp
  trainer/tool/predict.cpp
  trainer/tool/report.cpp
  trainer/tool/run_tool.cpp
  trainer/tool/tool_main.cpp
)
# Which of them are formats: these folders, and what in data/ and trainer/ stands on them. The embedded digits are gunzipped, too.
set(ATHANOR_FORMATS ${ATHANOR_SOURCES})
list(FILTER ATHANOR_FORMATS INCLUDE REGEX "^trainer/tool/|^data/(formats|image)/|^data/(convert|decoded_dataset|recode|stratified_split)\\.cpp$|^trainer/(samples|inference/(evaluation_json|predictor))\\.cpp$")
list(REMOVE_ITEM ATHANOR_FORMATS data/formats/crc32c.cpp data/formats/detail/file_bytes.cpp)
list(REMOVE_ITEM ATHANOR_SOURCES ${ATHANOR_FORMATS})
# What `athanor predict` takes, which scripts/quickstart.sh builds, too.
set(ATHANOR_PREDICT ${ATHANOR_FORMATS})
list(FILTER ATHANOR_PREDICT INCLUDE REGEX "^data/image/|^data/formats/detail/image_files\\.cpp$|^trainer/inference/predictor\\.cpp$|^trainer/tool/(picture|pictures|predict|run_tool)\\.cpp$")
list(REMOVE_ITEM ATHANOR_FORMATS ${ATHANOR_PREDICT})
add_library(athanor ${ATHANOR_SOURCES})
add_library(athanor_predict ${ATHANOR_PREDICT} autograd/topk.cpp kernels/cpu/topk.cpp)
add_library(athanor_formats ${ATHANOR_FORMATS})
target_link_libraries(athanor_predict PUBLIC athanor
  PRIVATE $<BUILD_INTERFACE:athanor_flags> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> $<BUILD_INTERFACE:CLI11::CLI11>
  JPEG::JPEG PNG::PNG ZLIB::ZLIB)
if(ATHANOR_WITH_WEBP)
  target_sources(athanor_predict PRIVATE data/image/webp.cpp)
  target_include_directories(athanor_predict SYSTEM PRIVATE ${WEBP_INCLUDE_DIR})
  target_link_libraries(athanor_predict PRIVATE ${WEBP_LIBRARY})
else()
  target_sources(athanor_predict PRIVATE data/image/webp_absent.cpp)
endif()
target_link_libraries(athanor_formats PUBLIC athanor_predict athanor
  PRIVATE $<BUILD_INTERFACE:athanor_flags> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> $<BUILD_INTERFACE:CLI11::CLI11>
  JPEG::JPEG PNG::PNG ZLIB::ZLIB ${ISAL_LIBRARY})
target_include_directories(athanor_formats SYSTEM PRIVATE ${ISAL_INCLUDE_DIR})
# What train_digits does without: families of kernels and ops, layers made of them, and models made of those.
set(ATHANOR_OPS_KERNELS group_norm interpolate layer_norm pair_loss scalar_ops target_loss)
set(ATHANOR_OPS_AUTOGRAD attention interpolate layer_norm pair_loss scalar_ops similarity)
set(ATHANOR_OPS
  nn/attention.cpp
  nn/group_norm.cpp
  nn/layer_norm.cpp
  nn/orthogonal.cpp
  nn/whitening.cpp
  nn/models/cifarnet.cpp
  nn/models/convnext.cpp
  nn/models/detail/inverted_residual.cpp
  nn/models/efficientnet.cpp
  nn/models/mobilenet.cpp
  nn/models/ops_models.cpp
  nn/models/unet.cpp
  nn/models/vision_transformer.cpp
  nn/onnx/elementwise.cpp
  nn/onnx/export.cpp
  nn/onnx/graph.cpp
  nn/onnx/images.cpp
  nn/onnx/norms.cpp
  nn/onnx/products.cpp
  nn/onnx/proto.cpp
  nn/onnx/reduces.cpp
  nn/onnx/shapes.cpp
  nn/onnx/trace.cpp
  nn/squeeze_excitation.cpp
  nn/stochastic_depth.cpp
)
foreach(family ${ATHANOR_OPS_KERNELS})
  list(APPEND ATHANOR_OPS kernels/cpu/${family}.cpp)
endforeach()
foreach(family ${ATHANOR_OPS_AUTOGRAD})
  list(APPEND ATHANOR_OPS autograd/${family}.cpp)
endforeach()
add_library(athanor_ops ${ATHANOR_OPS})
target_link_libraries(athanor_ops PUBLIC athanor_predict athanor
  PRIVATE $<BUILD_INTERFACE:athanor_flags> $<BUILD_INTERFACE:Eigen3::Eigen>)
# Nothing refers to the file that registers its models, and the linker would leave it out; or the whole library, where it
# is a shared one.
if(BUILD_SHARED_LIBS)
  target_link_options(athanor_ops INTERFACE LINKER:--no-as-needed)
else()
  target_link_options(athanor_ops INTERFACE
    "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:-u,athanor_ops_models>")
endif()
add_library(athanor_all INTERFACE)
target_link_libraries(athanor_all INTERFACE athanor_formats athanor_ops athanor_predict athanor)
add_library(athanor::athanor ALIAS athanor_all)
set_target_properties(athanor PROPERTIES EXPORT_NAME core)
set_target_properties(athanor_formats PROPERTIES EXPORT_NAME formats)
set_target_properties(athanor_predict PROPERTIES EXPORT_NAME predict)
set_target_properties(athanor_ops PROPERTIES EXPORT_NAME ops)
set_target_properties(athanor_all PROPERTIES EXPORT_NAME athanor)

foreach(family ${ATHANOR_KERNELS})
  target_sources(athanor PRIVATE kernels/cpu/${family}.cpp)
endforeach()
foreach(family ${ATHANOR_ACCOUNT})
  target_sources(athanor PRIVATE kernels/account/${family}.cpp)
endforeach()
foreach(family ${ATHANOR_AUTOGRAD})
  target_sources(athanor PRIVATE autograd/${family}.cpp)
endforeach()

if(ATHANOR_WITH_CUDA)
  target_compile_definitions(athanor PUBLIC ATHANOR_WITH_CUDA)
  athanor_device_sources(athanor kernels/cuda/context.cpp ${ATHANOR_CUDA_RUNTIME})
  list(TRANSFORM ATHANOR_CUDA_KERNELS REPLACE ".+" "kernels/cuda/\\0.cu" OUTPUT_VARIABLE kernels)
  athanor_cuda_sources(athanor ${kernels})
  foreach(file ${ATHANOR_CUDA_PLANNING})
    target_sources(athanor PRIVATE kernels/cuda/${file}.cpp)
  endforeach()
else()
  target_sources(athanor PRIVATE tensor/cuda_absent.cpp)
endif()
if(ATHANOR_WITH_NVJPEG)
  target_sources(athanor PRIVATE data/detail/nvjpeg.cpp)
  set_property(SOURCE data/detail/nvjpeg.cpp APPEND PROPERTY INCLUDE_DIRECTORIES ${NVJPEG_INCLUDE_DIR})
  set_property(SOURCE data/detail/nvjpeg.cpp APPEND PROPERTY COMPILE_DEFINITIONS
    ATHANOR_NVJPEG_LIBRARY="$<IF:$<BOOL:${NVJPEG_LIBRARY}>,${NVJPEG_LIBRARY},libnvjpeg.so>")
  target_link_libraries(athanor PRIVATE ${CMAKE_DL_LIBS})
else()
  target_sources(athanor PRIVATE data/detail/nvjpeg_absent.cpp)
endif()
if(ATHANOR_CUDA STREQUAL "ON")
  string(REPLACE ";" "," code_for "${CMAKE_CUDA_ARCHITECTURES}")
  set_property(SOURCE tensor/cuda/device.cpp APPEND PROPERTY COMPILE_DEFINITIONS ATHANOR_CUDA_CODE_FOR="${code_for}")
  if(code_for MATCHES "90a")
    set_property(SOURCE kernels/cuda/matmul_wgmma.cu APPEND PROPERTY COMPILE_DEFINITIONS ATHANOR_HAS_SM90A)
  endif()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/cuda_objects.txt CONTENT "$<JOIN:$<TARGET_OBJECTS:athanor>,\n>\n")
  foreach(file ${ATHANOR_CUDA_VENDOR})
    target_sources(athanor PRIVATE kernels/cuda/${file}.cpp)
  endforeach()
  target_link_libraries(athanor
    PUBLIC $<BUILD_INTERFACE:athanor_cuda_flags> PRIVATE CUDA::cudart CUDA::cublasLt CUDNN::cudnn)
elseif(ATHANOR_CUDA STREQUAL "SIMT")
  target_sources(athanor PRIVATE kernels/cuda/vendor_absent.cpp)
  target_compile_definitions(athanor PUBLIC ATHANOR_SIMT)
  target_link_libraries(athanor PUBLIC ${ATHANOR_SIMT_LIBRARY})
endif()

# The one data set the library brings along, as a constant array.
set(digits_csv ${PROJECT_SOURCE_DIR}/data/digits/digits.csv.gz)
add_custom_command(OUTPUT digits_csv.cpp
  COMMAND ${CMAKE_COMMAND} -DINPUT=${digits_csv} -DOUTPUT=digits_csv.cpp -DSYMBOL=kDigitsCsvGz
          -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${digits_csv} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
target_sources(athanor PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/digits_csv.cpp)

include(report)
athanor_report_parts(athanor)

include(headers)
target_sources(athanor PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ATHANOR_HEADERS})
# The target athanor_verify_interface_header_sets compiles every one of them alone; the test headers builds it.
set_target_properties(athanor PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)

target_link_libraries(athanor
  PUBLIC fmt::fmt Threads::Threads
  PRIVATE $<BUILD_INTERFACE:athanor_flags> $<BUILD_INTERFACE:Eigen3::Eigen>
  $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> ZLIB::ZLIB ${ISAL_LIBRARY}
  $<BUILD_INTERFACE:CLI11::CLI11>)
target_include_directories(athanor SYSTEM PRIVATE ${ISAL_INCLUDE_DIR})
target_compile_features(athanor PUBLIC cxx_std_20)
target_include_directories(athanor PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/athanor>)
if(ATHANOR_OPENMP)
  target_link_libraries(athanor PRIVATE OpenMP::OpenMP_CXX)
  target_link_libraries(athanor_ops PRIVATE OpenMP::OpenMP_CXX)
  target_link_libraries(athanor_predict PRIVATE OpenMP::OpenMP_CXX)
endif()
if(ATHANOR_WITH_ONEDNN)
  target_sources(athanor PRIVATE kernels/cpu/onednn.cpp)
  target_link_libraries(athanor PRIVATE DNNL::dnnl)
else()
  target_sources(athanor PRIVATE kernels/cpu/onednn_absent.cpp)
endif()

include(unity)
foreach(library athanor athanor_ops athanor_predict athanor_formats)
  athanor_unity(${library})
endforeach()

set_source_files_properties(tensor/version.cpp PROPERTIES COMPILE_DEFINITIONS ATHANOR_VERSION="${PROJECT_VERSION}")

# Formats that are read or written through a library. A program that uses none of them is not bound to it.
if(NOT BUILD_SHARED_LIBS)
  target_link_options(athanor INTERFACE LINKER:--as-needed)
endif()

# athanor_format_library(NAME SOURCES file... ABSENT file)
function(athanor_format_library name)
  cmake_parse_arguments(arg "" "ABSENT" "SOURCES" ${ARGN})
  if(ATHANOR_WITH_${name})
    target_sources(athanor_formats PRIVATE ${arg_SOURCES})
    target_include_directories(athanor_formats SYSTEM PRIVATE ${${name}_INCLUDE_DIR})
    target_link_libraries(athanor_formats PRIVATE ${${name}_LIBRARY})
  else()
    target_sources(athanor_formats PRIVATE ${arg_ABSENT})
  endif()
endfunction()
athanor_format_library(HDF5
  SOURCES data/formats/import/detail/hdf5_work.cpp ABSENT data/formats/import/detail/hdf5_work_absent.cpp)
athanor_format_library(LIBZIP
  SOURCES data/formats/npz_reader.cpp ABSENT data/formats/npz_reader_absent.cpp)
athanor_format_library(LMDB
  SOURCES data/formats/lmdb_writer.cpp ABSENT data/formats/lmdb_writer_absent.cpp)

# Ranks with a GPU each; emulated, between ranks that are threads.
if(ATHANOR_WITH_NCCL)
  add_library(athanor_nccl)
  add_library(athanor::nccl ALIAS athanor_nccl)
  set_target_properties(athanor_nccl PROPERTIES EXPORT_NAME nccl)
  athanor_device_sources(athanor_nccl
    dist/collectives/nccl_native.cpp dist/transports/nccl_api.cpp dist/transports/nccl_transport.cpp)
  target_link_libraries(athanor_nccl PUBLIC athanor PRIVATE $<BUILD_INTERFACE:athanor_flags> ${CMAKE_DL_LIBS})
  if(ATHANOR_CUDA STREQUAL "ON")
    target_include_directories(athanor_nccl SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    target_compile_definitions(athanor_nccl PRIVATE ATHANOR_NCCL_LIBRARY="$<IF:$<BOOL:${NCCL_LIBRARY}>,${NCCL_LIBRARY},libnccl.so>")
    target_link_libraries(athanor_nccl PRIVATE CUDA::cudart)
  else()
    target_link_libraries(athanor_nccl PUBLIC ${ATHANOR_SIMT_NCCL})
  endif()
endif()

# Ranks as processes: a library of its own, so that only the programs that want it load MPI.
if(ATHANOR_WITH_MPI)
  add_library(athanor_mpi
    dist/collectives/mpi_native.cpp dist/launch/keep_sighup.cpp dist/transports/make_transport.cpp
    dist/transports/mpi_transport.cpp)
  add_library(athanor::mpi ALIAS athanor_mpi)
  set_target_properties(athanor_mpi PROPERTIES EXPORT_NAME mpi)
  set(ATHANOR_MPI_LIBRARIES ${MPI_CXX_LIBRARIES})
  list(FILTER ATHANOR_MPI_LIBRARIES EXCLUDE REGEX mpi_cxx) # bindings that nobody uses
  target_include_directories(athanor_mpi SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
  target_compile_definitions(athanor_mpi PRIVATE ATHANOR_WITH_MPI)
  target_link_libraries(athanor_mpi PUBLIC athanor PRIVATE $<BUILD_INTERFACE:athanor_flags> ${ATHANOR_MPI_LIBRARIES})
  # Nobody calls it, so that the linker would leave it out.
  target_link_options(athanor_mpi INTERFACE
    "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:-u,athanor_keep_sighup>")
  if(ATHANOR_CUDA STREQUAL "ON" AND ATHANOR_WITH_NCCL)
    target_compile_definitions(athanor_mpi PRIVATE ATHANOR_WITH_NCCL)
    target_link_libraries(athanor_mpi PUBLIC athanor_nccl PRIVATE CUDA::cudart)
  endif()
elseif(ATHANOR_CUDA STREQUAL "ON" AND ATHANOR_WITH_NCCL)
  target_sources(athanor_nccl PRIVATE dist/transports/make_transport.cpp)
  target_compile_definitions(athanor_nccl PRIVATE ATHANOR_WITH_NCCL)
else()
  target_sources(athanor PRIVATE dist/transports/make_transport.cpp)
endif()
