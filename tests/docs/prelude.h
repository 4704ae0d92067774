#pragma once

// What the code blocks of docs/ see.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "athanor.h"
#include "examples/athanor_tool/flight_report.h"

using namespace athanor;  // NOLINT: the chapters read like a user's program
