#pragma once

#include <string>

#include "trainer/report/detail/page.h"

// Sections of a run's page; empty without data.

namespace athanor::report {

std::string times_section(const Record& run);
std::string memory_section(const Record& run);
std::string epochs_section(const Record& run);
std::string configuration_section(const Record& run);
std::string facts_section(const Record& run);
std::string notes_section(const Record& run);

}  // namespace athanor::report
