#pragma once

#include <simt/runtime_api.h>

namespace simt {

/// "cudaErrorInvalidValue"
const char* error_name(cudaError_t error);
/// What the error means in general, where there is no diagnosis.
const char* error_description(cudaError_t error);
/// "host to device"
const char* copy_name(cudaMemcpyKind kind);

}  // namespace simt
