#pragma once

#include <string>

namespace athanor {

/// The CPU libraries and instruction set in use, as readable text: "oneDNN 2.6.3, AVX-512".
std::string cpu_implementations();

}  // namespace athanor
