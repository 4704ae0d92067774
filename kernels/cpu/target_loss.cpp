#include "kernels/cpu/pair_loss.h"

namespace athanor::kernels {

ATH_TARGET_LOSSES(ATH_SPECIALISE_PAIR_LOSS)
#define ATH_SPECIALISE_OF_TARGET(Op) ATH_SPECIALISE_PAIR_LOSS_BACKWARD(OfTarget<Op>)
ATH_TARGET_LOSSES(ATH_SPECIALISE_OF_TARGET)
#undef ATH_SPECIALISE_OF_TARGET

}  // namespace athanor::kernels
