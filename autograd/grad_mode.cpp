#include "autograd/grad_mode.h"

constinit thread_local bool athanor::detail::grad_on = true, athanor::detail::inference_on = false,
                            athanor::detail::recomputing_on = false, athanor::detail::fusion_on = true;
constinit thread_local const athanor::PackedModel* athanor::detail::packed_model = nullptr;
