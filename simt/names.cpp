#include "simt/names.h"

#include <iterator>

namespace simt {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* meaning;
};

const ErrorText& find(cudaError_t error) {
#define SIMT_ENTRY(name, value, meaning) {name, #name, meaning},
  static constexpr ErrorText kErrors[] = {SIMT_ERRORS(SIMT_ENTRY)};
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return entry;
  }
  return kErrors[std::size(kErrors) - 1];
}

}  // namespace

const char* error_name(cudaError_t error) {
  return find(error).name;
}

const char* error_description(cudaError_t error) {
  return find(error).meaning;
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
