#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx512_vnni
#include "kernels/cpu/int8_vector.h"

// With AVX-512 VNNI: vpdpbusd sums the products of four u8 and four i8 in an i32, exactly.

namespace athanor::cpu::int8_tiles::avx512_vnni {
namespace {

using namespace athanor::cpu::avx512_vnni;

using Words = Ints;
constexpr int kMostBlocks = 2, kMostPixels = 7, kBytes = 1;  // 28 of 32 registers: sums

ATH_TARGET inline Ints with_products(Ints sum, Ints x, Words w) {
  return _mm512_dpbusd_epi32(sum, x, w);
}

}  // namespace
}  // namespace athanor::cpu::int8_tiles::avx512_vnni

#include "kernels/cpu/int8_tiles_code.h"

#endif
