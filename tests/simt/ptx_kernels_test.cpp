#include "tests/simt/ptx_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simt/launch.h"
#include "simt/ptx/arithmetic.h"
#include "tests/simt/support.h"

// Kernels of PTX, translated, in place of what g++ made of them; and what instructions compute.

namespace simt {
namespace test {
namespace {

/// What a launch says that is refused.
std::string refusal(cudaError_t status) {
  EXPECT_EQ(status, cudaErrorNotSupported);
  const std::string text = cudaGetErrorString(cudaPeekAtLastError());
  cudaGetLastError();
  return text;
}

TEST(PtxKernels, RunInPlaceOfThoseOfTheCompiler) {
  const OnDevice<int> out(4);
  EXPECT_OK(run_chosen(out.data(), 4));
  EXPECT_EQ(out.read(), (std::vector<int>{20, -40, 60, 8}));
}

TEST(PtxKernels, HaveSharedAndLocalMemoryAndVectors) {
  in_all_orders([] {
    const OnDevice<float> x(numbers(32)), y(32);
    EXPECT_OK(run_reversed(x.data(), y.data(), 128));
    std::vector<float> reversed = numbers(32);
    std::reverse(reversed.begin(), reversed.end());
    EXPECT_EQ(y.read(), reversed);
  });
}

TEST(PtxKernels, HaveTheBytesOfSharedMemoryThatTheLaunchAsksFor) {
  const OnDevice<float> x(numbers(32)), y(32);
  EXPECT_OK(run_reversed(x.data(), y.data(), 120));
  const std::string text = diagnosis();
  EXPECT_TEXT(text, "kernel reversed");
  EXPECT_TEXT(text, "thread (15,0,0)");
  EXPECT_TEXT(text, marked_line("ptx_kernels.ptx", "dynamic"));
}

TEST(PtxKernels, AreFoundThoughATypeIsSpelledInAnotherWay) {
  const OnDevice<int> out(1);
  EXPECT_OK(run_spelled(out.data()));
  EXPECT_EQ(out.read().front(), 33);
  EXPECT_OK(run_in_no_namespace(out.data()));
  EXPECT_EQ(out.read().front(), 44);
}

TEST(PtxKernels, AreOfNoFileThatNvccDoesNotSee) {
  static const auto kernel = +[](int* out) { *out = 7; };  // of this .cpp
  const OnDevice<int> out(1);
  EXPECT_OK(launch(nullptr, {.name = "of_gcc_alone"}, kernel, out.data()));
  EXPECT_EQ(out.read().front(), 7);
}

TEST(PtxKernels, AMissingOneIsAnError) {
  const OnDevice<int> out(1);
  const std::string text = refusal(run_absent(out.data()));
  EXPECT_TEXT(text, "kernel absent: the PTX of ptx_kernels.cu has no kernel");
  EXPECT_TEXT(text, "_ZN4simt4test12_GLOBAL__N_16absentEPi");
}

TEST(PtxKernels, OtherParametersAreAnError) {
  const OnDevice<int> out(1);
  EXPECT_TEXT(refusal(run_narrower(out.data())),
              "kernel narrower: its parameters (offset+bytes) are 0+8 8+4 to g++, but 0+8 8+2 in the PTX");
}

TEST(PtxKernels, MoreThreadsThanTheCompilerWasToldAreAnError) {
  const OnDevice<int> out(8);
  EXPECT_TEXT(refusal(run_chosen(out.data(), 5)), "kernel chosen: a block of 5 threads, but .maxntid says 4");
}

TEST(PtxKernels, AMisalignedAddressIsAnErrorThatNamesTheLine) {
  const OnDevice<int> out(2);
  EXPECT_OK(run_misaligned(out.data()));
  const std::string text = diagnosis();
  EXPECT_TEXT(text, "kernel misaligned");
  EXPECT_TEXT(text, marked_line("ptx_kernels.ptx", "misaligned"));
}

}  // namespace
}  // namespace test

namespace ptx {
namespace {

constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN(), kInfinity = std::numeric_limits<f32>::infinity();

TEST(PtxArithmetic, OfIntegersHasNoTraps) {
  EXPECT_EQ(divide<s32>(-7, 2), -3);
  EXPECT_EQ(remainder<s32>(-7, 2), -1);
  EXPECT_EQ(divide<s32>(std::numeric_limits<s32>::min(), -1), std::numeric_limits<s32>::min());
  EXPECT_EQ(remainder<s64>(std::numeric_limits<s64>::min(), -1), 0);
  EXPECT_EQ(divide<u32>(5, 0), ~0u);
  EXPECT_EQ(multiply_high<u64>(~u64{0}, ~u64{0}), ~u64{0} - 1);
  EXPECT_EQ(multiply_high<s32>(-1, 2), -1);
}

TEST(PtxArithmetic, ShiftsClampTheirDistance) {
  EXPECT_EQ(shift_left<u32>(1, 31), 0x80000000u);
  EXPECT_EQ(shift_left<u32>(1, 32), 0u);
  EXPECT_EQ(shift_right<u64>(~u64{0}, 64), 0u);
  EXPECT_EQ(shift_right<s32>(-8, 1), -4);
  EXPECT_EQ(shift_right<s32>(-8, 99), -1);
}

TEST(PtxArithmetic, FieldsAndBytes) {
  EXPECT_EQ(field_inserted<u32>(0xff, 0, 4, 8), 0xff0u);
  EXPECT_EQ(field_inserted<u32>(0, ~0u, 28, 8), 0x0fffffffu);
  EXPECT_EQ(bytes_permuted(0x33221100, 0x77665544, 0x5410), 0x55441100u);
  EXPECT_EQ(bytes_permuted(0x80, 0, 0x8888), ~0u);
  EXPECT_EQ(dot_of_two_lo(0x00030002, 0x07060504, 1), 1u + 2 * 4 + 3 * 5);
  EXPECT_EQ(dot_of_two_hi(0x00030002, 0x07060504, 1), 1u + 2 * 6 + 3 * 7);
  EXPECT_EQ(dot_of_four(0x04030201, 0x01020304, 10), 10 + 4 + 6 + 6 + 4);
  EXPECT_EQ(dot_of_four(0xffffffff, static_cast<s32>(0x80808080), 3), 3 - 4 * 255 * 128);
  EXPECT_EQ(highest_bit<u32>(0, false), ~0u);
  EXPECT_EQ(highest_bit<u32>(0x10, false), 4u);
  EXPECT_EQ(highest_bit<u32>(0x10, true), 27u);
  EXPECT_EQ(reversed<u32>(1), 0x80000000u);
}

TEST(PtxArithmetic, TheLeastAndTheGreatestIgnoreNan) {
  EXPECT_EQ(minimum(kNan, 1.0f), 1.0f);
  EXPECT_EQ(maximum(1.0f, kNan), 1.0f);
  EXPECT_TRUE(std::signbit(minimum(0.0f, -0.0f)) && std::signbit(minimum(-0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(maximum(0.0f, -0.0f)) || std::signbit(maximum(-0.0f, 0.0f)));
}

TEST(PtxArithmetic, IntegersOfFloatsSaturate) {
  EXPECT_EQ(to_integer<s32>(3e9f), std::numeric_limits<s32>::max());
  EXPECT_EQ(to_integer<s32>(-kInfinity), std::numeric_limits<s32>::min());
  EXPECT_EQ(to_integer<u32>(-1.0f), 0u);
  EXPECT_EQ(to_integer<u64>(1e30), ~u64{0});
  EXPECT_EQ(to_integer<s32>(kNan), 0);
  EXPECT_EQ(to_integer<s64>(kNan), std::numeric_limits<s64>::min());
}

TEST(PtxArithmetic, NarrowFloatsAreTheNearest) {
  EXPECT_EQ(to_f16(1.0f + 0x1p-11f), 0x3c00);  // ties to even
  EXPECT_EQ(to_f16(1.0f + 0x1.8p-10f), 0x3c02);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16(0x1p-24f), 0x0001);
  EXPECT_EQ(to_f16(kNan), 0x7fff);
  EXPECT_EQ(from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(to_bf16(1.0f + 0x1.8p-7f), 0x3f82);
  EXPECT_EQ(to_bf16(-kInfinity), 0xff80);
  EXPECT_EQ(from_bf16(0x3f80), 1.0f);
  EXPECT_EQ(as<f32>(to_tf32(1.0f + 0x1p-11f)), 1.0f + 0x1p-10f);  // ties away from zero
  EXPECT_EQ(as<f32>(to_tf32(-1.0f - 0x1p-12f)), -1.0f);
}

TEST(PtxArithmetic, RoundsAsTheInstructionSays) {
  EXPECT_EQ(fma_rounded(Rounding::rz, 1.0f, 1.0f, 0x1.8p-24f), 1.0f);
  EXPECT_EQ(std::fma(1.0f, 1.0f, 0x1.8p-24f), 1.0f + 0x1p-23f);
  EXPECT_EQ(fma_rounded(Rounding::rz, -1.0f, 1.0f, -0x1.8p-24f), -1.0f);
  EXPECT_EQ(reciprocal_of_high_word(3.0), as<f64>(as<u64>(1.0 / 3.0) & ~u64{0} << 32));
  EXPECT_EQ(reciprocal_of_high_word(0.0), std::numeric_limits<f64>::infinity());
}

}  // namespace
}  // namespace ptx
}  // namespace simt
