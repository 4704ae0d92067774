#include "kernels/cuda/cublas_matmul.h"

#include <charconv>
#include <limits>

#include "kernels/hash.h"

namespace athanor::cublas {
namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: detail::fail<>("cuBLASLt: dtype must be f64, f32, f16 or bf16, but got {}", dtype);
  }
}

cublasComputeType_t compute_type(const MatmulSignature& z) {
  if (z.in == DType::f64) return CUBLAS_COMPUTE_64F;
  return z.in == DType::f32 && z.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

class Layout {
 public:
  /// A column-major matrix: our rows are its columns.
  Layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t ld, std::int64_t batch,
         std::int64_t batch_stride) {
    ATH_TRY(cublasLtMatrixLayoutInit(&opaque_, data_type(dtype), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), ld));
    const auto count = static_cast<std::int32_t>(batch);
    ATH_TRY(
        cublasLtMatrixLayoutSetAttribute(&opaque_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    ATH_TRY(cublasLtMatrixLayoutSetAttribute(&opaque_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &batch_stride, sizeof batch_stride));
  }
  cublasLtMatrixLayout_t get() { return &opaque_; }

 private:
  cublasLtMatrixLayoutOpaque_t opaque_{};
};

/// An operand as it lies in memory.
Layout layout_of(DType dtype, const cuda::GemmLayout::Operand& operand, std::int64_t rows,
                 std::int64_t columns, std::int64_t batch) {
  if (operand.transposed) std::swap(rows, columns);
  return Layout(dtype, rows, columns, operand.ld, batch, operand.batch_stride);
}

/// cuBLASLt's words for a signature, on the stack: made anew for every call, which costs less than a search.
struct Problem {
  Problem(const MatmulSignature& z, const void* bias)
      : a(layout_of(z.in, z.layout.a, z.layout.m, z.layout.k, z.layout.batch)),
        b(layout_of(z.in, z.layout.b, z.layout.k, z.layout.n, z.layout.batch)),
        y(z.out, z.layout.m, z.layout.n, z.layout.n, z.layout.batch, z.layout.m * z.layout.n) {
    ATH_TRY(
        cublasLtMatmulDescInit(&operation, compute_type(z), z.in == DType::f64 ? CUDA_R_64F : CUDA_R_32F));
    // The first factor is our b.
    set(CUBLASLT_MATMUL_DESC_TRANSA, z.layout.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, z.layout.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!z.bias) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(z.out));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  template <class T> void set(cublasLtMatmulDescAttributes_t name, const T& value) {
    ATH_TRY(cublasLtMatmulDescSetAttribute(&operation, name, &value, sizeof value));
  }

  cublasLtMatmulDescOpaque_t operation{};
  Layout a, b, y;
};

/// An address as aligned as the bias will be, all that a search asks of it.
const void* like_bias(const MatmulSignature& z) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(z.alignment[3]));
}

class Preference {
 public:
  explicit Preference(const MatmulSignature& z) {
    ATH_TRY(cublasLtMatmulPreferenceInit(&opaque_));
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, z.workspace_bytes);
    // Not in the type of y, nor in y itself.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(z.alignment[1]));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(z.alignment[0]));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(z.alignment[2]));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(z.alignment[2]));
  }
  cublasLtMatmulPreference_t get() { return &opaque_; }

 private:
  template <class T> void set(cublasLtMatmulPreferenceAttributes_t name, const T& value) {
    ATH_TRY(cublasLtMatmulPreferenceSetAttribute(&opaque_, name, &value, sizeof value));
  }
  cublasLtMatmulPreferenceOpaque_t opaque_{};
};

constexpr std::size_t kWords = std::size(cublasLtMatmulAlgo_t{}.data);

}  // namespace

