#pragma once

#include <string>

#include "kernels/cuda/context.h"
#include "kernels/cuda/implementation.h"
#include "kernels/detail/matmul_plan.h"
#include "kernels/matmul.h"

// The products of matrices of a GPU, in one list. (What the vendor's and ours cost is in account/matmul.cpp:
// all of ours cost the same.)

namespace athanor::cuda {

/// The operands of kernels::matmul and matmul_add: y = activation(alpha a b + bias), or alpha a b + beta c.
struct MatmulCall {
  static constexpr const char *kOp = "matmul", *kImpl = "MatmulImpl";

  MatmulImpl impl;
  const Tensor &a, &b, &bias;
  Activation activation;
  const Tensor& y;
  const Tensor& c;  ///< like y, or y itself; undefined: nothing is added
  float alpha = 1, beta = 1;

  bool accumulates() const { return c.defined() && c.raw_data() == y.raw_data(); }
  /// The same with its result in another tensor, which is also what is added to.
  MatmulCall with(MatmulImpl by, const Tensor& to) const {
    return {by, a, b, bias, activation, to, accumulates() ? to : c, alpha, beta};
  }
  /// Whether there is nothing to multiply: what our own kernels do, whoever is asked for.
  bool empty() const { return a.numel() == 0 || b.numel() == 0; }
  MatmulImpl asked() const { return empty() ? MatmulImpl::reference : impl; }
  MatmulPlan plan() const { return {a, b, y}; }
  std::string str() const { return fmt::format("{} {} x {}", a.dtype(), a.shape(), b.shape()); }
};

/// By cuBLASLt (vendor_matmul.cpp), where strides and dtypes are its.
bool vendor_fits(CudaContext& context, const MatmulCall& call);
bool vendor_matmul(CudaContext& context, const MatmulCall& call);

/// By Hopper's wgmma: with factors of a half type whose lines begin at multiples of 16 bytes, in at most one
/// batch.
bool wgmma_fits(CudaContext& context, const MatmulCall& call);
/// Whether the product has tiles for the whole GPU without cutting its depth.
bool wgmma_is_worth_it(CudaContext& context, const MatmulCall& call);
bool wgmma_matmul(CudaContext& context, const MatmulCall& call);

inline bool mma_fits(CudaContext&, const MatmulCall& call) {
  return is_half(call.a.dtype());
}
inline bool fma_fits(CudaContext&, const MatmulCall& call) {
  return !is_half(call.a.dtype());
}
/// By the kernels of gemm.h, which are products of tensor cores for half types, and of multiply-adds for
/// others.
bool gemm_matmul(CudaContext& context, const MatmulCall& call);

/// In order of preference. HACKING.md shows how to add one.
inline constexpr Implementation<CudaContext, MatmulImpl, MatmulCall> kMatmuls[] = {
    {"vendor", MatmulImpl::vendor, "a build with cuBLASLt, and an algorithm of cuBLASLt's", vendor_fits,
     vendor_matmul},
    {"wgmma", MatmulImpl::wgmma,
     "sm_90, code for sm_90a, and half factors whose lines and batches are multiples of 16 bytes apart",
     wgmma_fits, wgmma_matmul, wgmma_is_worth_it},
    {"mma", MatmulImpl::mma, "factors of f16 or bf16", mma_fits, gemm_matmul},
    {"fma", MatmulImpl::reference, "", fma_fits, gemm_matmul},
};

}  // namespace athanor::cuda
