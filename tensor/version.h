#pragma once

namespace athanor {

/// "0.2.0": what this library calls itself in the files that it writes.
const char* version();

}  // namespace athanor
