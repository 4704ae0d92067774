#pragma once

#include <string>

namespace simt {

/// "softmax.cu:41" for the call that returns to this address; where that was inlined from a header,
/// "vec.h:27, from softmax.cu:41". The emulator's own headers are left out. "?" where there is no debug
/// information.
std::string line_of(const void* return_address);

/// ", from vec.h:27, from softmax.cu:41" for the same; the same text for the same place in the source. Not
/// thread-safe.
const std::string& calls_at(const void* return_address);

}  // namespace simt
