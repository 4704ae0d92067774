# cmake -D BUILD=... -D PREFIX=... -D SOURCE=... -P install.cmake
file(REMOVE_RECURSE ${PREFIX})
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
