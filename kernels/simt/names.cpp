#include "kernels/simt/names.h"

namespace simt {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* description;
};

#define ATH_SIMT_ERROR(name, description) \
  { name, #name, description }
constexpr ErrorText kErrors[] = {
    ATH_SIMT_ERROR(cudaSuccess, "no error"),
    ATH_SIMT_ERROR(cudaErrorInvalidValue, "an argument is not in its range"),
    ATH_SIMT_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ATH_SIMT_ERROR(cudaErrorInitializationError, "the emulator could not start"),
    ATH_SIMT_ERROR(cudaErrorInvalidConfiguration, "grid or block have a size no device takes"),
    ATH_SIMT_ERROR(cudaErrorInvalidDevicePointer, "the pointer is not what the call needs"),
    ATH_SIMT_ERROR(cudaErrorInvalidMemcpyDirection, "the direction of the copy does not fit its pointers"),
    ATH_SIMT_ERROR(cudaErrorInsufficientDriver, "the driver is too old"),
    ATH_SIMT_ERROR(cudaErrorInvalidDeviceFunction, "not a kernel"),
    ATH_SIMT_ERROR(cudaErrorNoDevice, "there is no device"),
    ATH_SIMT_ERROR(cudaErrorInvalidDevice, "there is no such device"),
    ATH_SIMT_ERROR(cudaErrorPeerAccessUnsupported, "a device cannot reach the other's memory"),
    ATH_SIMT_ERROR(cudaErrorInvalidResourceHandle, "the handle is not valid here"),
    ATH_SIMT_ERROR(cudaErrorNotReady, "the work queued before is not done"),
    ATH_SIMT_ERROR(cudaErrorIllegalAddress, "a kernel reaches memory it must not"),
    ATH_SIMT_ERROR(cudaErrorLaunchOutOfResources, "the launch needs more than a multiprocessor has"),
    ATH_SIMT_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is on already"),
    ATH_SIMT_ERROR(cudaErrorPeerAccessNotEnabled, "peer access is not on"),
    ATH_SIMT_ERROR(cudaErrorMisalignedAddress, "a kernel uses a misaligned address"),
    ATH_SIMT_ERROR(cudaErrorLaunchFailure, "a kernel failed"),
    ATH_SIMT_ERROR(cudaErrorNotPermitted, "the call is not allowed here"),
    ATH_SIMT_ERROR(cudaErrorNotSupported, "the emulator does not have this"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureUnsupported, "not allowed while a stream is captured"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureInvalidated, "the capture was lost to an earlier error"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureMerge, "two captures must not be joined"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureUnmatched, "the capture did not begin on this stream"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureUnjoined, "a stream that joined the capture was not waited for"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureIsolation, "a captured stream must not wait for work outside"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureImplicit, "the default stream must not be captured"),
    ATH_SIMT_ERROR(cudaErrorCapturedEvent, "the event was last recorded in a capture"),
    ATH_SIMT_ERROR(cudaErrorStreamCaptureWrongThread, "another thread began the capture"),
    ATH_SIMT_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef ATH_SIMT_ERROR

const ErrorText& find(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return entry;
  }
  return kErrors[sizeof(kErrors) / sizeof(kErrors[0]) - 1];
}

}  // namespace

const char* error_name(cudaError_t error) {
  return find(error).name;
}

const char* error_description(cudaError_t error) {
  return find(error).description;
}

const char* copy_name(cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost: return "host to host";
    case cudaMemcpyHostToDevice: return "host to device";
    case cudaMemcpyDeviceToHost: return "device to host";
    case cudaMemcpyDeviceToDevice: return "device to device";
    case cudaMemcpyDefault: break;
  }
  return "default";
}

}  // namespace simt
