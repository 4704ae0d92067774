#pragma once

#include <cstdint>

#include <simt/device.h>

// The emulated twins of instructions that the headers simt/tensor_core.h, ... give as PTX; what each does is
// said there.

namespace simt {

enum class Factor : unsigned char;

namespace emulated {

// simt/matrices.cpp
void ldmatrix(std::uint32_t* parts, int count, bool columns, const void* line, const Site& site);
void stmatrix(void* line, const std::uint32_t* parts, int count, bool columns, const Site& site);
void mma(Factor type, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         const Site& site);
std::uint32_t to_tf32(float x);

}  // namespace emulated
}  // namespace simt
