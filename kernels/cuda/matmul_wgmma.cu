// Explained in docs/tensor_cores_by_hand.md.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/gemm_call.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/matmul_list.h"
#include "simt/bulk_copy.h"
#include "simt/wgmma.h"
#include "tensor/dtype.h"

// The product of gemm.h on Hopper's tensor cores, which multiply out of shared memory without a thread that
// waits:
//
//   one thread brings tiles of 64 depths to shared memory by tensor maps (TMA), four pairs of them in turn;
//   two warpgroups multiply 64 x 64 by 64 x N each (wgmma), N = 128 or 256, as the tiles arrive.
//
// A block takes tiles of y until there are none left, and the thread goes on to the next tile while
// the others write theirs. Two barriers in memory for each pair of tiles say who may use it: `full` counts
// the bytes that have arrived, `empty` the warpgroups that are done with it. No thread computes an address of
// a factor, and no factor passes through registers. Each factor lies along the depth or along its rows;
// 16-byte pieces are permuted in lines of 128 bytes (simt/swizzle.h), as the map and the descriptor both say.

namespace athanor::cuda {
namespace {

using simt::Factor;
using simt::FactorDescriptor;
using simt::Major;
using simt::MemoryBarrier;
using simt::Swizzle;
using simt::TensorMap;

// Whether this build has code for sm_90a, which alone has wgmma.
#if defined(ATHANOR_HAS_SM90A)
constexpr bool kIsBuilt = true;
#else
constexpr bool kIsBuilt = false;
#endif

constexpr int kConsumers = 2, kWarpgroup = 128, kThreads = (kConsumers + 1) * kWarpgroup;
constexpr int kRows = kConsumers * 64, kDepth = 64, kStages = 4;
constexpr int kBox = 64 * kDepth * 2;  // bytes of 64 lines of 128
[[maybe_unused]] constexpr int kStagedColumns = 32,
                               kStagedPitch = 40;  // at which the lanes that write at once meet no bank twice

/// The kernel's arguments besides its factors.
template <class T> struct Task {
  Finish<T> finish;
  std::int64_t m, n, batch_y;  ///< y is dense
  unsigned batches, steps;
  bool left_moves, right_moves;  ///< with the batch
  bool packets = false;          ///< whether finish.packet() may write
  unsigned tiles_m = 1, tiles_n = 1;
};

/// The shared memory of a block.
template <int kN> struct Stages {
  static constexpr int kLeftBytes = kRows * kDepth * 2, kRightBytes = kN * kDepth * 2,
                       kStageBytes = kLeftBytes + kRightBytes;
  static constexpr int kStagingBytes = kConsumers * 4 * 16 * kStagedPitch * static_cast<int>(sizeof(float));
  static constexpr int kAlignment = 1024;  // of a swizzle's pattern; dynamic memory promises less
  static constexpr int kBytes = kStages * kStageBytes + kStagingBytes + kAlignment;

  unsigned char* memory;

  __device__ __forceinline__ Stages() {
    unsigned char* const from = dynamic_shared<unsigned char>();
    memory = from + (-reinterpret_cast<std::uintptr_t>(from) & (kAlignment - 1));
  }
  __device__ __forceinline__ unsigned char* left(unsigned stage) const {
    return memory + stage * kStageBytes;
  }
  __device__ __forceinline__ unsigned char* right(unsigned stage) const { return left(stage) + kLeftBytes; }
  /// 16 rows of a warp on their way to y.
  __device__ __forceinline__ float* staging(int warp) const {
    return reinterpret_cast<float*>(memory + kStages * kStageBytes) + warp * 16 * kStagedPitch;
  }
};

/// Which tile of y a block computes.
struct TileAt {
  int row, column, batch;

