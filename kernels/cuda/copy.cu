#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/copy_walk.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/dispatch_size.h"

// A copy moves 2 elements per element and computes nothing. Where rows of x and y run alike they are moved 16
// bytes at a time (or as much as divides them); a transpose goes through tiles in shared memory, so that
// both sides are read and written along their rows; the rest goes element by element, in the order of y.

namespace athanor::kernels {
namespace {

using Walk = cuda::Walk<2>;

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

// f(x offset, y offset) -> what y gets, read by kUnroll threads' worth before any is written.
template <class T, class F>
__device__ __forceinline__ void for_each_pair(const Walk& walk, T* y, const F& f) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; first < walk.numel;
       first += step * kUnroll) {
    T value[kUnroll];
    std::int64_t to[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t flat = first + u * step;
      if (flat >= walk.numel) break;
      const auto offset = walk.offsets(flat);
      to[u] = offset[1];
      value[u] = f(offset[0], offset[1]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step >= walk.numel) break;
      y[to[u]] = value[u];
    }
  }
}

template <class T> __global__ void __launch_bounds__(kThreads) move(const T* x, T* y, Walk walk) {
  for_each_pair(walk, y, [=](std::int64_t from, std::int64_t) { return x[from]; });
}

// An element of any type: the branch is the same for the whole grid, and 9 kernels do for 81 pairs of types.
template <class To>
__device__ __forceinline__ To converted(const std::byte* x, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::f64: return convert<To>(reinterpret_cast<const double*>(x)[at]);
    case DType::f32: return convert<To>(reinterpret_cast<const float*>(x)[at]);
    case DType::f16: return convert<To>(reinterpret_cast<const Half*>(x)[at]);
    case DType::bf16: return convert<To>(reinterpret_cast<const BFloat16*>(x)[at]);
    case DType::i64: return convert<To>(reinterpret_cast<const std::int64_t*>(x)[at]);
    case DType::i32: return convert<To>(reinterpret_cast<const std::int32_t*>(x)[at]);
    case DType::u8: return convert<To>(reinterpret_cast<const std::uint8_t*>(x)[at]);
    case DType::boolean: return convert<To>(reinterpret_cast<const bool*>(x)[at]);
    case DType::i8: return convert<To>(reinterpret_cast<const std::int8_t*>(x)[at]);
  }
  return To();
}

template <class To>
__global__ void __launch_bounds__(kThreads) cast(const std::byte* x, DType from, To* y, Walk walk) {
  for_each_pair(walk, y, [=](std::int64_t in, std::int64_t) { return converted<To>(x, from, in); });
}

// The sum is made in the wider of the two types' accumulation types, and rounded once.
template <class From, class To> struct Add {
  using A = std::conditional_t<std::is_same_v<From, double>, double, Accumulate<To>>;
  __device__ __forceinline__ To operator()(From x, To y) const {
    return convert<To>(convert<A>(y) + convert<A>(x));
  }
};

template <class To>
__global__ void __launch_bounds__(kThreads) add_strided(const std::byte* x, DType from, To* y, Walk walk) {
  for_each_pair(walk, y, [=](std::int64_t in, std::int64_t out) {
    switch (from) {
      case DType::f64: return Add<double, To>{}(reinterpret_cast<const double*>(x)[in], y[out]);
      case DType::f16: return Add<Half, To>{}(reinterpret_cast<const Half*>(x)[in], y[out]);
      case DType::bf16: return Add<BFloat16, To>{}(reinterpret_cast<const BFloat16*>(x)[in], y[out]);
      default: return Add<float, To>{}(reinterpret_cast<const float*>(x)[in], y[out]);
    }
  });
}

Walk walk_of(const Tensor& x, const Tensor& y) {
  return walk_by_output<Walk>(broadcast_strides(x, y.shape()), y);
}

unsigned strided_blocks(const CudaContext& context, const Walk& walk) {
  return cuda::blocks_for(context, (walk.numel + kUnroll - 1) / kUnroll, kThreads);
}

// One type -------------------------------------------------------------------------------------------------

