# cmake -D BUILD=... -D PREFIX=... -D SOURCE=... -P install.cmake
file(REMOVE_RECURSE ${PREFIX})

# A build without one of its libraries installs nothing.
file(READ ${BUILD}/cmake_install.cmake rules)
string(REGEX REPLACE "/libathanor_ops\\.[a-z]+" "/nothing" without "${rules}")
if(without STREQUAL rules)
  message(FATAL_ERROR "${BUILD}/cmake_install.cmake does not install libathanor_ops")
endif()
file(WRITE ${PREFIX}.cmake "${without}")
execute_process(COMMAND ${CMAKE_COMMAND} -DCMAKE_INSTALL_PREFIX=${PREFIX} -P ${PREFIX}.cmake
  OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE code)
file(REMOVE ${PREFIX}.cmake)
if(code EQUAL 0 OR EXISTS ${PREFIX} OR NOT errors MATCHES "athanor_ops .*cmake --build")
  message(FATAL_ERROR "expected an error for an incomplete build that names what to do, but got ${code}: ${errors}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

# What is installed must not lean on the tree it was built from.
file(GLOB_RECURSE config_files ${PREFIX}/lib*/cmake/athanor/*.cmake)
if(NOT config_files)
  message(FATAL_ERROR "no package files below ${PREFIX}")
endif()
foreach(file ${config_files})
  file(READ ${file} text)
  string(REPLACE "${PREFIX}" "" text "${text}")
  foreach(before "\"" ";" " " "=" "-I" "-L") # a clone in /athanor is not meant by ${_IMPORT_PREFIX}/include/athanor
    string(FIND "${text}" "${before}${SOURCE}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names the source tree ${SOURCE}")
    endif()
  endforeach()
endforeach()
