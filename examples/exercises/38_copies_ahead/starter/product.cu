#include "product.h"

__global__ void product(Problem problem) {
  __shared__ __align__(16) Stage stages[kStages];
  const int steps = problem.depth / kDepth;
  float sum = 0;
  for (int step = 0; step < steps; ++step) {
    start_copy(stages[0], problem, step);
    close_group();
    wait_for_all_but<0>();
    __syncthreads();
    sum = multiply(stages[0], sum);
    __syncthreads();
  }
  store(problem, sum);
}

cudaError_t multiply(const Problem& problem) {
  const dim3 grid(static_cast<unsigned>(problem.columns / kTile),
                  static_cast<unsigned>(problem.rows / kTile));
  return simt::launch(nullptr, {"product", grid, dim3(kTile, kTile)}, product, problem);
}
