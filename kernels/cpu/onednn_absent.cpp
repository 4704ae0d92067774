#include "kernels/cpu/onednn.h"
#include "kernels/implementations.h"

// A build without oneDNN: no primitive is ever found.

namespace athanor {
namespace cpu {

MadePrimitive make_onednn(const PrimitiveKey&) {
  return {};
}

void multiply_int8_onednn(const CpuContext&, int, const Int8Product&) {}

bool has_exact_int8_onednn() {
  return false;
}

bool has_onednn() {
  return false;
}

std::string onednn_version() {
  return {};
}

}  // namespace cpu

std::int64_t primitives_created() {
  return 0;
}
std::int64_t reorders_run() {
  return 0;
}

}  // namespace athanor
