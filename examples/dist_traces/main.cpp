// Data for the figures of the chapters on several ranks, as JSON: dist_traces NAME. docs/figures/draw.py
// draws them.

#include <cstdio>
#include <string_view>

#include "examples/dist_traces/traces.h"
#include "tensor/base/error.h"
#include "trainer/run_main.h"

namespace athanor::examples {
namespace {

nlohmann::json trace(std::string_view name) {
  if (name == "ring") return ring_trace();
  if (name == "data_parallel_bytes") return bytes_trace();
  if (name == "zero1_layout") return layout_trace();
  if (name == "overlap") return overlap_trace();
  detail::fail<>("dist_traces: '{}' must be one of ring, data_parallel_bytes, zero1_layout, overlap", name);
}

int run(int argc, char** argv) {
  ATH_CHECK(argc == 2, "dist_traces: expected one of ring, data_parallel_bytes, zero1_layout, overlap");
  fmt::print("{}\n", trace(argv[1]).dump());
  return kExitDone;
}

}  // namespace
}  // namespace athanor::examples

int main(int argc, char** argv) {
  return athanor::run_main(argc, argv, athanor::examples::run);
}
