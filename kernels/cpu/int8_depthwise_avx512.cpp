#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx512_vnni
#include "kernels/cpu/int8_vector.h"

// Four rows in a lane: vpdpbusd sums the products of four bytes, exactly.

namespace athanor::cpu::int8_depthwise::avx512_vnni {
namespace {

using namespace athanor::cpu::avx512_vnni;

using Weight = std::int8_t;
constexpr int kTaps = 4, kMaxPixels = 8;

ATH_TARGET inline Ints repeated(std::uint8_t value) {
  return all_ints(static_cast<std::int32_t>(value * 0x01010101u));
}
ATH_TARGET inline void store_interleaved(std::byte* to, const __m128i (&row)[kTaps]) {
  const __m128i low[] = {_mm_unpacklo_epi8(row[0], row[1]), _mm_unpacklo_epi8(row[2], row[3])},
                high[] = {_mm_unpackhi_epi8(row[0], row[1]), _mm_unpackhi_epi8(row[2], row[3])};
  auto* const words = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(words, _mm_unpacklo_epi16(low[0], low[1]));
  _mm_storeu_si128(words + 1, _mm_unpackhi_epi16(low[0], low[1]));
  _mm_storeu_si128(words + 2, _mm_unpacklo_epi16(high[0], high[1]));
  _mm_storeu_si128(words + 3, _mm_unpackhi_epi16(high[0], high[1]));
}
ATH_TARGET inline Ints with_products(Ints sum, Ints x, Ints w) {
  return _mm512_dpbusd_epi32(sum, x, w);
}

}  // namespace
}  // namespace athanor::cpu::int8_depthwise::avx512_vnni

#include "kernels/cpu/int8_depthwise_code.h"

#endif
