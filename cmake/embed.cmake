# cmake -DINPUT=FILE -DOUTPUT=FILE.cpp -DSYMBOL=kName -P embed.cmake: FILE's bytes as a constant array.
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
