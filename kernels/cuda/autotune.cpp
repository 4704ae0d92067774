#include "kernels/cuda/autotune.h"

#include <algorithm>
#include <array>

#include <cuda_runtime.h>

#include "kernels/cuda/context.h"
#include "kernels/cuda/plan_choice.h"
#include "kernels/matmul.h"
#include "tensor/cuda/runtime.h"

namespace athanor::cuda {

void check(const VendorOptions& options) {
  ATH_CHECK(options.candidates >= 1, "vendor options: candidates must be 1 or more, but got {}",
            options.candidates);
}

Stopwatch::Stopwatch(CudaContext& context) : context_(context), stream_(current_stream(context.device())) {
  constexpr std::int64_t kColumns = 1024;
  const auto l2_bytes = static_cast<std::int64_t>(device_info(context.device()).l2_bytes);
  const AllocTag tag("workspace");
  const TensorOptions options{DType::f32, context.device()};
  flush_ = Tensor::empty({2 * std::max<std::int64_t>(l2_bytes, 1 << 20) / (4 * kColumns), kColumns}, options);
  sums_ = Tensor::empty({kColumns}, options);
  for (int i = 0; i < kRuns; ++i) {
    begin_.emplace_back(context.device(), Event::Timing::on);
    end_.emplace_back(context.device(), Event::Timing::on);
  }
}

void Stopwatch::flush_cache() const {
  kernels::column_sums(context_, flush_, sums_, Write::overwrite);
}

double Stopwatch::median() const {
  std::array<double, kRuns> ms;
  for (std::size_t i = 0; i < kRuns; ++i) ms[i] = elapsed(static_cast<int>(i));
  std::nth_element(ms.begin(), ms.begin() + kRuns / 2, ms.end());
  return ms[kRuns / 2];
}

TuningTime::TuningTime(const CudaContext& context, VendorLog& log, const std::filesystem::path& folder,
                       bool measures)
    : log_(log), folder_(folder), before_s_(log.stats.tuning_s) {
  if (measures) {
    const AllowSync planning;
    detail::Trouble().attempt([&] { current_stream(context.device()).synchronize(); });
  }
  began_ = Clock::now();
}

bool is_capturing(const CudaContext& context) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ATH_TRY(cudaStreamIsCapturing(static_cast<cudaStream_t>(context.native_stream()), &status));
  return status != cudaStreamCaptureStatusNone;
}

void detail::report(const Planner& planner, const std::string& signature, const Trouble& trouble,
                    std::size_t tried, Runs runs) {
  const bool any = trouble.refused > 0 || trouble.without_memory > 0;
  // Without memory for a workspace, another plan does.
  if (!any || (runs != Runs::own && trouble.refused == 0)) return;
  const std::string what =
      tried == 0 ? std::string("no plan could be made")
      : trouble.refused == 0
          ? fmt::format("none of {} plans had room for its workspace", tried)
          : fmt::format("{} of {} plans were refused when they ran", trouble.refused, tried);
  const char* const then = runs == Runs::plan ? "another runs"
                           : runs == Runs::another_signature
                               ? "it is done in two parts"
                               : "our own kernel runs, which may be many times slower";
  planner.log.add(signature, {.refused = trouble.refused > 0, .fell_back = runs == Runs::own},
                  fmt::format("{}, and {}: {}; {} ({})", what, then, trouble.first,
                              trouble.refused > 0 ? "check that driver and libraries belong together"
                                                  : "use a smaller batch",
                              planner.folder.made_by()));
}

}  // namespace athanor::cuda
