#pragma once  // Explained in docs/what_nvcc_wrote.md.

#include <cstddef>
#include <cstdint>
#include <string>

#include "simt/emulator/cuda/site.h"

// What the instructions of PTX do that are more than arithmetic, for threads of a translated kernel, each of
// which runs on a stack of its own (simt/emulator/executor.h). Written from the PTX ISA, version 9, whose
// sections are named; a summary of what it says stands above each. Nothing here uses, or was written after,
// what the emulator does for the functions of simt/include/simt: the two are independent readings of the ISA,
// and a kernel must give the same results by both.
//
// What the ISA calls undefined is an error here, which names thread, instruction and line of the PTX.
//
// Operands are bits: registers of 32 bits are std::uint32_t, whatever they hold. An address of .shared is an
// offset into the block's window; generic and global addresses are pointers of the host.

namespace simt::ptx {

// ---- shared memory of the block that runs

/// Where shared memory of kernels may begin; an address that is no better aligned than its type demands.
inline constexpr std::uint32_t kSharedBegin = 16;
inline constexpr std::uint32_t kWindowBytes = 256 * 1024;

struct SharedWindow {
  char* memory;         ///< kWindowBytes, aligned to 1024, so that offsets and pointers agree about alignment
  std::uint32_t bytes;  ///< from the window's beginning to the end of the kernel's
};
extern SharedWindow shared_window;

[[noreturn]] void refuse_address(std::uint64_t offset, std::size_t bytes, const Site& site);

/// Memory at an offset, for an access of that many bytes (a power of two), to which it must be aligned.
inline char* shared(std::uint64_t offset, std::size_t bytes, const Site& site = Site::current()) {
  if (offset < kSharedBegin || offset + bytes > shared_window.bytes || offset % bytes != 0) {
    refuse_address(offset, bytes, site);
  }
  return shared_window.memory + offset;
}

/// cvta.shared and cvta.to.shared. Data Movement: cvta.
inline std::uint64_t shared_to_generic(std::uint64_t offset) {
  return reinterpret_cast<std::uintptr_t>(shared_window.memory) + offset;
}
std::uint64_t generic_to_shared(std::uint64_t pointer, const Site& site = Site::current());

// ---- a block, as the executor runs it

/// All that the block before it left is gone, and its shared memory, of which `window_bytes` are the
/// kernel's, is NaN.
void begin_block(unsigned threads, std::size_t window_bytes);
/// No thread can go on: does some of the asynchronous work that they may wait for. False: there is none.
bool run_one();
/// What is wrong with how the block ends; empty where nothing is.
std::string end_block();
/// What a thread waits for in vain. `barrier` is what was given to wait_in_memory().
std::string what_is_missing(const void* barrier);

// ---- barriers of threads. Parallel Synchronization and Communication: bar, bar.warp.sync, vote.sync;
// Data Movement: shfl.sync

/// bar.sync a{, b}: waits until `threads` threads, a multiple of the warp's, have come to barrier `a`; 0: all
/// of the block. Those of a warp must be at the same instruction (.aligned).
void bar_sync(std::uint32_t a, std::uint32_t threads = 0, const Site& site = Site::current());
/// bar.red: besides, how many of them brought a true predicate (.popc), or whether all or any did (.and,
/// .or).
std::uint32_t bar_red_popc(std::uint32_t a, std::uint32_t threads, bool predicate,
                           const Site& site = Site::current());
bool bar_red_and(std::uint32_t a, std::uint32_t threads, bool predicate, const Site& site = Site::current());
bool bar_red_or(std::uint32_t a, std::uint32_t threads, bool predicate, const Site& site = Site::current());

/// bar.warp.sync: waits until all lanes of the mask, which has the thread's own, are here with that mask. So
/// do all instructions below that have a mask.
void bar_warp_sync(std::uint32_t mask, const Site& site = Site::current());

enum class Shuffle : std::uint8_t { up, down, bfly, idx };
/// shfl.sync.mode.b32 d|p, a, b, c: `a` of another lane, which `b` gives. Bits 8 to 12 of `c` name the bits
/// of a lane's number that number its segment, bits 0 to 4 how far lanes go in it. *p, unless null: whether
/// the other lane is in range; if not, d is the thread's own a.
std::uint32_t shfl_sync(Shuffle mode, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t mask,
                        bool* p = nullptr, const Site& site = Site::current());

/// vote.sync: which lanes' predicate is true; whether that of all or of any is.
std::uint32_t vote_ballot(bool predicate, std::uint32_t mask, const Site& site = Site::current());
bool vote_all(bool predicate, std::uint32_t mask, const Site& site = Site::current());
bool vote_any(bool predicate, std::uint32_t mask, const Site& site = Site::current());

// ---- mbarrier. Parallel Synchronization and Communication: mbarrier

/// mbarrier.init: phase 0 begins, in which `arrivals` are pending, as in each that follows, and no bytes.
void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals, const Site& site = Site::current());
/// mbarrier.arrive: one pending arrival less. A phase is complete when none is pending and as many bytes have
/// come as were expected; at once the next begins.
void mbarrier_arrive(std::uint32_t barrier, const Site& site = Site::current());
/// mbarrier.arrive.expect_tx: first, the current phase expects that many bytes more.
void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes,
                               const Site& site = Site::current());