// Moves W elements as one, the most of those W that divide every row, every stride between rows, and both
// addresses.
template <class T, int W> void move_widest(const CudaContext& context, Walk walk, const T* x, T* y) {
  const int inner = walk.rank - 1;
  if constexpr (W > 1) {
    bool fits = inner >= 0 && cuda::aligned<W>(x, y) && walk.size[inner] % W == 0;
    for (int k = 0; k < 2 && fits; ++k) {
      fits = walk.stride[k][inner] == 1;
      for (int axis = 0; axis < inner && fits; ++axis) fits = walk.stride[k][axis] % W == 0;
    }
    if (!fits) return move_widest<T, W / 2>(context, walk, x, y);
    walk.numel /= W;
    walk.size[inner] /= W;
    for (int k = 0; k < 2; ++k) {
      for (int axis = 0; axis < inner; ++axis) walk.stride[k][axis] /= W;
    }
  }
  using Wide = cuda::Bits<W * sizeof(T)>;
  cuda::launch(context, {"copy", strided_blocks(context, walk), kThreads}, move<Wide>,
               reinterpret_cast<const Wide*>(x), reinterpret_cast<Wide*>(y), walk);
}

// y[row][col] = x[col][row], over and over along the outer axes. Strides are of the outer index of each.
struct Tiles {
  std::int64_t rows, cols, x_stride, y_stride;
  std::int64_t across, down, count;
  Walk outer;
};

template <class T> inline constexpr int kTile = sizeof(T) > 4 ? 32 : 64;
constexpr int kTileWidth = 32, kTileHeight = 8;  // of the block of threads

template <class T>
__global__ void __launch_bounds__(kTileWidth* kTileHeight) transpose(const T* x, T* y, Tiles tiles) {
  constexpr int kSide = kTile<T>;
  constexpr int kPad = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // lanes along a column fall on 32 banks
  __shared__ T tile[kSide][kSide + kPad];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  for (std::int64_t k = blockIdx.x; k < tiles.count; k += gridDim.x) {
    const std::int64_t col = k % tiles.across * kSide, row = k / tiles.across % tiles.down * kSide;
    const auto base = tiles.outer.offsets(k / tiles.across / tiles.down);
    const int rows = static_cast<int>(min(tiles.rows - row, std::int64_t{kSide}));
    const int cols = static_cast<int>(min(tiles.cols - col, std::int64_t{kSide}));
    const T* in = x + base[0] + row + col * tiles.x_stride;
    T* out = y + base[1] + row * tiles.y_stride + col;
#pragma unroll
    for (int c = 0; c < kSide; c += kTileHeight) {
#pragma unroll
      for (int r = 0; r < kSide; r += kTileWidth) {
        if (c + ty < cols && r + tx < rows) tile[c + ty][r + tx] = in[(c + ty) * tiles.x_stride + r + tx];
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kSide; r += kTileHeight) {
#pragma unroll
      for (int c = 0; c < kSide; c += kTileWidth) {
        if (r + ty < rows && c + tx < cols) out[(r + ty) * tiles.y_stride + c + tx] = tile[c + tx][r + ty];
      }
    }
    __syncthreads();  // before the next tile is read
  }
}

template <class T>
void copy_tiles(const CudaContext& context, const Walk& walk, int along, const T* x, T* y) {
  const int inner = walk.rank - 1;
  Shape shape;
  std::array<Strides, 2> strides;
  for (int axis = 0; axis < inner; ++axis) {
    if (axis == along) continue;
    shape.push_back(walk.size[axis]);
    for (int k = 0; k < 2; ++k) strides[static_cast<std::size_t>(k)].push_back(walk.stride[k][axis]);
  }
  constexpr std::int64_t kSide = kTile<T>;
  const std::int64_t rows = walk.size[along], cols = walk.size[inner];
  Tiles tiles{.rows = rows,
              .cols = cols,
              .x_stride = walk.stride[0][inner],
              .y_stride = walk.stride[1][along],
              .across = (cols + kSide - 1) / kSide,
              .down = (rows + kSide - 1) / kSide,
              .count = 0,
              .outer = Walk(shape, strides)};
  tiles.count = tiles.across * tiles.down * tiles.outer.numel;
  const unsigned blocks = cuda::blocks_for(context, tiles.count, 1, 32);
  cuda::launch(context, {"copy", blocks, dim3(kTileWidth, kTileHeight)}, transpose<T>, x, y, tiles);
}

// Elements of one size are copied as unsigned integers, whatever they mean.
template <class T> void copy_same(const CudaContext& context, const Tensor& x, const Tensor& y) {
  constexpr std::int64_t kShort = 16;  // a tile would be mostly empty
  Walk walk = walk_of(x, y);
  const T* from = reinterpret_cast<const T*>(x.raw_data());
  T* to = reinterpret_cast<T*>(y.raw_data());
  if (const int along = transposed_axis(walk);
      along >= 0 && walk.size[along] >= kShort && walk.size[walk.rank - 1] >= kShort)
    return copy_tiles(context, walk, along, from, to);
  constexpr int W = 16 / sizeof(T);
  const std::int64_t body = cuda::vector_body(walk.rank == 1 && walk.dense(), walk.numel, W);
  if (const std::int64_t rest = walk.numel - body; rest > 0) {
    Walk last = walk;
    last.numel = last.size[0] = rest;
    move_widest<T, 1>(context, last, from + body, to + body);
    walk.numel = walk.size[0] = body;
  }
  move_widest<T, W>(context, walk, from, to);
}

// The pairs that training converts all the time have a kernel of their own.
template <class From, class To>
inline constexpr bool kVectorCast = !std::is_same_v<From, To> && sizeof(To) != 1 && !std::is_integral_v<To> &&
                                    (!std::is_integral_v<From> || std::is_same_v<From, std::uint8_t>);

void cast_any(const CudaContext& context, const Tensor& x, const Tensor& y) {
  const Walk walk = walk_of(x, y);
  dispatch_any(y.dtype(), [&]<class To>() {
    To* to = y.data<To>();
    const bool queued =
        walk.dense() && dispatch_any(x.dtype(), [&]<class From>() {
          if constexpr (kVectorCast<From, To>) {
            const From* from = x.data<From>();
            return cuda::map_aligned(context, "cast", walk.numel, cuda::Cast<From, To>{}, to, from);
          }
          return false;
        });
    if (queued) return;
    cuda::launch(context, {"cast", strided_blocks(context, walk), kThreads}, cast<To>, x.raw_data(),
                 x.dtype(), to, walk);
  });
}

// Values without an input ----------------------------------------------------------------------------------

template <class T> struct Constant {
  T value;
  __device__ __forceinline__ T operator()() const { return value; }
};

template <class T> struct Range {
  double start, step;
  __device__ __forceinline__ T operator()(std::int64_t i) const {
    return convert<T>(start + static_cast<double>(i) * step);
  }
};

template <class T> struct Identity {
  std::int64_t columns;
  __device__ __forceinline__ T operator()(std::int64_t i) const {
    const auto at = cuda::divide(i, columns);
    return convert<T>(at.whole == at.rest ? 1.0 : 0.0);
  }
};

template <class T, class F> __global__ void __launch_bounds__(kThreads) generate(T* y, std::int64_t n, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) y[i] = f(i);
}

