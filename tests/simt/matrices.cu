#include "simt/tensor_core.h"
#include "tests/simt/tensor_kernels.h"

namespace simt::test {
namespace {

template <Factor kType>
__global__ void mma_kernel(const std::uint32_t* a, const std::uint32_t* b, SumOf<kType>* c) {
  const unsigned lane = threadIdx.x;
  std::uint32_t left[4];
  SumOf<kType> sums[4];
  for (unsigned i = 0; i < 4; ++i) left[i] = a[lane * 4 + i], sums[i] = c[lane * 4 + i];
  mma<kType>(sums, left, b[lane * 2], b[lane * 2 + 1]);
  for (unsigned i = 0; i < 4; ++i) c[lane * 4 + i] = sums[i];
}

__global__ void dots_kernel(int n, const std::uint32_t* a, const std::uint32_t* b, int* c) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) c[i] = dot_of_bytes(a[i], b[i], c[i]);
}

// Line l of the matrices is at l pitch bytes.
template <int kCount, bool kColumns>
__global__ void ldmatrix_kernel(unsigned pitch, const std::uint16_t* x, std::uint32_t* parts) {
  __shared__ __align__(16) unsigned char lines[32 * 256];
  auto* const line = reinterpret_cast<std::uint16_t*>(lines + threadIdx.x * pitch);
  for (unsigned i = 0; i < 8; ++i) line[i] = x[threadIdx.x * 8 + i];
  __syncwarp();
  std::uint32_t mine[kCount];
  ldmatrix<kCount, kColumns>(mine, line);  // line: ldmatrix
  for (int i = 0; i < kCount; ++i) parts[threadIdx.x * kCount + static_cast<unsigned>(i)] = mine[i];
}

__global__ void tf32_kernel(int n, const float* x, std::uint32_t* y) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) y[i] = to_tf32(x[i]);
}

// ---- planted

constexpr unsigned kWords = 128;  // 32 lines of 16 bytes

__device__ __forceinline__ void write_line(std::uint32_t* lines, unsigned line) {
  for (unsigned i = 0; i < 4; ++i) lines[line * 4 + i] = line;
}

#define NAME(name) name,
enum class Bug { SIMT_LDMATRIX_BUGS(NAME) };
#undef NAME

template <Bug kBug> __global__ void ldmatrix_bug_kernel(float* out) {
  __shared__ __align__(16) std::uint32_t lines[kWords + 2];
  __align__(16) std::uint32_t own[4] = {1, 2, 3, 4};
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x < 32) write_line(lines, lane);
  __syncwarp();
  const std::uint32_t* line = lines + lane * 4 + (kBug == Bug::ldmatrix_misaligned && lane == 5 ? 2 : 0);
  if (kBug == Bug::ldmatrix_global) line = reinterpret_cast<const std::uint32_t*>(out);
  if (kBug == Bug::ldmatrix_local) line = own;
  std::uint32_t parts[4] = {};
  if (kBug == Bug::ldmatrix_two_places && lane < 16) {
    ldmatrix<4>(parts, line);  // line: ldmatrix_other_place
  } else if (kBug != Bug::ldmatrix_divergent || lane < 16) {
    ldmatrix<4>(parts, line);  // line: ldmatrix_bug
  }
  out[threadIdx.x] = static_cast<float>(parts[0] + own[1]);
}

// On one line, as a choice between the two forms may stand.
__device__ __forceinline__ void load(bool by_rows, std::uint32_t (&parts)[4], const std::uint32_t* line) {
  by_rows ? ldmatrix<4>(parts, line) : ldmatrix<4, true>(parts, line);  // line: ldmatrix_two_forms
}
__global__ void ldmatrix_two_forms_kernel(float* out) {
  __shared__ __align__(16) std::uint32_t lines[kWords];
  write_line(lines, threadIdx.x);
  __syncwarp();
  std::uint32_t parts[4] = {};
  load(threadIdx.x < 16, parts, lines + threadIdx.x * 4);
  out[threadIdx.x] = static_cast<float>(parts[0]);
}

__global__ void ldmatrix_no_syncwarp_kernel(float* out) {
  __shared__ __align__(16) std::uint32_t lines[kWords];
  for (unsigned i = 0; i < 4; ++i) lines[threadIdx.x * 4 + i] = i;  // line: ldmatrix_no_syncwarp_write
  std::uint32_t parts[4];
  ldmatrix<4>(parts, lines + threadIdx.x * 4);  // line: ldmatrix_no_syncwarp
  out[threadIdx.x] = static_cast<float>(parts[0]);
}