/// mbarrier.try_wait.parity: whether the phase of that parity, the current one or the one before it, is
/// complete. It may wait for that; here it does until it is.
bool mbarrier_try_wait(std::uint32_t barrier, std::uint32_t parity, const Site& site = Site::current());

// ---- asynchronous copies. Data Movement: cp.async, cp.async.bulk, cp.async.bulk.tensor
//
// With SIMT_ASYNC=late they are done as late as the ISA allows, and until then their target is NaN; with
// early at once.

/// cp.async: copies 4, 8 or 16 bytes to shared memory, both aligned to that; after the first `source_bytes`
/// come zeros.
void cp_async(std::uint32_t to, std::uint64_t from, std::uint32_t bytes, std::uint32_t source_bytes,
              const Site& site = Site::current());
/// cp.async.commit_group: what this thread has started since the last group is a group.
void cp_async_commit();
/// cp.async.wait_group: all groups of this thread but the `pending` latest are done. wait_all: and what is in
/// no group yet.
void cp_async_wait_group(std::uint32_t pending);
void cp_async_wait_all();

/// cp.async.bulk.shared.global, mbarrier::complete_tx::bytes: copies bytes to shared memory, then tells the
/// barrier how many came. Both addresses and the number are multiples of 16.
void cp_async_bulk(std::uint32_t to, std::uint64_t from, std::uint32_t bytes, std::uint32_t barrier,
                   const Site& site = Site::current());
/// cp.async.bulk.tensor, .tile: the box of the tensor map whose first element is `at`, axis 0 first. Elements
/// outside of the tensor are zeros, and count as bytes too. (Tensors: Tiled mode, Swizzling modes.)
void cp_async_bulk_tensor(std::uint32_t to, std::uint64_t map, int rank, const std::int32_t* at,
                          std::uint32_t barrier, const Site& site = Site::current());

/// fence.proxy.async and fence.mbarrier_init: threads run one after the other here, and see one memory.
inline void fence_proxy_async() {}
inline void fence_mbarrier_init() {}

// ---- tensor cores, a warp at a time. Warp Level Matrix Multiply-Accumulate Instructions: ldmatrix, mma
//
// All 32 lanes are at the same instruction. The order in which products are added up is SIMT_SUMS; each sum
// is rounded to f32.

enum class MmaType : std::uint8_t { f16, bf16, tf32 };

/// ldmatrix.sync.aligned.m8n8.xCOUNT{.trans}.shared.b16: lane 8 i + r gives the address of row r of matrix i,
/// 16 bytes; lane l gets elements 2 (l % 4) and the next of row l / 4 of each matrix; of column l / 4, with
/// .trans.
void ldmatrix(int count, bool trans, std::uint32_t row, std::uint32_t* const* d,
              const Site& site = Site::current());

/// mma.sync.aligned.m16n8kK.row.col.f32: d = a b + c. Of f16 and bf16 (K 16) a register holds two, the lower
/// bits first, of tf32 (K 8) one.
void mma(MmaType type, int k, std::uint32_t* const* d, const std::uint32_t* a, const std::uint32_t* b,
         const std::uint32_t* c, const Site& site = Site::current());

/// mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32: the same of integers, four to a register, the lowest bits
/// first. Without .satfinite a sum wraps round.
void mma_u8_s8(std::uint32_t* const* d, const std::uint32_t* a, const std::uint32_t* b,
               const std::uint32_t* c, const Site& site = Site::current());

// ---- tensor cores, a warpgroup at a time. Asynchronous Warpgroup Level Matrix Multiply-Accumulate
// Instructions (section 9.7.15)

/// wgmma.mma_async.sync.aligned.m64nNkK.f32: d = a b + d, or a b unless scale_d; K is 16, for tf32 8. a and b
/// lie in shared memory as their descriptors say, K-major, or with trans_ M- and N-major; scale_a and scale_b
/// are 1 or -1. All threads of the warpgroup are at this instruction, with the same descriptors. d holds N/2
/// registers; with SIMT_ASYNC=late they are NaN until the thread has waited for the product.
void wgmma(int n, MmaType type, std::uint32_t* const* d, std::uint64_t a, std::uint64_t b, bool scale_d,
           int scale_a, int scale_b, int trans_a, int trans_b, const Site& site = Site::current());
/// wgmma.fence: registers that the thread has accessed may be accumulators again. Also before the first
/// wgmma.
void wgmma_fence(const Site& site = Site::current());
/// wgmma.commit_group: what this thread has started since the last group is a group.
void wgmma_commit(const Site& site = Site::current());
/// wgmma.wait_group: all groups but the `pending` latest are done.
void wgmma_wait(std::uint32_t pending, const Site& site = Site::current());

/// setmaxnreg: of how many registers the warp has from here on, multiples of 8 from 24 to 256, nothing is to
/// be seen here.
void setmaxnreg(bool raise, std::uint32_t registers, const Site& site = Site::current());

}  // namespace simt::ptx