  template <class T> __device__ __forceinline__ TileAt(const Task<T>& task, unsigned tile) {
    const unsigned tiles = task.tiles_m * task.tiles_n;
    batch = static_cast<int>(tile / tiles);
    locate_tile(tile % tiles, task.tiles_m, task.tiles_n, row, column);
  }
};

template <Major kMajor, int kExtent>
__device__ __forceinline__ void load_factor(unsigned char* to, const TensorMap& map, int first, int depth,
                                            int batch, MemoryBarrier* full) {
  if constexpr (kMajor == Major::depth) {
    simt::tensor_load(to, map, depth, first, batch, full);
  } else {
#pragma unroll
    for (int i = 0; i < kExtent / 64; ++i)
      simt::tensor_load(to + i * kBox, map, first + i * 64, depth, batch, full);
  }
}

/// Eight rows (of depths: eight depths) of 128 bytes follow one another, and so do boxes of 64 rows.
[[maybe_unused]] __device__ __forceinline__ FactorDescriptor factor(const unsigned char* from) {
  return simt::factor_descriptor(from, Swizzle::bytes_128, kBox, 8 * 128);
}
/// From one depth of an instruction to the next.
template <Major kMajor> constexpr int kDepthBytes = kMajor == Major::depth ? 32 : 16 * 128;

template <int kN, Major kLeft, Major kRight, class T>
__device__ __forceinline__ void produce(const Task<T>& task, const Stages<kN>& stages, const TensorMap& a,
                                        const TensorMap& b, MemoryBarrier* full, MemoryBarrier* empty) {
  unsigned count = 0;  // of steps: a stage has had count / kStages of them
  const unsigned tiles = task.tiles_m * task.tiles_n * task.batches;
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileAt at(task, tile);
    for (unsigned step = 0; step < task.steps; ++step, ++count) {
      const unsigned stage = count % kStages, parity = count / kStages & 1;
      if (count >= kStages) simt::mbarrier_wait(&empty[stage], parity ^ 1);
      simt::mbarrier_arrive_expect_tx(&full[stage], Stages<kN>::kStageBytes);
      const int depth = static_cast<int>(step) * kDepth;
      load_factor<kLeft, kRows>(stages.left(stage), a, at.row * kRows, depth, task.left_moves ? at.batch : 0,
                                &full[stage]);
      load_factor<kRight, kN>(stages.right(stage), b, at.column * kN, depth, task.right_moves ? at.batch : 0,
                              &full[stage]);
    }
  }
}

/// A warp's 16 rows of a tile, 32 columns at a time by way of shared memory, so that a lane writes
/// neighbours.
template <int kN, class T>
__device__ __forceinline__ void write_rows(const Task<T>& task, const TileAt& at, int warp, float* staging,
                                           const float (&sums)[kN / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first_row = std::int64_t{at.row} * kRows + warp * 16;
  const std::int64_t first = at.batch * task.batch_y;
#pragma unroll
  for (int part = 0; part < kN / kStagedColumns; ++part) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kStagedColumns / 2; i += 2) {
      const simt::Element to = simt::fragment::sums(lane, i);
      const int from = part * (kStagedColumns / 2) + i;
      store(staging + to.row * kStagedPitch + to.column, Vec<float, 2>{{sums[from], sums[from + 1]}});
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 16 * kStagedColumns / 8; i += 32) {
      const int row = i / (kStagedColumns / 8), column = i % (kStagedColumns / 8) * 8;
      const std::int64_t m = first_row + row,
                         n = std::int64_t{at.column} * kN + part * kStagedColumns + column;
      if (m >= task.m) continue;
      float out[8];
#pragma unroll
      for (int v = 0; v < 8; v += 4) {
        const auto four = load<4>(staging + row * kStagedPitch + column + v);
#pragma unroll
        for (int e = 0; e < 4; ++e) out[v + e] = four[e];
      }
      const std::int64_t to = first + m * task.n + n;
      if (task.packets) {
        if (n < task.n) task.finish.template packet<8>(to, n, out);
      } else {
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          if (n + v < task.n) task.finish(to + v, n + v, out[v]);
        }
      }
    }
  }
}

