#pragma once

#include <cstdint>

#include "simt/swizzle.h"

#if defined(__CUDACC__)
#include <atomic>

#include <cuda.h>
#endif

namespace simt {

enum class TensorType : unsigned char { u8, f16, bf16, f32 };

/// A tensor in global memory and the tiles it is copied by, as make_tensor_map() encodes it: 128 bytes.
#if defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
struct TensorMap {
  std::uint64_t words[16];
};
#endif

/// What a tensor map says. Axis 0 is dense; strides are those of the other axes, in bytes.
struct TensorLayout {
  static constexpr int kMaxAxes = 5;
  TensorType type = TensorType::f16;
  int rank = 2;                         ///< 1 to 5
  void* data = nullptr;                 ///< a multiple of 16
  std::uint64_t size[kMaxAxes] = {};    ///< elements, up to 2^32
  std::uint64_t stride[kMaxAxes] = {};  ///< from [1]: multiples of 16, below 2^40
  std::uint32_t tile[kMaxAxes] = {};    ///< elements, up to 256; of axis 0 a multiple of 16 bytes
  Swizzle swizzle = Swizzle::none;      ///< whose bytes a row of the tile must not exceed
};

/// On the host. Elements outside of the tensor are read as zero.
cudaError_t make_tensor_map(TensorMap* map, const TensorLayout& layout);

#if defined(__CUDACC__)
namespace detail {

using EncodeTiled = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                             const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                             CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// A function of the driver, which programs are not linked to. Looked up once.
inline cudaError_t find_encode_tiled(EncodeTiled** encode) {
  static std::atomic<EncodeTiled*> known = nullptr;
  *encode = known.load(std::memory_order_relaxed);
  if (*encode) return cudaSuccess;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  if (status != cudaSuccess) return status;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  *encode = reinterpret_cast<EncodeTiled*>(entry);
  known.store(*encode, std::memory_order_relaxed);
  return cudaSuccess;
}

}  // namespace detail

inline cudaError_t make_tensor_map(TensorMap* map, const TensorLayout& layout) {
  static constexpr CUtensorMapDataType kTypes[] = {
      CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      CU_TENSOR_MAP_DATA_TYPE_FLOAT32};
  static constexpr CUtensorMapSwizzle kSwizzles[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                                     CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B};
  detail::EncodeTiled* encode = nullptr;
  if (const cudaError_t status = detail::find_encode_tiled(&encode); status != cudaSuccess) return status;
  static constexpr cuuint32_t kEach[TensorLayout::kMaxAxes] = {1, 1, 1, 1, 1};
  cuuint64_t size[TensorLayout::kMaxAxes], stride[TensorLayout::kMaxAxes];
  for (int i = 0; i < layout.rank; ++i) size[i] = layout.size[i], stride[i] = layout.stride[i];
  const CUresult result =
      encode(map, kTypes[static_cast<int>(layout.type)], static_cast<cuuint32_t>(layout.rank), layout.data,
             size, stride + 1, layout.tile, kEach, CU_TENSOR_MAP_INTERLEAVE_NONE,
             kSwizzles[static_cast<int>(layout.swizzle)], CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
#endif

}  // namespace simt
