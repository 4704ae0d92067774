#include <chrono>
#include <future>
#include <latch>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "examples/serve/answers.h"
#include "examples/serve/batcher.h"
#include "examples/serve/metrics.h"
#include "examples/serve/multipart.h"
#include "examples/serve/service.h"
#include "support/image_files.h"
#include "support/says.h"
#include "support/temp_dir.h"