std::size_t MatmulSignature::hash() const {
  kernels::HashOf hash;
  hash.add(layout.m, layout.n, layout.k, layout.batch, layout.a.ld, layout.a.batch_stride,
           layout.a.transposed, layout.b.ld, layout.b.batch_stride, layout.b.transposed);
  for (const auto bytes : alignment) hash.add(bytes);
  hash.add(workspace_bytes, in, out, bias, accumulate, tf32, deterministic, after, bias_after);
  return static_cast<std::size_t>(hash.value());
}

std::string MatmulSignature::str() const {
  const auto& z = layout;
  std::string text = fmt::format(
      "matmul {} {}{}{}{}{} m {} n {} k {} batch {} a {}{} {} b {}{} {} alignment {},{},{},{} workspace {}",
      in, out, bias ? " bias" : "", accumulate ? " accumulate" : "", tf32 ? " tf32" : "",
      deterministic ? " deterministic" : "", z.m, z.n, z.k, z.batch, z.a.transposed ? "t" : "", z.a.ld,
      z.a.batch_stride, z.b.transposed ? "t" : "", z.b.ld, z.b.batch_stride, alignment[0], alignment[1],
      alignment[2], alignment[3], workspace_bytes);
  if (bias_after) text += " then bias";
  if (after != Activation::none) text += fmt::format(" then activation {}", static_cast<int>(after));
  return text;
}

Handle::Handle() {
  ATH_TRY(cublasLtCreate(&native_));
}
Handle::~Handle() {
  cublasLtDestroy(native_);
}

std::int64_t version() {
  return static_cast<std::int64_t>(cublasLtGetVersion());
}

std::vector<Algorithm> propose(const Handle& handle, const MatmulSignature& signature, std::size_t most) {
  if (signature.layout.batch > std::numeric_limits<std::int32_t>::max()) return {};
  Problem problem(signature, like_bias(signature));
  Preference preference(signature);
  std::vector<cublasLtMatmulHeuristicResult_t> results(most);
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle.native(), &problem.operation, problem.b.get(), problem.a.get(), problem.y.get(), problem.y.get(),
      preference.get(), static_cast<int>(most), results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  ATH_TRY(status);
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({result.algo, result.workspaceSize});
  }
  return algorithms;
}

std::string write(const Algorithm& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.native.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<Algorithm> read(const Handle& handle, const MatmulSignature& signature, std::string_view text) {
  constexpr std::size_t kDigits = 16;
  if (text.size() != kWords * kDigits) return std::nullopt;
  Algorithm algorithm;
  for (std::size_t i = 0; i < kWords; ++i) {
    const char* const begin = text.data() + i * kDigits;
    const auto parsed = std::from_chars(begin, begin + kDigits, algorithm.native.data[i], 16);
    if (parsed.ec != std::errc{} || parsed.ptr != begin + kDigits) return std::nullopt;
  }
  Problem problem(signature, like_bias(signature));
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(handle.native(), &problem.operation, problem.b.get(), problem.a.get(),
                              problem.y.get(), problem.y.get(), &algorithm.native,
                              &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > signature.workspace_bytes)
    return std::nullopt;
  algorithm.workspace_bytes = result.workspaceSize;
  return algorithm;
}

void run(const Handle& handle, const MatmulSignature& z, const Algorithm& algorithm, const Operands& at,
         void* workspace, void* stream) {
  Problem problem(z, at.bias);
  const float alpha = at.alpha, beta = z.accumulate ? at.beta : 0;
  const double alpha64 = alpha, beta64 = beta;
  const bool wide = z.in == DType::f64;
  ATH_TRY(cublasLtMatmul(
      handle.native(), &problem.operation, wide ? static_cast<const void*>(&alpha64) : &alpha, at.b,
      problem.b.get(), at.a, problem.a.get(), wide ? static_cast<const void*>(&beta64) : &beta,
      z.accumulate ? at.c : at.y, problem.y.get(), at.y, problem.y.get(), &algorithm.native, workspace,
      algorithm.workspace_bytes, static_cast<cudaStream_t>(stream)));
}

}  // namespace athanor::cublas
