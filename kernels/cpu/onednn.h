#pragma once

namespace athanor::cpu {

/// oneDNN primitives by signature; one is created the first time its shapes are met and lives on.
class PrimitiveCache {};

}  // namespace athanor::cpu
