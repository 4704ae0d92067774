#pragma once

#include <cstdint>

#include "simt/emulator/cuda/device.h"

// The emulated twins of instructions that the headers simt/tensor_core.h, ... give as PTX; what each does is
// said there.

namespace simt {

enum class Factor : unsigned char;
struct MemoryBarrier;
struct TensorMap;
struct FactorDescriptor;
enum class Major : unsigned char;

namespace emulated {

// simt/emulator/matrices.cpp
void ldmatrix(std::uint32_t* parts, int count, bool columns, const void* line, const Site& site);
void mma(Factor type, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         const Site& site);
void mma(Factor type, int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         const Site& site);
int dot_of_bytes(std::uint32_t a, std::uint32_t b, int c);
std::uint32_t to_tf32(float x);

// simt/emulator/async_copies.cpp
void cp_async(void* to, const void* from, unsigned bytes, int source_bytes, const Site& site);
void cp_async_commit();
void cp_async_wait(unsigned groups);

// simt/emulator/mbarriers.cpp
void mbarrier_init(MemoryBarrier* barrier, unsigned arrivals, const Site& site);
void mbarrier_arrive(MemoryBarrier* barrier, unsigned expected_bytes, const Site& site);
void mbarrier_wait(MemoryBarrier* barrier, unsigned parity, const Site& site);
void fence_proxy_async(bool for_barriers_only);

// simt/emulator/bulk_copies.cpp
void bulk_load(void* to, const void* from, unsigned bytes, MemoryBarrier* barrier, const Site& site);
void tensor_load(void* to, const TensorMap& map, const int* at, int rank, MemoryBarrier* barrier,
                 const Site& site);

// simt/emulator/warpgroups.cpp
void wgmma(Factor type, int columns, float* sums, Major left_major, Major right_major,
           const FactorDescriptor& left, const FactorDescriptor& right, bool accumulate, const Site& site);
void wgmma_fence(const Site& site);
void wgmma_commit(const Site& site);
void wgmma_wait(unsigned groups, const Site& site);

}  // namespace emulated
}  // namespace simt
