#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx2
#include "kernels/cpu/int8_vector.h"

// With AVX2: vpmaddwd sums the products of two i16. (The product of bytes, vpmaddubsw, saturates at 32767.)

namespace athanor::cpu::int8_tiles::avx2 {
namespace {

using namespace athanor::cpu::avx2;

using Words = Ints;
constexpr int kMostBlocks = 1, kMostPixels = 3, kBytes = 2;  // 12 of 16 registers: sums

ATH_TARGET inline Ints with_products(Ints sum, Ints x, Words w) {
  return sum_of(sum, _mm256_madd_epi16(x, w));
}

}  // namespace
}  // namespace athanor::cpu::int8_tiles::avx2

#include "kernels/cpu/int8_tiles_code.h"

#endif
