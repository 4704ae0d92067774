#pragma once

namespace athanor {

/// The version, such as "0.2.0", that the library writes into its files.
const char* version();

}  // namespace athanor
