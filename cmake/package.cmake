# cmake --install build/cpu --prefix DIR, then find_package(athanor) gives athanor::athanor, and
# find_package(athanor COMPONENTS simt) the emulator, which is compiled with the project that uses it: so that it has that
# project's compiler, and nothing is built for it here. --component simt installs that alone.
if(ATHANOR_CUDA STREQUAL "SIMT")
  return() # a build for tests
endif()
include(CMakePackageConfigHelpers)

set(ATHANOR_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/athanor)

# Before anything is installed, for a build of some targets only (scripts/quickstart.sh).
foreach(target athanor athanor_formats athanor_ops athanor_predict athanor_mpi athanor_nccl)
  if(TARGET ${target})
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
      message(FATAL_ERROR \"${target} is not built yet; first: cmake --build ${PROJECT_BINARY_DIR}\")
    endif()")
  endif()
endforeach()

# Generic folder names (tensor/, kernels/) stay below include/athanor: the same #include "tensor/tensor.h" works
# in the tree and installed.
install(TARGETS athanor athanor_formats athanor_ops athanor_predict athanor_all EXPORT athanorTargets
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/athanor)
foreach(network athanor_mpi athanor_nccl)
  if(TARGET ${network})
    install(TARGETS ${network} EXPORT athanorTargets)
  endif()
endforeach()
install(EXPORT athanorTargets NAMESPACE athanor:: DESTINATION ${ATHANOR_CONFIG_DIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/athanorConfig.cmake.in
  ${PROJECT_BINARY_DIR}/athanorConfig.cmake INSTALL_DESTINATION ${ATHANOR_CONFIG_DIR} PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/athanorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindCUDNN.cmake ${CMAKE_CURRENT_LIST_DIR}/FindDNNL.cmake
  DESTINATION ${ATHANOR_CONFIG_DIR})
foreach(part Unspecified simt) # of an installation
  install(FILES ${PROJECT_BINARY_DIR}/athanorConfig.cmake ${PROJECT_BINARY_DIR}/athanorConfigVersion.cmake
    DESTINATION ${ATHANOR_CONFIG_DIR} COMPONENT ${part})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/simt DESTINATION ${CMAKE_INSTALL_DATADIR}/athanor COMPONENT simt)
