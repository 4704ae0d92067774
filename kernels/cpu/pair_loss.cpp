#include "kernels/cpu/pair_loss.h"

namespace athanor::kernels {

ATH_DISTANCES(ATH_SPECIALISE_PAIR_LOSS)

}  // namespace athanor::kernels