template <int kN, Major kLeft, Major kRight, class T>
__device__ __forceinline__ void consume(const Task<T>& task, const Stages<kN>& stages, MemoryBarrier* full,
                                        MemoryBarrier* empty) {
  constexpr Factor kFactor = std::is_same_v<T, Half> ? Factor::f16 : Factor::bf16;
  const int thread = static_cast<int>(threadIdx.x), group = thread / kWarpgroup;
  const bool speaks = thread % kWarpgroup == 0;  // for its warpgroup, whose work is done as one
  unsigned count = 0;                            // of steps: a stage has had count / kStages of them
  const unsigned tiles = task.tiles_m * task.tiles_n * task.batches;
  float sums[kN / 2] = {};
#pragma unroll 1
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TileAt at(task, tile);
#pragma unroll 1
    for (unsigned step = 0; step < task.steps; ++step, ++count) {
      const unsigned stage = count % kStages, parity = count / kStages & 1;
      simt::mbarrier_wait(&full[stage], parity);
      const FactorDescriptor a = factor(stages.left(stage) + group * kBox), b = factor(stages.right(stage));
      simt::wgmma_fence(sums);
#pragma unroll
      for (int i = 0; i < kDepth / 16; ++i)
        simt::wgmma<kFactor, kN, kLeft, kRight>(sums, a.moved(i * kDepthBytes<kLeft>),
                                                b.moved(i * kDepthBytes<kRight>), step > 0 || i > 0);
      simt::wgmma_commit();
      // The step before this one is done with its stage; this one goes on.
      simt::wgmma_wait<1>(sums);
      if (speaks && step > 0) simt::mbarrier_arrive(&empty[(count - 1) % kStages]);
    }
    simt::wgmma_wait<0>(sums);
    if (speaks) simt::mbarrier_arrive(&empty[(count - 1) % kStages]);
    write_rows<kN>(task, at, thread / 32, stages.staging(thread / 32), sums);
  }
}

template <int kN, Major kLeft, Major kRight, class T>
__global__ void __launch_bounds__(kThreads, 1)
    multiply_tiles(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, Task<T> task) {
  if constexpr (simt::kHasWarpgroups) {
    __shared__ MemoryBarrier full[kStages], empty[kStages];
    const Stages<kN> stages;
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        simt::mbarrier_init(&full[i], 1);
        simt::mbarrier_init(&empty[i], kConsumers);
      }
      simt::fence_mbarrier_init();
    }
    __syncthreads();
    // Of the 168 registers that each thread has at first, those who copy need few, and sums many.
    if (threadIdx.x < kConsumers * kWarpgroup) {
      simt::raise_registers<232>();
      consume<kN, kLeft, kRight>(task, stages, full, empty);
    } else {
      simt::lower_registers<40>();
      if (threadIdx.x == kConsumers * kWarpgroup) produce<kN, kLeft, kRight>(task, stages, a, b, full, empty);
    }
  }
}

/// One factor: rows x depths elements, dense along one of them, in a batch that moves by `batch` elements.
struct FactorLayout {
  const Tensor& data;
  std::int64_t rows, depths, row_stride, depth_stride, batch;
  std::int64_t batches;

  bool deep() const { return depth_stride == 1; }
  std::int64_t line() const { return deep() ? row_stride : depth_stride; }
  bool has_map() const {
    const auto packed = [](std::int64_t stride) {
      return stride > 0 && stride % 8 == 0 && stride < std::int64_t{1} << 38;
    };
    return (row_stride == 1 || depth_stride == 1) && packed(line()) && (batch == 0 || packed(batch)) &&
           std::max(rows, depths) < std::int64_t{1} << 31 &&
           reinterpret_cast<std::uintptr_t>(data.raw_data()) % 16 == 0;
  }
  /// In boxes of 64 depths by `box_rows` rows, or of 64 by 64 where the rows are dense.
  TensorMap map(int box_rows) const {
    const auto bytes = [](std::int64_t elements) { return static_cast<std::uint64_t>(elements) * 2; };
    const auto count = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    simt::TensorLayout layout;
    layout.type = data.dtype() == DType::f16 ? simt::TensorType::f16 : simt::TensorType::bf16;
    layout.rank = 3;
    layout.data = data.raw_data();
    layout.size[0] = count(deep() ? depths : rows), layout.size[1] = count(deep() ? rows : depths);
    layout.size[2] = count(batch == 0 ? 1 : batches);
    layout.stride[1] = bytes(line()), layout.stride[2] = bytes(batch == 0 ? line() : batch);
    layout.tile[0] = 64, layout.tile[1] = static_cast<std::uint32_t>(deep() ? box_rows : 64),
    layout.tile[2] = 1;
    layout.swizzle = Swizzle::bytes_128;
    TensorMap map{};
    detail::check_launch(simt::make_tensor_map(&map, layout), "matmul");
    return map;
  }
};

