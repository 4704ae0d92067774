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

# Programs say what they are, from wherever they lie.
foreach(program athanor train_digits train_images)
  execute_process(COMMAND ${PREFIX}/bin/${program} --version OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  if(NOT text MATCHES "^${program} \\(Athanor\\) [0-9.]+, [^\n]+\n$")
    message(FATAL_ERROR "${program} --version: ${text}")
  endif()
endforeach()

# What was installed is gone after uninstalling, and nothing else.
set(other ${PREFIX}-other)
file(REMOVE_RECURSE ${other})
file(WRITE ${other}/share/others_own "")
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${other} --component simt
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE installed RELATIVE ${other} ${other}/*)
list(LENGTH installed count)
execute_process(COMMAND ${CMAKE_COMMAND} -D MANIFEST=${BUILD}/install_manifest_simt.txt -P ${SOURCE}/cmake/uninstall.cmake
  OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE left LIST_DIRECTORIES true RELATIVE ${other} ${other}/*)
if(count LESS 20 OR left MATCHES "athanor" OR NOT left MATCHES "share/others_own")
  message(FATAL_ERROR "of ${count} installed files, uninstalling left: ${left}")
endif()
