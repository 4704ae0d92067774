#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx2
#include "kernels/cpu/int8_vector.h"

// Two rows in a lane, widened to i16: vpmaddwd sums their products. (That of bytes, vpmaddubsw, saturates.)

namespace athanor::cpu::int8_depthwise::avx2 {
namespace {

using namespace athanor::cpu::avx2;

using Weight = std::int16_t;
constexpr int kTaps = 2, kMaxPixels = 4;

ATH_TARGET inline Ints repeated(std::uint8_t value) {
  return all_ints(value * 0x00010001);
}
ATH_TARGET inline void store_interleaved(std::byte* to, const __m128i (&row)[kTaps]) {
  store_ints(to, _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(row[0], row[1])));
}
ATH_TARGET inline Ints with_products(Ints sum, Ints x, Ints w) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
}

}  // namespace
}  // namespace athanor::cpu::int8_depthwise::avx2

#include "kernels/cpu/int8_depthwise_code.h"

#endif
