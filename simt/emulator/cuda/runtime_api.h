#pragma once

#include <cstddef>
#include <cstring>

#include "simt/emulator/cuda/site.h"

// The CUDA runtime's interface, as far as host code uses it; simt/ implements it.
//
// Where a call takes a simt::Site, it is the place of the call, for reports about work that runs later.

// X(name, value, what it means in general, where there is no diagnosis)
#define SIMT_ERRORS(X)                                                                            \
  X(cudaSuccess, 0, "no error")                                                                   \
  X(cudaErrorInvalidValue, 1, "an argument is out of range")                                      \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                                \
  X(cudaErrorInitializationError, 3, "the emulator failed to initialize")                         \
  X(cudaErrorInvalidConfiguration, 9, "the grid or block size is not supported by any device")    \
  X(cudaErrorInvalidMemcpyDirection, 21, "the direction of the copy does not match its pointers") \
  X(cudaErrorInsufficientDriver, 35, "the driver is too old")                                     \
  X(cudaErrorNoDevice, 100, "there is no device")                                                 \
  X(cudaErrorInvalidDevice, 101, "there is no such device")                                       \
  X(cudaErrorInvalidResourceHandle, 400, "the handle is not valid here")                          \
  X(cudaErrorNotReady, 600, "earlier queued work has not finished")                               \
  X(cudaErrorIllegalAddress, 700, "a kernel accessed invalid memory")                             \
  X(cudaErrorLaunchFailure, 719, "a kernel failed")                                               \
  X(cudaErrorNotPermitted, 800, "the call is not allowed here")                                   \
  X(cudaErrorNotSupported, 801, "the emulator does not support this")                             \
  X(cudaErrorStreamCaptureUnsupported, 900, "not allowed while a stream is captured")             \
  X(cudaErrorStreamCaptureInvalidated, 901, "the capture was lost to an earlier error")           \
  X(cudaErrorStreamCaptureUnmatched, 903, "the capture did not begin on this stream")             \
  X(cudaErrorStreamCaptureUnjoined, 904, "a stream that joined the capture was not waited for")   \
  X(cudaErrorStreamCaptureIsolation, 905, "a captured stream must not wait for work outside")     \
  X(cudaErrorStreamCaptureImplicit, 906, "the default stream must not be captured")               \
  X(cudaErrorCapturedEvent, 907, "the event was last recorded in a capture")                      \
  X(cudaErrorStreamCaptureWrongThread, 908, "another thread began the capture")                   \
  X(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define SIMT_ERROR(name, value, meaning) name = value,
  SIMT_ERRORS(SIMT_ERROR)
#undef SIMT_ERROR
};
using cudaError_t = cudaError;

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaGraphNode_t = struct CUgraphNode_st*;
using cudaHostFn_t = void (*)(void* user_data);

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2,
                          cudaHostAllocWriteCombined = 4;

enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
};
inline constexpr unsigned long long cudaEnableDefault = 0;

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int major, minor, multiProcessorCount, warpSize, regsPerBlock, l2CacheSize;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor;
};

#define SIMT_HERE simt::Site site = simt::Site::current()

// Errors. The text of an error is the emulator's whole diagnosis, until this thread meets another.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

// Devices.
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
/// The highest priority is the lowest number.
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
/// Of the driver's own functions there is cuDevicePrimaryCtxGetState.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result = nullptr);

// Memory.
cudaError_t cudaMalloc(void** memory, std::size_t bytes, SIMT_HERE);
cudaError_t cudaFree(void* memory, SIMT_HERE);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags, SIMT_HERE);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes, unsigned flags = 0, SIMT_HERE);
cudaError_t cudaFreeHost(void* memory, SIMT_HERE);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, SIMT_HERE);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr, SIMT_HERE);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream = nullptr, SIMT_HERE);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes, SIMT_HERE);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream = nullptr,
                            SIMT_HERE);

// Streams.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
/// Out of the range, the priority is the nearest in it. It changes no order here: CUDA promises none.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data, SIMT_HERE);

// Events.
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);

// Graphs.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

// Kernels.
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

template <class T> cudaError_t cudaMalloc(T** memory, std::size_t bytes, SIMT_HERE) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes, site);
}
template <class T> cudaError_t cudaMallocHost(T** memory, std::size_t bytes, unsigned flags = 0, SIMT_HERE) {
  return cudaMallocHost(reinterpret_cast<void**>(memory), bytes, flags, site);
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// `__constant__` and `__device__` variables are the program's own memory here.
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0) {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status == cudaSuccess) std::memcpy(reinterpret_cast<char*>(&symbol) + offset, from, bytes);
  return status;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0) {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status == cudaSuccess) std::memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
  return status;
}

#undef SIMT_HERE
