#include "kernels/random.h"

#include "kernels/account/detail/cost.h"

namespace athanor::kernels {

using account::map;

template <> void random_uniform(AccountContext& context, RandomKey, double, double, const Tensor& y) {
  map(context, "rand", 0, y);
}
template <> void random_normal(AccountContext& context, RandomKey, double, double, const Tensor& y) {
  map(context, "randn", 0, y);
}
template <>
void random_integers(AccountContext& context, RandomKey, std::int64_t, std::int64_t, const Tensor& y) {
  map(context, "randint", 0, y);
}

}  // namespace athanor::kernels