__global__ void ldmatrix_columns_no_syncwarp_kernel(float* out) {
  __shared__ __align__(16) std::uint32_t lines[kWords];
  if (threadIdx.x < 8) write_line(lines, threadIdx.x);
  std::uint32_t parts[1];
  ldmatrix<1, true>(parts, lines + threadIdx.x * 4);  // line: ldmatrix_columns_no_syncwarp
  out[threadIdx.x] = static_cast<float>(parts[0]);
}

__global__ void ldmatrix_unwritten_kernel(float* out) {
  __shared__ __align__(16) std::uint32_t lines[kWords];
  if (threadIdx.x != 9) write_line(lines, threadIdx.x);
  __syncwarp();
  std::uint32_t parts[2];
  ldmatrix<2>(parts, lines + threadIdx.x * 4);  // line: ldmatrix_unwritten
  out[threadIdx.x] = static_cast<float>(parts[0]);
}

__global__ void ldmatrix_beyond_kernel(int offset, float* out) {
  auto* const lines = dynamic_shared<std::uint32_t>();
  write_line(lines, threadIdx.x);
  __syncwarp();
  std::uint32_t parts[4];
  const auto line = static_cast<int>(threadIdx.x) + (threadIdx.x == 31 ? offset : 0);
  ldmatrix<4>(parts, lines + line * 4);  // line: ldmatrix_beyond
  out[threadIdx.x] = static_cast<float>(parts[0]);
}

__global__ void mma_divergent_kernel(float* out) {
  float sums[4] = {};
  const std::uint32_t a[4] = {};
  if (threadIdx.x != 7) mma<Factor::f16>(sums, a, 0, 0);  // line: mma_divergent
  out[threadIdx.x] = sums[0];
}

template <class... P> cudaError_t warp(const char* name, void (*kernel)(P...), P... parameters) {
  return launch(nullptr, {name, 1, 32, 512}, kernel, parameters...);
}

}  // namespace

cudaError_t mma_registers(Factor type, const std::uint32_t* a, const std::uint32_t* b, float* c) {
  switch (type) {
    case Factor::f16: return warp("mma_f16", mma_kernel<Factor::f16>, a, b, c);
    case Factor::bf16: return warp("mma_bf16", mma_kernel<Factor::bf16>, a, b, c);
    case Factor::tf32: return warp("mma_tf32", mma_kernel<Factor::tf32>, a, b, c);
    case Factor::u8: break;
  }
  return cudaErrorInvalidValue;
}

cudaError_t mma_registers(const std::uint32_t* a, const std::uint32_t* b, int* c) {
  return warp("mma_u8", mma_kernel<Factor::u8>, a, b, c);
}

cudaError_t dots_of_bytes(int n, const std::uint32_t* a, const std::uint32_t* b, int* c) {
  return warp("dots_of_bytes", dots_kernel, n, a, b, c);
}

cudaError_t ldmatrix_rows(int count, bool columns, int pitch_bytes, const std::uint16_t* x,
                          std::uint32_t* parts) {
  const auto run = [&](auto kernel) {
    return warp("ldmatrix", kernel, static_cast<unsigned>(pitch_bytes), x, parts);
  };
  if (columns)
    return count == 1   ? run(ldmatrix_kernel<1, true>)
           : count == 2 ? run(ldmatrix_kernel<2, true>)
                        : run(ldmatrix_kernel<4, true>);
  return count == 1   ? run(ldmatrix_kernel<1, false>)
         : count == 2 ? run(ldmatrix_kernel<2, false>)
                      : run(ldmatrix_kernel<4, false>);
}

cudaError_t round_to_tf32(int n, const float* x, std::uint32_t* y) {
  return warp("round_to_tf32", tf32_kernel, n, x, y);
}

cudaError_t ldmatrix_beyond(int offset, float* out) {
  return warp("ldmatrix_beyond", ldmatrix_beyond_kernel, offset, out);
}
#define PLANTED(name)                                                                 \
  cudaError_t name(float* out) {                                                      \
    const unsigned threads = Bug::name == Bug::ldmatrix_of_a_part ? 52 : 32;          \
    return launch(nullptr, {#name, 1, threads}, ldmatrix_bug_kernel<Bug::name>, out); \
  }
SIMT_LDMATRIX_BUGS(PLANTED)
#undef PLANTED
#define PLANTED(name)                       \
  cudaError_t name(float* out) {            \
    return warp(#name, name##_kernel, out); \
  }
SIMT_MATRIX_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
