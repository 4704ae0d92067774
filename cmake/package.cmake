# cmake --install build/cpu --prefix DIR installs the programs (--component programs) and the library (--component development).
# Then find_package(athanor) gives athanor::athanor, pkg-config knows athanor, and find_package(athanor COMPONENTS simt) gives the
# emulator, which is compiled with the project that uses it: so that it has that project's compiler, and nothing is built for it
# here. --component simt installs that alone. The target `uninstall` removes what was installed last, and cpack, in build/cpu,
# makes packages for Debian.
if(ATHANOR_CUDA STREQUAL "SIMT")
  return() # a build for tests
endif()
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # tests are not waited for
set(ATHANOR_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/athanor)

# What a build of some targets (scripts/quickstart.sh) left out is built before anything is installed.
function(athanor_build_before_install component)
  list(JOIN ARGN " " targets)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --target ${targets}
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
endfunction()

set(programs athanor-tool train_digits train_mnist train_cifar10 train_images)
if(ATHANOR_BUILD_EXAMPLES)
  athanor_build_before_install(programs ${programs})
  install(TARGETS ${programs} RUNTIME COMPONENT programs)
  foreach(program ${programs})
    install(FILES ${PROJECT_SOURCE_DIR}/scripts/completion.bash COMPONENT programs
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME $<TARGET_FILE_NAME:${program}>)
  endforeach()
endif()

# Generic folder names (tensor/, kernels/) stay below include/athanor: the same #include "tensor/tensor.h" works
# in the tree and installed.
set(libraries athanor)
foreach(network athanor_mpi athanor_nccl)
  if(TARGET ${network})
    list(PREPEND libraries ${network})
  endif()
endforeach()
athanor_build_before_install(development ${libraries})
install(TARGETS ${libraries} EXPORT athanorTargets
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/athanor)
install(EXPORT athanorTargets NAMESPACE athanor:: DESTINATION ${ATHANOR_CONFIG_DIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/athanorConfig.cmake.in
  ${PROJECT_BINARY_DIR}/athanorConfig.cmake INSTALL_DESTINATION ${ATHANOR_CONFIG_DIR} PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/athanorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindCUDNN.cmake ${CMAKE_CURRENT_LIST_DIR}/FindDNNL.cmake
  DESTINATION ${ATHANOR_CONFIG_DIR})
foreach(component development simt)
  install(FILES ${PROJECT_BINARY_DIR}/athanorConfig.cmake ${PROJECT_BINARY_DIR}/athanorConfigVersion.cmake
    DESTINATION ${ATHANOR_CONFIG_DIR} COMPONENT ${component})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/simt DESTINATION ${CMAKE_INSTALL_DATADIR}/athanor COMPONENT simt)

# For builds without CMake. Programs that train on several processes link athanor_mpi, through CMake.
set(others "")
get_target_property(used athanor LINK_LIBRARIES)
foreach(item ${used})
  if(item STREQUAL "OpenMP::OpenMP_CXX")
    list(APPEND others -fopenmp)
  elseif(item STREQUAL "Threads::Threads")
    list(APPEND others -pthread)
  elseif(TARGET ${item})
    list(APPEND others $<TARGET_LINKER_FILE:${item}>)
  elseif(item MATCHES "^/")
    list(APPEND others ${item})
  endif()
endforeach()
list(REMOVE_DUPLICATES others)
list(JOIN others " " others)
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/athanor.pc CONTENT "prefix=\${pcfiledir}/${up}
libdir=\${pcfiledir}/..
Name: athanor
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
Cflags: -std=c++20 -I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}/athanor
Libs: -L\${libdir} -lathanor ${others}
")
install(FILES ${PROJECT_BINARY_DIR}/athanor.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
add_custom_target(uninstall
  COMMAND ${CMAKE_COMMAND} -D MANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PACKAGE_CONTACT "The developers of Athanor <athanor@localhost>")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL programs development simt)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME athanor)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS openmpi-bin) # mpirun, for ranks on several machines
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libathanor-dev)
list(JOIN ATHANOR_PACKAGES ", " packages)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libfmt-dev, libisal-dev, libjpeg-dev, libpng-dev, zlib1g-dev, ${packages}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS athanor) # the program that imports HDF5 and LMDB
set(CPACK_DEBIAN_SIMT_PACKAGE_NAME athanor-simt)
include(CPack)
