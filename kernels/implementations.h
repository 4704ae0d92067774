#pragma once

#include <string>

namespace athanor {

/// What computes on the CPU, in this build and on this machine, for people: "oneDNN 2.6.3, AVX-512".
std::string cpu_implementations();

}  // namespace athanor
