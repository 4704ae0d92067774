#include "kernels/cpu/conv_tiles.h"

#include "kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__GNUC__)

namespace athanor::cpu::conv_tiles {

const Code& code() {
  return has_avx512() ? avx512::code() : avx2::code();
}

}  // namespace athanor::cpu::conv_tiles

#endif
