#pragma once

#include <string>

#include "kernels/cpu/primitive.h"

// The only interface to oneDNN: onednn.cpp supports its 2.x and 3.x APIs; onednn_absent.cpp replaces it in
// builds without oneDNN.

namespace athanor::cpu {

/// oneDNN's code for a key; null if only its reference code supports it. Throws BackendError.
MadePrimitive make_onednn(const PrimitiveKey& key);
/// Whether this build has oneDNN.
bool has_onednn();
/// "2.6.3"; empty in a build without it.
std::string onednn_version();

}  // namespace athanor::cpu
