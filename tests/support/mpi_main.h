#pragma once

#include "dist/transports/mpi_transport.h"

namespace athanor::test {

/// This process' end. tests/support/mpi_main.cpp makes it before the tests run; rank 0 prints the results,
/// the others only what fails.
dist::MpiTransport& mpi_transport();

}  // namespace athanor::test
