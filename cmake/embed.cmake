# athanor_embed(TARGET FILE SYMBOL): the bytes of a file, named from the root, as a constant array of a target.
# As a script it writes that: cmake -DINPUT=FILE -DOUTPUT=FILE.cpp -DSYMBOL=kName -P embed.cmake.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(ATHANOR_EMBED ${CMAKE_CURRENT_LIST_FILE})
  function(athanor_embed target file symbol)
    cmake_path(GET ATHANOR_EMBED PARENT_PATH root)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${root}/.. NORMALIZE)
    cmake_path(GET file FILENAME name)
    add_custom_command(OUTPUT ${name}.cpp
      COMMAND ${CMAKE_COMMAND} -DINPUT=${file} -DOUTPUT=${name}.cpp -DSYMBOL=${symbol} -P ${ATHANOR_EMBED}
      DEPENDS ${file} ${ATHANOR_EMBED})
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  endfunction()
  return()
endif()
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR count "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <cstddef>

namespace athanor {
extern const unsigned char ${SYMBOL}[];
extern const std::size_t ${SYMBOL}Bytes;
const unsigned char ${SYMBOL}[] = {
${bytes}};
const std::size_t ${SYMBOL}Bytes = ${count};
}  // namespace athanor
")
