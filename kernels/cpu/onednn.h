#pragma once

#include <string>

#include "kernels/cpu/primitive_cache.h"

// The only door to oneDNN: onednn.cpp speaks its 2.x and 3.x APIs, onednn_absent.cpp stands in where a build
// has none.

namespace athanor::cpu {

/// oneDNN's code for a key; null where it has none but its reference code. Throws BackendError.
MadePrimitive make_onednn(const PrimitiveKey& key);
/// Whether this build has oneDNN.
bool has_onednn();
/// "2.6.3"; empty in a build without it.
std::string onednn_version();

}  // namespace athanor::cpu