template <class T, class F>
void generate_all(const CudaContext& context, const char* name, const Tensor& y, const F& f) {
  const unsigned blocks = cuda::blocks_for(context, y.numel(), kThreads);
  cuda::launch(context, {name, blocks, kThreads}, generate<T, F>, y.data<T>(), y.numel(), f);
}

}  // namespace

void copy(CudaContext& context, const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  if (x.dtype() != y.dtype()) return cast_any(context, x, y);
  dispatch_size(x.dtype(), [&]<class T>() { copy_same<T>(context, x, y); });
}

void fill(CudaContext& context, Out y, double value) {
  dispatch_any(y.dtype(), [&]<class T>() {
    cuda::map_dense(context, "fill", y.numel(), Constant<T>{convert<T>(value)}, y.data<T>());
  });
}

void add_into(CudaContext& context, const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  const Walk walk = walk_of(x, y);
  dispatch_floating(y.dtype(), "add_into", [&]<class To>() {
    To* to = y.data<To>();
    const bool queued = walk.dense() && dispatch_floating(x.dtype(), "add_into", [&]<class From>() {
                          const From* from = x.data<From>();
                          return cuda::map_aligned(context, "add_into", walk.numel, Add<From, To>{}, to, from,
                                                   static_cast<const To*>(to));
                        });
    if (queued) return;
    cuda::launch(context, {"add_into", strided_blocks(context, walk), kThreads}, add_strided<To>,
                 x.raw_data(), x.dtype(), to, walk);
  });
}

void arange(CudaContext& context, double start, double step, Out y) {
  dispatch_any(y.dtype(), [&]<class T>() { generate_all<T>(context, "arange", y, Range<T>{start, step}); });
}

void eye(CudaContext& context, Out y) {
  dispatch_any(y.dtype(), [&]<class T>() { generate_all<T>(context, "eye", y, Identity<T>{y.shape()[1]}); });
}

}  // namespace athanor::kernels
