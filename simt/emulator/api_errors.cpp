#include <algorithm>
#include <cstring>

#include "simt/emulator/runtime.h"

// What calls report: the whole diagnosis, until this thread meets another.

namespace simt {

namespace {
// Plain arrays: a thread's last calls come after its thread_local destructors.
struct LastError {
  cudaError_t code, text_of;
  char text[4096];
};
thread_local LastError last;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* meaning;  // in general, where there is no diagnosis
};
const ErrorText& text_of(cudaError_t error) {
#define SIMT_ENTRY(name, value, meaning) {name, #name, meaning},
  static constexpr ErrorText kErrors[] = {SIMT_ERRORS(SIMT_ENTRY)};
#undef SIMT_ENTRY
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return entry;
  }
  return kErrors[std::size(kErrors) - 1];
}
}  // namespace

cudaError_t remember(cudaError_t code, const std::string& text) {
  last.code = last.text_of = code;
  const std::size_t length = std::min(text.size(), sizeof(last.text) - 1);
  std::memcpy(last.text, text.data(), length);
  last.text[length] = '\0';
  return code;
}

cudaError_t pending_fault(Runtime& all, int device) {
  if (device >= all.device_count()) return cudaSuccess;
  const std::string& fault = all.device(device).fault;
  return fault.empty() ? cudaSuccess : remember(cudaErrorLaunchFailure, fault);
}

}  // namespace simt

using namespace simt;

cudaError_t cudaPeekAtLastError() {
  const auto guard = runtime().lock();
  const cudaError_t fault = pending_fault(runtime(), current_device());
  return fault != cudaSuccess ? fault : last.code;
}

cudaError_t cudaGetLastError() {
  const auto guard = runtime().lock();
  const cudaError_t fault = pending_fault(runtime(), current_device());
  const cudaError_t code = fault != cudaSuccess ? fault : last.code;
  last.code = cudaSuccess;
  return code;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error != cudaSuccess && error == last.text_of ? last.text : text_of(error).meaning;
}

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}
