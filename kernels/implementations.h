#pragma once

#include <cstdint>
#include <string>

namespace athanor {

/// The CPU libraries, instruction set and threads in use, as readable text: "oneDNN 2.6.3, AVX-512, loops on
/// own threads".
std::string cpu_implementations();

/// oneDNN primitives compiled so far, over all contexts: 0 per step after warm-up.
std::int64_t primitives_created();
/// How often this process has converted an operand to a layout of oneDNN's own, or back.
std::int64_t reorders_run();

}  // namespace athanor
