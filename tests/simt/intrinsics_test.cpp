#include <cmath>
#include <limits>

#include "tests/simt/support.h"

namespace simt::test {
namespace {

TEST(Intrinsics, BitsAreCountedAndMoved) {
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__popcll(~0ull), 64);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(-1), 0);
  EXPECT_EQ(__clzll(1), 63);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(0x50), 5);
  EXPECT_EQ(__umulhi(0xffffffffu, 0xffffffffu), 0xfffffffeu);
  EXPECT_EQ(__mulhi(-1, 1), -1);
  EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
  EXPECT_EQ(__uint_as_float(0x3f800000u), 1.0f);
}

TEST(Intrinsics, ConversionsRoundAsTheirNameSaysAndSaturate) {
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(3.5f), 4);
  EXPECT_EQ(__float2int_rz(-1.5f), -1);
  EXPECT_EQ(__float2int_rd(-1.5f), -2);
  EXPECT_EQ(__float2int_ru(1.5f), 2);
  EXPECT_EQ(__float2int_rn(1e20f), std::numeric_limits<int>::max());
  EXPECT_EQ(__float2int_rn(-1e20f), std::numeric_limits<int>::min());
  EXPECT_EQ(__float2int_rn(NAN), 0);
  EXPECT_EQ(__float2uint_rn(-1.0f), 0u);
  EXPECT_EQ(__float2uint_rn(4294967040.0f), 4294967040u);
  EXPECT_EQ(__float2uint_rn(1e20f), ~0u);
  EXPECT_EQ(__double2int_rn(2147483647.0), 2147483647);
  EXPECT_EQ(__float2ll_rn(1e30f), std::numeric_limits<long long>::max());
}

TEST(Intrinsics, ExtremaOfMixedTypesAndNaN) {
  EXPECT_EQ(max(1, 2u), 2u);
  EXPECT_EQ(min(3ll, 2), 2);
  EXPECT_EQ(max(NAN, 1.0f), 1.0f);
  EXPECT_EQ(min(1.0f, NAN), 1.0f);
  static_assert(std::is_same_v<decltype(max(1.0f, 2.0)), double>);
}

TEST(Intrinsics, VectorsHaveTheSizesThatLoadsNeed) {
  static_assert(sizeof(float3) == 12 && alignof(float3) == 4);
  static_assert(sizeof(float4) == 16 && alignof(float4) == 16);
  static_assert(sizeof(uint2) == 8 && alignof(uint2) == 8);
  static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4);
  static_assert(sizeof(ushort4) == 8 && alignof(ushort4) == 8);
  static_assert(sizeof(double2) == 16 && alignof(double2) == 16);
  constexpr float4 v = make_float4(1, 2, 3, 4);
  static_assert(v.w == 4);
}

}  // namespace
}  // namespace simt::test
