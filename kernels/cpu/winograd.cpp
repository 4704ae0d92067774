#include "kernels/cpu/winograd.h"

#include "kernels/cpu/isa.h"
#include "tensor/half.h"

#if defined(__x86_64__) && defined(__GNUC__)

namespace athanor::cpu::winograd {

template <class T> const Transforms<T>& transforms() {
  return has_avx512() ? avx512::transforms<T>() : avx2::transforms<T>();
}
template const Transforms<float>& transforms();
template const Transforms<Half>& transforms();
template const Transforms<BFloat16>& transforms();

}  // namespace athanor::cpu::winograd

#endif