template <int kN, Major kLeft, Major kRight, class T>
void launch_tiles_of(const CudaContext& context, const FactorLayout& a, const FactorLayout& b,
                     const Task<T>& task) {
  const std::int64_t tiles = std::int64_t{task.tiles_m} * task.tiles_n * task.batches;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, context.multiprocessors()));
  launch(context, {"matmul", blocks, kThreads, Stages<kN>::kBytes}, multiply_tiles<kN, kLeft, kRight, T>,
         a.map(kRows), b.map(kN), task);
}

template <int kN, class T>
void launch_majors(const CudaContext& context, const FactorLayout& a, const FactorLayout& b, Task<T> task) {
  task.tiles_m = static_cast<unsigned>((task.m + kRows - 1) / kRows);
  task.tiles_n = static_cast<unsigned>((task.n + kN - 1) / kN);
  if (a.deep()) {
    if (b.deep()) return launch_tiles_of<kN, Major::depth, Major::depth>(context, a, b, task);
    return launch_tiles_of<kN, Major::depth, Major::rows>(context, a, b, task);
  }
  if (b.deep()) return launch_tiles_of<kN, Major::rows, Major::depth>(context, a, b, task);
  launch_tiles_of<kN, Major::rows, Major::rows>(context, a, b, task);
}

/// Tiles of y, kRows x columns.
std::int64_t count_tiles(const GemmSize& size, std::int64_t batches, std::int64_t columns) {
  return (size.m + kRows - 1) / kRows * ((size.n + columns - 1) / columns) * batches;
}

/// Both factors, and the one axis of a batch.
struct Operands {
  explicit Operands(const MatmulCall& call) : plan(call.plan()), a(call.a), b(call.b) {}

  bool have_maps() const {
    return plan.batches.kept_rank <= 1 && plan.batches.summed_rank == 0 && plan.size.k > 0 &&
           left.has_map() && right.has_map() &&
           count_tiles(plan.size, batch.size, 128) < std::int64_t{1} << 31;
  }

  const MatmulPlan plan;
  const Tensor &a, &b;
  const Batches::Axis batch = plan.batches.kept_rank == 1 ? plan.batches.kept[0] : Batches::Axis{1, 0, 0, 0};
  const FactorLayout left{a, plan.size.m, plan.size.k, plan.a_row, plan.a_col, batch.a, batch.size},
      right{b, plan.size.n, plan.size.k, plan.b_col, plan.b_row, batch.b, batch.size};
};

}  // namespace

bool wgmma_fits(CudaContext& context, const MatmulCall& call) {
  return kIsBuilt && context.sm() == 90 && is_half(call.a.dtype()) && !call.empty() &&
         Operands(call).have_maps();
}

// Where gemm() would take its largest tile and not cut the depth: the account counts on it, too.
bool wgmma_is_worth_it(CudaContext&, const MatmulCall& call) {
  const Operands from(call);
  const auto& [m, n, k] = from.plan.size;
  const std::int64_t batches = from.batch.size;
  const GemmPlan plan({.m = m, .n = n, .k = k, .batches = batches, .cuttable = batches * m * n}, 2);
  return plan.tile == kLargeTile && plan.pieces == 1;
}

bool wgmma_matmul(CudaContext& context, const MatmulCall& call) {
  const Operands from(call);
  const GemmSize& size = from.plan.size;
  const Batches::Axis& batch = from.batch;
  dispatch_floating(call.a.dtype(), "matmul", [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      const Tensor &y = call.y, &c = call.c;
      Task<T> task{.finish = {y.raw_data(), y.dtype() != call.a.dtype(), data_or_null<T>(call.bias),
                              call.activation, c.defined() ? c.raw_data() : nullptr, call.alpha, call.beta},
                   .m = size.m,
                   .n = size.n,
                   .batch_y = batch.y,
                   .batches = static_cast<unsigned>(batch.size),
                   .steps = static_cast<unsigned>((size.k + kDepth - 1) / kDepth),
                   .left_moves = batch.a != 0,
                   .right_moves = batch.b != 0};
      task.packets = size.n % kVec<T> == 0 && task.finish.in_packets();
      if (count_tiles(size, batch.size, 256) >= kMultiprocessors)
        return launch_majors<256>(context, from.left, from.right, task);
      launch_majors<128>(context, from.left, from.right, task);
    }
  });
  return true;
}

}  // namespace athanor::cuda
