#pragma once

#include <functional>
#include <optional>
#include <span>

#include "kernels/conv_choices.h"
#include "kernels/cpu/primitive_cache.h"
#include "kernels/impl.h"

// The table behind kernels/conv_choices.h, for kernels/cpu/conv.cpp. Of a key, only pass, dtypes, threads and
// sizes matter.

namespace athanor::cpu {

/// The measured choice, if there is one.
std::optional<ConvImpl> chosen_conv(const PrimitiveKey& key);
/// Whether this thread is in the scope of a MeasureConvs.
bool measures_convs();
/// Chooses among `impls`, of which the first is the rule's, by timing run(impl).
ConvImpl choose_conv(const PrimitiveKey& key, std::span<const ConvImpl> impls,
                     const std::function<void(ConvImpl)>& run);

}  // namespace athanor::cpu
