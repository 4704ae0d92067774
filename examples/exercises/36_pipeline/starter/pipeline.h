#pragma once

#include <vector>

struct Work {
  char pass;  // 'F' or 'B'
  int micro_batch;
  bool operator==(const Work&) const = default;
};
using Plan = std::vector<Work>;

inline Plan forwards_first(int micro_batches) {
  Plan plan;
  for (int i = 0; i < micro_batches; ++i) plan.push_back({'F', i}), plan.push_back({'B', i});
  return plan;
}

inline Plan one_forward_one_backward(int stages, int stage, int micro_batches) {
  (void)stages, (void)stage;
  return forwards_first(micro_batches);
}

inline int turns(const std::vector<Plan>& plans) {
  (void)plans;
  return 0;
}

inline int most_kept(const Plan& plan) {
  (void)plan;
  return 0;
}
